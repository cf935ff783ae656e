"""Chooses the form of the record kernels by the arrays they are given: here those for NumPy arrays."""

from hpckit.kernels.particles.records.reference import type_words, types_of
from hpckit.kernels.particles.records.simd import choose, copy_all, permute, put, take_all, to_single, weigh

__all__ = ["choose", "copy_all", "permute", "put", "take_all", "to_single", "type_words", "types_of", "weigh"]
