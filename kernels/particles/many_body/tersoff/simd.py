"""Tersoff's potential, Numba: vectors over particles, for an instruction set.

Four of thirty neighbors in a list are within the cutoff. Each lane is a particle; its near neighbors are set side by
side, a row for the first of all lanes, one for the second, and so on, and the loop over triplets runs over these rows.
Forces on neighbors are kept in rows, too, and added to the slots at the end, one number after the other.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile import functions  # noqa: F401  (math.exp and log, max of vectors)
from hpckit.kernels.compile.jit import jit
from hpckit.kernels.particles.cells.constants import CLUSTER
from hpckit.kernels.particles.loops import REORDERED, pieces, sums
from hpckit.kernels.particles.many_body.tersoff.pieces import (
    DROP,
    FADE,
    FARTHER,
    OVER,
    ROWS,
    R,
    around_of,
    ends_of,
    finder_of,
    tables_of,
)
from hpckit.kernels.particles.many_body.tersoff.reference import LEAST, PAIR
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.pair.reference import TALLY


class Room(NamedTuple):
    """What the kernel works in: near neighbors by row and lane, and of one particle; their numbers; places of
    parameters of pairs by row and lane, and of triplets; rows of vectors; results of lanes.
    """

    longest: int
    near: np.ndarray
    line: np.ndarray
    counts: np.ndarray
    pair_at: np.ndarray
    triple_at: np.ndarray
    rows: np.ndarray
    lanes: np.ndarray


def make_room(form: Form, longest: int) -> Room:
    """Room for lists of that many neighbors."""
    n, most = form.lanes, longest + 16
    integers = [np.zeros(size, np.int32) for size in (most * n, most + 16, n, most * n, n)]
    near, line, counts, pair_at, triple_at = integers
    return Room(longest, near, line, counts, pair_at, triple_at, np.zeros(most * ROWS * n), np.zeros(8 * n))


@cache
def force_kernel(form: Form, shared: bool, widths: bool) -> Any:
    """The kernel forces(clusters, records, start, entries, pad, pairs, triples, cutoff, near, line, counts, pair_at,
    triple_at, rows, lanes, pushed, tallies); see `dispatch.forces`. The seven before the last two are a `Room`.
    """
    n, one_type, measure = form.lanes, form.types == 1, form.measure
    broadcast, load_lanes = pieces(form).broadcast, pieces(form).load_lanes
    nothing, add, _, _ = sums(form)
    parameters, fading = tables_of(form)
    find, fill, lay = finder_of(form, shared)
    zeta_of, bend_bond = around_of(form, shared, widths)
    tally, hand_out = ends_of(form)

    def forces(clusters, records, start, entries, pad, pairs, triples, cutoff, near, line, counts, pair_at, triple_at,
               rows, lanes, pushed, tallies):  # fmt: skip
        limit, held, one = broadcast(cutoff * cutoff), broadcast(cutoff * cutoff * FARTHER), broadcast(1.0)
        types = 1
        if not one_type:
            while types * types * PAIR < len(pairs):
                types += 1
        for cluster in clusters:
            for group in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER, n):
                most = find(records, start, entries, group, limit, near, line, counts)
                if most == 0:
                    if measure:
                        for at in range(TALLY * group, TALLY * (group + n)):
                            tallies[at] = 0.0
                    continue
                fill(records, group, most, types, pad, near, line, counts, pair_at)
                lay(records, most, held, pairs, near, line, pair_at, rows)
                energy = nothing()
                for j in range(most):
                    at = j * ROWS * n
                    along = load_lanes(rows, at), load_lanes(rows, at + n), load_lanes(rows, at + 2 * n)
                    r, over = load_lanes(rows, at + R * n), load_lanes(rows, at + OVER * n)
                    a, fall_a, b, fall_b = parameters(pairs, pair_at, j * n, 0)
                    beta, power, middle, half = parameters(pairs, pair_at, j * n, 4)
                    if shared:
                        fade, drop = load_lanes(rows, at + FADE * n), load_lanes(rows, at + DROP * n)
                    else:
                        fade, drop = fading(r, middle, half)
                    total = zeta_of(j, most, r, along, triples, types, pair_at, triple_at, rows, one)
                    t, floor = max(beta * total, LEAST), max(total, LEAST)
                    raised = math.exp(power * math.log(t))
                    order = math.exp((-0.5 / power) * math.log(1.0 + raised))
                    slope = -0.5 * order * raised / ((1.0 + raised) * floor)
                    repelling, attracting = a * math.exp(-fall_a * r), b * math.exp(-fall_b * r)
                    bond = repelling - order * attracting
                    energy = add(energy, fade * bond, one)
                    radial = 0.5 * (drop * bond + fade * (fall_b * order * attracting - fall_a * repelling))
                    pull = -0.5 * fade * attracting * slope
                    bend_bond(j, most, radial, pull, over, along, rows, one)
                if measure:
                    tally(group, most, energy, rows, lanes, tallies)
                hand_out(group, near, counts, rows, pushed)

    return jit(forces, key=("tersoff", form, shared, widths), math=REORDERED)
