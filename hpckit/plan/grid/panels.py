"""Six panels of a cubed sphere as a plan: which cells each rank needs from beyond the borders of its blocks.

A panel is a square of n x n cells on one face of a cube. Beyond an edge of the cube the next panel begins, whose rows
may run the other way, or along its other axis: the halo turns at the seam. Seen from a panel, its sides are WEST and
EAST (x low and high), SOUTH and NORTH (y low and high), and `along` counts cells along a side.

At a seam the lines of cells have a kink. Which cells stand on the straight continuation of a line is a matter of
interpolation along the rows of the next panel, so that a rank needs these rows, and as many of its own, a little beyond
both ends of its side: `REACH` cells. Between blocks of one panel, only the next rows are needed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.protocol import NOTHING, Claim, Ends, Ints, Step

PANELS = 6
WIDTH = 3  # rows beyond a side
REACH = 6  # cells beyond the ends of a side at a seam, for interpolation along it
WEST, EAST, SOUTH, NORTH = range(4)

# Of each panel: the unit vectors to its middle, along x and along y. The first four surround the equator.
FRAMES = np.array(
    [
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0, 1, 0], [-1, 0, 0], [0, 0, 1]],
        [[-1, 0, 0], [0, -1, 0], [0, 0, 1]],
        [[0, -1, 0], [1, 0, 0], [0, 0, 1]],
        [[0, 0, 1], [0, 1, 0], [-1, 0, 0]],
        [[0, 0, -1], [0, 1, 0], [1, 0, 0]],
    ]
)


class Seam(NamedTuple):
    """What lies beyond a side of a panel: a side of another one, which may count cells the other way."""

    panel: int
    side: int
    turned: bool


class PanelStrip(NamedTuple):
    """The rows that a rank needs at one side of one of its panels.

    seam: whether another panel lies beyond. first: where they stand in the rank's buffer, WIDTH rows of `length` cells,
    the nearest first; at a seam as many rows of the panel's own follow. start: of the cells along the side.
    """

    seam: bool
    first: int
    start: int
    length: int


@functools.cache
def seams() -> tuple[tuple[Seam, ...], ...]:
    """For each panel what lies beyond each side, from the corners of the cube that sides share."""
    ends = [[_ends(panel, side) for side in range(4)] for panel in range(PANELS)]
    places = [(panel, side) for panel in range(PANELS) for side in range(4)]

    def beyond(panel: int, side: int) -> Seam:
        own = ends[panel][side]
        for other, its in places:
            if other != panel and ends[other][its] in (own, own[::-1]):
                return Seam(other, its, ends[other][its] != own)
        raise AssertionError("an edge of a cube belongs to two faces")

    return tuple(tuple(beyond(panel, side) for side in range(4)) for panel in range(PANELS))


def _ends(panel: int, side: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The corners of the cube at both ends of a side, in the order of its cells."""
    middle, x, y = FRAMES[panel]
    across, along = (x, y) if side in (WEST, EAST) else (y, x)
    edge = middle + (across if side in (EAST, NORTH) else -across)
    return tuple((edge - along).tolist()), tuple((edge + along).tolist())


@dataclass(frozen=True, eq=False)
class PanelPlan:
    """The exchange that brings every rank the rows beyond the sides of its blocks.

    decomposition: of (6, n, n) cells on the axes panel, y and x, in this order. itemsize: bytes of all that is sent of
    a cell; 0: the argument of `price`. Raises `InputError` for another shape.
    """

    decomposition: Decomposition
    itemsize: float = 0.0

    def __post_init__(self) -> None:
        shape = self.decomposition.shape
        if len(shape) != 3 or shape[0] != PANELS or shape[1] != shape[2] or shape[1] < REACH:
            raise InputError(
                f"a cubed sphere has {PANELS} panels of n x n cells, n at least {REACH}, not {shape}",
                do=f"give the decomposition of ({PANELS}, n, n) cells",
            )

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.decomposition.topology.size

    @property
    def cells(self) -> int:
        """The cells along a side of a panel."""
        return self.decomposition.shape[1]

    def title(self) -> str:
        """What it is, in a few words."""
        return f"halos of a cubed sphere of {PANELS} x {self.cells} x {self.cells} cells on {self.ranks} ranks"

    def strips(self, rank: int) -> tuple[tuple[PanelStrip, ...], ...]:
        """The rows that a rank needs, for each of its panels and each side."""
        (panel, *start), (panels, *owned) = self.decomposition.start(rank), self.decomposition.owned(rank)
        found, first, n = [], 0, self.cells
        for _ in range(panel, panel + panels):
            of_panel = []
            for side in range(4):
                across, along = (1, 0) if side in (WEST, EAST) else (0, 1)
                edge = start[across] if side in (WEST, SOUTH) else n - start[across] - owned[across]
                low, high = start[along], start[along] + owned[along]
                if edge == 0:
                    low, high = max(0, low - REACH), min(n, high + REACH)
                of_panel.append(PanelStrip(edge == 0, first, low, high - low))
                first += (2 if edge == 0 else 1) * WIDTH * (high - low)
            found.append(tuple(of_panel))
        return tuple(found)

    def needed(self, rank: int) -> Ints:
        """The numbers of the cells in a rank's buffer, in its order. Cell (panel, y, x) is (panel n + y) n + x."""
        first_panel, *start = self.decomposition.start(rank)
        owned, n, found = self.decomposition.owned(rank)[1:], self.cells, []
        rows = np.arange(WIDTH)[:, None]
        for number, strips in enumerate(self.strips(rank)):
            panel = first_panel + number
            for side, strip in enumerate(strips):
                along = np.arange(strip.start, strip.start + strip.length)
                if strip.seam:
                    other = seams()[panel][side]
                    theirs = n - 1 - along if other.turned else along
                    found += [self._numbers(other.panel, other.side, rows, theirs)]
                    found += [self._numbers(panel, side, rows, along)]
                else:  # rows of the next block count from its own edge, inside the panel
                    across = 1 if side in (WEST, EAST) else 0
                    low = side in (WEST, SOUTH)
                    places = start[across] - 1 - rows if low else start[across] + owned[across] + rows
                    y, x = (along, places) if across else (places, along)
                    found.append((panel * n + y) * n + x)
        return np.concatenate([each.reshape(-1) for each in found])

    def _numbers(self, panel: int, side: int, rows: Ints, along: Ints) -> Ints:
        """The cells of a panel that are `rows` from a side."""
        n = self.cells
        across = rows if side in (WEST, SOUTH) else n - 1 - rows
        y, x = (along, across) if side in (WEST, EAST) else (across, along)
        return (panel * n + y) * n + x

    def owners(self, cells: Ints) -> tuple[Ints, Ints]:
        """The rank that owns each cell, and its place among the owned cells of that rank."""
        n = self.cells
        place = np.stack([cells // (n * n), cells // n % n, cells % n])
        starts, owned = self.decomposition.all_starts(), self.decomposition.all_owned()
        coords = [np.searchsorted(np.unique(starts[dim]), place[dim], side="right") - 1 for dim in range(3)]
        rank = np.ravel_multi_index(coords, self.decomposition.topology.sizes)
        inside = place - starts[:, rank]
        return rank, (inside[0] * owned[1, rank] + inside[1]) * owned[2, rank] + inside[2]

    @functools.cached_property
    def _messages(self) -> tuple[Ends, Ends]:
        """Both ends of all messages, from each rank to each that needs its cells, by sender."""
        receiver, place, number = [], [], []
        for rank in range(self.ranks):
            needed = self.needed(rank)
            receiver.append(np.full(len(needed), rank))
            place.append(np.arange(len(needed)))
            number.append(needed)
        receivers, places = np.concatenate(receiver), np.concatenate(place)
        senders, sources = self.owners(np.concatenate(number))
        order = np.lexsort((places, receivers, senders))
        senders, receivers = senders[order], receivers[order]
        pair, first = np.unique(senders * self.ranks + receivers, return_index=True)
        last = np.append(first[1:], len(order))
        sender, peer = pair // self.ranks, pair % self.ranks
        sends = Ends(peer, first, last, sender, cells=sources[order])
        return sends, Ends(sender, first, last, peer, cells=self.most_owned + places[order])

    @property
    def sent(self) -> Ints:
        """The cells that each rank sends to others, int64[ranks]."""
        sends, _ = self._messages
        assert sends.rank is not None
        away = sends.rank != sends.peer
        return np.bincount(sends.rank[away], (sends.last - sends.first)[away], self.ranks).astype(np.int64)

    @functools.cached_property
    def most_owned(self) -> int:
        """The cells of the largest block: in the plan a rank's buffer follows that many."""
        return int(self.decomposition.all_owned().prod(axis=0).max())

    def steps(self) -> Iterator[Step]:
        """All messages at once; what stays on a rank is copied."""
        sends, receives = self._messages
        amount = sends.last - sends.first
        yield Step(
            sends,
            receives,
            itemsize=self.itemsize,
            name="rows beyond the sides",
            texts=lambda: list(map(str, amount)),
        )

    def claim(self) -> Claim:
        """Each rank gives its cells, none of which is written, and ends with the rows beyond its sides.

        What lies beyond a seam is found here from the places of the cells on the cube, not from `seams`.
        """
        owned = [self._owned(rank) for rank in range(self.ranks)]
        needed = [self._expected(rank) for rank in range(self.ranks)]
        width = self.most_owned + max(map(len, needed))
        start = np.full((self.ranks, width), NOTHING)
        end = np.full((self.ranks, width), NOTHING)
        for rank, (mine, wanted) in enumerate(zip(owned, needed, strict=True)):
            start[rank, : len(mine)] = end[rank, : len(mine)] = mine
            end[rank, self.most_owned : self.most_owned + len(wanted)] = wanted
        n = self.cells

        def index_name(cell: int) -> str:
            return f"cell {cell // n % n}, {cell % n} of panel {cell // (n * n)}"

        return Claim(start, end, fixed=start != NOTHING, index_name=index_name)

    def _owned(self, rank: int) -> Ints:
        """The numbers of a rank's own cells."""
        blocks = [np.arange(part.start, part.stop) for part in self.decomposition.global_slices(rank)]
        return np.ravel_multi_index(np.ix_(*blocks), self.decomposition.shape).reshape(-1)

    def _expected(self, rank: int) -> Ints:
        """What a rank's buffer must hold: of each place the cell with its middle there, on a cube with edges of 2 n."""
        first_panel, *start = self.decomposition.start(rank)
        owned, n, found = self.decomposition.owned(rank)[1:], self.cells, []
        rows = 2 * np.arange(WIDTH)[:, None, None] + 1
        for number, strips in enumerate(self.strips(rank)):
            middle, x, y = FRAMES[first_panel + number]
            for side, strip in enumerate(strips):
                across, along, dim = (x, y, 1) if side in (WEST, EAST) else (y, x, 0)
                out = across if side in (EAST, NORTH) else -across
                gap = start[dim] if side in (WEST, SOUTH) else n - start[dim] - owned[dim]
                line = (2 * np.arange(strip.start, strip.start + strip.length) + 1 - n)[:, None] * along
                if strip.seam:
                    found += [n * out + (n - rows) * middle + line, n * middle + (n - rows) * out + line]
                else:
                    found.append(n * middle + (n - 2 * gap + rows) * out + line)
        return _cells_at(np.concatenate([each.reshape(-1, 3) for each in found]), n)


def _cells_at(points: Ints, n: int) -> Ints:
    """The cells with their middles at points of a cube with edges of 2 n, int64[m, 3]."""
    panel = (points @ FRAMES[:, 0].T == n).argmax(axis=1)
    x, y = ((np.einsum("mc,mc->m", points, FRAMES[panel, dim]) + n - 1) // 2 for dim in (1, 2))
    return (panel * n + y) * n + x
