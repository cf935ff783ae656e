"""The arithmetic of one point, written once: pieces that become part of their callers."""

from __future__ import annotations

import math

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.shallow_water.constants import CALM


@inlined
def vorticity(u_south, u_north, v_west, v_east, per_dx, per_dy):
    """Relative vorticity of a corner, 1/s."""
    return (v_east - v_west) * per_dx - (u_north - u_south) * per_dy


@inlined
def kinetic_energy(u_west, u_east, v_south, v_north):
    """Kinetic energy of a cell, m2/s2."""
    return 0.25 * ((u_west * u_west + u_east * u_east) + (v_south * v_south + v_north * v_north))


@inlined
def friction(along, across_four, depth_two, stress, drag, drag_quadratic):
    """Stress less bottom drag at a face, m/s2: the velocity there, the sum of four across it, the sum of two depths."""
    across = 0.25 * across_four
    speed = math.sqrt(along * along + across * across)
    return 2.0 * (stress - drag_quadratic * speed * along) / depth_two - drag * along


@inlined
def settle(velocity):
    """The same velocity, or 0 where it is below CALM * 2**-53: squares of such are subnormal, and slow to compute."""
    return (velocity + CALM) - CALM
