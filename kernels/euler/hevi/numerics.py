"""The arithmetic of a face and of a level of a column, written once for CPU and GPU: pieces of their callers."""

from __future__ import annotations

from hpckit.kernels.compile.jit import inlined

TINY = 1e-24  # squared differences below which cells count as smooth


@inlined
def carried(flux, a, b, c, d, e, f, even0, even1, even2, odd0, odd1, odd2):
    """What a mass flux carries through the face in the middle of six cells."""
    even = even0 * (d + c) + even1 * (e + b) + even2 * (f + a)
    odd = odd0 * (d - c) + odd1 * (e - b) + odd2 * (f - a)
    return flux * even - abs(flux) * odd


@inlined
def weno(flux, a, b, c, d, e, f):
    """The same in fifth order where the cells are smooth, and from those beside a jump only, else: WENO-Z.

    Borges, Carmona, Costa and Don (2008), J. Comput. Phys. 227, 3191-3211.
    """
    forward = flux > 0.0
    q0, q1, q2 = a if forward else f, b if forward else e, c if forward else d
    q3, q4 = d if forward else c, e if forward else b
    bend, tilt = q0 - 2.0 * q1 + q2, q0 - 4.0 * q1 + 3.0 * q2
    rough0 = 13.0 / 12.0 * (bend * bend) + 0.25 * (tilt * tilt)
    bend, tilt = q1 - 2.0 * q2 + q3, q1 - q3
    rough1 = 13.0 / 12.0 * (bend * bend) + 0.25 * (tilt * tilt)
    bend, tilt = q2 - 2.0 * q3 + q4, 3.0 * q2 - 4.0 * q3 + q4
    rough2 = 13.0 / 12.0 * (bend * bend) + 0.25 * (tilt * tilt)
    whole = abs(rough0 - rough2)
    share0, share1, share2 = whole / (rough0 + TINY), whole / (rough1 + TINY), whole / (rough2 + TINY)
    weight0, weight1, weight2 = 0.1 + 0.1 * share0 * share0, 0.6 + 0.6 * share1 * share1, 0.3 + 0.3 * share2 * share2
    change = weight0 * (2.0 * q0 - 7.0 * q1 + 5.0 * q2) + weight1 * (2.0 * q3 - q1 - q2)
    change += weight2 * (5.0 * q3 - 4.0 * q2 - q4)
    return flux * (q2 + change / (6.0 * (weight0 + weight1 + weight2)))


@inlined
def swept(
    size, tension, gravity, stiff_low, stiff, down, up, low, middle, high, below, above, right, factor_low, value_low,
    gate,
):  # fmt: skip
    """One face of the tridiagonal system, forward: its factor and its value. low, middle, high: theta at three faces.

    gate: 1, or 0 where nothing passes the face.

    size: square of the implicit part of the substep; right: the right-hand side. What is the same in a level comes
    first in products, so that it is found once.
    """
    push, pull = (tension * (size * down)) * stiff_low, (tension * (size * up)) * stiff
    weight, load = gravity * (size * down * below), gravity * (size * up * above)
    lower = weight - push * low
    upper = -(pull * high + load)
    diagonal = (1.0 + (load - weight)) + middle * (pull + push)
    pivot = gate / (diagonal - lower * factor_low)
    return upper * pivot, (right - lower * value_low) * pivot
