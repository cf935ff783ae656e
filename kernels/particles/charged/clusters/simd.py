"""Charged pairs by clusters, Numba: what the functions compute is said in `reference`.

Neighbors lie side by side in tiles, so nothing is gathered; each pair is computed once; and where none of eight
neighbors is within the cutoff, which is half of the cases, nothing but their distances is.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR
from hpckit.kernels.particles.cells.simd import is_near_ends, near
from hpckit.kernels.particles.charged.clusters.hits import TILE, hit_finder
from hpckit.kernels.particles.charged.clusters.mixing import mixed, taken
from hpckit.kernels.particles.charged.clusters.reference import GROUP, ClusterPairs
from hpckit.kernels.particles.charged.screening import by_inverse, count_of
from hpckit.kernels.particles.loops import REORDERED
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Form, Potential
from hpckit.kernels.particles.pair.reference import TALLY
from hpckit.kernels.particles.pair.simd import lookup_pieces


@jit
def to_tiles(positions, first, stop, center, tiles):
    """See `reference.to_tiles`."""
    for c in range(first, stop):
        for lane in range(CLUSTER):
            for d in range(3):
                tiles[c, d, lane] = positions[CLUSTER * c + lane, d] - center[d]


@cache
def pair_clusters(isa: str) -> Any:
    """The kernel that lists clusters near groups, for an instruction set.

    It returns the entries written, or -1 - (an estimate) where there is no room for them. places: float32.
    """
    eight = vectors.lanes("f", CLUSTER)
    load, broadcast, bits = eight.load, eight.broadcast, intrinsics.bits

    @inlined
    def meets(flat, own, first, c, counting, within):
        """Whether one of the four particles from `first` of a cluster is near one of those of cluster c that count."""
        hits, slots, s = 0, len(flat) // 3, CLUSTER * c
        other_x, other_y, other_z = load(flat, s), load(flat, slots + s), load(flat, 2 * slots + s)
        for i in range(CLUSTER * own + first, CLUSTER * own + first + GROUP):
            dx, dy = broadcast(flat[i]) - other_x, broadcast(flat[slots + i]) - other_y
            dz = broadcast(flat[2 * slots + i]) - other_z
            hits |= bits(dx * dx + (dy * dy + dz * dz) < within)
        return hits & counting != 0

    @jit(key=("pair_clusters", isa))
    def pair_clusters(
        clusters, places, boxes, reach, own_columns, ghost_columns, grid, counting, others, masks, bounds, found
    ):
        lower, scale, shape, ghost_lower, ghost_shape, brick_low, brick_high = grid
        flat, within = places.reshape(-1), broadcast(np.float32(reach * reach))
        m = 0
        for own in range(clusters):
            found[0] = own
            t = near(own, boxes, reach, own_columns, 0, lower, scale, shape, 1, found, 1)
            u = t
            if is_near_ends(own, boxes, reach, brick_low, brick_high):
                u = near(own, boxes, reach, ghost_columns, clusters, ghost_lower, scale, ghost_shape, 3, found, t)
            if m + 2 * u > len(others):
                return -1 - int((m + 2 * u) * (clusters / (own + 1.0)))
            for half in range(CLUSTER // GROUP):
                group, first = 2 * own + half, GROUP * half
                bounds[group] = m
                for k in range(t):
                    c = np.int64(found[k])
                    if c > own and meets(flat, own, first, c, 0xFF, within):
                        others[m], masks[m] = c, np.uint32(0xFFFFFFFF)
                        m += 1
                    elif c == own:  # each pair of a cluster once: with particles behind
                        mask = np.uint32(0)
                        for i in range(GROUP):
                            mask |= np.uint32(((0xFE << (first + i)) & 0xFF) << (CLUSTER * i))
                        others[m], masks[m] = c, mask
                        m += 1
                for k in range(t, u):
                    c = np.int64(found[k])
                    if counting[c] and meets(flat, own, first, c, counting[c], within):
                        others[m], masks[m] = c, np.uint32(0x01010101) * np.uint32(counting[c])
                        m += 1
        bounds[2 * clusters] = m
        return m

    return pair_clusters


def mask_out(pairs: ClusterPairs, starts: np.ndarray, partners: np.ndarray, own: int) -> None:
    """See `reference.mask_out`."""
    _mask_out(pairs.others, pairs.masks, pairs.bounds, starts, partners, own)


@jit
def _mask_out(others, masks, bounds, starts, partners, own):
    for s in range(own):
        for k in range(starts[s], starts[s + 1]):
            p = partners[k]
            i, j = s, p
            if p < own and p // CLUSTER < s // CLUSTER:
                i, j = p, s  # a pair of own particles is in the list of the first cluster
            for _ in range(2):
                group, wanted = i // GROUP, j // CLUSTER
                low = bounds[group]
                high = stop = bounds[group + 1]
                while low < high:
                    middle = (low + high) // 2
                    if others[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < stop and others[low] == wanted:
                    masks[low] &= ~np.uint32(1 << (CLUSTER * (i % GROUP) + j % CLUSTER))
                if p // CLUSTER != s // CLUSTER:
                    break
                i, j = j, i


@cache
def force_kernel(
    potential: Potential, form: Form, kind: tuple, rules: tuple[str, ...] | None, one_reach: bool, both: bool
) -> Any:
    """The kernel forces(clusters, tiles, charges, words, numbers, table, constants, others, masks, bounds, found, felt,
    pushed, tallies, energies).

    kind: of the screening; rules: of `mixing`, None where parameters are looked up; one_reach: whether all pairs have
    the cutoff of the charges; both: energies, too, which go to `tallies` [:, 0] and `energies` at the first slot of a
    group, as sums over pairs in both orders. words: w of the records [slots]; numbers: those of `mixing` at each slot,
    [varying, slots]; all arrays are flat. felt, pushed: see `reference.finish`.
    """
    lanes, n = form.lanes, min(form.lanes, CLUSTER)  # computed at a time, and listed: one or two of these
    load, broadcast, mask_of = (
        vectors.lanes(form.kind, n).load,
        vectors.lanes(form.kind, lanes).broadcast,
        intrinsics.mask_of(lanes),
    )
    whole, zero_unless = lanes // n, intrinsics.zero_unless
    inverse_root, take_from = intrinsics.inverse_root(form.isa), intrinsics.take_from
    total, at_once, find_hits = intrinsics.sum_lanes, intrinsics.numbers(whole), hit_finder(form.kind, n, whole == 2)
    _, row_of, parameters_of, *_ = lookup_pieces(potential, form)
    charge_force, charge_both = by_inverse(*kind)
    constants_of = intrinsics.numbers(count_of(*kind))
    common_of = intrinsics.numbers(potential.parameters, form.stored_types)
    number = np.float32 if form.kind == "f" else np.float64
    pair_force, pair_both = _by_inverse(potential)
    # Places and inverse roots of the next neighbors are taken while the forces of those before them are under way: the
    # processor sees about two turns of the loop at once, and their root and division alone take a third of a turn.
    ahead = form.isa == "avx2"
    own_numbers = sum(rule != "same" for rule in rules or ())

    @inlined
    def broadcast_at(array, first, k):
        return broadcast(array[first + k])

    if whole == 2:

        @inlined
        def load_at(array, first, places):
            return intrinsics.join(load(array, first + places[0]), load(array, first + places[1]))

        @inlined
        def push(array, first, places, value):
            take_from(array, first + places[0], intrinsics.lower(value))
            take_from(array, first + places[1], intrinsics.upper(value))

    else:

        @inlined
        def load_at(array, first, places):
            return load(array, first + places[0])

        @inlined
        def push(array, first, places, value):
            take_from(array, first + places[0], value)

    if rules is None:

        @inlined
        def of_one(words, numbers, table, slot, slots):
            return row_of(table, words, slot - 3)

        @inlined
        def of_many(words, numbers, places, slots):
            return load_at(words, 0, places)

        @inlined
        def parameters(row, w, table, common):
            return parameters_of(table, row, w)

    else:
        take, mix = taken(own_numbers), mixed(rules)

        @inlined
        def of_one(words, numbers, table, slot, slots):
            return take(broadcast_at, numbers, slot, slots)

        @inlined
        def of_many(words, numbers, places, slots):
            return take(load_at, numbers, places, slots)

        @inlined
        def parameters(a, b, table, common):
            return mix(a, b, common)

    @inlined(math=REORDERED)
    def act(a, b, between, allowed, fixed):
        """Vectors from b to a, times what pushes a along them, and energies."""
        longest, reach2, c, table, common = fixed
        dx, dy, dz, r2, y = between
        within = (r2 < longest) & mask_of(allowed)
        product = a[0] * b[0]
        p = parameters(a[1], b[1], table, common)
        energy = of_charge = g = longest
        if both:
            energy, push = pair_both(y * y, r2, p)
            of_charge, g = charge_both(y, r2, c)
            energy, of_charge = energy - p[SHIFT], product * of_charge
            if not one_reach:
                energy = zero_unless(r2 < p[CUTOFF2], energy)
                of_charge = zero_unless(r2 < reach2, of_charge)
            energy, of_charge = zero_unless(within, energy), zero_unless(within, of_charge)
        else:
            push, g = pair_force(y * y, r2, p), charge_force(y, r2, c)
        g = product * g
        if not one_reach:
            push, g = zero_unless(r2 < p[CUTOFF2], push), zero_unless(r2 < reach2, g)
        push = zero_unless(within, push + g)
        return push * dx, push * dy, push * dz, energy, of_charge

    @inlined(math=REORDERED)
    def apart(here, tiles, found, k):
        """What hit k names: vectors from there to here, their squares, and the inverse roots of these; slots, where
        their tiles begin, and bits of the pairs that count.
        """
        hit = at_once(found, k)
        s, t = hit[0] >> 8, hit[whole - 1] >> 8
        allowed = (hit[0] & 0xFF) | (hit[whole - 1] & 0xFF) << (n * (whole - 1))
        places, j = (s, t), (3 * s - 2 * (s & (CLUSTER - n)), 3 * t - 2 * (t & (CLUSTER - n)))
        dx, dy = here[0] - load_at(tiles, 0, j), here[1] - load_at(tiles, 8, j)
        dz = here[2] - load_at(tiles, 16, j)
        r2 = dx * dx + (dy * dy + dz * dz)
        return (dx, dy, dz, r2, inverse_root(r2)), places, j, allowed

    def forces(
        clusters, tiles, charges, words, numbers, table, constants, longest2,
        others, masks, bounds, found, felt, pushed, tallies, energies,
    ):  # fmt: skip
        c, common, slots = constants_of(constants, 0), common_of(table, 0), len(charges)
        nothing, longest, reach2 = broadcast(number(0.0)), broadcast(number(longest2)), broadcast(constants[0])
        room, fixed = len(found) // GROUP, (longest, reach2, c, table, common)
        for cluster in clusters:
            for half in range(2):
                group, tile, slot = 2 * cluster + half, TILE * cluster + 4 * half, CLUSTER * cluster + 4 * half
                energy, of_charges = 0.0, 0.0
                find_hits(tiles, tile, longest2, others, masks, bounds[group], bounds[group + 1], found)
                for i in range(GROUP):
                    x, y, z = tiles[tile + i], tiles[tile + i + 8], tiles[tile + i + 16]
                    here = broadcast(x), broadcast(y), broadcast(z)
                    a = broadcast(charges[slot + i]), of_one(words, numbers, table, slot + i, slots)
                    fx = fy = fz = e = u = nothing
                    first = room * i + 1
                    now = apart(here, tiles, found, first)
                    for k in range(first, room * i + found[room * i], whole):
                        if ahead:  # behind the last hit is a slot, too
                            following = apart(here, tiles, found, k + 1)
                        else:
                            now = following = apart(here, tiles, found, k)
                        between, places, j, allowed = now
                        b = load_at(charges, 0, places), of_many(words, numbers, places, slots)
                        px, py, pz, of_pairs, of_charge = act(a, b, between, allowed, fixed)
                        now = following
                        fx, fy, fz = fx + px, fy + py, fz + pz
                        if both:
                            e, u = e + of_pairs, u + of_charge
                        push(pushed, 0, j, px)
                        push(pushed, 8, j, py)
                        push(pushed, 16, j, pz)
                    felt[tile + i], felt[tile + i + 8], felt[tile + i + 16] = total(fx), total(fy), total(fz)
                    if both:
                        energy, of_charges = energy + 2.0 * total(e), of_charges + 2.0 * total(u)
                if both:
                    for i in range(GROUP):
                        tallies[TALLY * (slot + i)] = energies[slot + i] = 0.0
                    tallies[TALLY * slot], energies[slot] = energy + of_charges, of_charges

    key = None if None in potential.key else ("clusters", potential.key, form, kind, rules or (), one_reach, both)
    return jit(forces, key=key, math=REORDERED, borrowed=True)


def _by_inverse(potential: Potential) -> tuple[Any, Any]:
    """The functions of a potential as (1/r2, r2, p)."""
    if potential.by_inverse is not None:
        return potential.by_inverse
    own_force, own_both = potential.force, potential.energy_and_force

    @inlined(math=REORDERED)
    def force(y, r2, p):
        return own_force(r2, p)

    @inlined(math=REORDERED)
    def both(y, r2, p):
        return own_both(r2, p)

    return force, both


@jit
def finish(positions, own, ghosts, center, felt, pushed, measure, forces, tallies):
    """See `reference.finish`."""
    virial = np.zeros(6)
    for s in range(own + ghosts):
        c, lane = s // CLUSTER, s % CLUSTER
        fx, fy, fz = pushed[c, 0, lane], pushed[c, 1, lane], pushed[c, 2, lane]
        if s < own:
            fx, fy, fz = fx + felt[c, 0, lane], fy + felt[c, 1, lane], fz + felt[c, 2, lane]
        forces[s, 0], forces[s, 1], forces[s, 2], forces[s, 3] = fx, fy, fz, 0.0
        if measure:
            x = y = z = 0.0
            if positions[s, 0] < 0.5 * FAR:
                x, y, z = positions[s, 0] - center[0], positions[s, 1] - center[1], positions[s, 2] - center[2]
            x, y, z = 2.0 * x, 2.0 * y, 2.0 * z
            if s < own:
                tallies[s, 1], tallies[s, 2], tallies[s, 3] = x * fx, y * fy, z * fz
                tallies[s, 4], tallies[s, 5], tallies[s, 6], tallies[s, 7] = x * fy, x * fz, y * fz, 0.0
            else:
                virial[0] += x * fx
                virial[1] += y * fy
                virial[2] += z * fz
                virial[3] += x * fy
                virial[4] += x * fz
                virial[5] += y * fz
    if measure and own > 0:
        for column in range(6):
            tallies[0, 1 + column] += virial[column]
