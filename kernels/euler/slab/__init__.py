"""Kernels of euler2d."""
