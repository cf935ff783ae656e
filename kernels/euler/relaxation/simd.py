"""Relaxation of a box's state, Numba: cells outside all zones are passed over."""

from __future__ import annotations

from hpckit.kernels.compile.jit import STRICT, jit


@jit(math=STRICT)
def relax(state, column, base, side_x, side_y, lid, dt, back):
    # Without fused operations, so that a mirrored state stays mirrored.
    added, halo = 0.0, (state.shape[3] - side_x.shape[1]) // 2
    for level in range(state.shape[1]):
        if lid[level] > 0.0:
            keep = 1.0 / (1.0 + dt * lid[level])
            for row in range(side_y.shape[1]):
                for cell in range(side_x.shape[1]):
                    _calm(state, column, base, level, row + halo, cell + halo, keep, back)
        for row in range(side_y.shape[1]):
            for cell in range(side_x.shape[1]):
                here = dt * max(side_x[0, cell], side_y[0, row])
                at_u, at_v = dt * max(side_x[1, cell], side_y[0, row]), dt * max(side_x[0, cell], side_y[1, row])
                if max(here, at_u, at_v) > 0.0:
                    lost = (at_u / (1.0 + at_u), at_v / (1.0 + at_v), here / (1.0 + here))
                    added += _return(state, column, base, level, row + halo, cell + halo, lost)
    return added


@jit(math=STRICT)
def _calm(state, column, base, level, row, cell, keep, back):
    """Winds and theta of a cell toward those of the base, at the density that they have."""
    rho = state[0, level, row, cell] + column[0, level]
    west = state[0, level, row, cell - back] + column[0, level]
    south = state[0, level, row - back, cell] + column[0, level]
    densities = (0.5 * (west + rho), 0.5 * (south + rho), rho)
    for field in range(3):
        goal = densities[field] * base[field, level]
        state[1 + field, level, row, cell] = goal + keep * (state[1 + field, level, row, cell] - goal)
    goal = rho * base[3, level] - column[1, level]
    state[4, level, row, cell] = goal + keep * (state[4, level, row, cell] - goal)


@jit(math=STRICT)
def _return(state, column, base, level, row, cell, lost):
    """All fields of a cell toward the base; returns what is added to rho'."""
    added = -lost[2] * state[0, level, row, cell]
    state[0, level, row, cell] += added
    state[4, level, row, cell] -= lost[2] * state[4, level, row, cell]
    for field in range(3):
        goal = column[0, level] * base[field, level]
        state[1 + field, level, row, cell] -= lost[field] * (state[1 + field, level, row, cell] - goal)
    return added
