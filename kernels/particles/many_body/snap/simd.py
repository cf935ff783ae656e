"""SNAP, Numba: one particle after the other, its neighbors in an order that does not depend on the lists.

U is summed over neighbors, and y, the derivative of the energy by U, over products of two U. The derivative by the
place of a neighbor goes backward through the recursion of its u^j, once for all three directions: three times the work
of the recursion itself, where differentiating it forward takes six.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.loops import coarse_and_fine, type_of_double
from hpckit.kernels.particles.many_body.snap.reference import SHARES
from hpckit.kernels.particles.pair.reference import TALLY

C1, C2, C3, C4 = SHARES


@jit
def _recursion(twice_j, blocks, roots, ar, ai, br, bi, ur, ui, first):
    """u^j from `first` on: the left half of each, and what the next one needs of the right half."""
    ur[first], ui[first] = 1.0, 0.0
    for j in range(1, twice_j + 1):
        now, before = first + blocks[j], first + blocks[j - 1]
        for mb in range(j // 2 + 1):
            to, at = now + mb * (j + 1), before + mb * j
            ur[to], ui[to] = 0.0, 0.0
            for ma in range(j):
                root, pr, pi = roots[j - ma, j - mb], ur[at + ma], ui[at + ma]
                ur[to + ma] += root * (ar * pr + ai * pi)
                ui[to + ma] += root * (ar * pi - ai * pr)
                root = roots[ma + 1, j - mb]
                ur[to + ma + 1] = -root * (br * pr + bi * pi)
                ui[to + ma + 1] = -root * (br * pi - bi * pr)
        for mb in range(j // 2 + 1):
            for ma in range(j + 1):
                at, to = now + mb * (j + 1) + ma, now + (j - mb) * (j + 1) + j - ma
                sign = 1.0 - 2.0 * ((ma + mb) % 2)
                ur[to], ui[to] = sign * ur[at], -sign * ui[at]


@jit
def _backward(twice_j, blocks, roots, ar, ai, br, bi, ur, ui, first, gr, gi):
    """From derivatives by the left halves of u^j, which are written over, those by a and b."""
    dar, dai, dbr, dbi = 0.0, 0.0, 0.0, 0.0
    for j in range(twice_j, 0, -1):
        now, before = blocks[j], blocks[j - 1]
        if j % 2 == 0:  # the middle row comes from one of the right half
            for ma in range(j):
                at = before + (j // 2) * j + ma
                gr[at], gi[at] = 0.0, 0.0
        for mb in range(j // 2 + 1):
            to, at = now + mb * (j + 1), before + mb * j
            for ma in range(j):
                pr, pi = ur[first + at + ma], ui[first + at + ma]
                root, xr, xi = roots[j - ma, j - mb], gr[to + ma], gi[to + ma]
                other, yr, yi = roots[ma + 1, j - mb], gr[to + ma + 1], gi[to + ma + 1]
                dar += root * (xr * pr + xi * pi)
                dai += root * (xr * pi - xi * pr)
                dbr -= other * (yr * pr + yi * pi)
                dbi -= other * (yr * pi - yi * pr)
                gr[at + ma] += root * (xr * ar - xi * ai) - other * (yr * br - yi * bi)
                gi[at + ma] += root * (xr * ai + xi * ar) - other * (yr * bi + yi * br)
        if j % 2 == 0:
            mb = j // 2
            for ma in range(j):
                at, to = before + mb * j + ma, before + (j - 1 - mb) * j + j - 1 - ma
                sign = 1.0 - 2.0 * ((ma + mb) % 2)
                gr[to] += sign * gr[at]
                gi[to] -= sign * gi[at]
    return dar, dai, dbr, dbi


@jit
def _coupled(blocks, products, k, coupling, ur, ui, one, other):
    """An element of the product of two U, which begin at `one` and at `other`."""
    j1, j2 = products[k, 0], products[k, 1]
    low, high, begin = products[k, 3], products[k, 4], products[k, 10]
    zr, zi = 0.0, 0.0
    for b in range(products[k, 8]):
        mb1, mb2 = products[k, 6] + b, products[k, 7] - b
        at, to, cg = (
            one + blocks[j1] + mb1 * (j1 + 1) + low,
            other + blocks[j2] + mb2 * (j2 + 1) + high,
            begin + low * (j2 + 1) + high,
        )
        sr, si = 0.0, 0.0
        for a in range(products[k, 5]):
            c, xr, xi, wr, wi = coupling[cg + a * j2], ur[at + a], ui[at + a], ur[to - a], ui[to - a]
            sr += c * (xr * wr - xi * wi)
            si += c * (xr * wi + xi * wr)
        c = coupling[begin + mb1 * (j2 + 1) + mb2]
        zr += c * sr
        zi += c * si
    return zr, zi


@jit
def _derivatives(densities, size, blocks, products, coupling, terms, shares, beta, factors, ur, ui, yr, yi):
    """y: coefficients `beta` times the derivatives of all B by U."""
    for k in range(densities * size):
        yr[k], yi[k] = 0.0, 0.0
    for k in range((products[-1, 11] + 1) * densities * densities * densities):
        factors[k] = 0.0
    for k in range(len(terms)):
        factors[terms[k, 0]] += shares[k] * beta[terms[k, 1]]
    for of in range(densities * densities):
        one, other = of // densities * size, of % densities * size
        for k in range(len(products)):
            zr, zi = _coupled(blocks, products, k, coupling, ur, ui, one, other)
            at, place = products[k, 9], (products[k, 11] * densities * densities + of) * densities
            for _ in range(densities):
                yr[at] += factors[place] * zr
                yi[at] += factors[place] * zi
                at, place = at + size, place + 1


@jit
def _linearized(
    own, coefficients, densities, triples, from_zero, blocks, products, numbers, coupling, halves, sr, si, b, beta
):  # fmt: skip
    """The energy but for its part that is linear in B, where that is the whole model, else all of it; beta: its
    derivatives by B.
    """
    n, energy = densities * densities * densities * len(triples), coefficients[own, 0]
    for k in range(n):
        beta[k], b[k] = coefficients[own, 1 + k], 0.0
    if coefficients.shape[1] > n + 1:
        for k in range(len(products)):
            if numbers[k] >= 0:
                zr, zi = _coupled(blocks, products, k, coupling, sr, si, 0, 0)
                at = products[k, 9]
                b[numbers[k]] += halves[at] * (sr[at] * zr + si[at] * zi)
        at = n + 1
        for k in range(n):
            if from_zero:
                b[k] -= triples[k, 2] + 1
        for k in range(n):
            energy += coefficients[own, 1 + k] * b[k]
            for m in range(k, n):
                c = coefficients[own, at]
                at += 1
                if m == k:
                    energy += 0.5 * c * b[k] * b[k]
                    beta[k] += c * b[k]
                else:
                    energy += c * b[k] * b[m]
                    beta[k] += c * b[m]
                    beta[m] += c * b[k]
    return energy


@jit
def _from_zero(energy, own, densities, density, wide, triples, beta):
    """The energy without the part that is linear in B and that a particle without neighbors has."""
    n = len(triples)
    for every in range(densities * densities * densities):
        p, q, to = every // (densities * densities), every // densities % densities, every % densities
        if wide or p == q == to == density[own]:
            for k in range(n):
                energy -= beta[every * n + k] * (triples[k, 2] + 1)
    return energy


@jit
def _repulsion(r, zbl):
    """The energy, and its derivative."""
    if r >= zbl[6]:
        return 0.0, 0.0
    e1, e2 = C1 * math.exp(-zbl[1] * r), C2 * math.exp(-zbl[2] * r)
    e3, e4 = C3 * math.exp(-zbl[3] * r), C4 * math.exp(-zbl[4] * r)
    value, over = e1 + e2 + e3 + e4, 1.0 / r
    slope = -(zbl[1] * e1 + zbl[2] * e2 + zbl[3] * e3 + zbl[4] * e4)
    t = max(0.0, r - zbl[5])
    energy = zbl[0] * value * over + zbl[11] + t * t * t * (zbl[9] + zbl[10] * t)
    return energy, zbl[0] * over * (slope - value * over) + t * t * (zbl[7] + zbl[8] * t)


@jit
def _sort(vectors, slots, types, count):
    """The neighbors by distance, then by x, y and z: in the same order on any number of ranks."""
    for m in range(1, count):
        x, y, z, r2, slot, kind = (
            vectors[m, 0], vectors[m, 1], vectors[m, 2], vectors[m, 3], slots[m], types[m],
        )  # fmt: skip
        k = m
        while k > 0:
            v = vectors[k - 1]
            if v[3] != r2:
                later = v[3] > r2
            elif v[0] != x:
                later = v[0] > x
            elif v[1] != y:
                later = v[1] > y
            else:
                later = v[2] > z
            if not later:
                break
            vectors[k, 0], vectors[k, 1], vectors[k, 2], vectors[k, 3] = v[0], v[1], v[2], v[3]
            slots[k], types[k] = slots[k - 1], types[k - 1]
            k -= 1
        vectors[k, 0], vectors[k, 1], vectors[k, 2], vectors[k, 3] = x, y, z, r2
        slots[k], types[k] = slot, kind


@cache
def force_kernel(exact: bool, measure: bool) -> Any:
    """The kernel forces(clusters, records, start, entries, given, tables, room, pushed, tallies); see
    `dispatch.forces`. room: vectors [longest, 4], slots and types [longest], u of each neighbor [longest, size] in two
    parts, and nine rows of numbers.
    """

    @inlined
    def _push(pushed, i, s, fx, fy, fz):
        """The force on a neighbor, and the opposite one on the particle."""
        if exact:
            for d, value in ((0, fx), (1, fy), (2, fz)):
                coarse, fine = coarse_and_fine(value)
                pushed[s, d] += coarse
                pushed[s, 4 + d] += fine
                pushed[i, d] -= coarse
                pushed[i, 4 + d] -= fine
        else:
            pushed[s, 0] += fx
            pushed[s, 1] += fy
            pushed[s, 2] += fz
            pushed[i, 0] -= fx
            pushed[i, 1] -= fy
            pushed[i, 2] -= fz

    def forces(clusters, records, start, entries, given, tables, vectors, slots, kinds, ur, ui, rows, pushed, tallies):
        twice_j, coefficients, radii, weights, angle, least, switched, from_zero, zbl, densities, density, wide = given
        blocks, roots, halves, products, coupling, terms, shares, numbers, triples = tables
        size, n = blocks[twice_j + 1], densities * densities * densities * len(triples)
        sr, si, yr, yi, gr, gi, b, beta, factors = rows
        types, longest = len(radii), 0.0
        for a in range(types):
            for c in range(types):
                longest = max(longest, radii[a] + radii[c], zbl[a, c, 6])
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                x, y, z = records[i, 0], records[i, 1], records[i, 2]
                own, count = min(type_of_double(records[i, 3]), types - 1), 0
                for k in range(start[i], start[i + 1]):
                    s = entries[k] // RECORD
                    dx, dy, dz = records[s, 0] - x, records[s, 1] - y, records[s, 2] - z
                    r2 = dx * dx + dy * dy + dz * dz
                    if r2 < longest * longest:
                        vectors[count, 0], vectors[count, 1], vectors[count, 2], vectors[count, 3] = dx, dy, dz, r2
                        slots[count], kinds[count] = s, min(type_of_double(records[s, 3]), types - 1)
                        count += 1
                if measure:
                    for column in range(TALLY):
                        tallies[i, column] = 0.0
                if start[i] == start[i + 1] and not x < 1e7:
                    continue  # a slot without a particle
                _sort(vectors, slots, kinds, count)
                sr[:], si[:] = 0.0, 0.0
                for e in range(densities):
                    for j in range(twice_j + 1 if wide or e == density[own] else 0):
                        for m in range(j + 1):
                            sr[e * size + blocks[j] + m * (j + 2)] = 1.0
                for m in range(count):
                    r, radius = math.sqrt(vectors[m, 3]), radii[own] + radii[kinds[m]]
                    if r >= radius:
                        continue
                    z0 = r / math.tan((r - least) * angle * math.pi / (radius - least))
                    over = 1.0 / math.sqrt(r * r + z0 * z0)
                    ar, ai, br, bi = z0 * over, -vectors[m, 2] * over, vectors[m, 1] * over, -vectors[m, 0] * over
                    _recursion(twice_j, blocks, roots, ar, ai, br, bi, ur, ui, m * size)
                    share = weights[kinds[m]]
                    if switched and r > least:
                        share *= 0.5 * (math.cos((r - least) * math.pi / (radius - least)) + 1.0)
                    into = density[kinds[m]] * size
                    for k in range(size):
                        sr[into + k] += share * ur[m * size + k]
                        si[into + k] += share * ui[m * size + k]
                given = own, coefficients, densities, triples, from_zero, blocks, products, numbers, coupling, halves
                energy = _linearized(*given, sr, si, b, beta)
                of = densities, size, blocks, products, coupling, terms, shares, beta
                _derivatives(*of, factors, sr, si, yr, yi)
                third = 0.0
                for e in range(0, densities * size, size):
                    for k in range(size):
                        yr[e + k] *= halves[k]
                        yi[e + k] *= halves[k]
                        third += yr[e + k] * sr[e + k] + yi[e + k] * si[e + k]
                if coefficients.shape[1] == n + 1:
                    energy += third / 3.0
                    if from_zero:
                        energy = _from_zero(energy, own, densities, density, wide, triples, beta)
                for m in range(count):
                    dx, dy, dz, r = vectors[m, 0], vectors[m, 1], vectors[m, 2], math.sqrt(vectors[m, 3])
                    radius, near = radii[own] + radii[kinds[m]], zbl[own, kinds[m]]
                    repelled, slope = _repulsion(r, near)
                    energy += 0.5 * repelled
                    radial, fx, fy, fz = 0.5 * slope, 0.0, 0.0, 0.0
                    if r < radius:
                        scale = angle * math.pi / (radius - least)
                        z0 = r / math.tan((r - least) * scale)
                        over = 1.0 / math.sqrt(r * r + z0 * z0)
                        ar, ai, br, bi = z0 * over, -dz * over, dy * over, -dx * over
                        share, fall = weights[kinds[m]], 0.0
                        if switched and r > least:
                            phase = (r - least) * math.pi / (radius - least)
                            fall = -0.5 * share * math.sin(phase) * math.pi / (radius - least)
                            share *= 0.5 * (math.cos(phase) + 1.0)
                        seen, first, into = 0.0, m * size, density[kinds[m]] * size
                        for k in range(size):
                            seen += yr[into + k] * ur[first + k] + yi[into + k] * ui[first + k]
                            gr[k], gi[k] = share * yr[into + k], share * yi[into + k]
                        dar, dai, dbr, dbi = _backward(twice_j, blocks, roots, ar, ai, br, bi, ur, ui, first, gr, gi)
                        turn = z0 / r - r * scale / (over * over) / (r * r)  # dz0 / dr
                        shrink = -over * over * over * (r + z0 * turn)  # d over / dr
                        radial += dar * (turn * over + z0 * shrink) + (dbr * dy - dai * dz - dbi * dx) * shrink
                        radial += fall * seen
                        fx, fy, fz = dbi * over, -dbr * over, dai * over
                    fx, fy, fz = fx - radial * dx / r, fy - radial * dy / r, fz - radial * dz / r
                    _push(pushed, i, slots[m], fx, fy, fz)
                    if measure:
                        tallies[i, 1] += 2.0 * fx * dx
                        tallies[i, 2] += 2.0 * fy * dy
                        tallies[i, 3] += 2.0 * fz * dz
                        tallies[i, 4] += 2.0 * fx * dy
                        tallies[i, 5] += 2.0 * fx * dz
                        tallies[i, 6] += 2.0 * fy * dz
                if measure:
                    tallies[i, 0] = 2.0 * energy

    return jit(forces, key=("snap", exact, measure))


def make_room(longest: int, size: int, width: int) -> tuple[np.ndarray, ...]:
    """What the kernel works in, for lists of that many neighbors, u of that many elements, and rows of that width."""
    one = longest * size
    integers = np.zeros(longest, np.int64), np.zeros(longest, np.int64)
    return np.zeros((longest, 4)), *integers, np.zeros(one), np.zeros(one), np.zeros((9, width))
