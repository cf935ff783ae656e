"""Kernels of tracers."""
