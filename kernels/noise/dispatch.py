"""Chooses the form of the random numbers by the arrays they are given: here those for NumPy arrays."""

from hpckit.kernels.noise.simd import normals, uniforms

__all__ = ["normals", "uniforms"]
