"""The arithmetic of a face and of a level of a column, written once for CPU and GPU: pieces of their callers."""

from __future__ import annotations

from hpckit.kernels.compile.jit import inlined


@inlined
def carried(flux, a, b, c, d, e, f, even0, even1, even2, odd0, odd1, odd2):
    """What a mass flux carries through the face in the middle of six cells."""
    even = even0 * (d + c) + even1 * (e + b) + even2 * (f + a)
    odd = odd0 * (d - c) + odd1 * (e - b) + odd2 * (f - a)
    return flux * even - abs(flux) * odd


@inlined
def lower_of(size, tension, stiff_low, down, theta_low, below, gravity):
    """The coefficient of W of the face below, of a level's tridiagonal row."""
    return -size * (tension * stiff_low * down * theta_low - gravity * below * down)


@inlined
def upper_of(size, tension, stiff, up, theta_high, above, gravity):
    """The coefficient of W of the face above."""
    return -size * (tension * stiff * up * theta_high + gravity * above * up)


@inlined
def diagonal_of(size, tension, stiff_low, stiff, down, up, theta, below, above, gravity):
    """The coefficient of W of the face itself."""
    return 1.0 + size * (tension * theta * (stiff * up + stiff_low * down) + gravity * (above * up - below * down))


@inlined
def swept(
    size, tension, gravity, stiff_low, stiff, down, up, low, middle, high, below, above, right, factor_low, value_low
):
    """One face of the tridiagonal system, forward: its factor and its value. low, middle, high: theta at three faces.

    size: square of the implicit part of the substep; right: the right-hand side.
    """
    lower = lower_of(size, tension, stiff_low, down, low, below, gravity)
    upper = upper_of(size, tension, stiff, up, high, above, gravity)
    diagonal = diagonal_of(size, tension, stiff_low, stiff, down, up, middle, below, above, gravity)
    pivot = 1.0 / (diagonal - lower * factor_low)
    return upper * pivot, (right - lower * value_low) * pivot
