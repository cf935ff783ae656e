"""The Lennard-Jones potential for the pair loop, and its table of parameters."""

from hpckit.kernels.particles.lennard_jones.reference import tail
from hpckit.kernels.particles.lennard_jones.simd import FADED, POTENTIAL, parameters

__all__ = ["FADED", "POTENTIAL", "parameters", "tail"]
