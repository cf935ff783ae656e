"""The Lennard-Jones potential for the pair loop, and its table of parameters."""

from hpckit.kernels.particles.lennard_jones.reference import tail
from hpckit.kernels.particles.lennard_jones.simd import POTENTIAL, parameters

__all__ = ["POTENTIAL", "parameters", "tail"]
