"""Tokens to their experts and back as a plan: an all-to-all with counts, in one level or in two.

In one level each choice of a token is a row that goes straight to the rank of its expert. In two levels a token goes
once to each node that has an expert of it, to the rank there with the number in its node that the sender has, and from
that rank to the experts' ranks (Liu et al. 2024, arXiv:2412.19437, section 3.2.2). Results come back the same way, a
row for each choice: they are added where the token is from, in the order of its choices, with the bits of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.protocol import NOTHING, Claim, Ends, Ints, Step


@dataclass(frozen=True, eq=False)
class DispatchPlan:
    """Tokens of all ranks on their way to experts, and the experts' results on their way back.

    homes: int64[ranks, tokens, choices], the rank of the expert of each choice; NOTHING for a token that is not there.
    node_size: ranks of a node; the ranks of one stand together. 0: one level. itemsize: bytes of a token. combine:
    whether results come back; each choice's result is data of its own.

    Cells of a rank: its tokens; relayed tokens; rows for its experts; their results; relayed results; results of its
    own choices.
    """

    homes: Ints
    node_size: int = 0
    itemsize: float = 4.0
    combine: bool = True

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.homes)

    @property
    def _node(self) -> int:
        return self.node_size or 1

    def title(self) -> str:
        """What it is, in a few words."""
        how = f" over nodes of {self.node_size}" if self.node_size else ""
        return f"dispatch of {int((self.homes >= 0).any(axis=2).sum())} tokens to experts on {self.ranks} ranks{how}"

    def _rows(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Every choice: rank, token and number of the choice, and the rank of its expert; in this order."""
        rank, token, choice = np.nonzero(self.homes >= 0)
        return rank, token, choice, self.homes[rank, token, choice]

    def relays(self) -> tuple[Ints, Ints, Ints]:
        """What goes between nodes: rank, token, and the rank to which it goes, each token once a node."""
        rank, token, _, home = self._rows()
        twin = home // self._node * self._node + rank % self._node
        found = np.unique(np.stack([rank, twin, token]), axis=1)
        return found[0], found[2], found[1]

    def sent(self) -> dict[str, int]:
        """Rows that leave a rank, by what they are: to other nodes and within nodes, and those of one level."""
        rank, _, _, home = self._rows()
        node = self._node
        if not self.node_size:
            return {"rows": int((rank != home).sum())}
        source, _, twin = self.relays()
        through = home // node * node + rank % node
        return {
            "between nodes": int((source // node != twin // node).sum()),
            "within nodes": int((through != home).sum()),
            "between nodes in one level": int((rank // node != home // node).sum()),
        }

    def _places(self) -> tuple[Ints, ...]:
        """The offsets of the six ranges of cells, and the cell of each row in each of them."""
        rank, token, choice, home = self._rows()
        _, tokens, choices = self.homes.shape
        source, relayed, twin = self.relays()
        at_twin = _numbered(twin, source * tokens + relayed)  # in the order of source and token
        through = home // self._node * self._node + rank % self._node
        at_home = _numbered(home, through * self.ranks * tokens * choices + (rank * tokens + token) * choices + choice)
        at_relay = _numbered(through, (rank * tokens + token) * choices + choice)
        most = [tokens, *(int(np.bincount(at, minlength=self.ranks).max(initial=0)) for at in (twin, home, home))]
        most += [int(np.bincount(through, minlength=self.ranks).max(initial=0)), tokens * choices]
        if not self.node_size:
            most[1] = most[4] = 0
        first = np.cumsum([0, *most])
        return first, at_twin, at_home, at_relay, through

    def steps(self) -> Iterator[Step]:
        """Between nodes, then within them, and back."""
        rank, token, choice, home = self._rows()
        first, at_twin, at_home, at_relay, through = self._places()
        tokens, choices = self.homes.shape[1:]
        mine = first[5] + token * choices + choice
        if not self.node_size:
            yield self._step(rank, first[0] + token, home, first[2] + at_home, "dispatch")
            if self.combine:
                yield self._step(home, first[3] + at_home, rank, mine, "combine")
            return
        source, relayed, twin = self.relays()
        yield self._step(source, first[0] + relayed, twin, first[1] + at_twin, "dispatch between nodes")
        key = (source * self.ranks + twin) * tokens + relayed
        order = np.argsort(key)
        where = order[np.searchsorted(key[order], (rank * self.ranks + through) * tokens + token)]
        yield self._step(through, first[1] + at_twin[where], home, first[2] + at_home, "dispatch within nodes")
        if self.combine:
            yield self._step(home, first[3] + at_home, through, first[4] + at_relay, "combine within nodes")
            yield self._step(through, first[4] + at_relay, rank, mine, "combine between nodes")

    def _step(self, sender: Ints, given: Ints, receiver: Ints, taken: Ints, name: str) -> Step:
        """One message from each rank to each other one: the rows in the order of their sources."""
        order = np.lexsort((np.arange(len(sender)), receiver, sender))
        sender, given, receiver, taken = (each[order] for each in (sender, given, receiver, taken))
        begins = np.flatnonzero(np.diff(sender * self.ranks + receiver, prepend=-1))
        ends = np.append(begins[1:], len(sender))[: len(begins)]
        peers, own = receiver[begins], sender[begins]
        return Step(
            Ends(peers, begins, ends, own, cells=given),
            Ends(own, begins, ends, peers, cells=taken),
            itemsize=self.itemsize,
            name=name,
            texts=lambda: list(map(str, (ends - begins).tolist())),
        )

    def claim(self) -> Claim:
        """Each expert's rank holds its tokens, and each rank the results of its own tokens' choices.

        Raises `PlanError` for homes that are not ranks.
        """
        homes = self.homes
        if np.ndim(homes) != 3 or homes.dtype.kind not in "iu" or homes.min(initial=0) < NOTHING:
            raise PlanError("the experts of a dispatch are ranks, int64[ranks, tokens, choices]")
        if homes.max(initial=0) >= self.ranks or self.node_size < 0 or (self.node_size and self.ranks % self.node_size):
            raise PlanError(f"a dispatch on {self.ranks} ranks, of which {self.node_size} share a node")
        rank, token, choice, home = self._rows()
        first, _, at_home, _, _ = self._places()
        _, tokens, choices = homes.shape
        start = np.full((self.ranks, int(first[-1])), NOTHING)
        end = np.full_like(start, NOTHING)
        start[:, :tokens] = np.arange(self.ranks)[:, None] * tokens + np.arange(tokens)
        end[home, first[2] + at_home] = rank * tokens + token
        if self.combine:
            result = self.ranks * tokens + (rank * tokens + token) * choices + choice
            start[home, first[3] + at_home] = result
            end[rank, first[5] + token * choices + choice] = result
        fixed = np.zeros(start.shape, np.bool_)
        fixed[:, :tokens] = True
        return Claim(start, end, fixed=fixed, index_name=lambda index: f"row {index}")


def _numbered(group: Ints, key: Ints) -> Ints:
    """The place of each entry among those of its group, in the order of the keys."""
    order = np.lexsort((key, group))
    sizes = np.bincount(group)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - starts
    return places
