"""Chooses the form of the tracers' transport by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.euler.constants import REACH
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
    nz, ny, nx = new.shape[0], tracers.shape[2] - 2 * REACH, tracers.shape[3] - 2 * REACH
    faces = tuple(n + (d == dim) for d, n in enumerate((nz, ny, nx)))
    wanted = (len(tracers), nz, *tracers.shape[2:])
    if tracers.shape != wanted or out.shape != wanted or old.shape != new.shape or mass_flux.shape != faces:
        raise ValueError(f"a density of {new.shape} goes with tracers of {wanted[1:]} and a mass flux of {faces}")
    _check_halo(tracers, new)
    if rates.shape != (nz,):
        raise ValueError(f"{nz} levels have as many rates, not {rates.shape}")
    form.transport(tracers, out, old, new, column, mass_flux, dim, rates, bounded, thins)


def borrow(tracers: Any, density: Any) -> None:
    """Make up for what is below 0 from the column; see `reference.borrow`."""
    form = double_form_for(__package__, tracers, density)
    if tracers.shape[1] != density.shape[1]:
        raise ValueError(f"a density of {density.shape} does not go with tracers of {tracers.shape}")
    _check_halo(tracers, density[0])
    form.borrow(tracers, density)


def _check_halo(tracers: Any, density: Any) -> None:
    """The air's halo is as wide along x as along y, and no narrower than that of the tracers."""
    beyond = [wide - narrow for wide, narrow in zip(density.shape[1:], tracers.shape[2:], strict=True)]
    if beyond[0] != beyond[1] or beyond[0] < 0 or beyond[0] % 2:
        raise ValueError(f"a density of {density.shape} does not go with tracers of {tracers.shape}")
