"""Shallow water on a cubed sphere, Numba: a row of edges in y, a row of edges in x, then the row of cells between.

Places that follow from tables are unsigned: else each would be looked at for whether it counts from the end, which
costs a copy of single numbers as much again.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.sphere.constants import DEPTH, HALO, SEAM, X, Y, Z
from hpckit.kernels.sphere.numerics import crossing, level_between, upwind

u8 = np.uint64
MASS, LEVEL = 0, 4  # rows of the edges: the flux, the carried velocity (X, Y, Z), the level


@jit
def copy(values, places, ghosts, targets):
    for part in range(u8(values.shape[0])):
        for k in range(u8(len(places))):
            ghosts[part, u8(targets[k])] = values[part, u8(places[k])]


@jit
def fill(state, ghosts, tables):
    high, wide = tables.per_area.shape
    for panel in range(state.shape[1]):
        for side in range(4):
            along = 0 if side < 2 else 1
            count, start = tables.per_area.shape[along], tables.start[along]
            seam, first, before, length = tables.sides[panel, side]
            for cell in range(count):
                for row in range(HALO):  # the rows of a cell lie side by side where a column is filled
                    place = HALO - 1 - row
                    if side == 1:
                        place = HALO + wide + row
                    if side == 3:
                        place = HALO + high + row
                    y, x = (u8(HALO + cell), u8(place)) if side < 2 else (u8(place), u8(HALO + cell))
                    at = first + row * length
                    if seam:
                        at += tables.near[row, start + cell] - before
                        weights = _weights(tables, row, start + cell)
                        for part in range(u8(state.shape[0])):
                            state[part, u8(panel), y, x] = _between(ghosts[part], at, weights)
                    else:
                        for part in range(u8(state.shape[0])):
                            state[part, u8(panel), y, x] = ghosts[part, u8(at + cell)]


@inlined
def _weights(tables, row, cell):
    """The weights of a cell of a row beyond a side."""
    w, r, c = tables.weights, u8(row), u8(cell)
    return w[r, c, u8(0)], w[r, c, u8(1)], w[r, c, u8(2)], w[r, c, u8(3)], w[r, c, u8(4)], w[r, c, u8(5)]


@inlined
def _between(values, at, weights):
    """A value on the lines of the other panel.

    Number by number: places follow from a table, and registers gathered from them take six times as long. Nothing says
    that what is read and what is written lie apart, so that the compiler leaves it so.
    """
    place = u8(at)
    total = weights[0] * values[place]
    total += weights[1] * values[place + u8(1)]
    total += weights[2] * values[place + u8(2)]
    total += weights[3] * values[place + u8(3)]
    total += weights[4] * values[place + u8(4)]
    total += weights[5] * values[place + u8(5)]
    return total


@jit
def seam_flux(ghosts, bottom_ghosts, tables, physics, out):
    level = ghosts[DEPTH] + bottom_ghosts[0]
    most = max(tables.per_area.shape)
    mine, theirs, sides = np.empty((5, HALO, most)), np.empty((5, HALO, most)), np.empty((2, 5, most))
    for panel in range(tables.sides.shape[0]):
        for side in range(4):
            seam, first, before, length = tables.sides[panel, side]
            if not seam:
                continue
            along, low = (0 if side < 2 else 1), (0 if side in (0, 2) else 1)
            count, start = tables.per_area.shape[along], tables.start[along]
            normals = tables.edge_x[panel] if side < 2 else tables.edge_y[panel]
            # Rows of this panel on the lines of the next, and rows of that.
            for cell in range(count):
                for row in range(HALO):
                    at = first + (HALO + row) * length + tables.near[row, start + cell] - before
                    weights = _weights(tables, row, start + cell)
                    for part in range(u8(4)):
                        mine[part, u8(row), u8(cell)] = _between(ghosts[part], at, weights)
                    mine[4, u8(row), u8(cell)] = _between(level, at, weights)
            for row in range(HALO):
                begin = first + row * length + start - before
                theirs[:4, row, :count] = ghosts[:, begin : begin + count]
                theirs[4, row, :count] = level[begin : begin + count]
            for part in range(5):
                _both(count, mine[part], theirs[part], sides[low, part], sides[1 - low, part])
            _mass(count, sides[0], sides[1], normals[:, -low], physics.gravity, out[panel, side])


@jit(noalias=True, borrowed=True)
def _both(count, mine, theirs, far, near):
    """What the rows of two panels make of the edges between them, seen from either."""
    for i in range(u8(count)):
        far[i] = upwind(theirs[2, i], theirs[1, i], theirs[0, i], mine[0, i], mine[1, i])
        near[i] = upwind(mine[2, i], mine[1, i], mine[0, i], theirs[0, i], theirs[1, i])


@jit(noalias=True, borrowed=True)
def _mass(count, low, high, normal, gravity, out):
    """The mass fluxes of edges between two states."""
    for i in range(count):
        speed_low = low[X, i] * normal[0] + low[Y, i] * normal[1] + low[Z, i] * normal[2]
        speed_high = high[X, i] * normal[0] + high[Y, i] * normal[1] + high[Z, i] * normal[2]
        speed, _ = crossing(low[DEPTH, i], high[DEPTH, i], low[4, i], high[4, i], speed_low, speed_high, gravity)
        out[i] = speed * (low[DEPTH, i] if speed > 0 else high[DEPTH, i])


@jit(noalias=True, borrowed=True)
def _edge_row(count, h, x, y, z, b, normal_x, normal_y, normal_z, gravity, mass, level, out_x, out_y, out_z):
    """A row of edges; h, x, y, z, b: the cells around them, six rows each."""
    h0, h1, h2, h3, h4, h5 = h
    x0, x1, x2, x3, x4, x5 = x
    y0, y1, y2, y3, y4, y5 = y
    z0, z1, z2, z3, z4, z5 = z
    b0, b1, b2, b3, b4, b5 = b
    for i in range(count):
        low_h, high_h = upwind(h0[i], h1[i], h2[i], h3[i], h4[i]), upwind(h5[i], h4[i], h3[i], h2[i], h1[i])
        low_x, high_x = upwind(x0[i], x1[i], x2[i], x3[i], x4[i]), upwind(x5[i], x4[i], x3[i], x2[i], x1[i])
        low_y, high_y = upwind(y0[i], y1[i], y2[i], y3[i], y4[i]), upwind(y5[i], y4[i], y3[i], y2[i], y1[i])
        low_z, high_z = upwind(z0[i], z1[i], z2[i], z3[i], z4[i]), upwind(z5[i], z4[i], z3[i], z2[i], z1[i])
        s1, s2, s3, s4 = h1[i] + b1[i], h2[i] + b2[i], h3[i] + b3[i], h4[i] + b4[i]
        low_level, high_level = upwind(h0[i] + b0[i], s1, s2, s3, s4), upwind(h5[i] + b5[i], s4, s3, s2, s1)
        low_speed = low_x * normal_x[i] + low_y * normal_y[i] + low_z * normal_z[i]
        high_speed = high_x * normal_x[i] + high_y * normal_y[i] + high_z * normal_z[i]
        speed, wave = crossing(low_h, high_h, low_level, high_level, low_speed, high_speed, gravity)
        forward = speed > 0
        mass[i] = speed * (low_h if forward else high_h)
        level[i] = level_between(low_level, high_level, low_speed, high_speed, wave, gravity)
        out_x[i] = low_x if forward else high_x
        out_y[i] = low_y if forward else high_y
        out_z[i] = low_z if forward else high_z


@jit(noalias=True, borrowed=True)
def _cell_row(count, state, base, edges, below, above, tables, physics, numbers, out):
    """A row of cells. state, base, out: the rows of h, x, y, z; edges: in x; below, above: in y."""
    h, x, y, z = state
    base_h, base_x, base_y, base_z = base
    length_x, length_below, length_above, per_area, stretch, along_x, tan_x = tables
    (nx, ny, nz), (mx, my, mz), (rx, ry, rz), dt, share = numbers
    out_h, out_x, out_y, out_z = out
    gravity, keep = physics.gravity, 1.0 - share
    for i in range(count):
        flow = edges[MASS, i + 1] * length_x[i + 1] - edges[MASS, i] * length_x[i]
        flow += above[MASS, i] * length_above[i] - below[MASS, i] * length_below[i]
        ax, ay, az = along_x[0, i], along_x[1, i], along_x[2, i]
        ahead_x = (x[i] * ax + y[i] * ay + z[i] * az) * stretch[i]
        ahead_y = (x[i] * nx + y[i] * ny + z[i] * nz) * stretch[i]
        slope = gravity * stretch[i]
        slope_x = slope * (edges[LEVEL, i + 1] - edges[LEVEL, i])
        slope_y = slope * (above[LEVEL, i] - below[LEVEL, i])
        near = 1.0 / stretch[i]
        px, py, pz = (mx + rx * tan_x[i]) * near, (my + ry * tan_x[i]) * near, (mz + rz * tan_x[i]) * near
        turn = 2.0 * (physics.x * px + physics.y * py + physics.z * pz)
        fx = -ahead_x * (edges[X, i + 1] - edges[X, i]) - ahead_y * (above[X, i] - below[X, i])
        fy = -ahead_x * (edges[Y, i + 1] - edges[Y, i]) - ahead_y * (above[Y, i] - below[Y, i])
        fz = -ahead_x * (edges[Z, i + 1] - edges[Z, i]) - ahead_y * (above[Z, i] - below[Z, i])
        fx -= slope_x * ax + slope_y * nx + turn * (py * z[i] - pz * y[i])
        fy -= slope_x * ay + slope_y * ny + turn * (pz * x[i] - px * z[i])
        fz -= slope_x * az + slope_y * nz + turn * (px * y[i] - py * x[i])
        radial = fx * px + fy * py + fz * pz
        out_h[i] = keep * base_h[i] + share * (h[i] - dt * flow * per_area[i])
        out_x[i] = keep * base_x[i] + share * (x[i] + dt * (fx - radial * px))
        out_y[i] = keep * base_y[i] + share * (y[i] + dt * (fy - radial * py))
        out_z[i] = keep * base_z[i] + share * (z[i] + dt * (fz - radial * pz))


@jit
def stage(state, base, bottom, seams, tables, physics, dt, share, out):
    wide = tables.per_area.shape[1]
    scratch = np.empty((5, wide + 1)), np.empty((2, 5, wide)), np.empty((3, wide))
    _stage(state, base, bottom, seams, tables, physics, dt, share, out, scratch)


@jit(borrowed=True)
def _stage(state, base, bottom, seams, tables, physics, dt, share, out, scratch):
    high, wide = tables.per_area.shape
    edges, lines, normal = scratch
    for panel in range(state.shape[1]):
        sides = tables.sides[panel]
        for j in range(high + 1):
            above, below = lines[j % 2], lines[(j + 1) % 2]
            for c in range(3):
                normal[c, :] = tables.edge_y[panel, c, j]
            _edge_row(
                wide,
                _rows_y(state[DEPTH, panel], j, wide),
                _rows_y(state[X, panel], j, wide),
                _rows_y(state[Y, panel], j, wide),
                _rows_y(state[Z, panel], j, wide),
                _rows_y(bottom[panel], j, wide),
                normal[0],
                normal[1],
                normal[2],
                physics.gravity,
                above[MASS],
                above[LEVEL],
                above[X],
                above[Y],
                above[Z],
            )
            if (j == 0 and sides[2, SEAM]) or (j == high and sides[3, SEAM]):
                for i in range(wide):
                    above[MASS, i] = 0.5 * (above[MASS, i] + seams[panel, 2 if j == 0 else 3, i])
            if j == 0:
                continue
            row = j - 1
            _edge_row(
                wide + 1,
                _rows_x(state[DEPTH, panel, row + HALO], wide),
                _rows_x(state[X, panel, row + HALO], wide),
                _rows_x(state[Y, panel, row + HALO], wide),
                _rows_x(state[Z, panel, row + HALO], wide),
                _rows_x(bottom[panel, row + HALO], wide),
                tables.edge_x[panel, 0],
                tables.edge_x[panel, 1],
                tables.edge_x[panel, 2],
                physics.gravity,
                edges[MASS],
                edges[LEVEL],
                edges[X],
                edges[Y],
                edges[Z],
            )
            if sides[0, SEAM]:
                edges[MASS, 0] = 0.5 * (edges[MASS, 0] + seams[panel, 0, row])
            if sides[1, SEAM]:
                edges[MASS, wide] = 0.5 * (edges[MASS, wide] + seams[panel, 1, row])
            frame, along_y, tan_y = tables.frames[panel], tables.along_y[panel], tables.tan_y[row]
            numbers = (
                (along_y[0, row], along_y[1, row], along_y[2, row]),
                (
                    frame[0, 0] + frame[2, 0] * tan_y,
                    frame[0, 1] + frame[2, 1] * tan_y,
                    frame[0, 2] + frame[2, 2] * tan_y,
                ),
                (frame[1, 0], frame[1, 1], frame[1, 2]),
                dt,
                share,
            )
            shape = (
                tables.length_x[row],
                tables.length_y[row],
                tables.length_y[row + 1],
                tables.per_area[row],
                tables.stretch[row],
                tables.along_x[panel],
                tables.tan_x,
            )
            _cell_row(
                wide,
                _own(state, panel, row, wide),
                _own(base, panel, row, wide),
                edges,
                below,
                above,
                shape,
                physics,
                numbers,
                _own(out, panel, row, wide),
            )


@jit(borrowed=True)
def _rows_y(field, j, wide):
    end = HALO + wide
    return (
        field[j, HALO:end],
        field[j + 1, HALO:end],
        field[j + 2, HALO:end],
        field[j + 3, HALO:end],
        field[j + 4, HALO:end],
        field[j + 5, HALO:end],
    )


@jit(borrowed=True)
def _rows_x(line, wide):
    return (
        line[0 : wide + 1],
        line[1 : wide + 2],
        line[2 : wide + 3],
        line[3 : wide + 4],
        line[4 : wide + 5],
        line[5 : wide + 6],
    )


@jit(borrowed=True)
def _own(fields, panel, row, wide):
    end = HALO + wide
    return (
        fields[DEPTH, panel, row + HALO, HALO:end],
        fields[X, panel, row + HALO, HALO:end],
        fields[Y, panel, row + HALO, HALO:end],
        fields[Z, panel, row + HALO, HALO:end],
    )
