"""The arithmetic of one edge, written once: pieces that become part of their callers."""

from __future__ import annotations

import math

from hpckit.kernels.compile.jit import inlined


@inlined
def upwind(a, b, c, d, e):
    """The value behind c, on the way from a to e: of fifth order, from means over cells."""
    return (2.0 * a - 13.0 * b + 47.0 * c + 27.0 * d - 3.0 * e) * (1.0 / 60.0)


@inlined
def crossing(low_depth, high_depth, low_level, high_level, low_speed, high_speed, gravity):
    """The linear Riemann problem of an edge: its normal velocity, and the speed of waves."""
    wave = math.sqrt(gravity * 0.5 * (low_depth + high_depth))
    return 0.5 * (low_speed + high_speed) - 0.5 * gravity / wave * (high_level - low_level), wave


@inlined
def level_between(low_level, high_level, low_speed, high_speed, wave, gravity):
    """The surface at the edge of the same problem, m."""
    return 0.5 * (low_level + high_level) - 0.5 * wave / gravity * (high_speed - low_speed)
