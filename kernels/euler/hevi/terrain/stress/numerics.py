"""The arithmetic of a cell of mixing over terrain, written once for CPU and GPU. Arrays: as in `reference`.

k, j, i: of the cell; b: the level below it; low, high: the levels below and above it, or its own beside ground and lid;
one: 1, of the type of the indices.
"""

from __future__ import annotations

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.hevi.constants import PER_FACE
from hpckit.kernels.euler.hevi.terrain.constants import (
    J_U,
    J_V,
    PER_W,
    SIZE,
    SLOPE_U,
    SLOPE_V,
    SLOPE_X,
    SLOPE_Y,
    STEEP,
)


@inlined
def per_gap_of(levels, k, nz):
    """1 / the distance of the middles around level k, or from its own beside ground and lid."""
    gap = 1.0 / levels[PER_FACE, k] if k > 0 else 0.0
    return 1.0 / (gap + (1.0 / levels[PER_FACE, k + 1] if k + 1 < nz else 0.0))


@inlined
def middles(air, metric, per_dx, per_dy, per_cell, per_gap, gate, low, k, high, j, i, one):
    """du/dx, dv/dy and dw/dz in the middle of a cell; gate: 0 below the lid, where w is 0, else 1."""
    u, v, w = air[0], air[1], air[2]
    per_size = 1.0 / metric[SIZE, k, j, i]
    rise_u = ((u[high, j, i] - u[low, j, i]) + (u[high, j, i + one] - u[low, j, i + one])) * (0.5 * per_gap)
    rise_v = ((v[high, j, i] - v[low, j, i]) + (v[high, j + one, i] - v[low, j + one, i])) * (0.5 * per_gap)
    slope_x = 0.5 * (metric[SLOPE_U, k, j, i] + metric[SLOPE_U, k, j, i + one])
    slope_y = 0.5 * (metric[SLOPE_V, k, j, i] + metric[SLOPE_V, k, j + one, i])
    u_x = (u[k, j, i + one] - u[k, j, i]) * per_dx - slope_x * per_size * rise_u
    v_y = (v[k, j + one, i] - v[k, j, i]) * per_dy - slope_y * per_size * rise_v
    return u_x, v_y, (gate * w[high, j, i] - w[k, j, i]) * (per_cell * per_size)


@inlined
def corners(air, metric, per_dx, per_dy, per_gap, low, k, high, j, i, one):
    """du/dy and dv/dx at the low corner of a cell in x and y."""
    u, v, west, south = air[0], air[1], i - one, j - one
    rise_u = ((u[high, j, i] - u[low, j, i]) + (u[high, south, i] - u[low, south, i])) * (0.5 * per_gap)
    rise_v = ((v[high, j, i] - v[low, j, i]) + (v[high, j, west] - v[low, j, west])) * (0.5 * per_gap)
    per_size = 2.0 / (metric[J_U, k, south, i] + metric[J_U, k, j, i])
    slope_x = 0.5 * (metric[SLOPE_U, k, south, i] + metric[SLOPE_U, k, j, i])
    slope_y = 0.5 * (metric[SLOPE_V, k, j, west] + metric[SLOPE_V, k, j, i])
    u_y = (u[k, j, i] - u[k, south, i]) * per_dy - slope_y * per_size * rise_u
    return u_y, (v[k, j, i] - v[k, j, west]) * per_dx - slope_x * per_size * rise_v


@inlined
def edges_xz(air, metric, per_dx, per_face, per_thick, gate, b, k, high, j, i, one):
    """du/dz and dw/dx at the low edge in x and z of a cell above the ground; per_thick: 1 / (two levels)."""
    u, w, west = air[0], air[2], i - one
    first, second = metric[PER_W, k, j, west], metric[PER_W, k, j, i]
    per_tall = 2.0 * (first * second) / (first + second)
    slope = 0.5 * (metric[SLOPE_X, k, j, west] + metric[SLOPE_X, k, j, i])
    rise = gate * (w[high, j, west] + w[high, j, i]) - (w[b, j, west] + w[b, j, i])
    u_z = (u[k, j, i] - u[b, j, i]) * (per_face * per_tall)
    return u_z, (w[k, j, i] - w[k, j, west]) * per_dx - slope * per_tall * (rise * (0.5 * per_thick))


@inlined
def edges_yz(air, metric, per_dy, per_face, per_thick, gate, b, k, high, j, i, one):
    """dv/dz and dw/dy at the low edge in y and z of a cell above the ground."""
    v, w, south = air[1], air[2], j - one
    first, second = metric[PER_W, k, south, i], metric[PER_W, k, j, i]
    per_tall = 2.0 * (first * second) / (first + second)
    slope = 0.5 * (metric[SLOPE_Y, k, south, i] + metric[SLOPE_Y, k, j, i])
    rise = gate * (w[high, south, i] + w[high, j, i]) - (w[b, south, i] + w[b, j, i])
    v_z = (v[k, j, i] - v[b, j, i]) * (per_face * per_tall)
    return v_z, (w[k, j, i] - w[k, south, i]) * per_dy - slope * per_tall * (rise * (0.5 * per_thick))


@inlined
def squares(rows, gate, k, high, j, i, one):
    """The squared deformation of a cell; gate: 0 below the lid, whose edges have no shear."""
    e, n = i + one, j + one
    normal = rows[0, k, j, i] ** 2 + rows[1, k, j, i] ** 2 + rows[2, k, j, i] ** 2
    corner = (rows[3, k, j, i] + rows[4, k, j, i]) ** 2 + (rows[3, k, j, e] + rows[4, k, j, e]) ** 2
    corner += (rows[3, k, n, i] + rows[4, k, n, i]) ** 2 + (rows[3, k, n, e] + rows[4, k, n, e]) ** 2
    edge = (rows[5, k, j, i] + rows[6, k, j, i]) ** 2 + (rows[5, k, j, e] + rows[6, k, j, e]) ** 2
    edge += (rows[7, k, j, i] + rows[8, k, j, i]) ** 2 + (rows[7, k, n, i] + rows[8, k, n, i]) ** 2
    above = (rows[5, high, j, i] + rows[6, high, j, i]) ** 2 + (rows[5, high, j, e] + rows[6, high, j, e]) ** 2
    above += (rows[7, high, j, i] + rows[8, high, j, i]) ** 2 + (rows[7, high, n, i] + rows[8, high, n, i]) ** 2
    return 2.0 * normal + 0.25 * (corner + (edge + gate * above))


@inlined
def stability(theta, dry, metric, per_gap, low, k, high, j, i):
    """D theta/dz over theta of a cell, theta that of density. dry: 1 / (1 + q_t)."""
    rise = theta[high, j, i] * dry[high, j, i] - theta[low, j, i] * dry[low, j, i]
    return rise * per_gap / (metric[SIZE, k, j, i] * (theta[k, j, i] * dry[k, j, i]))


@inlined
def steepness(metric, per_cell, k, j, i, one):
    """(1 + z_x2 + z_y2) / (J dzeta)2 of a cell."""
    slope_x = 0.5 * (metric[SLOPE_U, k, j, i] + metric[SLOPE_U, k, j, i + one])
    slope_y = 0.5 * (metric[SLOPE_V, k, j, i] + metric[SLOPE_V, k, j + one, i])
    rate = per_cell / metric[SIZE, k, j, i]
    return (1.0 + slope_x * slope_x + slope_y * slope_y) * (rate * rate)


@inlined
def upward_u(rows, metric, b, k, j, i, one):
    """What passes the low edge in x and z of a cell above the ground, of the stress on u."""
    west, north = i - one, j + one
    slope_x = 0.5 * (metric[SLOPE_X, k, j, west] + metric[SLOPE_X, k, j, i])
    slope_y = 0.5 * (metric[SLOPE_Y, k, j, west] + metric[SLOPE_Y, k, j, i])
    along_x = 0.25 * ((rows[0, b, j, west] + rows[0, b, j, i]) + (rows[0, k, j, west] + rows[0, k, j, i]))
    along_y = 0.25 * ((rows[3, b, j, i] + rows[3, b, north, i]) + (rows[3, k, j, i] + rows[3, k, north, i]))
    return rows[5, k, j, i] - slope_x * along_x - slope_y * along_y


@inlined
def upward_v(rows, metric, b, k, j, i, one):
    """The same at the low edge in y and z, of the stress on v."""
    south, east = j - one, i + one
    slope_x = 0.5 * (metric[SLOPE_X, k, south, i] + metric[SLOPE_X, k, j, i])
    slope_y = 0.5 * (metric[SLOPE_Y, k, south, i] + metric[SLOPE_Y, k, j, i])
    along_x = 0.25 * ((rows[4, b, j, i] + rows[4, b, j, east]) + (rows[4, k, j, i] + rows[4, k, j, east]))
    along_y = 0.25 * ((rows[1, b, south, i] + rows[1, b, j, i]) + (rows[1, k, south, i] + rows[1, k, j, i]))
    return rows[7, k, j, i] - slope_x * along_x - slope_y * along_y


@inlined
def upward_w(rows, metric, gate, k, high, j, i, one):
    """The same in the middle of a cell, of the stress on w; gate: 0 below the lid."""
    north, east = j + one, i + one
    slope_x = 0.5 * (metric[SLOPE_U, k, j, i] + metric[SLOPE_U, k, j, east])
    slope_y = 0.5 * (metric[SLOPE_V, k, j, i] + metric[SLOPE_V, k, north, i])
    along_x = rows[6, k, j, i] + rows[6, k, j, east] + gate * (rows[6, high, j, i] + rows[6, high, j, east])
    along_y = rows[8, k, j, i] + rows[8, k, north, i] + gate * (rows[8, high, j, i] + rows[8, high, north, i])
    return rows[2, k, j, i] - slope_x * (0.25 * along_x) - slope_y * (0.25 * along_y)


@inlined
def across_u(rows, metric, per_dx, per_dy, k, j, i, one):
    """What the stress on u brings to J rho u through the faces across x and y."""
    west, south, north = i - one, j - one, j + one
    x = metric[SIZE, k, j, i] * rows[0, k, j, i] - metric[SIZE, k, j, west] * rows[0, k, j, west]
    y = 0.5 * (metric[J_U, k, j, i] + metric[J_U, k, north, i]) * rows[3, k, north, i]
    y -= 0.5 * (metric[J_U, k, south, i] + metric[J_U, k, j, i]) * rows[3, k, j, i]
    return x * per_dx + y * per_dy


@inlined
def across_v(rows, metric, per_dx, per_dy, k, j, i, one):
    """The same of v."""
    south, east = j - one, i + one
    x = 0.5 * (metric[J_U, k, south, east] + metric[J_U, k, j, east]) * rows[4, k, j, east]
    x -= 0.5 * (metric[J_U, k, south, i] + metric[J_U, k, j, i]) * rows[4, k, j, i]
    y = metric[SIZE, k, j, i] * rows[1, k, j, i] - metric[SIZE, k, south, i] * rows[1, k, south, i]
    return x * per_dx + y * per_dy


@inlined
def across_w(rows, metric, per_dx, per_dy, k, j, i, one):
    """The same of w."""
    west, east, south, north = i - one, i + one, j - one, j + one
    here = 1.0 / metric[PER_W, k, j, i]
    x = 0.5 * (here + 1.0 / metric[PER_W, k, j, east]) * rows[6, k, j, east]
    x -= 0.5 * (1.0 / metric[PER_W, k, j, west] + here) * rows[6, k, j, i]
    y = 0.5 * (here + 1.0 / metric[PER_W, k, north, i]) * rows[8, k, north, i]
    y -= 0.5 * (1.0 / metric[PER_W, k, south, i] + here) * rows[8, k, j, i]
    return x * per_dx + y * per_dy


@inlined
def along_x(q, mu, metric, per_dx, per_gap, low, k, high, j, i, y, x, one):
    """The flux of a scalar through the low face of a cell across x. j, i: of mu and metric; y, x: of q."""
    west, before = i - one, x - one
    rise = ((q[high, y, before] - q[low, y, before]) + (q[high, y, x] - q[low, y, x])) * (0.5 * per_gap)
    gradient = metric[J_U, k, j, i] * ((q[k, y, x] - q[k, y, before]) * per_dx) - metric[SLOPE_U, k, j, i] * rise
    return 0.5 * (mu[k, j, west] + mu[k, j, i]) * gradient


@inlined
def along_y(q, mu, metric, per_dy, per_gap, low, k, high, j, i, y, x, one):
    """The same across y."""
    south, before = j - one, y - one
    rise = ((q[high, before, x] - q[low, before, x]) + (q[high, y, x] - q[low, y, x])) * (0.5 * per_gap)
    gradient = metric[J_V, k, j, i] * ((q[k, y, x] - q[k, before, x]) * per_dy) - metric[SLOPE_V, k, j, i] * rise
    return 0.5 * (mu[k, south, i] + mu[k, j, i]) * gradient


@inlined
def upward(q, mu, metric, per_dx, per_dy, per_face, below, above, b, k, j, i, y, x, one):
    """The same through the low face of a level above the ground."""
    across = below * (q[b, y, x + one] - q[b, y, x - one]) + above * (q[k, y, x + one] - q[k, y, x - one])
    along = below * (q[b, y + one, x] - q[b, y - one, x]) + above * (q[k, y + one, x] - q[k, y - one, x])
    gradient = metric[STEEP, k, j, i] * ((q[k, y, x] - q[b, y, x]) * per_face)
    gradient -= metric[SLOPE_X, k, j, i] * (across * (0.5 * per_dx)) + metric[SLOPE_Y, k, j, i] * (
        along * (0.5 * per_dy)
    )
    return 0.5 * (mu[b, j, i] + mu[k, j, i]) * gradient
