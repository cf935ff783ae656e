"""Kernels of warm rain."""
