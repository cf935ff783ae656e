"""Charged pairs by clusters, NumPy: definition and test oracle of the compiled forms.

Slots are cut into clusters of eight, and these into groups of four. A group meets clusters, each pair of own particles
once and each pair of an own particle and a ghost on the side of the own one; a bit says of each of the 32 pairs whether
it counts. Forces on both ends add up, so the virial is that of forces and places, x f, and no pair has one of its own
(Thompson, Plimpton and Mattson 2009, J. Chem. Phys. 131, 154107). What a pair is, `charged.reference` says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, FAR

GROUP = 4
EVERY = np.uint32(0xFFFFFFFF)


class ClusterPairs(NamedTuple):
    """The clusters near each group of a rank's own slots.

    Group g meets the own clusters others[bounds[2 g] : bounds[2 g + 1]], of which it is in the first at most, and the
    ghosts others[bounds[2 g + 1] : bounds[2 g + 2]], both in growing order. Bit 8 i + k of masks: whether particle i of
    the group meets k of the cluster. inner, outer, inner_parts: as of `cells.reference.Lists`.
    """

    others: Any
    masks: Any
    bounds: Any
    inner: Any
    outer: Any
    inner_parts: list[Any]


def to_tiles(positions: np.ndarray, first: int, stop: int, center: np.ndarray, tiles: np.ndarray) -> None:
    """tiles[c, d, lane] = a coordinate of slot 8 c + lane less that of `center`, for the clusters first to stop - 1."""
    slots = positions[CLUSTER * first : CLUSTER * stop, :3] - center
    tiles[first:stop] = slots.reshape(-1, CLUSTER, 3).transpose(0, 2, 1)


def mask_out(pairs: Any, starts: np.ndarray, partners: np.ndarray, own: int) -> None:
    """Take the bits of partners: slot s below `own` has partners[starts[s] : starts[s + 1]], ghosts or own slots."""
    for s in range(own):
        for p in partners[starts[s] : starts[s + 1]]:
            for i, j in ((s, p), (p, s)):
                if i >= own:
                    continue
                group = i // GROUP
                where = slice(pairs.bounds[2 * group], pairs.bounds[2 * group + 2])
                bit = np.uint32(1 << int(CLUSTER * (i % GROUP) + j % CLUSTER))
                pairs.masks[where][pairs.others[where] == j // CLUSTER] &= ~bit


def finish(
    positions: np.ndarray,
    own: int,
    ghosts: int,
    center: np.ndarray,
    inside: np.ndarray,
    outside: np.ndarray,
    pushed: np.ndarray,
    measure: bool,
    forces: np.ndarray,
    tallies: np.ndarray,
) -> None:
    """Write forces of the own slots and with `measure` their virials, twice as of `charged.reference`'s tallies.

    inside, outside: what groups feel of own particles and of ghosts, [own clusters, 3, 8]; pushed: what clusters feel
    of groups, [all clusters, 3, 8]. The virial of pairs with ghosts counts half, as each is seen by two ranks, or
    twice; that of the ghosts' places is added to the first slot.
    """

    def by_slot(tiles: np.ndarray, slots: int) -> np.ndarray:
        return tiles.transpose(0, 2, 1).reshape(-1, 3)[:slots]

    within, beyond = by_slot(inside, own) + by_slot(pushed, own), by_slot(outside, own)
    forces[:own, :3], forces[:own, 3] = within + beyond, 0.0
    if not measure or not own:
        return
    tallies[:own, 7] = 0.0
    places = np.where(positions[: own + ghosts, :1] < 0.5 * FAR, positions[: own + ghosts, :3] - center, 0.0)
    pulls = by_slot(pushed, own + ghosts)[own:]
    for column, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)), start=1):
        tallies[:own, column] = places[:own, a] * (2 * within[:, b] + beyond[:, b])
        tallies[0, column] += (places[own:, a] * pulls[:, b]).sum()
