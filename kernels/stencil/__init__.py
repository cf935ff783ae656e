"""Stencils: explicit steps of the heat equation in 1-, 2- and 3-D, and stars of any radius with constant weights.

Names are loaded on first use: who asks for a stability limit does not load the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpckit import loaded_on_use

if TYPE_CHECKING:
    from hpckit.kernels.stencil.dispatch import diffuse, diffuse_flux, diffuse_twice, star, star_laplacian
    from hpckit.kernels.stencil.reference import largest_step, prk_weights

__all__ = ["diffuse", "diffuse_flux", "diffuse_twice", "largest_step", "prk_weights", "star", "star_laplacian"]

_DISPATCHED = ("diffuse", "diffuse_flux", "diffuse_twice", "star", "star_laplacian")
_HOMES = {
    **dict.fromkeys(_DISPATCHED, "hpckit.kernels.stencil.dispatch"),
    **dict.fromkeys(("largest_step", "prk_weights"), "hpckit.kernels.stencil.reference"),
}
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
