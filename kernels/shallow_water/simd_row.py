"""One row of one stage of shallow water, Numba: four or eight strips of a row side by side, one a lane.

The pieces take vectors, as they would take numbers. What a vector needs of its western neighbor (names that end in _w)
is what was computed just before it, and stays in registers. Factors of averages stand in the coefficients: q holds half
of the step, `energy` is the Bernoulli function times step / dy. What is at rest stays so to the bit: there every
difference is one of equal rounded numbers. That is why a stage moves h toward the start of the step by their
difference; velocities, 0 at rest, are weighted sums, which is an instruction less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels import dual  # noqa: F401  (math.sqrt of vectors)
from hpckit.kernels.jit import inlined, jit
from hpckit.kernels.shallow_water.constants import AT_ONCE, CORNER, FACE, HALO, STRESS, WATER, F
from hpckit.kernels.shallow_water.numerics import friction, vorticity
from hpckit.kernels.simd import prefetch, store
from hpckit.kernels.strips import LANES, load

CELLS = 128  # of a strip, at most, beside its halo
PITCH = LANES * (CELLS + 2 * AT_ONCE * HALO + 2) + 8  # from row to row of a ring: the strip, its halo, a vector beside
H, U, V = 0, PITCH, 2 * PITCH  # where a row of fields has each
FLUX_U = 3 * PITCH  # in the carry, beside H, U and V


class Numbers(NamedTuple):
    """What all rows of all stages share."""

    gravity: float
    per_dx: float
    per_dy: float
    slant: float  # dy / dx
    viscosity: float
    drag: float
    drag_quadratic: float


class Factors(NamedTuple):
    """What all vectors of a row share, made of the step of the stage (s) and of the tables of rows."""

    step: float
    half: float  # half of the step
    half_x: float  # of it, over dx
    half_y: float
    half_f: float  # of it, times the Coriolis parameter
    gravity_y: float  # gravity times the step over dy
    quarter_y: float
    corner: float
    water: float
    face: float
    stress: float


def row_kernel(full: bool, square: bool, first: bool) -> Any:
    """The row of a stage for one form. full: with bottom, walls, friction and forcing; square: dx is dy; first: of the
    first stage, where `now` is `start`.
    """

    @jit(noalias=True, borrowed=True, key=(full, square, first))
    def row(now, below, above, start, old, grounds, ground, new, to, carry, edges, begin, end, old_weight, weight, dt,
            numbers, rows, r, ahead, ahead_at):  # fmt: skip
        """Row r - 1, cells begin + 1 to end: new = now + old_weight * (start - now) + weight * dt * tendency(now).

        below, above: where rows r - 1 and r stand in `now`, each h, u, v; old, ground: row r - 1 in `start`, and the
        bottom under it in `grounds`; to: row r - 1 in `new`. carry: what row r already knows of its own tendencies, its
        southern half. ahead, ahead_at: from where in memory the next rows will be read. Weights add up to 1.
        """
        factors = _factors(weight * dt, numbers, rows, r, square)
        east_w = energy_w = across_w = flux_u_w = flux_v_w = zeta_w = load(now, below + LANES * begin)
        for j in range(begin, end):
            prefetch(ahead, ahead_at + LANES * j)
            i = LANES * (j + 1)
            west, s, n = i - LANES, below + i, above + i
            u_s, v_s, v_n = load(now, s + U), load(now, s + V), load(now, n + V)
            absolute, zeta = _vorticity(now, s, n, v_n, edges, i, factors, numbers, full, square)
            east = load(now, s) + load(now, n)
            q = absolute / (east_w + east)
            flux_v = east * v_n
            flux_u = (load(now, n - LANES) + load(now, n)) * load(now, n + U)
            to_u, across = q * (flux_v + flux_v_w), q * (flux_u + load(carry, FLUX_U + i))
            energy = _energy(now, s, v_n, grounds, ground + i, factors, numbers, full)
            slope = energy - energy_w
            if not square:
                slope = numbers.slant * slope
            du = (load(carry, U + i) - slope) + to_u
            dv = load(carry, V + i) - energy
            dh = load(carry, H + i) - factors.half_y * flux_v
            next_v = (energy_w - across) - across_w
            if full:
                curl = numbers.viscosity * factors.step * numbers.per_dy * zeta
                du = du - curl + _friction_u(now, s, n, factors, numbers)
                to_u += curl
                next_v += numbers.viscosity * factors.step * numbers.per_dx * (zeta - zeta_w)
                next_v += _friction_v(now, s, n, factors, numbers)
            if first:
                new_h, new_u, new_v = load(now, s) + dh, u_s + du, v_s + dv
            else:
                new_h = _toward(load(now, s), load(start, old + i), old_weight) + dh
                new_u = old_weight * load(start, old + U + i) + (weight * u_s + du)
                new_v = old_weight * load(start, old + V + i) + (weight * v_s + dv)
            if full:
                new_u *= factors.water * load(edges, FACE * PITCH + i)
                new_v *= factors.face * load(edges, WATER * PITCH + i)
            store(new, to + H + i, new_h)
            store(new, to + U + i, new_u)
            store(new, to + V + i, new_v)
            store(carry, FLUX_U + i, flux_u)
            store(carry, U + i, to_u)
            store(carry, V + west, next_v)
            if square:
                store(carry, H + west, factors.half_x * (flux_v_w - (flux_u - flux_u_w)))
            else:
                store(carry, H + west, factors.half_y * flux_v_w - factors.half_x * (flux_u - flux_u_w))
            east_w, energy_w, across_w, flux_u_w, flux_v_w, zeta_w = east, energy, across, flux_u, flux_v, zeta

    return row


@inlined
def _factors(step, numbers, rows, r, square):
    half_x, half_y = 0.5 * step * numbers.per_dx, 0.5 * step * numbers.per_dy
    if square:
        half_y = half_x
    south, north = np.uint64(max(r - 1, 0)), np.uint64(r)
    return Factors(
        step,
        0.5 * step,
        half_x,
        half_y,
        0.5 * step * rows[np.uint64(F), north],
        step * numbers.per_dy * numbers.gravity,
        0.25 * step * numbers.per_dy,
        rows[np.uint64(CORNER), north],
        rows[np.uint64(WATER), south],
        rows[np.uint64(FACE), south],
        rows[np.uint64(STRESS), south],
    )


@inlined
def _vorticity(now, s, n, v_n, edges, i, factors, numbers, full, square):
    """At low corners of row r: half of the step times the absolute vorticity; the relative one, where it is `full`."""
    u_s, u_n, v_w = load(now, s + U), load(now, n + U), load(now, n + V - LANES)
    zeta = v_n - v_w
    if full:
        zeta = vorticity(u_s, u_n, v_w, v_n, numbers.per_dx, numbers.per_dy)
        zeta *= factors.corner * load(edges, CORNER * PITCH + i)
        absolute = factors.half_f + factors.half * zeta
    elif square:
        absolute = factors.half_f + factors.half_x * (zeta - (u_n - u_s))
    else:
        absolute = factors.half_f + factors.half_x * zeta - factors.half_y * (u_n - u_s)
    return absolute, zeta


@inlined
def _energy(now, s, v_n, grounds, ground, factors, numbers, full):
    """Of row r - 1: the Bernoulli function times step / dy."""
    u_s, u_e, v_s = load(now, s + U), load(now, s + U + LANES), load(now, s + V)
    level, squares = load(now, s), (u_s * u_s + u_e * u_e) + (v_s * v_s + v_n * v_n)
    if full:
        level += load(grounds, ground)
        squares -= 4.0 * numbers.viscosity * ((u_e - u_s) * numbers.per_dx + (v_n - v_s) * numbers.per_dy)
    return factors.gravity_y * level + factors.quarter_y * squares


@inlined
def _friction_u(now, s, n, factors, numbers):
    """Of the step, wind and bottom drag on u of row r - 1."""
    across = (load(now, s + V - LANES) + load(now, s + V)) + (load(now, n + V - LANES) + load(now, n + V))
    depth = load(now, s - LANES) + load(now, s)
    return factors.step * friction(
        load(now, s + U), across, depth, factors.stress, numbers.drag, numbers.drag_quadratic
    )


@inlined
def _friction_v(now, s, n, factors, numbers):
    """Of the step, bottom drag on v of row r, one cell to the west."""
    across = (load(now, s + U - LANES) + load(now, s + U)) + (load(now, n + U - LANES) + load(now, n + U))
    depth = load(now, s - LANES) + load(now, n - LANES)
    return factors.step * friction(load(now, n + V - LANES), across, depth, 0.0, numbers.drag, numbers.drag_quadratic)


@inlined
def _toward(now, start, old_weight):
    return now + old_weight * (start - now)
