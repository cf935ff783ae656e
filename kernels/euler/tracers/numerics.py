"""The arithmetic of one face of the tracers' transport, written once: pieces that become part of their callers."""

from __future__ import annotations

from hpckit.kernels.compile.jit import STRICT, inlined


@inlined(math=STRICT)
def passing(q0, q1, q, q3, q4, share):
    """Mean of q over the downstream share of a cell; see `reference._passing`."""
    return between(
        edge(q1, q, slope(q0, q1, q), slope(q1, q, q3)), q, edge(q, q3, slope(q1, q, q3), slope(q, q3, q4)), share
    )


@inlined(math=STRICT)
def linear(q0, q1, q, q3, q4, share):
    """The same of an unlimited parabola, whose values at the edges are of fifth order; see `reference._linear`."""
    near = (2.0 * (q0 - q4) + (-13.0 * q1 + 47.0 * q + (27.0 * q3 - q4))) * (1.0 / 60.0)
    far = (2.0 * (q4 - q0) + (-13.0 * q3 + 47.0 * q + (27.0 * q1 - q0))) * (1.0 / 60.0)
    curve = 6.0 * (q - 0.5 * (far + near))
    return near - 0.5 * share * (near - far - (1.0 - 2.0 / 3.0 * share) * curve)


@inlined(math=STRICT)
def between(far, q, near, share):
    """The same from the values at both edges of the cell."""
    steep = near - far
    bend = steep * (6.0 * (q - 0.5 * (far + near)))
    square = steep * steep
    new_far = 3.0 * q - 2.0 * near if bend > square else far
    new_near = 3.0 * q - 2.0 * far if bend < -square else near
    flat = (near - q) * (q - far) <= 0.0
    new_far = q if flat else new_far
    new_near = q if flat else new_near
    curve = 6.0 * (q - 0.5 * (new_far + new_near))
    return new_near - 0.5 * share * (new_near - new_far - (1.0 - 2.0 / 3.0 * share) * curve)


@inlined(math=STRICT)
def edge(b, c, slope_b, slope_c):
    """The value between two cells with their limited slopes."""
    return 0.5 * (b + c) - (slope_c - slope_b) * (1.0 / 6.0)


@inlined(math=STRICT)
def slope(a, b, c):
    """The limited slope of the cell b."""
    down, up = b - a, c - b
    middle = 0.5 * (c - a)
    size, one, two = abs(middle), 2.0 * abs(down), 2.0 * abs(up)
    least = one if one < two else two
    least = size if size < least else least
    signed = least if middle > 0.0 else -least
    return signed if down * up > 0.0 else 0.0
