"""Two rows of one stage of shallow water, Numba: four or eight strips of them side by side, one a lane.

The pieces take vectors, as they would take numbers. What a vector needs of its western neighbor (`West`) is what was
computed just before it, and stays in registers. Factors of averages stand in the coefficients: q holds half of the
step, `energy` is the Bernoulli function times step / dy. What is at rest stays so to the bit: there every difference is
one of equal rounded numbers. That is why a stage moves h toward the start of the step by their difference; velocities,
0 at rest, are weighted sums, which is an instruction less.

Both rows of a pair must get the same bits, for where a pair begins is up to the ranks. So rows that are computed one
after the other are `called`, and a sum of two products names the one that is `fused` with the sum: the compiler would
choose one here and the other there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile import functions  # noqa: F401  (math.sqrt of vectors)
from hpckit.kernels.compile.intrinsics import called, fused, prefetch, store
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.compile.strips import LANES, load
from hpckit.kernels.shallow_water.constants import AT_ONCE, CORNER, FACE, HALO, STRESS, WATER, F
from hpckit.kernels.shallow_water.numerics import friction, settle, vorticity

CELLS = 128  # of a strip, at most, beside its halo
# From row to row of a ring: the strip, its halo, a vector beside it at either end; an odd number of cache lines, as
# rows would share places in a cache otherwise.
PITCH = 8 * (LANES * (CELLS + 2 * AT_ONCE * HALO + 2) // 8 | 1)
H, U, V = 0, PITCH, 2 * PITCH  # where a row of fields has each
FLUX_U = 3 * PITCH  # in the carry, beside H, U and V
WEIGHTS = (0.0, 1.0), (0.75, 0.25), (1.0 / 3.0, 2.0 / 3.0)  # of the start of the step, of the stage before


class Numbers(NamedTuple):
    """What all rows of all stages share."""

    gravity: float
    per_dx: float
    per_dy: float
    slant: float  # dy / dx
    viscosity: float
    drag: float
    drag_quadratic: float


class RowFactors(NamedTuple):
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


class Known(NamedTuple):
    """What a row already knows of its tendencies, its southern half; H in units of half_y."""

    h: Any
    u: Any
    v: Any
    flux_u: Any


class West(NamedTuple):
    """What a vector needs of the one to the west; h, u and v are of the southern row, which may be overwritten."""

    h: Any
    u: Any
    v: Any
    east: Any
    energy: Any
    across: Any
    flux_u: Any
    flux_v: Any
    zeta: Any


def pair_kernel(full: bool, square: bool, stage: int) -> Any:
    """Two rows of a stage (0, 1, 2) for one form. full: with bottom, walls, friction and forcing; square: dx is dy.

    With 32 long registers both rows are computed side by side: what one tells the other never goes to memory, and the
    row between is read once. Forms that need more registers, and processors with less, take one row after the other.
    """
    row = _row_kernel(full, square, stage)
    together = LANES == 8 and not full

    @jit(noalias=True, borrowed=True, key=(full, square, stage))
    def pair(memory, now, old, to, carry, ground, edges, span, dt, numbers, rows, r, onward):
        """Rows r - 1 and r, cells begin + 1 to end: new = now + old_weight * (start - now) + weight * dt * tendency.

        All are places in `memory`. now: rows r - 1, r and r + 1, each h, u, v; old: rows r - 1 and r at the start of
        the step; to: where their results go, which may be where they are now or were at the start; ground: the bottom
        under them; edges: factors of columns. carry: what row r - 1 knows of its own tendencies, then what row r + 1
        does. span: begin, end. onward: an array, and from where in it the next two rows will be read.
        """
        (below, middle, above), (old_low, old_up), (to_low, to_up) = now, old, to
        (ground_low, ground_up), (begin, end), (ahead, ahead_low, ahead_up) = ground, span, onward
        low_factors = _factors(stage, dt, numbers, rows, r, square)
        up_factors = _factors(stage, dt, numbers, rows, r + 1, square)
        if not together:
            row(memory, below, middle, old_low, to_low, carry, ground_low, edges, begin, end, low_factors, numbers,
                ahead, ahead_low)  # fmt: skip
            row(memory, middle, above, old_up, to_up, carry, ground_up, edges, begin, end, up_factors, numbers,
                ahead, ahead_up)  # fmt: skip
            return
        low = up = _unknown(memory, below + LANES * begin)
        to_u_w = low.across
        for j in range(begin, end + 1):  # the upper row is a column behind
            prefetch(ahead, ahead_low + LANES * j)
            prefetch(ahead, ahead_up + LANES * j)
            i, west, flux_u_w = LANES * (j + 1), LANES * j, low.flux_u
            known = _known(memory, carry + i)
            by, next_, low = _tendencies(memory, below + i, middle + i, ground_low + i, edges + i,
                                         known, low, low_factors, numbers, full, square)  # fmt: skip
            known = Known(next_.h, to_u_w, next_.v, flux_u_w)
            to_u_w = next_.u
            new_low = _new(memory, below + i, old_low + i, edges + i, by, low_factors, full, stage)
            by, next_, up = _tendencies(memory, middle + west, above + west, ground_up + west, edges + west,
                                        known, up, up_factors, numbers, full, square)  # fmt: skip
            new_up = _new(memory, middle + west, old_up + west, edges + west, by, up_factors, full, stage)
            _store(memory, to_low + i, new_low)
            _store(memory, to_up + west, new_up)
            _carry(memory, carry + west, next_)

    return pair


def _row_kernel(full: bool, square: bool, stage: int) -> Any:
    @jit(noalias=True, borrowed=True, key=(full, square, stage))
    def row(memory, s, n, old, to, carry, ground, edges, begin, end, factors, numbers, ahead, ahead_at):
        """Row s, which row n is north of; the other arguments are those of a pair."""
        called()
        west = _unknown(memory, s + LANES * begin)
        for j in range(begin, end):
            prefetch(ahead, ahead_at + LANES * j)
            i = LANES * (j + 1)
            known = _known(memory, carry + i)
            by, next_, west = _tendencies(memory, s + i, n + i, ground + i, edges + i,
                                          known, west, factors, numbers, full, square)  # fmt: skip
            new = _new(memory, s + i, old + i, edges + i, by, factors, full, stage)
            _store(memory, to + i, new)
            _carry(memory, carry + i, next_)

    return row


@inlined
def _unknown(memory, at):
    """West of the first vector, of which nothing is used."""
    some = load(memory, at)
    return West(some, some, some, some, some, some, some, some, some)


@inlined
def _known(memory, at):
    """Load the values stored for a row."""
    return Known(load(memory, at + H), load(memory, at + U), load(memory, at + V), load(memory, at + FLUX_U))


@inlined
def _carry(memory, at, known):
    """Store the values for a row; those of h and v are one column behind."""
    store(memory, at + H - LANES, known.h)
    store(memory, at + U, known.u)
    store(memory, at + V - LANES, known.v)
    store(memory, at + FLUX_U, known.flux_u)


@inlined
def _store(memory, at, new):
    h, u, v = new
    store(memory, at + H, h)
    store(memory, at + U, u)
    store(memory, at + V, v)


@inlined
def _tendencies(memory, s, n, ground, edge, known, west, factors, numbers, full, square):
    """Of row s, which row n is north of, the tendencies times the step (h: that of half a step over dy); what row n
    knows of its own, of h and v to the west; the next `West`.
    """
    h_s, u_s, v_s, u_e = load(memory, s), load(memory, s + U), load(memory, s + V), load(memory, s + U + LANES)
    h_n, u_n, v_n = load(memory, n), load(memory, n + U), load(memory, n + V)
    h_w, v_w = load(memory, n - LANES), load(memory, n + V - LANES)
    # At low corners of row n half of the step times the absolute vorticity; the relative one, where it is needed.
    zeta = v_n - v_w
    if full:
        zeta = vorticity(u_s, u_n, v_w, v_n, numbers.per_dx, numbers.per_dy)
        zeta *= factors.corner * load(memory, edge + CORNER * PITCH)
        absolute = factors.half_f + factors.half * zeta
    elif square:
        absolute = factors.half_f + factors.half_x * (zeta - (u_n - u_s))
    else:
        absolute = factors.half_f + factors.half_x * zeta - factors.half_y * (u_n - u_s)
    east = h_s + h_n
    q = absolute / (west.east + east)
    flux_u, flux_v = (h_w + h_n) * u_n, east * v_n
    to_u, across = q * (flux_v + west.flux_v), q * (flux_u + known.flux_u)
    level, squares = h_s, fused(u_s, u_s, u_e * u_e) + fused(v_s, v_s, v_n * v_n)
    if full:
        level += load(memory, ground)
        squares -= 4.0 * numbers.viscosity * fused(u_e - u_s, numbers.per_dx, (v_n - v_s) * numbers.per_dy)
    energy = fused(level, factors.gravity_y, factors.quarter_y * squares)
    slope, spread = energy - west.energy, flux_u - west.flux_u
    if not square:
        slope, spread = numbers.slant * slope, numbers.slant * spread
    du = (known.u - slope) + to_u
    dv = known.v - energy
    dh = known.h - flux_v
    next_h = west.flux_v - spread
    next_v = (west.energy - across) - west.across
    if full:
        curl = numbers.viscosity * factors.step * numbers.per_dy * zeta
        drag, drag_quadratic, step = numbers.drag, numbers.drag_quadratic, factors.step
        # Each by its own depth: one division for these and q would bring the depth beyond a wall into their bits.
        across_u, across_v = (west.v + v_s) + (v_w + v_n), (west.u + u_s) + (load(memory, n + U - LANES) + u_n)
        du = du - curl + step * friction(u_s, across_u, west.h + h_s, factors.stress, drag, drag_quadratic)
        to_u += curl
        next_v += numbers.viscosity * step * numbers.per_dx * (zeta - west.zeta)
        next_v += step * friction(v_w, across_v, west.h + h_w, 0.0, drag, drag_quadratic)
    known = Known(next_h, to_u, next_v, flux_u)
    return (dh, du, dv), known, West(h_s, u_s, v_s, east, energy, across, flux_u, flux_v, zeta)


@inlined
def _new(memory, now, old, edge, by, factors, full, stage):
    """h, u and v after the stage."""
    h, u, v = load(memory, now), load(memory, now + U), load(memory, now + V)
    (dh, du, dv), (old_weight, weight) = by, WEIGHTS[stage]
    if stage == 0:
        h, u, v = h + factors.half_y * dh, u + du, v + dv
    else:
        h = (h + old_weight * (load(memory, old) - h)) + factors.half_y * dh
        u = old_weight * load(memory, old + U) + (weight * u + du)
        v = old_weight * load(memory, old + V) + (weight * v + dv)
    if full:
        u *= factors.water * load(memory, edge + FACE * PITCH)
        v *= factors.face * load(memory, edge + WATER * PITCH)
    if stage == 2:
        u, v = settle(u), settle(v)
    return h, u, v


@inlined
def _factors(stage, dt, numbers, rows, r, square):
    """For row r - 1."""
    step = WEIGHTS[stage][1] * dt
    half_x, half_y = 0.5 * step * numbers.per_dx, 0.5 * step * numbers.per_dy
    if square:  # a register less
        half_y = half_x
    south, north = np.uint64(max(r - 1, 0)), np.uint64(min(r, rows.shape[1] - 1))
    return RowFactors(
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
