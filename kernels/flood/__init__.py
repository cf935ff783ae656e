"""Kernels of flood: shallow water with shocks and dry land."""
