"""Chooses the form of the motion kernels by the arrays they are given: here those for NumPy arrays."""

from hpckit.kernels.integrate.simd import (
    drift,
    find_leavers,
    hold_off,
    kick,
    kick_drift,
    kinetic,
    largest_move,
    mix_noise,
    powers,
    push,
    scale,
    steer,
    wrap,
)

__all__ = [
    "drift",
    "find_leavers",
    "hold_off",
    "kick",
    "kick_drift",
    "kinetic",
    "largest_move",
    "mix_noise",
    "powers",
    "push",
    "scale",
    "steer",
    "wrap",
]
