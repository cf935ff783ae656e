"""Potentials of more than two particles: kernels of each."""
