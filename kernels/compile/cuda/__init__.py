"""Kernels on a GPU: how they are compiled, launched and watched, and the pieces that they share."""
