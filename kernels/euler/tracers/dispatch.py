"""Chooses the form of the tracers' transport by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.forms import double_form_for


def transport(
    tracers: Any,
    out: Any,
    old: Any,
    new: Any,
    column: Any,
    mass_flux: Any,
    dim: int,
    rates: Any,
    bounded: bool = True,
    thins: bool = False,
) -> None:
    """Carry the tracers along a dim (0: z, 1: y, 2: x) with the air; see `reference.transport`."""
    form = double_form_for(__package__, tracers, out, old, new, column, mass_flux, rates)
    nz, ny, nx = new.shape[0], new.shape[1] - 2 * HALO, new.shape[2] - 2 * HALO
    faces = tuple(n + (d == dim) for d, n in enumerate((nz, ny, nx)))
    wanted = (len(tracers), nz, ny + 2 * REACH, nx + 2 * REACH)
    if tracers.shape != wanted or out.shape != wanted or old.shape != new.shape or mass_flux.shape != faces:
        raise ValueError(f"a density of {new.shape} goes with tracers of {wanted[1:]} and a mass flux of {faces}")
    if rates.shape != (nz,):
        raise ValueError(f"{nz} levels have as many rates, not {rates.shape}")
    form.transport(tracers, out, old, new, column, mass_flux, dim, rates, bounded, thins)


def borrow(tracers: Any, density: Any) -> None:
    """Make up for what is below 0 from the column; see `reference.borrow`."""
    form = double_form_for(__package__, tracers, density)
    nz, tall, wide = density.shape[1:]
    if tracers.shape[1:] != (nz, tall - 2 * (HALO - REACH), wide - 2 * (HALO - REACH)):
        raise ValueError(f"a density of {density.shape} does not go with tracers of {tracers.shape}")
    form.borrow(tracers, density)
