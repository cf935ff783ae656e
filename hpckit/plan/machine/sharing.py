"""Messages that are under way together: how links are shared, and when each message has left.

Each message has the same share of an adapter, an uplink or a bus as the others on it, as far as it can use that: the
max-min fairness of Bertsekas and Gallager 1992, section 6.5, as packets of several connections leave in turn.

Most messages of a step are alike: they begin at once, and those that they share links with are alike, and so on. One of
each kind is looked at for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.plan.protocol import Floats, Ints

Numbers = npt.NDArray[np.uint64]

# Messages that begin or end within this share of the time since the first one began do so at once for the others.
MERGED = 2e-3
ROUNDING = 1e-12
FEW = 512  # messages of which none is looked at for others
HALF = 26  # bits of a sum that is exact in a float64 for as many numbers
SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Links(NamedTuple):
    """Which links messages take. number: int64[n, k], from 0; load: float64[n, k], of each link's capacity what the
    message takes if it is alone on all, 0 where it has fewer. alike: float64[n, k], how many messages of that link each
    stands for; 1.0: for itself.
    """

    number: Ints
    load: Floats
    alike: Floats | float = 1.0

    def of(self, chosen: Ints) -> Links:
        """Those of some messages."""
        alike = self.alike if isinstance(self.alike, float) else self.alike[chosen]
        return Links(self.number[chosen], self.load[chosen], alike)


def leave(begin: Floats, alone: Floats, links: Links) -> Floats:
    """When each message has left, s. begin: float64[n]; alone: float64[n], s that it takes alone.

    Messages that share no link, directly or through others, do not wait for each other: each group has its own time.
    """
    if len(begin) <= FEW:
        return _left(begin, alone, links)
    one, kind, some = _kinds(begin, alone, links)
    return _left(begin[one], alone[one], some)[kind]


def _kinds(begin: Floats, alone: Floats, links: Links) -> tuple[Ints, Ints, Links]:
    """A message of each kind, the kind of each message, and the links between kinds.

    Messages and links are refined in turn, until no kind is cut further (McKay 1981, "Practical graph isomorphism"): on
    alike links there are as many messages of each kind. Links of a kind become one, which its messages take together.
    """
    number, load = links.number, links.load
    count, taken = int(number.max(initial=0)) + 1, load > 0
    loads = load.T.copy().view(np.uint64)
    own = _mixed(begin.view(np.uint64), alone.view(np.uint64), *loads)
    kinds = 0
    while True:
        _, one, kind = np.unique(own, return_index=True, return_inverse=True)
        if len(one) == kinds:
            break
        kinds, sums = len(one), np.zeros(count, np.uint64)
        each = np.stack([_mixed(own, column) for column in loads], axis=1)[taken]
        for half in (each & np.uint64((1 << HALF) - 1), each >> np.uint64(64 - HALF)):  # exact in any order
            sums = _mixed(sums, np.bincount(number[taken], half.astype(np.float64), count).view(np.uint64))
        own = _mixed(
            own, *(np.where(used, sums[column], np.uint64(0)) for column, used in zip(number.T, taken.T, strict=True))
        )
    _, link = np.unique(sums, return_inverse=True)
    of_kind = np.bincount(link, np.bincount(number[taken], minlength=count) > 0)  # links that messages take
    messages = np.bincount(kind)[:, None] / np.maximum(of_kind[link[number[one]]], 1)
    return one, kind, Links(link[number[one]], load[one], messages)


def _mixed(*columns: Numbers) -> Numbers:
    """A random number of 64 bits for each row of numbers, the same for the same row (Steele et al. 2014, SplitMix)."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) + SPREAD[0]
        found = (found ^ (found >> np.uint64(30))) * SPREAD[1]
        found = (found ^ (found >> np.uint64(27))) * SPREAD[2]
        found ^= found >> np.uint64(31)
    return found


def _left(begin: Floats, alone: Floats, links: Links) -> Floats:
    """`leave`, message by message."""
    end, left, group = begin.copy(), alone.copy(), _groups(links)
    on = np.flatnonzero(alone > 0)
    on = on[np.argsort(group[on], kind="stable")]
    first = np.full(int(group.max(initial=0)) + 1, np.inf)
    np.minimum.at(first, group[on], begin[on])
    now = first.copy()
    while on.size:
        of = group[on]
        heads = np.flatnonzero(np.diff(of, prepend=-1))
        each, at = of[heads], np.cumsum(np.diff(of, prepend=of[0]) != 0)
        here = begin[on] <= (now * (1 + ROUNDING))[of]
        following = np.minimum.reduceat(np.where(here, np.inf, begin[on]), heads)
        idle = ~np.logical_or.reduceat(here, heads)
        if idle.any():
            now[each[idle]] = following[idle]
            continue
        need = np.full(on.size, np.inf)
        share = _shares(links.of(on[here]))
        need[here] = left[on[here]] / share
        least = np.minimum.reduceat(need, heads)
        begun = now[each]
        soon = begun + MERGED * (begun + least - first[each])
        until = np.maximum(np.minimum(begun + least, following), soon)
        span = (until - begun)[at]
        done = need <= span * (1 + ROUNDING)
        end[on[done]] = begun[at[done]] + need[done]
        left[on[here]] = np.maximum(left[on[here]] - share * span[here], 0.0)
        now[each] = until
        on = on[~done]
    return end


def _shares(links: Links) -> Floats:
    """Of its time alone what each of some messages gets, at most 1."""
    share, rest = np.ones(len(links.number)), np.arange(len(links.number))
    count = int(links.number.max(initial=0)) + 1
    free = np.ones(count)
    while rest.size:
        number, load, alike = links.of(rest)
        wanted = np.bincount(number.ravel(), (load * alike).ravel(), count)
        level = np.divide(free, wanted, out=np.full(count, np.inf), where=wanted > 0)
        own = np.where(load > 0, level[number], np.inf)
        mine = np.minimum(own.min(axis=1), 1.0)
        # A link sets the pace of all its messages if none of them is held up more by another.
        lowest = np.full(count, np.inf)
        for column in number.T:
            np.minimum.at(lowest, column, mine)
        settled = (own <= lowest[number] * (1 + ROUNDING)).any(axis=1) | (mine >= 1.0)
        share[rest[settled]] = mine[settled]
        if settled.all():
            break
        part = (load * alike)[settled] * mine[settled, None]
        taken = np.bincount(number[settled].ravel(), part.ravel(), count)
        free = np.maximum(free - taken, 0.0)
        rest = rest[~settled]
    return share


def _groups(links: Links) -> Ints:
    """A number of each message, the same for those that share links, directly or through others."""
    label = np.arange(int(links.number.max(initial=0)) + 1)
    taken = links.load > 0
    while True:
        own = np.where(taken, label[links.number], len(label)).min(axis=1, initial=len(label))
        before = label.copy()
        for column, used in zip(links.number.T, taken.T, strict=True):
            np.minimum.at(label, column[used], own[used])
        label = label[label]
        if (label == before).all():
            return own
