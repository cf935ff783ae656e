"""Mixing by turbulence, Numba. Without fused operations: a flux has the same bits on both sides of a cut."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler2d.constants import GRAVITY, HALO
from hpckit.kernels.jit import STRICT, inlined, jit
from hpckit.kernels.tracers.constants import REACH


@jit(math=STRICT)
def eddy_viscosity(state, column, spacing, coefficient, prandtl, limit, work, viscosity):
    """As `reference.eddy_viscosity`."""
    levels, rows, cells = state.shape[1:]
    for level in range(levels):
        for row in range(HALO - 2, rows - HALO + 2):
            for cell in range(HALO - 2, cells - HALO + 2):
                rho = state[0, level, row, cell] + column[0, level]
                work[0, level, row, cell] = rho
                for field in range(1, 4):
                    work[field, level, row, cell] = state[field, level, row, cell] / rho
                work[4, level, row, cell] = (state[4, level, row, cell] + column[1, level]) / rho
    dx, dy, dz = spacing
    length = coefficient * (dx * dy * dz) ** (1.0 / 3.0)
    most = 0.0
    for k in range(levels):
        low, high = max(k - 1, 0), min(k + 1, levels - 1)
        per_z = 1.0 / ((high - low) * dz)
        for j in range(HALO - 1, rows - HALO + 1):
            for i in range(HALO - 1, cells - HALO + 1):
                u_x = (work[1, k, j, i + 1] - work[1, k, j, i - 1]) / (2.0 * dx)
                v_x = (work[2, k, j, i + 1] - work[2, k, j, i - 1]) / (2.0 * dx)
                w_x = (work[3, k, j, i + 1] - work[3, k, j, i - 1]) / (2.0 * dx)
                u_y = (work[1, k, j + 1, i] - work[1, k, j - 1, i]) / (2.0 * dy)
                v_y = (work[2, k, j + 1, i] - work[2, k, j - 1, i]) / (2.0 * dy)
                w_y = (work[3, k, j + 1, i] - work[3, k, j - 1, i]) / (2.0 * dy)
                u_z = (work[1, high, j, i] - work[1, low, j, i]) * per_z
                v_z = (work[2, high, j, i] - work[2, low, j, i]) * per_z
                w_z = (work[3, high, j, i] - work[3, low, j, i]) * per_z
                theta_z = (work[4, high, j, i] - work[4, low, j, i]) * per_z
                d_xy, d_xz, d_yz = u_y + v_x, u_z + w_x, v_z + w_y
                # Added so that x and y may be exchanged: the bits of a turned box are turned.
                square = (
                    2.0 * ((u_x * u_x + v_y * v_y) + w_z * w_z) + d_xy * d_xy + (d_xz * d_xz + d_yz * d_yz)
                )  # fmt: skip
                stability = GRAVITY * theta_z / work[4, k, j, i]
                mixing = length * length * np.sqrt(max(square - stability / prandtl, 0.0))
                mixing = min(mixing, limit)
                viscosity[k, j, i] = mixing
                if HALO <= j < rows - HALO and HALO <= i < cells - HALO:
                    most = max(most, mixing)
    return most


@jit(math=STRICT)
def mix(state, base, spacing, dt, prandtl, work, viscosity):
    """As `reference.mix`."""
    levels, rows, cells = state.shape[1:]
    flux = np.zeros((2, 4, cells))
    for k in range(levels):
        for j in range(HALO, rows - HALO):
            _fluxes_x(work, base, viscosity, spacing, prandtl, k, j, cells, flux[0])
            for field in range(4):
                for i in range(HALO, cells - HALO):
                    change = flux[0, field, i + 1] - flux[0, field, i]
                    state[1 + field, k, j, i] += dt / spacing[0] * change
        for j in range(HALO, rows + 1 - HALO):
            _fluxes_y(work, base, viscosity, spacing, prandtl, k, j, cells, flux[j & 1])
            if j > HALO:
                _add(state, flux[1 - (j & 1)], flux[j & 1], dt / spacing[1], k, j - 1, cells)
    for j in range(HALO, rows - HALO):
        for k in range(levels + 1):
            _fluxes_z(work, base, viscosity, spacing, prandtl, k, j, cells, flux[k & 1])
            if k > 0:
                _add(state, flux[1 - (k & 1)], flux[k & 1], dt / spacing[2], k - 1, j, cells)


@jit(math=STRICT)
def _add(state, low, high, rate, k, j, cells):
    for field in range(4):
        for i in range(HALO, cells - HALO):
            state[1 + field, k, j, i] += rate * (high[field, i] - low[field, i])


@jit(math=STRICT)
def _fluxes_x(work, base, viscosity, spacing, prandtl, k, j, cells, flux):
    """At the low faces of a row's owned cells and the high face of the last: of u, v, w and theta."""
    dx, dy, dz = spacing
    low, high = max(k - 1, 0), min(k + 1, work.shape[1] - 1)
    per_z, shear = 1.0 / ((high - low) * dz), 2.0 * (base[0, high] - base[0, low])
    for i in range(HALO, cells + 1 - HALO):
        weight = 0.5 * (work[0, k, j, i - 1] * viscosity[k, j, i - 1] + work[0, k, j, i] * viscosity[k, j, i])
        u_y = (work[1, k, j + 1, i - 1] - work[1, k, j - 1, i - 1]) + (work[1, k, j + 1, i] - work[1, k, j - 1, i])
        u_z = (work[1, high, j, i - 1] - work[1, low, j, i - 1]) + (work[1, high, j, i] - work[1, low, j, i])
        flux[0, i] = weight * (2.0 * (work[1, k, j, i] - work[1, k, j, i - 1]) / dx)
        flux[1, i] = weight * ((work[2, k, j, i] - work[2, k, j, i - 1]) / dx + 0.25 * u_y / dy)
        flux[2, i] = weight * ((work[3, k, j, i] - work[3, k, j, i - 1]) / dx + 0.5 * (u_z - shear) * per_z)
        flux[3, i] = weight * ((work[4, k, j, i] - work[4, k, j, i - 1]) / dx) / prandtl


@jit(math=STRICT)
def _fluxes_y(work, base, viscosity, spacing, prandtl, k, j, cells, flux):
    """At the faces between rows j - 1 and j."""
    dx, dy, dz = spacing
    low, high = max(k - 1, 0), min(k + 1, work.shape[1] - 1)
    per_z, shear = 1.0 / ((high - low) * dz), 2.0 * (base[1, high] - base[1, low])
    for i in range(HALO, cells - HALO):
        weight = 0.5 * (work[0, k, j - 1, i] * viscosity[k, j - 1, i] + work[0, k, j, i] * viscosity[k, j, i])
        v_x = (work[2, k, j - 1, i + 1] - work[2, k, j - 1, i - 1]) + (work[2, k, j, i + 1] - work[2, k, j, i - 1])
        v_z = (work[2, high, j - 1, i] - work[2, low, j - 1, i]) + (work[2, high, j, i] - work[2, low, j, i])
        flux[0, i] = weight * ((work[1, k, j, i] - work[1, k, j - 1, i]) / dy + 0.25 * v_x / dx)
        flux[1, i] = weight * (2.0 * (work[2, k, j, i] - work[2, k, j - 1, i]) / dy)
        flux[2, i] = weight * ((work[3, k, j, i] - work[3, k, j - 1, i]) / dy + 0.5 * (v_z - shear) * per_z)
        flux[3, i] = weight * ((work[4, k, j, i] - work[4, k, j - 1, i]) / dy) / prandtl


@jit(math=STRICT)
def _fluxes_z(work, base, viscosity, spacing, prandtl, k, j, cells, flux):
    """At the faces below level k; only that of w at ground and lid, where w is odd."""
    dx, dy, dz = spacing
    levels = work.shape[1]
    if k == 0 or k == levels:
        near, sign = (0, 1.0) if k == 0 else (levels - 1, -1.0)
        flux[:] = 0.0
        for i in range(HALO, cells - HALO):
            flux[2, i] = sign * 4.0 * (work[0, near, j, i] * viscosity[near, j, i]) * work[3, near, j, i] / dz
        return
    u, v, theta = base[0, k] - base[0, k - 1], base[1, k] - base[1, k - 1], base[3, k] - base[3, k - 1]
    for i in range(HALO, cells - HALO):
        weight = 0.5 * (work[0, k - 1, j, i] * viscosity[k - 1, j, i] + work[0, k, j, i] * viscosity[k, j, i])
        w_x = (work[3, k - 1, j, i + 1] - work[3, k - 1, j, i - 1]) + (work[3, k, j, i + 1] - work[3, k, j, i - 1])
        w_y = (work[3, k - 1, j + 1, i] - work[3, k - 1, j - 1, i]) + (work[3, k, j + 1, i] - work[3, k, j - 1, i])
        flux[0, i] = weight * ((work[1, k, j, i] - work[1, k - 1, j, i] - u) / dz + 0.25 * w_x / dx)
        flux[1, i] = weight * ((work[2, k, j, i] - work[2, k - 1, j, i] - v) / dz + 0.25 * w_y / dy)
        flux[2, i] = weight * (2.0 * (work[3, k, j, i] - work[3, k - 1, j, i]) / dz)
        flux[3, i] = weight * ((work[4, k, j, i] - work[4, k - 1, j, i] - theta) / dz) / prandtl


@jit(math=STRICT)
def mix_tracers(tracers, out, state, column, spacing, dt, viscosity):
    """As `reference.mix_tracers`."""
    levels = state.shape[1]
    rate_x, rate_y, rate_z = (
        dt / (2.0 * spacing[0] * spacing[0]),
        dt / (2.0 * spacing[1] * spacing[1]),
        dt / (2.0 * spacing[2] * spacing[2]),
    )
    for tracer in range(tracers.shape[0]):
        q = tracers[tracer]
        for k in range(levels):
            low, high = max(k - 1, 0), min(k + 1, levels - 1)  # at a wall the level itself: no difference, no flux
            for j in range(REACH, q.shape[1] - REACH):
                for i in range(REACH, q.shape[2] - REACH):
                    y, x, here = j + HALO - REACH, i + HALO - REACH, q[k, j, i]
                    weight = _weight(state, column, viscosity, k, y, x)
                    change = (
                        rate_x
                        * (
                            (_weight(state, column, viscosity, k, y, x + 1) + weight) * (q[k, j, i + 1] - here)
                            - (weight + _weight(state, column, viscosity, k, y, x - 1)) * (here - q[k, j, i - 1])
                        )
                        + rate_y
                        * (
                            (_weight(state, column, viscosity, k, y + 1, x) + weight) * (q[k, j + 1, i] - here)
                            - (weight + _weight(state, column, viscosity, k, y - 1, x)) * (here - q[k, j - 1, i])
                        )
                        + rate_z
                        * (
                            (_weight(state, column, viscosity, high, y, x) + weight) * (q[high, j, i] - here)
                            - (weight + _weight(state, column, viscosity, low, y, x)) * (here - q[low, j, i])
                        )
                    )
                    out[tracer, k, j, i] = here + change / (state[0, k, y, x] + column[0, k])


@inlined(math=STRICT)
def _weight(state, column, viscosity, k, j, i):
    """Density times viscosity of a cell."""
    return (state[0, k, j, i] + column[0, k]) * viscosity[k, j, i]


@jit(math=STRICT)
def drag(state, column, coefficient, dz, dt):
    """As `reference.drag`."""
    for j in range(HALO, state.shape[2] - HALO):
        for i in range(HALO, state.shape[3] - HALO):
            u, v = state[1, 0, j, i], state[2, 0, j, i]
            speed = np.sqrt(u * u + v * v) / (state[0, 0, j, i] + column[0, 0])
            keep = 1.0 / (1.0 + dt / dz * coefficient * speed)
            state[1, 0, j, i] = keep * u
            state[2, 0, j, i] = keep * v
