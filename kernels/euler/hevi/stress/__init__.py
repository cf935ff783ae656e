"""Kernels of mixing on staggered grids."""
