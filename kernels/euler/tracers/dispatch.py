"""Chooses the form of the tracers' transport by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.forms import double_form_for


def transport(
    tracers: Any,
    out: Any,
    old: Any,
    state: Any,
    column: Any,
    mass_flux: Any,
    dim: int,
    rate: float,
    bounded: bool = True,
) -> None:
    """Carry the tracers along a dim (0: z, 1: y, 2: x) after the sweep along it; see `reference.transport`."""
    form = double_form_for(__package__, tracers, out, old, state, column, mass_flux)
    nz, ny, nx = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    faces = tuple(n + (d == dim) for d, n in enumerate((nz, ny, nx)))
    wanted = (len(tracers), nz, ny + 2 * REACH, nx + 2 * REACH)
    if tracers.shape != wanted or out.shape != wanted or old.shape != state.shape[1:] or mass_flux.shape != faces:
        raise ValueError(f"a state of {state.shape} goes with tracers of {wanted[1:]} and a mass flux of {faces}")
    form.transport(tracers, out, old, state, column, mass_flux, dim, rate, bounded)


def thin(density: Any, old: Any, mass_flux: Any, thickness: Any, dim: int, rate: float) -> None:
    """Density after its mass has passed along a dim, and before; see `reference.thin`."""
    form = double_form_for(__package__, density, old, mass_flux, thickness)
    cells = (density.shape[1], *(n - 2 * HALO for n in density.shape[2:]))
    faces = tuple(n + (d == dim) for d, n in enumerate(cells))
    if old.shape != density.shape[1:] or mass_flux.shape != faces or thickness.shape != density.shape[1:2]:
        raise ValueError(f"a density of {density.shape} goes with a mass flux of {faces}, not {mass_flux.shape}")
    form.thin(density, old, mass_flux, thickness, dim, rate)


def borrow(tracers: Any, density: Any) -> None:
    """Make up for what is below 0 from the column; see `reference.borrow`."""
    form = double_form_for(__package__, tracers, density)
    nz, tall, wide = density.shape[1:]
    if tracers.shape[1:] != (nz, tall - 2 * (HALO - REACH), wide - 2 * (HALO - REACH)):
        raise ValueError(f"a density of {density.shape} does not go with tracers of {tracers.shape}")
    form.borrow(tracers, density)
