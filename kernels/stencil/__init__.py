"""Stencils: explicit steps of the heat equation in 1-, 2- and 3-D, and stars of any radius with constant weights."""

from __future__ import annotations

from hpckit.kernels.stencil.dispatch import (
    diffuse,
    diffuse_flux,
    diffuse_twice,
    largest_step,
    prk_weights,
    star,
    star_laplacian,
)

__all__ = ["diffuse", "diffuse_flux", "diffuse_twice", "largest_step", "prk_weights", "star", "star_laplacian"]
