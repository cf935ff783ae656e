"""Rows of the split dynamics, Numba: what flat ground and terrain do alike."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit

u8 = np.uint64


@jit(noalias=True, borrowed=True)
def fill(out, value):
    """The same value everywhere."""
    for i in range(u8(len(out))):
        out[i] = value


@jit(noalias=True, borrowed=True)
def take(a, out):
    """A copy."""
    for i in range(u8(len(a))):
        out[i] = a[i]


@jit(noalias=True, borrowed=True)
def mean(a, b, out):
    """Of two rows."""
    for i in range(u8(len(a))):
        out[i] = 0.5 * (a[i] + b[i])


@jit(noalias=True, borrowed=True)
def add_mean(flux, state, fast, share):
    """Add a share of what passes a face: * and deviation together."""
    for i in range(u8(len(flux))):
        flux[i] += share * (state[i] + fast[i])


@jit(noalias=True, borrowed=True)
def add_mixed(flux, state, new, old, implicit, share):
    """The same of the mass flux upward, at the time level of the implicit step."""
    for i in range(u8(len(flux))):
        flux[i] += share * (state[i] + (implicit * new[i] + (1.0 - implicit) * old[i]))


@jit(noalias=True, borrowed=True)
def explicit_part(
    u, v, v_north, w, w_above, theta_south, theta, theta_north, theta_below, theta_above, rho, heat, slow_rho,
    slow_heat, stiff, dx, dy, dt, implicit, per_cell, below, above, below_up, above_up, gate, new_rho, new_heat, p,
):  # fmt: skip
    """Rho'' and Theta'' but for the new W'', and the pressure that they and the old ones make. theta: a cell ahead."""
    per_dx, per_dy, explicit = 1.0 / dx, 1.0 / dy, 1.0 - implicit
    for i in range(u8(len(rho))):
        here = theta[i + u8(1)]
        lower, upper = w[i], gate * w_above[i]
        u_low, u_high = u[i], u[i + u8(1)]
        div = (u_high - u_low) * per_dx + (v_north[i] - v[i]) * per_dy
        new_rho[i] = rho[i] + dt * (slow_rho[i] - div - explicit * ((upper - lower) * per_cell))
        warm_x = u_high * (0.5 * (here + theta[i + u8(2)])) - u_low * (0.5 * (theta[i] + here))
        warm_y = v_north[i] * (0.5 * (here + theta_north[i])) - v[i] * (0.5 * (theta_south[i] + here))
        warm_z = (below_up * here + above_up * theta_above[i]) * upper - (below * theta_below[i] + above * here) * lower
        carry = warm_x * per_dx + warm_y * per_dy + explicit * (warm_z * per_cell)
        new_heat[i] = heat[i] + dt * (slow_heat[i] - carry)
        p[i] = stiff[i] * (implicit * new_heat[i] + explicit * heat[i])


@jit(noalias=True, borrowed=True)
def back(factor, above, value):
    """One level of the tridiagonal system, backward."""
    for i in range(u8(len(value))):
        value[i] -= factor[i] * above[i]


@jit(noalias=True, borrowed=True)
def settle(
    w, w_above, theta_below, theta, theta_above, stiff, rho, heat, per_cell, below, above, below_up, above_up, step,
    damping, fast_rho, fast_w, fast_heat, pressure,
):  # fmt: skip
    """All deviations of a level with the new W''."""
    for i in range(u8(len(w))):
        fast_rho[i] = rho[i] - step * ((w_above[i] - w[i]) * per_cell)
        low, high = below * theta_below[i] + above * theta[i], below_up * theta[i] + above_up * theta_above[i]
        new = heat[i] - step * ((high * w_above[i] - low * w[i]) * per_cell)
        pressure[i] = stiff[i] * (new + damping * (new - fast_heat[i]))
        fast_heat[i] = new
        fast_w[i] = w[i]
