"""The arithmetic of one face of the tracers' transport, written once: pieces that become part of their callers."""

from __future__ import annotations

from hpckit.kernels.compile.jit import STRICT, inlined


@inlined(math=STRICT)
def passing(q0, q1, q, q3, q4, share):
    """Mean of q over the downstream share of a cell; see `reference._passing`."""
    bend = slope(q1, q, q3)
    return between(edge(q1, q, slope(q0, q1, q), bend), q, edge(q, q3, bend, slope(q, q3, q4)), share)


@inlined(math=STRICT)
def linear(q0, q1, q, q3, q4, share):
    """The same of an unlimited parabola, whose values at the edges are of fifth order; see `reference._linear`."""
    near = (2.0 * (q0 - q4) + (-13.0 * q1 + 47.0 * q + (27.0 * q3 - q4))) * (1.0 / 60.0)
    far = (2.0 * (q4 - q0) + (-13.0 * q3 + 47.0 * q + (27.0 * q1 - q0))) * (1.0 / 60.0)
    curve = 6.0 * (q - 0.5 * (far + near))
    return near - 0.5 * share * (near - far - (1.0 - 2.0 / 3.0 * share) * curve)


@inlined(math=STRICT)
def between(far, q, near, share):
    """The same from the values at both edges of the cell.

    From the cell's mean the parabola rises to its edges by `ahead` and `back`, each at most twice the other, and by
    nothing where they differ in sign.
    """
    back, ahead = q - far, near - q
    twice_back, twice_ahead = 2.0 * back, 2.0 * ahead
    back, ahead = lesser(back, twice_ahead), lesser(ahead, twice_back)
    return q + (1.0 - share) * (ahead + share * (back - ahead))


@inlined(math=STRICT)
def lesser(a, b):
    """The one nearer to 0 of two numbers of one sign, else 0."""
    low, high = a if a < b else b, a if a > b else b
    return (low if low > 0.0 else 0.0) + (high if high < 0.0 else 0.0)


@inlined(math=STRICT)
def edge(b, c, slope_b, slope_c):
    """The value between two cells with half their limited slopes."""
    return 0.5 * (b + c) - (slope_c - slope_b) * (1.0 / 3.0)


@inlined(math=STRICT)
def slope(a, b, c):
    """Half the limited slope of the cell b."""
    down, up, middle = b - a, c - b, 0.25 * (c - a)
    low, high = down if down < up else up, down if down > up else up
    low, high = middle if middle < low else low, middle if middle > high else high
    return (low if low > 0.0 else 0.0) + (high if high < 0.0 else 0.0)
