"""Kernels of attention and of rotary positions."""
