"""The waves of an Ewald sum in the form for the processor."""

from hpckit.kernels.particles.ewald.simd import structure, wave_forces

__all__ = ["structure", "wave_forces"]
