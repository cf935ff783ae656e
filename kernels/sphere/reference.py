"""Shallow water on a cubed sphere, NumPy: what the kernels compute, for tests and readers.

The state is the depth h and the velocity v in space, three components that stay tangent to the sphere, so that nothing
turns at the seams but the order of cells. A panel is the gnomonic view of a face of a cube in equal angles x and y; its
lines of cells are great circles.

At each edge, upwind values of fifth order from both sides meet in the linear Riemann problem of waves normal to it,
which gives a mass flux, the level h + b of the surface, and the velocity that is carried. Depth changes by the mass
fluxes through the exact lengths and areas, so that mass is exact; velocity in the form

    dv/dt = -(x' dv/dx + y' dv/dy) - g grad(h + b) - 2 omega . r (r x v), then made tangent,

with differences between edges along the lines of cells, so that water at rest stays at rest over any bottom.

Beyond a seam the line of cells of this panel goes on between the cells of the next: their rows are interpolated along
themselves. Both panels then see an edge of the seam from their own line; the mass flux is the mean of the two views,
which both compute from the same values. Fields [components, panels, ny + 6, nx + 6]; ghosts [components, cells] in the
order of `plan.grid.panels`; bottom like one component.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.sphere.constants import DEPTH, HALO, ORDER, SEAM, START, Physics, Tables, X, Z

LINES = ((0, -1), (1, 1), (0, -1), (1, 1))


def copy(values: np.ndarray, places: np.ndarray, ghosts: np.ndarray, targets: np.ndarray) -> None:
    """The cells at `targets` of the ghosts become those at `places` of values [components, cells]."""
    ghosts[:, targets] = values[:, places]


def fill(state: np.ndarray, ghosts: np.ndarray, tables: Tables) -> None:
    """Put what lies beyond the sides into the halo of the state, whose corners stay as they are."""
    _, panels, high, wide = state.shape
    for panel in range(panels):
        for side in range(4):
            for row in range(HALO):
                values = _row(ghosts, tables, panel, side, row, 0)
                if tables.sides[panel, side, SEAM]:
                    values = _interpolated(values, tables, panel, side, row)
                place = HALO - 1 - row if side in (0, 2) else (wide if side == 1 else high) - HALO + row
                if side < 2:
                    state[:, panel, HALO : high - HALO, place] = values
                else:
                    state[:, panel, place, HALO : wide - HALO] = values


def seam_flux(ghosts: np.ndarray, bottom_ghosts: np.ndarray, tables: Tables, physics: Physics, out: np.ndarray) -> None:
    """The mass fluxes through the edges of seams as the next panel sees them, m2/s: out [panels, 4, cells]."""
    whole = np.concatenate([ghosts, ghosts[DEPTH] + bottom_ghosts])
    for panel in range(len(tables.sides)):
        for side in range(4):
            if not tables.sides[panel, side, SEAM]:
                continue
            start, count = _owned(tables, side)
            first = start - tables.sides[panel, side, START]
            theirs = [_row(whole, tables, panel, side, row, 0)[:, first : first + count] for row in range(HALO)]
            mine = [
                _interpolated(_row(whole, tables, panel, side, row, HALO), tables, panel, side, row)
                for row in range(HALO)
            ]
            normals = tables.edge_x[panel] if side < 2 else tables.edge_y[panel]
            normal = normals[:, 0 if side in (0, 2) else -1]
            far = _upwind(theirs[2], theirs[1], theirs[0], mine[0], mine[1])
            near = _upwind(mine[2], mine[1], mine[0], theirs[0], theirs[1])
            low, high = (far, near) if side in (0, 2) else (near, far)
            out[panel, side, :count] = _edge(low, high, normal[:, None], physics)[0]


def stage(
    state: np.ndarray,
    base: np.ndarray,
    bottom: np.ndarray,
    seams: np.ndarray,
    tables: Tables,
    physics: Physics,
    dt: float,
    share: float,
    out: np.ndarray,
) -> None:
    """Out = (1 - share) base + share (state + dt d state/dt) in the owned cells; out may be base, not state."""
    own = slice(HALO, -HALO)
    for panel in range(state.shape[1]):
        whole = np.concatenate([state[:, panel], (state[DEPTH, panel] + bottom[panel])[None]])
        now = state[:, panel, own, own]
        x = _edges(whole[:, own], tables.edge_x[panel][:, None, :], physics)
        y = _edges(whole[:, :, own].swapaxes(1, 2), tables.edge_y[panel][:, None, :], physics)
        y = [each.swapaxes(-1, -2) for each in y]
        for side, flux in enumerate((x[0][:, 0], x[0][:, -1], y[0][0], y[0][-1])):
            if tables.sides[panel, side, SEAM]:
                flux[...] = 0.5 * (flux + seams[panel, side, : len(flux)])
        new = np.empty_like(now)
        out_x, out_y = x[0] * tables.length_x, y[0] * tables.length_y
        new[DEPTH] = -(np.diff(out_x, axis=1) + np.diff(out_y, axis=0)) * tables.per_area
        velocity, stretch = now[X : Z + 1], tables.stretch
        along_x, along_y = tables.along_x[panel][:, None, :], tables.along_y[panel][:, :, None]
        ahead_x, ahead_y = ((velocity * along).sum(axis=0) * stretch for along in (along_x, along_y))
        force = -ahead_x * np.diff(x[2], axis=2) - ahead_y * np.diff(y[2], axis=1)
        force -= physics.gravity * stretch * (np.diff(x[1], axis=1) * along_x + np.diff(y[1], axis=0) * along_y)
        middle, right, up = tables.frames[panel][:, :, None, None]
        radial = (middle + right * tables.tan_x + up * tables.tan_y[:, None]) / stretch
        turn = 2.0 * (physics.x * radial[0] + physics.y * radial[1] + physics.z * radial[2])
        force -= turn * np.cross(radial, velocity, axis=0)
        new[X : Z + 1] = force - radial * (force * radial).sum(axis=0)
        out[:, panel, own, own] = (1 - share) * base[:, panel, own, own] + share * (now + dt * new)


def _owned(tables: Tables, side: int) -> tuple[int, int]:
    """The first of the rank's cells along a side, and how many."""
    along = 0 if side < 2 else 1
    return int(tables.start[along]), tables.per_area.shape[along]


def _row(ghosts: np.ndarray, tables: Tables, panel: int, side: int, row: int, skip: int) -> np.ndarray:
    """A row of the ghosts of a side; skip: HALO for the rows of the panel's own at a seam."""
    _, first, _, count = tables.sides[panel, side]
    begin = first + (skip + row) * count
    return ghosts[:, begin : begin + count]


def _interpolated(values: np.ndarray, tables: Tables, panel: int, side: int, row: int) -> np.ndarray:
    """A row of the next panel at the lines of this one."""
    start, count = _owned(tables, side)
    places = tables.near[row, start : start + count] - tables.sides[panel, side, START]
    weights = tables.weights[row, start : start + count]
    total = weights[:, 0] * values[:, places]
    for k in range(1, ORDER):
        total = total + weights[:, k] * values[:, places + k]
    return total


def _upwind(*cells: np.ndarray) -> np.ndarray:
    a, b, c, d, e = cells
    return (2.0 * a - 13.0 * b + 47.0 * c + 27.0 * d - 3.0 * e) / 60.0


def _edges(line: np.ndarray, normal: np.ndarray, physics: Physics) -> list[np.ndarray]:
    """The edges along the last axis of the owned cells."""
    count = line.shape[-1] - 2 * HALO + 1
    cell = [line[..., k : k + count] for k in range(2 * HALO)]
    return _edge(_upwind(*cell[:5]), _upwind(*cell[:0:-1]), normal, physics)


def _edge(low: np.ndarray, high: np.ndarray, normal: np.ndarray, physics: Physics) -> list[np.ndarray]:
    """Mass flux per length, level and carried velocity of edges between two upwind states with their levels."""
    speed_low, speed_high = ((each[X : Z + 1] * normal).sum(axis=0) for each in (low, high))
    wave = np.sqrt(physics.gravity * 0.5 * (low[DEPTH] + high[DEPTH]))
    speed = 0.5 * (speed_low + speed_high) - 0.5 * physics.gravity / wave * (high[-1] - low[-1])
    level = 0.5 * (low[-1] + high[-1]) - 0.5 * wave / physics.gravity * (speed_high - speed_low)
    carried = np.where(speed > 0, low, high)
    return [speed * carried[DEPTH], level, carried[X : Z + 1]]
