"""Kernels of shallow_water."""
