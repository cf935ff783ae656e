"""Tabulated potentials: f and E by cubic polynomials in equal steps of r^2, looked up in rows behind the parameters.

Parameters behind the common two: squared inner distance, steps per r^2, the last step, the first row (`curves.rows`).
Pairs closer than the inner distance have no force: nan, which the thermo table then finds.
"""

from __future__ import annotations

from hpckit.kernels.compile import intrinsics, lanes
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.loops import REORDERED
from hpckit.kernels.particles.pair import curves
from hpckit.kernels.particles.pair.potential import OWN, Potential

INNER2, SCALE, LAST, FIRST = range(OWN, OWN + 4)
PARAMETERS = OWN + 4

_row, _held, _truncated, _nan_unless = lanes.look_up, intrinsics.held, intrinsics.truncated, intrinsics.nan_unless


@inlined(math=REORDERED)
def force(r2, p, table):
    """-dE/dr / r."""
    t = _held((r2 - p[2]) * p[3], p[4])
    k = _truncated(t)
    x = t - k
    c = _row(table, p[5] + 2.0 * k)
    return _nan_unless(r2 >= p[2], c[0] + x * (c[1] + x * (c[2] + x * c[3])))


@inlined(math=REORDERED)
def energy_and_force(r2, p, table):
    """E and -dE/dr / r."""
    t = _held((r2 - p[2]) * p[3], p[4])
    k = _truncated(t)
    x, first = t - k, p[5] + 2.0 * k
    c, d = _row(table, first), _row(table, first + 1.0)
    near = r2 >= p[2]
    energy = _nan_unless(near, d[0] + x * (d[1] + x * (d[2] + x * d[3])))
    return energy, _nan_unless(near, c[0] + x * (c[1] + x * (c[2] + x * c[3])))


POTENTIAL = Potential(
    ("table",), PARAMETERS, force, energy_and_force, clamp=False, rows_at=FIRST, reference=curves.energy_and_force
)
