"""Charges and fields on a mesh in the form for the processor."""

from hpckit.kernels.particles.mesh.reference import WIDTH
from hpckit.kernels.particles.mesh.simd import gather, spread

__all__ = ["WIDTH", "gather", "spread"]
