"""The numbers that `velocity … create` of LAMMPS draws, so that a run starts as LAMMPS starts it.

They come from the generator of Park and Miller (Commun. ACM 31, 1988): x' = 16807 x mod 2^31 - 1. With `loop all` one
sequence runs over all particles in their order; with `loop geom` each has a sequence of its own, whose seed is a hash
of the command's seed and of its coordinates (Jenkins' one at a time), so that the result does not depend on the order.
Normal numbers come from pairs of uniform ones, by Marsaglia's polar method (SIAM Rev. 6, 1964).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpckit.plan.particles.snapshot import Snapshot

FACTOR, MODULUS = 16807, 2**31 - 1
WARM_UP = 5  # numbers that a sequence of its own leaves out
MASK = 0x7FFFFFF


def in_order(seed: int, order: np.ndarray) -> np.ndarray:
    """Uniform numbers from -1/2 to 1/2, float64[n, 3], of the particles at these places of the sequence."""
    powers = np.array([pow(FACTOR, int(k), MODULUS) for k in range(1, 4)], np.uint64)
    starts = _powers(3 * order.astype(np.int64)) * np.uint64(seed % MODULUS) % np.uint64(MODULUS)
    return (starts[:, None] * powers % np.uint64(MODULUS)).astype(np.float64) * (1.0 / MODULUS) - 0.5


def places_read(file: Snapshot) -> np.ndarray:
    """Where LAMMPS has the particles of a data file, float64[n, 3]: put into the box along periodic dims, in a tilted
    one by way of fractions of its edges, all in its order of operations: `by_place` takes every bit.
    """
    return _remapped(file.positions, file.lower, file.upper, file.tilt, file.periodic)[0]


def places_copied(file: Snapshot, times: tuple[int, int, int]) -> np.ndarray:
    """The same of the copies that `replicate` makes of them, those along x first."""
    if times == (1, 1, 1):
        return places_read(file)
    places, away = _remapped(file.positions, file.lower, file.upper, file.tilt, file.periodic)
    lengths, (xy, xz, yz) = file.upper - file.lower, file.tilt
    a, b, c = (file.images + away).T
    x, y, z = places.T
    if any(file.tilt):
        x, y, z = x + (lengths[0] * a + xy * b + xz * c), y + (lengths[1] * b + yz * c), z + lengths[2] * c
    else:
        x, y, z = x + a * lengths[0], y + b * lengths[1], z + c * lengths[2]
    copies = []
    for k, j, i in np.ndindex(times[::-1]):
        each = x + i * lengths[0], y + j * lengths[1], z + k * lengths[2]
        if any(file.tilt):
            each = each[0] + j * xy + k * xz, each[1] + k * yz, each[2]
        copies.append(np.stack(each, axis=1))
    tilt = np.array([xy * times[1], xz * times[2], yz * times[2]])
    upper = file.lower + np.array(times) * lengths
    return _remapped(np.concatenate(copies), file.lower, upper, tilt, file.periodic)[0]


def _remapped(
    places: np.ndarray, lower: np.ndarray, upper: np.ndarray, tilt: np.ndarray, periodic: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Places put into a box as LAMMPS does it, and by how many edges they have gone: [n, 3] each."""
    (lx, ly, lz), (xy, xz, yz), tilted = upper - lower, tilt, any(tilt)
    away = np.zeros(places.shape, np.int64)
    if tilted:
        x, y, z = (places - lower).T
        inverse = -xy / (lx * ly), (yz * xy - ly * xz) / (lx * ly * lz), -yz / (ly * lz)
        places = np.stack([1 / lx * x + inverse[0] * y + inverse[1] * z, 1 / ly * y + inverse[2] * z, 1 / lz * z], 1)
    else:
        places = places.copy()
    low, high = (np.zeros(3), np.ones(3)) if tilted else (lower, upper)
    for dim in np.flatnonzero(periodic):
        column, period = places[:, dim], high[dim] - low[dim]
        while (below := column < low[dim]).any():
            column[below] += period
            away[below, dim] -= 1
        while (above := column >= high[dim]).any():
            column[above] -= period
            away[above, dim] += 1
        np.maximum(column, low[dim], out=column)
    if tilted:
        a, b, c = places.T
        places = np.stack([lx * a + xy * b + xz * c, ly * b + yz * c, lz * c], 1) + lower
    return places, away


def by_place(seed: int, places: np.ndarray) -> np.ndarray:
    """The same of particles at some positions, float64[n, 3]: each its own sequence."""
    state, drawn = _warm(seed, places), np.empty((len(places), 3))
    for k in range(3):
        state = _next(state)
        drawn[:, k] = state * (1.0 / MODULUS)
    return drawn - 0.5


def sequence(seed: int, first: int, count: int) -> np.ndarray:
    """Numbers of one sequence from a place on, from 0 to 1: float64[count]."""
    state = _powers(np.arange(first + 1, first + count + 1)) * np.uint64(seed % MODULUS) % np.uint64(MODULUS)
    return np.asarray(state.astype(np.float64) * (1.0 / MODULUS))


def first_by_place(seed: int, places: np.ndarray) -> np.ndarray:
    """The first number of each sequence of its own, from 0 to 1: float64[n]."""
    return np.asarray(by_place(seed, places)[:, 0] + 0.5)


def normal_in_order(seed: int, order: np.ndarray, count: int) -> np.ndarray:
    """Normal numbers of the particles at these of the `count` places of the sequence, float64[n, 3]."""
    wanted, found, pairs = (3 * count + 1) // 2, list[np.ndarray](), 0
    first, width = 0, 2 * wanted + 64  # pairs beyond the unit circle are left out: 21 % of them
    while pairs < wanted:
        each = _polar(2.0 * sequence(seed, first, width).reshape(-1, 2) - 1.0)
        found.append(each[np.isfinite(each[:, 0])])
        pairs, first = pairs + len(found[-1]), first + width
    return np.concatenate(found)[:wanted].reshape(-1)[: 3 * count].reshape(-1, 3)[order]


def normal_by_place(seed: int, places: np.ndarray) -> np.ndarray:
    """Normal numbers of particles at some positions, float64[n, 3]: each its own sequence."""
    state = _warm(seed, places)
    found, made = np.empty((len(places), 4)), np.zeros(len(places), np.int64)
    while (left := np.flatnonzero(made < 4)).size:
        both = np.empty((len(left), 2))
        for k in range(2):
            state[left] = _next(state[left])
            both[:, k] = state[left] * (1.0 / MODULUS)
        each = _polar(2.0 * both - 1.0)
        for k in (0, 1):
            found[left, made[left] + k] = each[:, k]
        made[left] += 2 * np.isfinite(each[:, 0])
    return found[:, :3]


def _warm(seed: int, places: np.ndarray) -> np.ndarray:
    """The states of the particles' own sequences, after the numbers that these leave out."""
    state = np.maximum(_hash(seed, np.ascontiguousarray(places[:, :3], np.float64)) & np.uint64(MASK), 1)
    for _ in range(WARM_UP):
        state = _next(state)
    return np.asarray(state)


def _next(state: np.ndarray) -> np.ndarray:
    """The states that follow."""
    return np.asarray(state * np.uint64(FACTOR) % np.uint64(MODULUS))


def _polar(pairs: np.ndarray) -> np.ndarray:
    """Two normal numbers of each of two uniform ones from -1 to 1; not a number beyond the unit circle."""
    squares = (pairs * pairs).sum(axis=1)
    squares[(squares >= 1.0) | (squares == 0.0)] = np.nan
    return np.asarray(pairs[:, ::-1] * np.sqrt(-2.0 * np.log(squares) / squares)[:, None])


def _powers(exponents: np.ndarray) -> np.ndarray:
    """FACTOR to some powers, modulo MODULUS."""
    found, base = np.ones(len(exponents), np.uint64), np.uint64(FACTOR)
    left = exponents.astype(np.uint64)
    while left.any():
        odd = (left & np.uint64(1)).astype(bool)
        found[odd] = found[odd] * base % np.uint64(MODULUS)
        base = base * base % np.uint64(MODULUS)
        left >>= np.uint64(1)
    return found


def _hash(seed: int, places: np.ndarray) -> np.ndarray:
    """The hash of the bytes of a seed (int32) and of each row, uint32 in uint64; bytes count as signed numbers."""
    word = np.uint64(0xFFFFFFFF)
    given = np.broadcast_to(np.array([seed], np.int32).view(np.int8), (len(places), 4))
    letters = np.concatenate([given, places.view(np.int8).reshape(len(places), 3 * places.itemsize)], axis=1)
    found = np.zeros(len(places), np.uint64)
    for column in letters.astype(np.int64).view(np.uint64).T:
        found = (found + column) & word
        found = (found + (found << np.uint64(10))) & word
        found ^= found >> np.uint64(6)
    found = (found + (found << np.uint64(3))) & word
    found ^= found >> np.uint64(11)
    return (found + (found << np.uint64(15))) & word
