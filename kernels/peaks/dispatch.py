"""The form of the peaks for NumPy arrays; peaks of a GPU are measured by `hpckit bench gpu`."""

from __future__ import annotations

from hpckit.kernels.peaks.simd import copy, multiply_add, triad

__all__ = ["copy", "multiply_add", "triad"]
