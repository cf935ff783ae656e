"""The weather kernels and models: against C, against other programs, and 2 ranks against 1."""
