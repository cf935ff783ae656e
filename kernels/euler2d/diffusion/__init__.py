"""Diffusion in the slab."""
