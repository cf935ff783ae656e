"""Halo exchanges against Sendrecv with NumPy slices and against mpiarray."""
