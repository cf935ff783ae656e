"""Chooses the form of the pair forces: here that for NumPy arrays."""

from hpckit.kernels.particles.pair.potential import CUTOFF2, OWN, SHIFT, Potential
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.pair.simd import Form, force_kernel, stored_table

__all__ = ["CUTOFF2", "OWN", "SHIFT", "TALLY", "Form", "Potential", "force_kernel", "stored_table"]
