"""The form of the kernels that suits the arrays: Numba for NumPy arrays."""

from hpckit.kernels.particles.observables.simd import density_sums, pair_histogram

__all__ = ["density_sums", "pair_histogram"]
