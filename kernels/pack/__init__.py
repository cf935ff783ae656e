"""Kernels of pack."""
