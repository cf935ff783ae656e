"""Exact solutions of the shallow-water equations: dam breaks over a flat bottom, and lakes that swing in a bowl."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def stoker(x: npt.ArrayLike, t: float, left: float, right: float, gravity: float = 9.81) -> tuple[Array, Array]:
    """Depth (m) and velocity (m/s) at x (m, from the dam) a time t (s) after a dam between still waters is gone.

    left, right: depths before, m, left the greater; right may be 0 (`ritter`). A rarefaction runs into the deep water,
    a shock into the other (Stoker 1957, Water Waves, ch. 10.8). Raises ValueError where left is not the greater.
    """
    x = np.asarray(x, np.float64)
    if not left > right >= 0:
        raise ValueError(f"the deeper water stands on the left: depths {left:g} and {right:g} do not")
    if t <= 0:
        return np.where(x < 0, left, right), np.zeros_like(x)
    if right == 0:
        return ritter(x, t, left, gravity)
    middle = middle_depth(left, right, gravity)
    c_left, c_middle = math.sqrt(gravity * left), math.sqrt(gravity * middle)
    u_middle = 2 * (c_left - c_middle)
    shock = middle * u_middle / (middle - right)
    fan_c = (2 * c_left - x / t) / 3
    places = [x < -c_left * t, x < (u_middle - c_middle) * t, x < shock * t]
    h = np.select(places, [np.full_like(x, left), fan_c**2 / gravity, np.full_like(x, middle)], right)
    u = np.select(places, [np.zeros_like(x), 2 * (c_left - fan_c), np.full_like(x, u_middle)], 0.0)
    return h, u


def middle_depth(left: float, right: float, gravity: float = 9.81) -> float:
    """The depth between rarefaction and shock, m: where the velocities behind both agree; to rounding, by bisection."""
    low, high = right, left
    for _ in range(200):
        middle = 0.5 * (low + high)
        rarefaction = 2 * (math.sqrt(gravity * left) - math.sqrt(gravity * middle))
        shock = (middle - right) * math.sqrt(0.5 * gravity * (middle + right) / (middle * right))
        low, high = (middle, high) if rarefaction > shock else (low, middle)
    return 0.5 * (low + high)


def ritter(x: npt.ArrayLike, t: float, depth: float, gravity: float = 9.81) -> tuple[Array, Array]:
    """`stoker` over dry ground: the front runs at twice the speed of long waves (Ritter 1892, Z. VDI 36, 947-954)."""
    x = np.asarray(x, np.float64)
    c = math.sqrt(gravity * depth)
    if t <= 0:
        return np.where(x < 0, depth, 0.0), np.zeros_like(x)
    fan = np.clip(x / t, -c, 2 * c)
    return (2 * c - fan) ** 2 / (9 * gravity), np.where(x < 2 * c * t, 2 * (c + fan) / 3, 0.0)


def bowl(x: npt.ArrayLike, y: npt.ArrayLike, radius: float, depth: float) -> Array:
    """Height (m) of a paraboloid over the level of its lake: -depth in the middle, 0 at `radius` from it."""
    return depth * ((np.asarray(x) ** 2 + np.asarray(y) ** 2) / radius**2 - 1)


def thacker_planar(
    x: npt.ArrayLike, y: npt.ArrayLike, t: float, radius: float, depth: float, shift: float, gravity: float = 9.81
) -> tuple[Array, Array, Array]:
    """Depth and velocities of a lake that circles in the bowl with a plane surface: h (m), u, v (m/s).

    x, y (m) from the middle, at rest the shore is `radius` away and the water `depth` deep; the lake is shifted by
    `shift` (m). Thacker (1981, J. Fluid Mech. 107, 499-508, section 4).
    """
    omega = thacker_frequency(radius, depth, gravity)
    cos, sin = math.cos(omega * t), math.sin(omega * t)
    surface = shift * depth / radius**2 * (2 * np.asarray(x) * cos + 2 * np.asarray(y) * sin - shift)
    h = np.maximum(surface - bowl(x, y, radius, depth), 0.0)
    return h, np.where(h > 0, -shift * omega * sin, 0.0), np.where(h > 0, shift * omega * cos, 0.0)


def thacker_radial(
    x: npt.ArrayLike, y: npt.ArrayLike, t: float, radius: float, depth: float, swing: float, gravity: float = 9.81
) -> tuple[Array, Array, Array]:
    """The same for a lake that swells and spreads in turn, its surface a paraboloid (Thacker 1981, section 5).

    swing: how much the middle rises over `depth` at first, m. The frequency is twice that of the planar lake.
    """
    if not -1 < swing / depth < 1:
        raise ValueError(f"a swing of {swing:g} m is not below the depth of {depth:g} m")
    omega = 2 * thacker_frequency(radius, depth, gravity)
    a = ((1 + swing / depth) ** 2 - 1) / ((1 + swing / depth) ** 2 + 1)
    turn = 1 - a * math.cos(omega * t)
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    square = (x**2 + y**2) / radius**2
    root = math.sqrt(1 - a * a)
    surface = depth * (root / turn - 1 - square * (root**2 / turn**2 - 1))
    h = np.maximum(surface - bowl(x, y, radius, depth), 0.0)
    pace = 0.5 * omega * a * math.sin(omega * t) / turn
    return h, np.where(h > 0, pace * x, 0.0), np.where(h > 0, pace * y, 0.0)


def thacker_frequency(radius: float, depth: float, gravity: float = 9.81) -> float:
    """Angular frequency of the planar lake, 1/s."""
    return math.sqrt(2 * gravity * depth) / radius
