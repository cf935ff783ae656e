"""Relaxation of a box's state, Numba: cells outside all zones are passed over."""

from __future__ import annotations

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.euler.constants import HALO


@jit(math=STRICT)
def relax(state, column, base, side_x, side_y, lid, dt):
    # Without fused operations, so that a mirrored state stays mirrored.
    added = 0.0
    for level in range(state.shape[1]):
        for row in range(side_y.shape[0]):
            for cell in range(side_x.shape[0]):
                side = max(side_x[cell], side_y[row])
                if lid[level] > 0.0:
                    _calm(state, column, base, level, row + HALO, cell + HALO, 1.0 / (1.0 + dt * lid[level]))
                if side > 0.0:
                    added += _return(state, column, base, level, row + HALO, cell + HALO, 1.0 / (1.0 + dt * side))
    return added


@jit(math=STRICT)
def _calm(state, column, base, level, row, cell, keep):
    """Winds and theta of a cell toward those of the base, at its own density."""
    rho = state[0, level, row, cell] + column[0, level]
    for field in range(3):
        goal = rho * base[field, level]
        state[1 + field, level, row, cell] = goal + keep * (state[1 + field, level, row, cell] - goal)
    goal = rho * base[3, level] - column[1, level]
    state[4, level, row, cell] = goal + keep * (state[4, level, row, cell] - goal)


@jit(math=STRICT)
def _return(state, column, base, level, row, cell, keep):
    """All fields of a cell toward the base; returns what is added to rho'."""
    before = state[0, level, row, cell]
    state[0, level, row, cell] *= keep
    state[4, level, row, cell] *= keep
    for field in range(3):
        goal = column[0, level] * base[field, level]
        state[1 + field, level, row, cell] = goal + keep * (state[1 + field, level, row, cell] - goal)
    return state[0, level, row, cell] - before
