"""SNAP, NumPy: the bispectrum of the neighbors of a particle, its energy, and the tables of the compiled form.

The density of neighbors at distances below a cutoff is mapped onto the sphere in four dimensions and expanded in its
harmonics, matrices u^j of the rotation by 2 theta_0, theta_0 = f pi (r - r_min) / (r_cut - r_min), about the axis to
the neighbor: U^j = 1 + sum_k w_k s(r_k) u^j(r_k), j = 0, 1/2, …, J. Its invariants of third order are

    B_{j1 j2 j} = U^j* : (U^j1 (x) U^j2)^j,   0 <= j2 <= j1 <= j <= J,

with Clebsch and Gordan's coefficients, and the energy is a sum over them (Thompson et al., J. Comput. Phys. 285, 2015,
316; quadratic: Wood and Thompson, J. Chem. Phys. 148, 2018, 241721; LAMMPS manual, pair_style snap). Indices j here are
twice those. Where elements have densities of their own, each U is of the neighbors of one element, and there is a B for
each three of them (Cusentino, Wood and Thompson, J. Phys. Chem. A 124, 2020, 5456). At short distances Ziegler,
Biersack and Littmark's repulsion may be added (LAMMPS, pair_style zbl).
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

ZBL = 12  # numbers of a pair: strength, four decays, inner, outer, five of the switch
SHARES, DECAYS = (0.02817, 0.28022, 0.50986, 0.18175), (0.20162, 0.40290, 0.94229, 3.19980)


class Snap(NamedTuple):
    """Parameters. coefficients float64[types, n]: the constant, the linear ones, those of all B for each three
    densities (the last that of U^j*), and, if there are more, those of products B_k B_l, k <= l, of which squares count
    half; these of one density only. radii, weights [types]; the cutoff of a pair is the sum of the radii (times the
    factor of the file). zbl [types, types, 12], all 0 for none. densities: how many; density int64[types]: the one that
    a particle adds to; everywhere: whether the 1 of a particle itself is in all of them, else in its own alone.
    """

    twice_j: int
    coefficients: np.ndarray
    radii: np.ndarray
    weights: np.ndarray
    angle: float
    least: float
    switched: bool
    from_zero: bool
    zbl: np.ndarray
    densities: int
    density: np.ndarray
    everywhere: bool

    @property
    def cutoff(self) -> float:
        """The longest of the cutoffs."""
        return max(2.0 * float(self.radii.max()), float(self.zbl[..., 6].max()))


class SnapTables(NamedTuple):
    """What depends on J and the number of densities. blocks: where u^j begins; roots [p, q]: sqrt(p / q); halves: how
    often an element of U^j counts in a sum over its left half; products int64[n, 12]: j1, j2, j, first ma1 and ma2,
    their number, the same of mb, the place in U^j, where Clebsch and Gordan's coefficients of the three begin, and the
    number of the three. terms int64[m, 2]: for the factor of a product (of its three j, of the densities of both U and
    of that which it is a derivative by), the place among the factors, and the B whose coefficient is in it, times
    shares [m]; numbers int64[n]: of a product that is one of B itself, the B, else -1; triples: j1, j2, j of each B.
    """

    blocks: np.ndarray
    roots: np.ndarray
    halves: np.ndarray
    products: np.ndarray
    coupling: np.ndarray
    terms: np.ndarray
    shares: np.ndarray
    numbers: np.ndarray
    triples: np.ndarray

    def width(self, densities: int) -> int:
        """How many numbers a row of U, of B or of factors has at most."""
        return max(
            densities * int(self.blocks[-1]), densities**3 * max(len(self.triples), int(self.products[-1, 11]) + 1)
        )


def clebsch_gordan(j1: int, j2: int, j: int, m1: int, m2: int) -> float:
    """The coefficient of m1 and m2, counted from 0; j are twice the angular momenta."""
    f, a, b = math.factorial, 2 * m1 - j1, 2 * m2 - j2
    m = (a + b + j) // 2
    if not 0 <= m <= j:
        return 0.0
    total, c = 0.0, 2 * m - j
    for z in range(
        max(0, -(j - j2 + a) // 2, -(j - j1 - b) // 2), min((j1 + j2 - j) // 2, (j1 - a) // 2, (j2 + b) // 2) + 1
    ):
        below = f(z) * f((j1 + j2 - j) // 2 - z) * f((j1 - a) // 2 - z) * f((j2 + b) // 2 - z)
        total += (-1) ** z / (below * f((j - j2 + a) // 2 + z) * f((j - j1 - b) // 2 + z))
    delta = f((j1 + j2 - j) // 2) * f((j1 - j2 + j) // 2) * f((j2 - j1 + j) // 2) / f((j1 + j2 + j) // 2 + 1)
    each = f((j1 + a) // 2) * f((j1 - a) // 2) * f((j2 + b) // 2) * f((j2 - b) // 2) * f((j + c) // 2)
    return float(total * math.sqrt(delta * each * f((j - c) // 2) * (j + 1)))


@cache
def tables(twice_j: int, densities: int = 1) -> SnapTables:
    """The tables for 2 J."""
    every = range(twice_j + 1)
    sizes = [(j + 1) ** 2 for j in every]
    blocks = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    roots = np.zeros((twice_j + 2, twice_j + 2))
    for p in range(1, twice_j + 2):
        roots[p, 1:] = np.sqrt(p / np.arange(1, twice_j + 2))
    halves = np.zeros(blocks[-1])
    for j in every:
        for mb in range(j // 2 + 1):
            for ma in range(j + 1):
                middle = 2 * mb == j
                count = 2.0 if not middle or ma < mb else 1.0 if ma == mb else 0.0
                halves[blocks[j] + mb * (j + 1) + ma] = count
    three = [(j1, j2, j) for j1 in every for j2 in range(j1 + 1) for j in range(j1 - j2, min(twice_j, j1 + j2) + 1, 2)]
    triples = [each for each in three if each[2] >= each[0]]
    number = {each: k for k, each in enumerate(triples)}
    products, numbers, terms = [], [], dict[tuple[int, int], float]()
    coupling: list[float] = []
    for item, (j1, j2, j) in enumerate(three):
        begin = len(coupling)
        coupling += [clebsch_gordan(j1, j2, j, m1, m2) for m1 in range(j1 + 1) for m2 in range(j2 + 1)]
        back = (j1 + 1) / (j + 1)  # B / (2 j + 1) is the same for any order of the three
        for p, q, to in np.ndindex(densities, densities, densities):
            place = ((item * densities + p) * densities + q) * densities + to
            of = [((j1, j2, j), (p, q, to), 1.0), ((j, j2, j1), (to, q, p), back), ((j2, j, j1), (q, to, p), back)]
            for each, (a, b, c), share in of:
                if each in number:
                    key = place, ((a * densities + b) * densities + c) * len(triples) + number[each]
                    terms[key] = terms.get(key, 0.0) + share
        for mb in range(j // 2 + 1):
            for ma in range(j + 1):
                spans = []
                for m in (ma, mb):
                    low = max(0, (2 * m - j - j2 + j1) // 2)
                    high = (2 * m - j - (2 * low - j1) + j2) // 2
                    spans += [low, high, min(j1, (2 * m - j + j2 + j1) // 2) - low + 1]
                products.append((j1, j2, j, *spans, blocks[j] + mb * (j + 1) + ma, begin, item))
                numbers.append(number.get((j1, j2, j), -1))
    return SnapTables(
        blocks, roots, halves, np.array(products), np.array(coupling), np.array([*terms]), np.array([*terms.values()]),
        np.array(numbers), np.array(triples),
    )  # fmt: skip


def harmonics(d: np.ndarray, radius: float, given: Snap) -> list[np.ndarray]:
    """u^j of a neighbor at d [3] with the cutoff `radius`: complex [2 J + 1 matrices of j + 1 rows]."""
    x, y, z = d
    r = float(np.sqrt(d @ d))
    angle = (r - given.least) * given.angle * math.pi / (radius - given.least)
    z0 = r / math.tan(angle)
    over = 1 / math.sqrt(r * r + z0 * z0)
    a, b = complex(z0, -z) * over, complex(y, -x) * over
    found = [np.ones((1, 1), complex)]
    for j in range(1, given.twice_j + 1):
        before, now = found[-1], np.zeros((j + 1, j + 1), complex)
        for mb in range(j + 1):
            for ma in range(j + 1):
                if mb < j and ma < j:
                    now[mb, ma] += math.sqrt((j - ma) / (j - mb)) * a.conjugate() * before[mb, ma]
                if mb < j and ma > 0:
                    now[mb, ma] -= math.sqrt(ma / (j - mb)) * b.conjugate() * before[mb, ma - 1]
        for ma in range(j + 1):  # the last row, of the first by symmetry
            now[j, j - ma] = (-1) ** ma * now[0, ma].conjugate()
        found.append(now)
    return found


def switching(r: float, radius: float, given: Snap) -> float:
    """The share s of a neighbor at distance r."""
    if not given.switched or r <= given.least:
        return 1.0
    return 0.5 * (math.cos((r - given.least) * math.pi / (radius - given.least)) + 1.0) if r <= radius else 0.0


def bispectrum(own: int, types: np.ndarray, d: np.ndarray, given: Snap) -> np.ndarray:
    """All B of a particle of type `own` with neighbors of these types at d [n, 3], by full sums."""
    every = range(given.densities)
    alone = [given.everywhere or given.density[own] == e for e in every]
    total = [[alone[e] * np.eye(j + 1, dtype=complex) for j in range(given.twice_j + 1)] for e in every]
    for kind, each in zip(types, d, strict=True):
        r, radius = float(np.sqrt(each @ each)), float(given.radii[own] + given.radii[kind])
        if r < radius:
            share = given.weights[kind] * switching(r, radius, given)
            for sums, more in zip(total[given.density[kind]], harmonics(each, radius, given), strict=True):
                sums += share * more
    found = []
    for (p, q, to), (j1, j2, j) in product(product(every, repeat=3), tables(given.twice_j).triples):
        value = 0.0
        cg = [[clebsch_gordan(j1, j2, j, m1, m2) for m2 in range(j2 + 1)] for m1 in range(j1 + 1)]
        shift = (j1 + j2 - j) // 2
        for mb1, mb2, ma1, ma2 in np.ndindex(j1 + 1, j2 + 1, j1 + 1, j2 + 1):
            mb, ma = mb1 + mb2 - shift, ma1 + ma2 - shift
            if 0 <= mb <= j and 0 <= ma <= j:
                z = cg[mb1][mb2] * cg[ma1][ma2] * total[p][j1][mb1, ma1] * total[q][j2][mb2, ma2]
                value += (total[to][j][mb, ma].conjugate() * z).real
        found.append(value - (j + 1 if given.from_zero and alone[p] and alone[q] and alone[to] else 0))
    return np.array(found)


def repulsion(r: float, zbl: np.ndarray) -> float:
    """Ziegler, Biersack and Littmark's energy at r, which fades from the inner to the outer cutoff."""
    strength, d1, d2, d3, d4, inner, outer, _, _, third, fourth, shift = zbl
    if r >= outer:
        return 0.0
    t = max(0.0, r - inner)
    sums = sum(share * math.exp(-d * r) for share, d in zip(SHARES, (d1, d2, d3, d4), strict=True))
    return float(strength * sums / r + shift + t**3 * (third + fourth * t))


def energy(own: int, types: np.ndarray, d: np.ndarray, given: Snap) -> float:
    """The energy of a particle of type `own` with neighbors of these types at d [n, 3]."""
    b = bispectrum(own, types, d, given)
    n, c = len(b), given.coefficients[own]
    total = float(c[0] + c[1 : n + 1] @ b)
    if len(c) > n + 1:
        rows, columns = np.triu_indices(n)
        total += float(c[n + 1 :] @ (b[rows] * b[columns] * np.where(rows == columns, 0.5, 1.0)))
    for kind, each in zip(types, d, strict=True):
        total += 0.5 * repulsion(float(np.sqrt(each @ each)), given.zbl[own, kind])
    return total
