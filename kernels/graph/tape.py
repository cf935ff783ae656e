"""Tapes: sweeps, and the fills of halos between them, as rows of numbers that one compiled call plays many times.

A step of a small grid is a few microseconds of work, and as many calls from Python would take longer than that. A tape
knows arrays by slots: each turn has an address for each slot, so that a loop of many steps, every state of it in memory
of its own, is one call. Arrays that are the same in all turns (rings, what lies between two stages) are the tape's own.

The arithmetic is that of the sweeps' kernels and of the fills and folds of halos (`hpckit.grid`), to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpckit.kernels.compile.addresses import address_of, call_entry, entry_address, signature, values_at
from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.graph import simd
from hpckit.kernels.graph.nodes import Node, Offset
from hpckit.kernels.graph.region import Block, Box, loops
from hpckit.kernels.graph.sweep import GraphSweep
from hpckit.kernels.pack.simd import wrap_ends

SWEEP, WRAP, FILL, FOLD, COPY, ADD, WALL = range(7)
COLUMNS = 11
FIXED, ZERO_GRADIENT, MIRROR, ANTISYMMETRIC = range(4)
FILLS = {"zero_gradient": ZERO_GRADIENT, "mirror": MIRROR, "antisymmetric": ANTISYMMETRIC}
doubles, integers = values_at("float64"), values_at("int64")


class Tape:
    """What is done in a turn, in the order in which it is added.

    A slot is the number of an array that is given with each turn, or one that `own` returns. nodes: the numbers that
    `play` takes.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._rows: list[list[int]] = []
        self._slots: list[int] = []
        self._own: list[Any] = []
        self._kept: list[Any] = []
        self._known: dict[int, int] = {}
        self._made: tuple[np.ndarray, ...] = ()

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
        streams: whether the first result goes past the cache, where that is not to follow from the box.
        """
        rows = rows or {}
        kernel, strips, sizes = simd.placed(sweep, blocks, box, rows, streams)
        if kernel is None:
            return
        every = [*slots, *(self.own(np.empty(size)) for size in sizes), *map(self.own, rows.values())]
        shared = [node for node in sweep.numbers if node not in rows]
        counts = len(every), len(shared)
        entry, compiled = entry_address(*counts), address_of(kernel, signature(*counts))
        self._kept += [kernel, *strips]
        for geometry in strips:
            where = geometry.ctypes.data
            self._add(SWEEP, len(self._slots), len(every), entry, compiled, len(self.nodes), where)
        self._slots += every
        self.nodes += shared

    def wrap(self, slot: int, array: np.ndarray, dim: int, width: int) -> None:
        """Copy the ends of a periodic dim to the halos at the other ends."""
        self._add(WRAP, slot, *_layers(array, dim), width)

    def fill(
        self, slot: int, array: np.ndarray, dim: int, depth: int, edge: int, high: bool, fill: Any, face: bool
    ) -> None:
        """Fill `depth` layers of the halo beyond a wall; fill: a name or a number. edge: the owned layer at the wall.
        face: whether that layer is on the wall.
        """
        kind = FILLS.get(fill, FIXED)
        self._add(FILL, slot, *_layers(array, dim), depth, edge, -1 if high else 1, kind, _bits(kind, fill), int(face))

    def fold(
        self, slot: int, array: np.ndarray, dim: int, depth: int, edge: int, high: bool, fill: str, face: bool
    ) -> None:
        """Add `depth` layers beyond a wall to those that a fill had copied there; see `fill`."""
        self._add(FOLD, slot, *_layers(array, dim), depth, edge, -1 if high else 1, FILLS[fill], 0, int(face))

    def wall(self, slot: int, array: np.ndarray, dim: int, layer: int, value: float) -> None:
        """Set a layer to a number."""
        self._add(WALL, slot, *_layers(array, dim), 1, layer + 1, 1, FIXED, _bits(FIXED, value), 0)

    def move(self, source: int, target: int, blocks: tuple[Block, Block], owned: Offset, adds: bool = False) -> None:
        """Copy the owned cells of an array to another, or add them to it."""
        members = blocks[0].members
        counts = [b - a for a, b in loops(((0,) * len(owned), owned))]
        strides = [[*block.strides()] for block in blocks]
        geometry = np.array([*counts, members, *strides[0], *strides[1]], np.int64)
        self._kept.append(geometry)
        self._add(ADD if adds else COPY, source, target, geometry.ctypes.data)

    def play(self, addresses: np.ndarray, numbers: np.ndarray) -> None:
        """All rows for each turn; addresses: int64[turns, slots]. numbers: float64[turns, nodes], of `nodes`.

        The arrays must be of the shapes of those that the rows were added for, of float64, and not overlap within a
        turn.
        """
        if not self._made:
            rows = np.zeros((len(self._rows), COLUMNS), np.int64)
            for row, values in zip(rows, self._rows, strict=True):
                row[: len(values)] = values
            own = np.array([array.ctypes.data for array in self._own], np.int64)
            self._made = rows, np.array(self._slots, np.int64), own
        _play(*self._made, addresses, numbers)

    def _add(self, *values: int) -> None:
        self._rows.append(list(values))
        self._made = ()


def _bits(kind: int, fill: Any) -> int:
    """The number that a fill writes, as an integer."""
    return 0 if kind or isinstance(fill, str) else int(np.float64(fill).view(np.int64))


def _layers(array: np.ndarray, dim: int) -> tuple[int, int, int]:
    """How many stretches of memory an array has along a dim, the layers of each, and the values of a layer."""
    outer = int(np.prod(array.shape[:dim]))
    return outer, array.shape[dim], int(np.prod(array.shape[dim + 1 :]))


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
def _play(rows, slots, own, addresses, numbers):
    room = np.empty(slots.size + 1, np.int64)
    some = 1 << 60  # values: rows say themselves how far they go
    for turn in range(addresses.shape[0]):
        for r in range(rows.shape[0]):
            row = rows[r]
            op, slot = row[0], row[1]
            if op == SWEEP:
                for k in range(row[2]):
                    place = slots[slot + k]
                    room[k] = addresses[turn, place] if place >= 0 else own[~place]
                call_entry(
                    row[3],
                    row[4],
                    room.ctypes.data,
                    numbers.ctypes.data + 8 * (turn * numbers.shape[1] + row[5]),
                    row[6],
                )
                continue
            array = doubles(addresses[turn, slot] if slot >= 0 else own[~slot], some)
            if op in (COPY, ADD):
                place = row[2]
                target = doubles(addresses[turn, place] if place >= 0 else own[~place], some)
                _move(array, target, integers(row[3], 12), op == ADD)
                continue
            outer, n, inner = row[2], row[3], row[4]
            if op == WRAP:
                wrap_ends(array[: outer * n * inner].reshape((outer, n, inner)), row[5])
            else:
                value = np.int64(row[9]).view(np.float64)
                _beyond(array, outer, n, inner, row[5], row[6], row[7], row[8], value, row[10], op == FOLD)
