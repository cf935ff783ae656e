"""Kernels of the split-explicit, vertically implicit dynamics of a box (HEVI)."""
