"""The arithmetic of mixing at one cell and at one face, written once: pieces that become part of their callers.

Without fused operations on a CPU, so that a flux has the same bits on both sides of a cut. work, base, viscosity,
spacing: as in `reference`. k, j, i: a cell; of a face the cell above it. low, high: the levels below and above k, k
itself at ground and lid; per_z: 1 over their distance.
"""

from __future__ import annotations

from hpckit.kernels.compile.jit import STRICT, inlined


@inlined(math=STRICT)
def deformation(work, spacing, per_z, low, high, k, j, i):
    """D**2 and d(theta)/dz of a cell."""
    two_dx, two_dy = 2.0 * spacing[0], 2.0 * spacing[1]
    u_x = (work[1, k, j, i + 1] - work[1, k, j, i - 1]) / two_dx
    v_x = (work[2, k, j, i + 1] - work[2, k, j, i - 1]) / two_dx
    w_x = (work[3, k, j, i + 1] - work[3, k, j, i - 1]) / two_dx
    u_y = (work[1, k, j + 1, i] - work[1, k, j - 1, i]) / two_dy
    v_y = (work[2, k, j + 1, i] - work[2, k, j - 1, i]) / two_dy
    w_y = (work[3, k, j + 1, i] - work[3, k, j - 1, i]) / two_dy
    u_z = (work[1, high, j, i] - work[1, low, j, i]) * per_z
    v_z = (work[2, high, j, i] - work[2, low, j, i]) * per_z
    w_z = (work[3, high, j, i] - work[3, low, j, i]) * per_z
    theta_z = (work[4, high, j, i] - work[4, low, j, i]) * per_z
    d_xy, d_xz, d_yz = u_y + v_x, u_z + w_x, v_z + w_y
    # Added so that x and y may be exchanged: the bits of a turned box are turned.
    square = 2.0 * ((u_x * u_x + v_y * v_y) + w_z * w_z) + d_xy * d_xy + (d_xz * d_xz + d_yz * d_yz)
    return square, theta_z


@inlined(math=STRICT)
def fluxes_x(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i):
    """Fluxes of u, v, w and theta at the face between cells i - 1 and i."""
    dx, dy = spacing[0], spacing[1]
    shear = 2.0 * (base[0, high] - base[0, low])
    weight = 0.5 * (work[0, k, j, i - 1] * viscosity[k, j, i - 1] + work[0, k, j, i] * viscosity[k, j, i])
    u_y = (work[1, k, j + 1, i - 1] - work[1, k, j - 1, i - 1]) + (work[1, k, j + 1, i] - work[1, k, j - 1, i])
    u_z = (work[1, high, j, i - 1] - work[1, low, j, i - 1]) + (work[1, high, j, i] - work[1, low, j, i])
    return (
        weight * (2.0 * (work[1, k, j, i] - work[1, k, j, i - 1]) / dx),
        weight * ((work[2, k, j, i] - work[2, k, j, i - 1]) / dx + 0.25 * u_y / dy),
        weight * ((work[3, k, j, i] - work[3, k, j, i - 1]) / dx + 0.5 * (u_z - shear) * per_z),
        weight * ((work[4, k, j, i] - work[4, k, j, i - 1]) / dx) / prandtl,
    )


@inlined(math=STRICT)
def fluxes_y(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i):
    """The same at the face between rows j - 1 and j."""
    dx, dy = spacing[0], spacing[1]
    shear = 2.0 * (base[1, high] - base[1, low])
    weight = 0.5 * (work[0, k, j - 1, i] * viscosity[k, j - 1, i] + work[0, k, j, i] * viscosity[k, j, i])
    v_x = (work[2, k, j - 1, i + 1] - work[2, k, j - 1, i - 1]) + (work[2, k, j, i + 1] - work[2, k, j, i - 1])
    v_z = (work[2, high, j - 1, i] - work[2, low, j - 1, i]) + (work[2, high, j, i] - work[2, low, j, i])
    return (
        weight * ((work[1, k, j, i] - work[1, k, j - 1, i]) / dy + 0.25 * v_x / dx),
        weight * (2.0 * (work[2, k, j, i] - work[2, k, j - 1, i]) / dy),
        weight * ((work[3, k, j, i] - work[3, k, j - 1, i]) / dy + 0.5 * (v_z - shear) * per_z),
        weight * ((work[4, k, j, i] - work[4, k, j - 1, i]) / dy) / prandtl,
    )


@inlined(math=STRICT)
def fluxes_z(work, base, viscosity, spacing, prandtl, k, j, i):
    """The same at the face between levels k - 1 and k."""
    dx, dy, dz = spacing
    u, v, theta = base[0, k] - base[0, k - 1], base[1, k] - base[1, k - 1], base[3, k] - base[3, k - 1]
    weight = 0.5 * (work[0, k - 1, j, i] * viscosity[k - 1, j, i] + work[0, k, j, i] * viscosity[k, j, i])
    w_x = (work[3, k - 1, j, i + 1] - work[3, k - 1, j, i - 1]) + (work[3, k, j, i + 1] - work[3, k, j, i - 1])
    w_y = (work[3, k - 1, j + 1, i] - work[3, k - 1, j - 1, i]) + (work[3, k, j + 1, i] - work[3, k, j - 1, i])
    return (
        weight * ((work[1, k, j, i] - work[1, k - 1, j, i] - u) / dz + 0.25 * w_x / dx),
        weight * ((work[2, k, j, i] - work[2, k - 1, j, i] - v) / dz + 0.25 * w_y / dy),
        weight * (2.0 * (work[3, k, j, i] - work[3, k - 1, j, i]) / dz),
        weight * ((work[4, k, j, i] - work[4, k - 1, j, i] - theta) / dz) / prandtl,
    )


@inlined(math=STRICT)
def flux_at_wall(work, viscosity, dz, sign, k, j, i):
    """Flux of w at the ground (sign 1) or the lid (sign -1), beside level k: w is odd there."""
    return sign * 4.0 * (work[0, k, j, i] * viscosity[k, j, i]) * work[3, k, j, i] / dz


@inlined(math=STRICT)
def weight_of(state, column, viscosity, k, j, i):
    """Density times viscosity of a cell."""
    return (state[0, k, j, i] + column[0, k]) * viscosity[k, j, i]


@inlined(math=STRICT)
def tracer_change(q, state, column, viscosity, rates, low, high, k, j, i, y, x):
    """What diffusion adds to a tracer in the cell k, j, i, which is k, y, x of the state; rates: dt / (2 width**2)."""
    here = q[k, j, i]
    weight = weight_of(state, column, viscosity, k, y, x)
    along_x = (weight_of(state, column, viscosity, k, y, x + 1) + weight) * (q[k, j, i + 1] - here) - (
        weight + weight_of(state, column, viscosity, k, y, x - 1)
    ) * (here - q[k, j, i - 1])
    along_y = (weight_of(state, column, viscosity, k, y + 1, x) + weight) * (q[k, j + 1, i] - here) - (
        weight + weight_of(state, column, viscosity, k, y - 1, x)
    ) * (here - q[k, j - 1, i])
    along_z = (weight_of(state, column, viscosity, high, y, x) + weight) * (q[high, j, i] - here) - (
        weight + weight_of(state, column, viscosity, low, y, x)
    ) * (here - q[low, j, i])
    return (rates[0] * along_x + rates[1] * along_y + rates[2] * along_z) / (state[0, k, y, x] + column[0, k])
