"""Charges and fields on a mesh in the form for the processor."""

from hpckit.kernels.particles.mesh.reference import SIDE, WIDTH
from hpckit.kernels.particles.mesh.simd import gather, lay_beside, spread

__all__ = ["SIDE", "WIDTH", "gather", "lay_beside", "spread"]
