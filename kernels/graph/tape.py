"""Tapes: sweeps, and the fills of halos between them, as rows of numbers that one compiled call plays many times.

A step of a small grid is a few microseconds of work, and as many calls from Python would take longer than that. A tape
knows arrays by slots: each turn has an address for each slot, so that a loop of many steps, every state of it in memory
of its own, is one call. Arrays that are the same in all turns (rings, what lies between two stages) are the tape's own.

Turns that follow each other go over the slabs side by side where that keeps near what they share (`order`): 1.1x for
the gradient of `fdtd_2d` (NPBench) of 400 x 450 cells on Zen 5, 1.5x for 1500 x 1500.

The arithmetic is that of the sweeps' kernels and of the fills and folds of halos (`hpckit.grid`), to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpckit.kernels.compile.addresses import address_of, call_entry, entry_address, signature, values_at
from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.graph import simd
from hpckit.kernels.graph.nodes import Node, Offset
from hpckit.kernels.graph.order import MOST, Access, SlabOrders, SlabWork
from hpckit.kernels.graph.region import Block, Box, loops
from hpckit.kernels.graph.sweep import GraphSweep
from hpckit.kernels.pack.simd import wrap_ends

SWEEP, WRAP, FILL, FOLD, COPY, ADD, WALL = range(7)
COLUMNS = 16
FIRST, STOP, AT_ONCE, ORIGIN, SLABS = range(11, COLUMNS)  # of the part that is done by slabs
FIXED, ZERO_GRADIENT, MIRROR, ANTISYMMETRIC = range(4)
FILLS = {"zero_gradient": ZERO_GRADIENT, "mirror": MIRROR, "antisymmetric": ANTISYMMETRIC}
SOME = 1 << 60  # values: rows say themselves how far they go
doubles, integers = values_at("float64"), values_at("int64")


class Tape:
    """What is done in a turn, in the order in which it is added.

    A slot is the number of an array that is given with each turn, or one that `own` returns. nodes: the numbers that
    `play` takes.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._rows: list[list[int]] = []
        self._works: list[SlabWork] = []
        self._slots: list[int] = []
        self._own: list[Any] = []
        self._kept: list[Any] = []
        self._known: dict[int, int] = {}
        self._made: tuple[np.ndarray, ...] = ()
        self._layouts: dict[int, tuple[int, ...]] = {}  # of each slot: its first owned slab, and its shape
        self._by_slabs, self._warm = True, 0  # what sweeps compute again where they start
        self._streamed: list[tuple[int, Callable[[], Any], tuple[int, int]]] = []  # rows, what makes kernels, arguments
        self._near: np.ndarray | None = None
        self._orders: SlabOrders | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def own(self, array: np.ndarray) -> int:
        """The slot of an array that is the same in all turns."""
        if id(array) not in self._known:
            self._known[id(array)] = ~len(self._own)
            self._own.append(array)
        return self._known[id(array)]

    def sweep(
        self,
        sweep: GraphSweep,
        slots: Sequence[int],
        blocks: Sequence[Block],
        box: Box,
        rows: Mapping[Node, np.ndarray] | None = None,
        streams: bool | None = None,
    ) -> None:
        """A pass over a box; slots and blocks like them: of the targets, then of the leaves (see `reference.bind`).
        rows: those of numbers that members have of their own (`simd.own_rows`), which are filled when it is played.
        streams: whether of what comes from the memory the first result goes past the cache; None follows from the box.
        """
        rows = rows or {}
        kernel, strips, sizes = simd.placed(sweep, blocks, box, rows, streams)
        if kernel is None:
            return
        every = [*slots, *(self.own(np.empty(size)) for size in sizes), *map(self.own, rows.values())]
        shared = [node for node in sweep.numbers if node not in rows]
        counts = len(every), len(shared)
        self._warm = max([self._warm, *(each.lead - each.reach[0][0] for each in sweep.stored)])
        accesses = [Access(slot, 0, 0, True) for slot in slots[: len(sweep.targets)]]
        for slot, leaf in zip(slots[len(accesses) :], sweep.leaves, strict=True):
            accesses.append(Access(slot, *sweep.reach[leaf][0], False))
        self._lie(slots, blocks)
        work = SlabWork(box[0][0], box[1][0], False, tuple(accesses))
        entry, compiled = entry_address(*counts), address_of(kernel, signature(*counts))
        near = simd.near(sweep, blocks, box, rows) if streams is None else None
        self._kept += [kernel, *strips]
        for geometry in strips:
            where, size = geometry.ctypes.data, len(geometry)
            if near:
                self._streamed.append((len(self), near, counts))
            self._add(work, SWEEP, len(self._slots), len(every), entry, compiled, len(self.nodes), where, size)
        self._slots += every
        self.nodes += shared

    def wrap(self, slot: int, array: np.ndarray, dim: int, width: int) -> None:
        """Copy the ends of a periodic dim to the halos at the other ends."""
        self._by_slabs &= dim > 0  # else the first slab waits for the last
        self._add(_beside(slot, dim, array, (0, 0), (0, 0)), WRAP, slot, *_layers(array, dim), width)

    def fill(
        self, slot: int, array: np.ndarray, dim: int, depth: int, edge: int, high: bool, fill: Any, face: bool
    ) -> None:
        """Fill `depth` layers of the halo beyond a wall; fill: a name or a number. edge: the owned layer at the wall.
        face: whether that layer is on the wall.
        """
        kind = FILLS.get(fill, FIXED)
        inside, beyond = _sides(depth, edge, high, face)
        work = _beside(slot, dim, array, inside, beyond)
        step = -1 if high else 1
        self._add(work, FILL, slot, *_layers(array, dim), depth, edge, step, kind, _bits(kind, fill), int(face))

    def fold(
        self, slot: int, array: np.ndarray, dim: int, depth: int, edge: int, high: bool, fill: str, face: bool
    ) -> None:
        """Add `depth` layers beyond a wall to those that a fill had copied there; see `fill`."""
        inside, beyond = _sides(depth, edge, high, face)
        work = _beside(slot, dim, array, beyond, inside)
        step = -1 if high else 1
        self._add(work, FOLD, slot, *_layers(array, dim), depth, edge, step, FILLS[fill], 0, int(face))

    def wall(self, slot: int, array: np.ndarray, dim: int, layer: int, value: float) -> None:
        """Set a layer to a number."""
        work = _beside(slot, dim, array, (layer, layer), (layer, layer + 1))
        self._add(work, WALL, slot, *_layers(array, dim), 1, layer + 1, 1, FIXED, _bits(FIXED, value), 0)

    def move(self, source: int, target: int, blocks: tuple[Block, Block], owned: Offset, adds: bool = False) -> None:
        """Copy the owned cells of an array to another, or add them to it."""
        members = blocks[0].members
        counts = [b - a for a, b in loops(((0,) * len(owned), owned))]
        strides = [[*block.strides()] for block in blocks]
        geometry = np.array([*counts, members, *strides[0], *strides[1]], np.int64)
        self._kept.append(geometry)
        self._lie((source, target), blocks)
        work = SlabWork(0, owned[0], False, (Access(source, 0, 0, False), Access(target, 0, 0, True)))
        self._add(work, ADD if adds else COPY, source, target, geometry.ctypes.data)

    def play(self, addresses: np.ndarray, numbers: np.ndarray) -> None:
        """All rows for each turn; addresses: int64[turns, slots]. numbers: float64[turns, nodes], of `nodes`.

        The arrays must be of the shapes of those that the rows were added for, of float64, and not overlap within a
        turn.
        """
        if not self._made:
            self._make()
        if self._orders is None or len(addresses) == 1:
            _play(*self._made, addresses, numbers)
            return
        turn = 0
        while turn < len(addresses):
            count, order = self._orders.of(addresses[turn : turn + MOST])
            part = addresses[turn : turn + count], numbers[turn : turn + count]
            if order is None:
                _play(*self._made, *part)
            else:
                _play_by_slabs(self._rows_near(), *self._made[1:], *part, *order)
            turn += count

    def _rows_near(self) -> np.ndarray:
        """The rows with kernels whose results stay in the cache."""
        if self._near is None:
            self._near = self._made[0].copy()
            for row, made, counts in self._streamed:
                self._kept.append(made())
                self._near[row, 4] = address_of(self._kept[-1], signature(*counts))
        return self._near

    def _make(self) -> None:
        """The numbers of all rows. Slabs are counted from the first owned one on."""
        rows, works = np.zeros((len(self._rows), COLUMNS), np.int64), []
        by_slabs = self._by_slabs and all(each.array in self._layouts for it in self._works for each in it.accesses)
        for row, values, work in zip(rows, self._rows, self._works, strict=True):
            row[: len(values)] = values
            if by_slabs and values[0] in (WRAP, FILL, FOLD, WALL):
                origin, slabs, *_ = self._layouts[values[1]]
                row[ORIGIN:] = origin, slabs
                moved = [Access(slot, a - origin, b - origin, put) for slot, a, b, put in work.accesses]
                accesses = tuple(moved) if work.at_once else work.accesses
                work = SlabWork(work.first - origin, work.stop - origin, work.at_once, accesses)
            row[FIRST:ORIGIN] = work[:3]
            works.append(work)
        own = np.array([array.ctypes.data for array in self._own], np.int64)
        self._made = rows, np.array(self._slots, np.int64), own
        orders = SlabOrders(works, self._layouts, self._warm, bool(self._streamed)) if by_slabs else None
        self._orders = None if orders is None or orders.needless else orders

    def _lie(self, slots: Sequence[int], blocks: Sequence[Block]) -> None:
        """Know how arrays lie; one that lies now so, now otherwise, as a window does, is not gone through by slabs."""
        for slot, block in zip(slots, blocks, strict=True):
            layout = (block.origin[0], *block.array.shape)
            self._by_slabs &= len(block.origin) > 1 and self._layouts.setdefault(slot, layout) == layout

    def _add(self, work: SlabWork, *values: int) -> None:
        self._rows.append(list(values))
        self._works.append(work)
        self._made, self._near = (), None


def _bits(kind: int, fill: Any) -> int:
    """The number that a fill writes, as an integer."""
    return 0 if kind or isinstance(fill, str) else int(np.float64(fill).view(np.int64))


def _layers(array: np.ndarray, dim: int) -> tuple[int, int, int]:
    """How many stretches of memory an array has along a dim, the layers of each, and the values of a layer."""
    outer = int(np.prod(array.shape[:dim]))
    return outer, array.shape[dim], int(np.prod(array.shape[dim + 1 :]))


def _sides(depth: int, edge: int, high: bool, face: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The layers inside that a fill copies, and those beyond the wall; see `Tape.fill`."""
    deep = depth + face
    return (
        ((edge - deep + 1, edge + 1), (edge + 1, edge + 1 + depth))
        if high
        else ((edge, edge + deep), (edge - depth, edge))
    )


def _beside(slot: int, dim: int, array: np.ndarray, read: tuple[int, int], written: tuple[int, int]) -> SlabWork:
    """What is done with layers of a dim: of the first at once, of others in each slab. Slabs are those of the array."""
    if dim:
        return SlabWork(0, len(array), False, (Access(slot, 0, 0, True),))
    return SlabWork(0, max(read[1], written[1]), True, (Access(slot, *read, False), Access(slot, *written, True)))


@jit(math=STRICT)
def _beyond(array, outer, n, inner, depth, edge, step, kind, value, face, folds):
    """Fill the layers beyond a wall, or add them to what they were filled from.

    edge: the owned layer at the wall. face: 1 if it is on the wall. Of the last dim a layer is a value a row: with a
    loop over its values a fill takes four times as long.
    """
    if inner == 1 and not folds:
        for o in range(outer):
            for k in range(depth):
                there = np.uint64(o * n + edge - step * (1 + k))
                inside = array[np.uint64(o * n + edge + step * (0 if kind == ZERO_GRADIENT else k + face))]
                array[there] = value if kind == FIXED else -inside if kind == ANTISYMMETRIC else inside
        return
    for o in range(outer):
        for k in range(depth):
            there = np.uint64((o * n + edge - step * (1 + k)) * inner)
            inside = np.uint64((o * n + edge + step * (0 if kind == ZERO_GRADIENT else k + face)) * inner)
            if folds and kind == ANTISYMMETRIC:
                for i in range(np.uint64(inner)):
                    array[inside + i] -= array[there + i]
            elif folds:
                for i in range(np.uint64(inner)):
                    array[inside + i] += array[there + i]
            elif kind == FIXED:
                for i in range(np.uint64(inner)):
                    array[there + i] = value
            elif kind == ANTISYMMETRIC:
                for i in range(np.uint64(inner)):
                    array[there + i] = -array[inside + i]
            else:
                for i in range(np.uint64(inner)):
                    array[there + i] = array[inside + i]


@jit(math=STRICT)
def _move(source, target, geometry, adds):
    ni, nj, nk, members = geometry[0], geometry[1], geometry[2], geometry[3]
    for i in range(ni):
        for j in range(nj):
            a = np.uint64(geometry[4] + i * geometry[5] + j * geometry[6])
            b = np.uint64(geometry[8] + i * geometry[9] + j * geometry[10])
            if adds:
                for k in range(np.uint64(nk * members)):
                    target[b + k] += source[a + k]
            else:
                for k in range(np.uint64(nk * members)):
                    target[b + k] = source[a + k]


@jit(math=STRICT)
def _address(slot, own, addresses):
    return addresses[slot] if slot >= 0 else own[~slot]


@jit(math=STRICT)
def _beside_sweeps(row, array, target, first, stop):
    """What is not a sweep, all of it or (first < stop) only those slabs; array, target: addresses."""
    op = row[0]
    if op in (COPY, ADD):
        geometry = integers(row[3], 12)
        if first < stop:
            geometry = geometry.copy()
            geometry[0] = stop - first
            geometry[4] += first * geometry[5]
            geometry[8] += first * geometry[9]
        _move(doubles(array, SOME), doubles(target, SOME), geometry, op == ADD)
        return
    outer, n, inner = row[2], row[3], row[4]
    if first < stop:
        outer //= row[SLABS]
        array += 8 * (first + row[ORIGIN]) * outer * n * inner
        outer *= stop - first
    values = doubles(array, SOME)
    if op == WRAP:
        wrap_ends(values[: outer * n * inner].reshape((outer, n, inner)), row[5])
    else:
        value = np.int64(row[9]).view(np.float64)
        _beyond(values, outer, n, inner, row[5], row[6], row[7], row[8], value, row[10], op == FOLD)


@jit(math=STRICT)
def _play(rows, slots, own, addresses, numbers):
    room = np.empty(slots.size + 1, np.int64)
    for turn in range(addresses.shape[0]):
        for r in range(rows.shape[0]):
            row, given = rows[r], addresses[turn]
            if row[0] == SWEEP:
                for k in range(row[2]):
                    room[k] = _address(slots[row[1] + k], own, given)
                number = numbers.ctypes.data + 8 * (turn * numbers.shape[1] + row[5])
                call_entry(row[3], row[4], room.ctypes.data, number, row[6])
            else:
                target = _address(row[2], own, given) if row[0] in (COPY, ADD) else 0
                _beside_sweeps(row, _address(row[1], own, given), target, 0, 0)


@jit(math=STRICT)
def _play_by_slabs(rows, slots, own, addresses, numbers, step, begin, end, lags):
    """As `_play`, in an `SlabOrder`."""
    turns, count = addresses.shape[0], slots.size
    where = np.empty(turns * count + 1, np.int64)
    for turn in range(turns):
        for k in range(count):
            where[turn * count + k] = _address(slots[k], own, addresses[turn])
    starts = np.zeros(rows.shape[0] + 1, np.int64)  # of the geometries, in memory of our own
    for r in range(rows.shape[0]):
        starts[r + 1] = starts[r] + (rows[r, 7] if rows[r, 0] == SWEEP else 0)
    geometries = np.empty(starts[-1] + 1, np.int64)
    for r in range(rows.shape[0]):
        if rows[r, 0] == SWEEP:
            geometries[starts[r] : starts[r + 1]] = integers(rows[r, 6], rows[r, 7])
    for at in range(begin * step, end * step, step):
        for turn in range(turns):
            for r in range(rows.shape[0]):
                first, last = at - lags[turn, r], rows[r, STOP]
                stop = first + step
                if rows[r, AT_ONCE]:
                    if stop < last or last <= first:
                        continue
                    first = stop = 0
                else:
                    first, stop = max(first, rows[r, FIRST]), min(stop, last)
                    if first >= stop:
                        continue
                if rows[r, 0] == SWEEP:
                    geometries[starts[r + 1] - 7], geometries[starts[r + 1] - 6] = first, stop
                    places = where.ctypes.data + 8 * (turn * count + rows[r, 1])
                    number = numbers.ctypes.data + 8 * (turn * numbers.shape[1] + rows[r, 5])
                    call_entry(rows[r, 3], rows[r, 4], places, number, geometries.ctypes.data + 8 * starts[r])
                else:
                    target = _address(rows[r, 2], own, addresses[turn]) if rows[r, 0] in (COPY, ADD) else 0
                    _beside_sweeps(rows[r], _address(rows[r, 1], own, addresses[turn]), target, first, stop)
