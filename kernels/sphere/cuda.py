"""Shallow water on a cubed sphere, CUDA: a thread a cell, which computes its four edges; in double precision."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.sphere.constants import COUNT, DEPTH, FIRST, HALO, ORDER, SEAM, START, Physics, Tables, X, Y, Z
from hpckit.kernels.sphere.numerics import crossing, level_between, upwind

THREADS = threads(128)


def copy(values: Any, places: Any, ghosts: Any, targets: Any) -> None:
    copy_kernel[(blocks(len(places), THREADS), len(values)), THREADS](values, places, ghosts, targets)


def fill(state: Any, ghosts: Any, tables: Tables) -> None:
    parts, panels = state.shape[:2]
    most = max(tables.per_area.shape)
    grid = blocks(most, THREADS), 4 * HALO, parts * panels
    fill_kernel[grid, THREADS](state, ghosts, *_sizes(tables))


def seam_flux(ghosts: Any, bottom_ghosts: Any, tables: Tables, physics: Physics, out: Any) -> None:
    grid = blocks(max(tables.per_area.shape), THREADS), 4, len(tables.sides)
    normals = tables.edge_x, tables.edge_y
    seam_kernel[grid, THREADS](ghosts, bottom_ghosts, *_sizes(tables), *normals, float(physics.gravity), out)


def stage(
    state: Any,
    base: Any,
    bottom: Any,
    seams: Any,
    tables: Tables,
    physics: Physics,
    dt: float,
    share: float,
    out: Any,
) -> None:
    high, wide = tables.per_area.shape
    numbers = tuple(map(float, (*physics, dt, share)))
    grid = blocks(wide, THREADS), high, state.shape[1]
    shape = tuple(tables[: Tables._fields.index("near")])
    stage_kernel[grid, THREADS](state, base, bottom, seams, shape, numbers, out)


def _sizes(tables: Tables) -> tuple[Any, ...]:
    """Where the rows of the sides are."""
    return tables.per_area, tables.sides, tables.near, tables.weights, tables.start


@inlined
def _beyond(ghosts, part, side, near, weights, start, row, skip, cell):
    """A value of a row beyond a side, on the line of this panel; skip: HALO for the panel's own rows."""
    begin = side[FIRST] + (skip + row) * side[COUNT]
    if not side[SEAM]:
        return ghosts[part, begin + cell]
    at = begin + near[row, start + cell] - side[START]
    total = weights[row, start + cell, 0] * ghosts[part, at]
    for k in range(1, ORDER):
        total += weights[row, start + cell, k] * ghosts[part, at + k]
    return total


@kernel
def copy_kernel(values, places, ghosts, targets):
    k, part = cuda.grid(1), cuda.blockIdx.y
    if k < len(places):
        ghosts[part, targets[k]] = values[part, places[k]]


@kernel
def fill_kernel(state, ghosts, per_area, sides, near, weights, start):
    cell, side, row = cuda.grid(1), cuda.blockIdx.y // HALO, cuda.blockIdx.y % HALO
    panel, part = cuda.blockIdx.z // state.shape[0], cuda.blockIdx.z % state.shape[0]
    high, wide = per_area.shape
    along = 0 if side < 2 else 1
    if cell < per_area.shape[along]:
        value = _beyond(ghosts, part, sides[panel, side], near, weights, start[along], row, 0, cell)
        if side == 0:
            state[part, panel, HALO + cell, HALO - 1 - row] = value
        elif side == 1:
            state[part, panel, HALO + cell, HALO + wide + row] = value
        elif side == 2:
            state[part, panel, HALO - 1 - row, HALO + cell] = value
        else:
            state[part, panel, HALO + high + row, HALO + cell] = value


@inlined
def _both(ghosts, part, side, near, weights, start, cell):
    """The values behind an edge of a seam and before it, on the line of the next panel."""
    at = side[FIRST] + start + cell - side[START]
    first, second = ghosts[part, at], ghosts[part, at + side[COUNT]]
    third = ghosts[part, at + 2 * side[COUNT]]
    mine = _beyond(ghosts, part, side, near, weights, start, 0, HALO, cell)
    next_one = _beyond(ghosts, part, side, near, weights, start, 1, HALO, cell)
    last = _beyond(ghosts, part, side, near, weights, start, 2, HALO, cell)
    return upwind(third, second, first, mine, next_one), upwind(last, next_one, mine, first, second)


@kernel
def seam_kernel(ghosts, bottom_ghosts, per_area, sides, near, weights, start, edge_x, edge_y, gravity, out):
    cell, number, panel = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    along = 0 if number < 2 else 1
    side = sides[panel, number]
    if cell < per_area.shape[along] and side[SEAM]:
        low = 0 if number == 0 or number == 2 else 1
        normals = edge_x if number < 2 else edge_y
        place = 0 if low == 0 else normals.shape[2] - 1
        first = start[along]
        far_h, near_h = _both(ghosts, DEPTH, side, near, weights, first, cell)
        far_b, near_b = _both(bottom_ghosts, 0, side, near, weights, first, cell)
        far_speed, near_speed = 0.0, 0.0
        for part in range(3):
            far_v, near_v = _both(ghosts, X + part, side, near, weights, first, cell)
            far_speed += far_v * normals[panel, part, place]
            near_speed += near_v * normals[panel, part, place]
        if low == 0:
            speed, _ = crossing(far_h, near_h, far_h + far_b, near_h + near_b, far_speed, near_speed, gravity)
            out[panel, number, cell] = speed * (far_h if speed > 0 else near_h)
        else:
            speed, _ = crossing(near_h, far_h, near_h + near_b, far_h + far_b, near_speed, far_speed, gravity)
            out[panel, number, cell] = speed * (near_h if speed > 0 else far_h)


@inlined
def _pair(field, panel, j, i, dj, di):
    """The upwind values of a component at the edge before cell (j, i), on both of its sides."""
    a, b = field[panel, j - 3 * dj, i - 3 * di], field[panel, j - 2 * dj, i - 2 * di]
    c, d = field[panel, j - dj, i - di], field[panel, j, i]
    e, f = field[panel, j + dj, i + di], field[panel, j + 2 * dj, i + 2 * di]
    return upwind(a, b, c, d, e), upwind(f, e, d, c, b)


@inlined
def _level_pair(depth, bottom, panel, j, i, dj, di):
    """The same of the level of the surface."""
    a = depth[panel, j - 3 * dj, i - 3 * di] + bottom[panel, j - 3 * dj, i - 3 * di]
    b = depth[panel, j - 2 * dj, i - 2 * di] + bottom[panel, j - 2 * dj, i - 2 * di]
    c, d = depth[panel, j - dj, i - di] + bottom[panel, j - dj, i - di], depth[panel, j, i] + bottom[panel, j, i]
    e = depth[panel, j + dj, i + di] + bottom[panel, j + dj, i + di]
    f = depth[panel, j + 2 * dj, i + 2 * di] + bottom[panel, j + 2 * dj, i + 2 * di]
    return upwind(a, b, c, d, e), upwind(f, e, d, c, b)


@inlined
def _edge(state, bottom, panel, j, i, dj, di, normals, place, gravity):
    """Mass flux, level and carried velocity of the edge before cell (j, i)."""
    low_h, high_h = _pair(state[DEPTH], panel, j, i, dj, di)
    low_x, high_x = _pair(state[X], panel, j, i, dj, di)
    low_y, high_y = _pair(state[Y], panel, j, i, dj, di)
    low_z, high_z = _pair(state[Z], panel, j, i, dj, di)
    low_level, high_level = _level_pair(state[DEPTH], bottom, panel, j, i, dj, di)
    nx, ny, nz = normals[panel, 0, place], normals[panel, 1, place], normals[panel, 2, place]
    low_speed, high_speed = low_x * nx + low_y * ny + low_z * nz, high_x * nx + high_y * ny + high_z * nz
    speed, wave = crossing(low_h, high_h, low_level, high_level, low_speed, high_speed, gravity)
    level = level_between(low_level, high_level, low_speed, high_speed, wave, gravity)
    if speed > 0:
        return speed * low_h, level, low_x, low_y, low_z
    return speed * high_h, level, high_x, high_y, high_z


@kernel
def stage_kernel(state, base, bottom, seams, shape, numbers, out):
    length_x, length_y, per_area, stretch, edge_x, edge_y, along_x, along_y, tan_x, tan_y, frames, sides = shape
    gravity, turn_x, turn_y, turn_z, dt, share = numbers
    i, j, panel = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    high, wide = per_area.shape
    if i >= wide:
        return
    row, column = j + HALO, i + HALO
    west, west_level, west_x, west_y, west_z = _edge(state, bottom, panel, row, column, 0, 1, edge_x, i, gravity)
    east, east_level, east_x, east_y, east_z = _edge(
        state, bottom, panel, row, column + 1, 0, 1, edge_x, i + 1, gravity
    )
    south, south_level, south_x, south_y, south_z = _edge(state, bottom, panel, row, column, 1, 0, edge_y, j, gravity)
    north, north_level, north_x, north_y, north_z = _edge(
        state, bottom, panel, row + 1, column, 1, 0, edge_y, j + 1, gravity
    )
    if i == 0 and sides[panel, 0, SEAM]:
        west = 0.5 * (west + seams[panel, 0, j])
    if i == wide - 1 and sides[panel, 1, SEAM]:
        east = 0.5 * (east + seams[panel, 1, j])
    if j == 0 and sides[panel, 2, SEAM]:
        south = 0.5 * (south + seams[panel, 2, i])
    if j == high - 1 and sides[panel, 3, SEAM]:
        north = 0.5 * (north + seams[panel, 3, i])
    flow = east * length_x[j, i + 1] - west * length_x[j, i] + north * length_y[j + 1, i] - south * length_y[j, i]
    h, x, y, z = (
        state[DEPTH, panel, row, column],
        state[X, panel, row, column],
        state[Y, panel, row, column],
        state[Z, panel, row, column],
    )
    ax, ay, az = along_x[panel, 0, i], along_x[panel, 1, i], along_x[panel, 2, i]
    bx, by, bz = along_y[panel, 0, j], along_y[panel, 1, j], along_y[panel, 2, j]
    wider = stretch[j, i]
    ahead_x, ahead_y = (x * ax + y * ay + z * az) * wider, (x * bx + y * by + z * bz) * wider
    slope_x, slope_y = gravity * wider * (east_level - west_level), gravity * wider * (north_level - south_level)
    tx, ty, near = tan_x[i], tan_y[j], 1.0 / wider
    px = (frames[panel, 0, 0] + tx * frames[panel, 1, 0] + ty * frames[panel, 2, 0]) * near
    py = (frames[panel, 0, 1] + tx * frames[panel, 1, 1] + ty * frames[panel, 2, 1]) * near
    pz = (frames[panel, 0, 2] + tx * frames[panel, 1, 2] + ty * frames[panel, 2, 2]) * near
    turn = 2.0 * (turn_x * px + turn_y * py + turn_z * pz)
    fx = -ahead_x * (east_x - west_x) - ahead_y * (north_x - south_x)
    fy = -ahead_x * (east_y - west_y) - ahead_y * (north_y - south_y)
    fz = -ahead_x * (east_z - west_z) - ahead_y * (north_z - south_z)
    fx -= slope_x * ax + slope_y * bx + turn * (py * z - pz * y)
    fy -= slope_x * ay + slope_y * by + turn * (pz * x - px * z)
    fz -= slope_x * az + slope_y * bz + turn * (px * y - py * x)
    radial, keep = fx * px + fy * py + fz * pz, 1.0 - share
    out[DEPTH, panel, row, column] = keep * base[DEPTH, panel, row, column] + share * (h - dt * flow * per_area[j, i])
    out[X, panel, row, column] = keep * base[X, panel, row, column] + share * (x + dt * (fx - radial * px))
    out[Y, panel, row, column] = keep * base[Y, panel, row, column] + share * (y + dt * (fy - radial * py))
    out[Z, panel, row, column] = keep * base[Z, panel, row, column] + share * (z + dt * (fz - radial * pz))
