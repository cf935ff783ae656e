"""Messages that are under way together: how links are shared, and when each message has left.

Each message has the same share of an adapter, an uplink or a bus as the others on it, as far as it can use that: the
max-min fairness of Bertsekas and Gallager 1992, section 6.5, as packets of several connections leave in turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.plan.protocol import Floats, Ints

# Messages that begin or end within this share of the time since the first one began do so at once for the others.
MERGED = 2e-3
ROUNDING = 1e-12


class Links(NamedTuple):
    """Which links messages take. number: int64[n, k], from 0; load: float64[n, k], of each link's capacity what the
    message takes if it is alone on all, 0 where it has fewer.
    """

    number: Ints
    load: Floats

    def of(self, chosen: Ints) -> Links:
        """Those of some messages."""
        return Links(self.number[chosen], self.load[chosen])


def leave(begin: Floats, alone: Floats, links: Links) -> Floats:
    """When each message has left, s. begin: float64[n]; alone: float64[n], s that it takes alone.

    Messages that share no link, directly or through others, do not wait for each other: each group has its own time.
    """
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
        number, load = links.of(rest)
        wanted = np.bincount(number.ravel(), load.ravel(), count)
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
        taken = np.bincount(number[settled].ravel(), (load[settled] * mine[settled, None]).ravel(), count)
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
