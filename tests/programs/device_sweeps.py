"""Sweeps and steps on a simulated GPU: any tiles, chunks and parts give the same bits; what a status tells."""

import numpy as np

from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.compile.cuda.tiling import rectangles, tiling
from hpckit.kernels.device_array import as_host
from hpckit.kernels.euler.constants import HALO, NOT_FINITE, OUT_OF_RANGE, Sweep
from hpckit.kernels.euler.slab import cuda as slab
from hpckit.kernels.euler.status import new_status, read_status
from hpckit.kernels.euler.sweeps import cuda_columns, cuda_tiles
from hpckit.kernels.euler.sweeps.cuda_stages import parts
from hpckit.kernels.flood import cuda as flood
from hpckit.kernels.flood.constants import Physics as FloodPhysics
from hpckit.kernels.flood.dispatch import ends as ends_of
from hpckit.kernels.parts import INNER, OUTER, WHOLE
from hpckit.kernels.shallow_water import cuda as water
from hpckit.kernels.shallow_water.constants import Physics

DEVICE = SimulatedGpu()
NZ, NX = 23, 37
rng = np.random.default_rng(2)
to = DEVICE.to_device
column = to(np.array([np.full(NZ, 1.2), np.full(NZ, 360.0), np.full(NZ, 1e5)]))
faces = to(np.array([np.full(NZ + 1, 1.2), np.full(NZ + 1, 360.0), np.full(NZ + 1, 1e5), np.zeros(NZ + 1)]))
ghost, none = to(np.array([1.02, 1.01, 0.99, 0.98])), to(np.zeros((0, 0)))
start = to(rng.normal(size=(4, NZ, NX + 2 * HALO)) * np.array([0.004, 2.0, 2.0, 1.0])[:, None, None])


def along(tile: int, pieces: tuple[int, ...], state=start) -> tuple[np.ndarray, tuple]:
    cuda_tiles.MOST_CELLS = tile
    out, status = to(np.full(start.shape, 7.0)), new_status(start)
    for part in pieces:
        numbers = Sweep(50.0, 0.1, 0.05, 5)
        slab.sweep_x(state, out, column, none, none, True, True, numbers, status, part, none)
    return as_host(out), read_status(status)


def across(rows: int, state=start) -> tuple[np.ndarray, tuple]:
    cuda_columns.MOST_ROWS = cuda_columns.FEWEST_ROWS = rows
    out, status = to(np.full(start.shape, 7.0)), new_status(start)
    slab.sweep_z(state, out, faces, ghost, none, Sweep(60.0, 0.1, 0.05, 3), status, (0, NX))
    return as_host(out), read_status(status)


assert parts(37, 9, INNER) == (0, 1, 0), "the last tile is thinner than the halo"
assert parts(37, 10, INNER) == (1, 1, 2)
assert parts(37, 10, OUTER) == (0, 3, 2)
whole, status = along(37, (0,))
assert status == (0, None)
assert (whole[..., :HALO] == 7.0).all()
assert (whole[..., -HALO:] == 7.0).all()
for tile, pieces in ((13, (0,)), (10, (INNER, OUTER)), (9, (INNER, OUTER))):
    np.testing.assert_array_equal(along(tile, pieces)[0], whole)
whole, status = across(NZ)
assert status == (0, None)
for rows in (4, 9):
    np.testing.assert_array_equal(across(rows)[0], whole)

hot, broken = as_host(start).copy(), as_host(start).copy()
hot[3, 4, 20] = 150.0
broken[1, 4, 20] = np.nan
assert along(13, (0,), to(hot))[1] == (OUT_OF_RANGE, None)
assert across(9, to(hot))[1] == (OUT_OF_RANGE, None)
assert along(13, (0,), to(broken))[1][1] == 5
broken[2, 4, 20] = np.nan
assert across(9, to(broken))[1] == (OUT_OF_RANGE | NOT_FINITE, 3)

h = to(100.0 + rng.normal(size=(25 + 6, 23 + 6)))
u, v = (to(rng.normal(size=h.shape)) for _ in range(2))
f = to(np.full(h.shape[0], 1e-4))
results = []
for cells, rows, pieces in ((23, 25, (WHOLE,)), (6, 5, (INNER, OUTER)), (9, 7, (WHOLE,))):
    water.MOST_CELLS, water.FEWEST_ROWS, water.SLOTS = cells, rows, {(8, False): 10**6}
    out = tuple(to(np.full(h.shape, 7.0)) for _ in range(3))
    for part in pieces:
        water.step_free((h, u, v), out, f, Physics(9.81, 900.0, 1100.0), 5.0, 1, part)
    if INNER in pieces:
        assert rectangles((25, 23), tiling((25, 23), 6, 5, 10**6), 3, INNER) == ((1, 2, 1, 3),)
    results.append([as_host(each) for each in out])
for other in results[1:]:
    np.testing.assert_array_equal(other, results[0])

flooded = to(np.maximum(0.0, rng.normal(size=(3, 25 + 4, 23 + 4)) + 0.5))
ground = to(0.5 * rng.normal(size=flooded.shape[1:]))
states, ends = [], []
for cells, rows, pieces in ((23, 25, (WHOLE,)), (6, 5, (INNER, OUTER)), (9, 7, (WHOLE,))):
    flood.MOST_CELLS, flood.FEWEST_ROWS, flood.SLOTS = cells, rows, {8: 10**6}
    out, found = to(np.full(flooded.shape, 7.0)), flood.found_by(flooded)
    for part in pieces:
        physics = FloodPhysics(9.81, 1.0, 1.1, 1e-2, 0.03, 0.002, 1e-3)
        flood.stage(out, flooded, flooded, ground, 0.5, 0.01, physics, found, part)
    assert len(as_host(found)) == -(-23 // cells) * -(-25 // rows)
    states.append(as_host(out))
    ends.append(ends_of(found))
for other, end in zip(states[1:], ends[1:], strict=True):
    np.testing.assert_array_equal(other, states[0])
    np.testing.assert_array_equal(end, ends[0])
assert (states[0][:, :2] == 7.0).all()
assert ends[0][0] > 0
print("all good")
