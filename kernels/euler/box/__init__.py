"""Kernels of euler3d."""
