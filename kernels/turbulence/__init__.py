"""Kernels of turbulence."""
