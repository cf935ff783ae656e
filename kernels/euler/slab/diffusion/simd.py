"""Diffusion in the slab, Numba."""

from __future__ import annotations

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.euler.constants import HALO, RHO_W


@jit(math=STRICT)
def diffuse(state, column, base, dx, dz, amount, work):
    # Without fused operations: a flux has the same bits on both sides of a cut.
    levels, cells = state.shape[1:]
    for level in range(levels):
        for cell in range(HALO - 1, cells - HALO + 1):
            rho = state[0, level, cell] + column[0, level]
            work[0, level, cell] = rho
            for field in range(1, 3):
                work[field, level, cell] = state[field, level, cell] / rho - base[field - 1, level]
            work[3, level, cell] = (state[3, level, cell] + column[1, level]) / rho - base[2, level]
    rate_x, rate_z = amount / (2.0 * dx * dx), amount / (2.0 * dz * dz)
    for field in range(1, 4):
        for level in range(levels):
            # The row beyond a wall is the row itself, w turned around.
            below, above = max(level - 1, 0), min(level + 1, levels - 1)
            sign_below = -1.0 if field == RHO_W and level == 0 else 1.0
            sign_above = -1.0 if field == RHO_W and level == levels - 1 else 1.0
            for cell in range(HALO, cells - HALO):
                rho, phi = work[0, level, cell], work[field, level, cell]
                state[field, level, cell] += rate_x * (
                    (work[0, level, cell + 1] + rho) * (work[field, level, cell + 1] - phi)
                    - (rho + work[0, level, cell - 1]) * (phi - work[field, level, cell - 1])
                ) + rate_z * (
                    (work[0, above, cell] + rho) * (sign_above * work[field, above, cell] - phi)
                    - (rho + work[0, below, cell]) * (phi - sign_below * work[field, below, cell])
                )
