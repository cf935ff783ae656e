"""Mixing by turbulence, Numba. Without fused operations: a flux has the same bits on both sides of a cut."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.euler.constants import GRAVITY, HALO, REACH
from hpckit.kernels.euler.turbulence.numerics import (
    deformation,
    flux_at_wall,
    fluxes_x,
    fluxes_y,
    fluxes_z,
    tracer_change,
)


@jit(math=STRICT)
def eddy_viscosity(state, column, spacing, coefficient, prandtl, limit, work, viscosity):
    levels, rows, cells = state.shape[1:]
    for level in range(levels):
        for row in range(HALO - 2, rows - HALO + 2):
            for cell in range(HALO - 2, cells - HALO + 2):
                rho = state[0, level, row, cell] + column[0, level]
                work[0, level, row, cell] = rho
                for field in range(1, 4):
                    work[field, level, row, cell] = state[field, level, row, cell] / rho
                work[4, level, row, cell] = (state[4, level, row, cell] + column[1, level]) / rho
    length = coefficient * (spacing[0] * spacing[1] * spacing[2]) ** (1.0 / 3.0)
    most = 0.0
    for k in range(levels):
        low, high = max(k - 1, 0), min(k + 1, levels - 1)
        per_z = 1.0 / ((high - low) * spacing[2])
        for j in range(HALO - 1, rows - HALO + 1):
            for i in range(HALO - 1, cells - HALO + 1):
                square, theta_z = deformation(work, spacing, per_z, low, high, k, j, i)
                stability = GRAVITY * theta_z / work[4, k, j, i]
                mixing = length * length * np.sqrt(max(square - stability / prandtl, 0.0))
                mixing = min(mixing, limit)
                viscosity[k, j, i] = mixing
                if HALO <= j < rows - HALO and HALO <= i < cells - HALO:
                    most = max(most, mixing)
    return most


@jit(math=STRICT)
def mix(state, base, spacing, dt, prandtl, work, viscosity):
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
    low, high = max(k - 1, 0), min(k + 1, work.shape[1] - 1)
    per_z = 1.0 / ((high - low) * spacing[2])
    for i in range(HALO, cells + 1 - HALO):
        u, v, w, theta = fluxes_x(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i)
        flux[0, i], flux[1, i], flux[2, i], flux[3, i] = u, v, w, theta


@jit(math=STRICT)
def _fluxes_y(work, base, viscosity, spacing, prandtl, k, j, cells, flux):
    """At the faces between rows j - 1 and j."""
    low, high = max(k - 1, 0), min(k + 1, work.shape[1] - 1)
    per_z = 1.0 / ((high - low) * spacing[2])
    for i in range(HALO, cells - HALO):
        u, v, w, theta = fluxes_y(work, base, viscosity, spacing, prandtl, per_z, low, high, k, j, i)
        flux[0, i], flux[1, i], flux[2, i], flux[3, i] = u, v, w, theta


@jit(math=STRICT)
def _fluxes_z(work, base, viscosity, spacing, prandtl, k, j, cells, flux):
    """At the faces below level k; only that of w at ground and lid."""
    levels = work.shape[1]
    if k == 0 or k == levels:
        near, sign = (0, 1.0) if k == 0 else (levels - 1, -1.0)
        flux[:] = 0.0
        for i in range(HALO, cells - HALO):
            flux[2, i] = flux_at_wall(work, viscosity, spacing[2], sign, near, j, i)
        return
    for i in range(HALO, cells - HALO):
        u, v, w, theta = fluxes_z(work, base, viscosity, spacing, prandtl, k, j, i)
        flux[0, i], flux[1, i], flux[2, i], flux[3, i] = u, v, w, theta


@jit(math=STRICT)
def mix_tracers(tracers, out, state, column, spacing, dt, viscosity):
    levels = state.shape[1]
    rates = (
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
                    y, x = j + HALO - REACH, i + HALO - REACH
                    change = tracer_change(q, state, column, viscosity, rates, low, high, k, j, i, y, x)
                    out[tracer, k, j, i] = q[k, j, i] + change


@jit(math=STRICT)
def drag(state, column, coefficient, dz, dt):
    for j in range(HALO, state.shape[2] - HALO):
        for i in range(HALO, state.shape[3] - HALO):
            u, v = state[1, 0, j, i], state[2, 0, j, i]
            speed = np.sqrt(u * u + v * v) / (state[0, 0, j, i] + column[0, 0])
            keep = 1.0 / (1.0 + dt / dz * coefficient * speed)
            state[1, 0, j, i] = keep * u
            state[2, 0, j, i] = keep * v
