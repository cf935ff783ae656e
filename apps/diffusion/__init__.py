"""The diffusion app."""
