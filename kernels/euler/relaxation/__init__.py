"""Kernels of relaxation."""
