"""Chooses the form of the motion kernels by the arrays they are given: here those for NumPy arrays."""

from hpckit.kernels.integrate.simd import drift, find_leavers, kick, kick_drift, kinetic, largest_move, wrap

__all__ = ["drift", "find_leavers", "kick", "kick_drift", "kinetic", "largest_move", "wrap"]
