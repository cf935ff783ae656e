"""Cells and neighbor lists on a GPU: particles sorted by cell, and a list [k][particle] that a thread each writes.

Cells are cubes over the brick and the shell of ghosts around it; what lies beyond counts to the outermost. Along x they
follow each other in memory, so that a row of cells around a particle is one run of slots. Own particles and ghosts are
sorted each by themselves and have the same cells. The sort is stable and no sum depends on the order of threads, so a
list has the same bits in every run.

Entry k of the list of particle i is entries[k * stride + i]: neighboring threads read neighboring words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import argsort, empty, to_host
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cuda_records import load_record

THREADS = threads(128)
WARP = 32
FILLED = (-np.inf, -np.inf, -np.inf, 0.5 * FAR, np.inf, np.inf)  # slots beyond hold no particle
MOST_CELLS = 4  # a particle, in systems that are mostly empty
FIRST_CAPACITY = 64  # neighbors, before the first list says how many
ROOM = 1.1  # how much more is reserved than is needed now
u8, i4, i8 = np.uint64, np.int32, np.int64


@inlined
def cell_along(x, lower, scale, cells):
    """The cell of a coordinate; the first or the last one for what is beyond, or not a number."""
    place = (x - lower) * scale
    if not place > 0.0:
        return i8(0)
    if place >= cells:
        return i8(cells - 1)
    return i8(place)


@kernel
def _assign(positions, count, grid, shape, owned, leaving, cells):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(count):
        x, y, z, _ = load_record(positions, i * u8(4))
        ix = cell_along(x, grid[0], grid[3], shape[0])
        iy = cell_along(y, grid[1], grid[3], shape[1])
        iz = cell_along(z, grid[2], grid[3], shape[2])
        cell = (iz * i8(shape[1]) + iy) * i8(shape[0]) + ix
        if x < owned[0] or y < owned[1] or z < owned[2] or x >= owned[3] or y >= owned[4] or z >= owned[5]:
            cell = i8(leaving)
        cells[i] = i4(cell)


@kernel
def _starts(sorted_cells, count, starts):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i <= u8(count):
        first = i8(0) if i == u8(0) else i8(sorted_cells[i - u8(1)]) + i8(1)
        last = i8(starts.size) - i8(1) if i == u8(count) else i8(sorted_cells[i])
        for cell in range(first, min(last + i8(1), i8(starts.size))):
            starts[cell] = i4(i)


@inlined
def _count_run(positions, i, x, y, z, first, stop, reach2, entries, stride, capacity, m):
    """Append the slots first to stop - 1 within reach to the list of i; how long it is then, or would be."""
    for j in range(first, stop):
        other_x, other_y, other_z, _ = load_record(positions, u8(j) * u8(4))
        dx, dy, dz = x - other_x, y - other_y, z - other_z
        if dx * dx + (dy * dy + dz * dz) < reach2 and i8(j) != i8(i):
            if m < capacity:
                entries[u8(m) * u8(stride) + u8(i)] = i4(j)
            m += i8(1)
    return m


@kernel
def _list(
    positions, count, ghosts, grid, shape, around, own_starts, ghost_starts, reach2, stride, capacity, entries, lengths,
    longest,
):  # fmt: skip
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(count):
        x, y, z, _ = load_record(positions, i * u8(4))
        ix = cell_along(x, grid[0], grid[3], shape[0])
        iy = cell_along(y, grid[1], grid[3], shape[1])
        iz = cell_along(z, grid[2], grid[3], shape[2])
        left, right = max(ix - i8(around), i8(0)), min(ix + i8(around), i8(shape[0]) - i8(1))
        m = i8(0)
        for cz in range(max(iz - i8(around), i8(0)), min(iz + i8(around), i8(shape[2]) - i8(1)) + i8(1)):
            for cy in range(max(iy - i8(around), i8(0)), min(iy + i8(around), i8(shape[1]) - i8(1)) + i8(1)):
                row = (i8(cz) * i8(shape[1]) + i8(cy)) * i8(shape[0])
                first, stop = i8(own_starts[row + left]), i8(own_starts[row + right + i8(1)])
                m = _count_run(positions, i, x, y, z, first, stop, reach2, entries, stride, capacity, m)
                if ghosts:
                    first, stop = i8(ghost_starts[row + left]), i8(ghost_starts[row + right + i8(1)])
                    first, stop = first + i8(count), stop + i8(count)
                    m = _count_run(positions, i, x, y, z, first, stop, reach2, entries, stride, capacity, m)
        lengths[i] = i4(min(m, i8(capacity)))
        if m > i8(capacity):
            cuda.atomic.max(longest, 0, i4(m))


def assign_cells(
    positions: Any, count: int, grid: tuple, shape: tuple[int, int, int], owned: tuple, leaving: int, cells: Any
) -> None:
    """cells[i]: the cell of each of the first `count` particles, (iz ny + iy) nx + ix, int32.

    grid: lower corner and cells per length, four numbers; owned: the lower and upper corner of what this rank owns;
    particles outside get the number `leaving`.
    """
    launch = _assign[blocks(max(1, count), THREADS), THREADS]
    launch(positions.reshape(-1), count, grid, shape, owned, leaving, cells)


def cell_starts(sorted_cells: Any, count: int, starts: Any) -> None:
    """starts[c]: the first of the `count` places whose cell is not below c; starts has one more than there are cells.

    Cells at and above the last entry, such as those of particles that leave, count to none.
    """
    _starts[blocks(count + 1, THREADS), THREADS](sorted_cells, count, starts)


def build_list(
    positions: Any,
    count: int,
    ghosts: int,
    grid: tuple,
    shape: tuple[int, int, int],
    around: int,
    own_starts: Any,
    ghost_starts: Any,
    reach: float,
    entries: Any,
    lengths: Any,
    longest: Any,
) -> None:
    """The slots within reach of each own particle: entries int32 [capacity, stride], lengths int32 [stride].

    Own particles are the first `count` slots, then `ghosts`, both sorted by cell; around: cells on either side that
    are looked at. longest[0] becomes the length of the longest list where one does not fit, and stays as it is
    otherwise; entries beyond the capacity are not written.
    """
    capacity, stride = entries.shape
    places = (own_starts, ghost_starts, float(reach) ** 2, stride, capacity, entries.reshape(-1), lengths, longest)
    launch = _list[blocks(max(1, count), THREADS), THREADS]
    launch(positions.reshape(-1), count, ghosts, grid, shape, around, *places)


class Cells(NamedTuple):
    """Cells over a domain and the ghosts around it: `place` is their lower corner and how many there are per length,
    `shape` how many along x, y and z; those within `around` of a particle's own hold all within `reach` of it.
    """

    place: tuple[float, ...]
    shape: tuple[int, int, int]
    around: int
    reach: float

    @property
    def total(self) -> int:
        """How many cells there are."""
        return self.shape[0] * self.shape[1] * self.shape[2]


def grid_over(
    positions: Any,
    count: int,
    low: np.ndarray,
    high: np.ndarray,
    reach: float,
    clear: tuple[np.ndarray, np.ndarray] | None = None,
) -> Cells:
    """Cells for so many particles in a domain and the ghosts around it: half the reach wide, or more where there is
    little in them. Ghosts may be everywhere, whatever is clear of them.
    """
    lengths = high - low + 2 * reach
    edge = 0.5 * reach * (1 + 1e-9)
    while np.prod(np.ceil(lengths / edge)) > MOST_CELLS * count + 4096:
        edge *= 1.25
    nx, ny, nz = (int(n) for n in np.ceil(lengths / edge))
    return Cells((*map(float, low - reach), 1.0 / edge), (nx, ny, nz), 2 if edge < reach else 1, reach)


def sort(records: Any, count: int, grid: Cells, ghosts: bool) -> tuple[Any, Any]:
    """The order of `count` own particles, or ghosts: order[slot] is a particle; and where cells start, int32.

    Slots that hold no particle are left out; with them, it waits for the GPU.
    """
    cells, starts = empty(count, records, np.int32), empty(grid.total + 1, records, np.int32)
    assign_cells(records, count, grid.place, grid.shape, FILLED, grid.total, cells)
    order = argsort(cells)
    cell_starts(cells[order], count, starts)
    return (order if ghosts else order[: int(to_host(starts[-1:])[0])]), starts


def place(source: Any, order: Any, slots: int, first: int, target: Any) -> None:
    """See `reference.place`; every slot of the order has a particle."""
    target[first : first + slots] = source[order]


def ghost_slots(order: Any, slots: int, first: int, where: Any) -> None:
    """See `reference.ghost_slots`; every slot of the order has a particle."""
    where[:] = argsort(order) + first  # the inverse of a permutation


def list_neighbors(
    positions: Any,
    own: int,
    ghosts: int,
    grid: Cells,
    starts: tuple[Any, Any],
    inside: tuple[np.ndarray, np.ndarray],
    isa: str,
    padding: int,
    nearer: Any,
    excluded: tuple[Any, Any] | None,
    held: Lists | None,
) -> Lists:
    """The neighbors of the `own` first slots among these and the `ghosts` slots behind them; waits for the GPU.

    starts: of the cells of own particles and of ghosts. All slots count as outer, and lists are neither padded nor in
    parts, and leave none out: inside, isa, padding, nearer and excluded are those of `columns.list_neighbors`. held:
    the lists before, whose memory is used again.
    """
    if held is not None and len(held.bounds) >= own:
        bounds, memory, capacity = held.bounds, held.entries.reshape(-1), len(held.entries)
    else:
        bounds = empty(int(ROOM * own) // WARP * WARP + WARP, positions, np.int32)
        memory, capacity = empty(0, positions, np.int32), FIRST_CAPACITY if held is None else len(held.entries)
    stride = len(bounds)
    while True:
        if memory.size < capacity * stride:
            memory = empty(capacity * stride, positions, np.int32)
        entries = memory[: capacity * stride].reshape(capacity, stride)
        longest = empty(1, positions, np.int32)
        longest[:] = 0
        where = grid.place, grid.shape, grid.around, *starts, grid.reach
        build_list(positions, own, ghosts, *where, entries, bounds, longest)
        found = int(to_host(longest)[0])
        if found == 0:
            return Lists(entries, bounds, range(0), range(own), [])
        capacity = int(ROOM * found) + 1
