"""Charged pairs by clusters, NumPy: definition and test oracle of the compiled forms.

Slots are cut into clusters of eight, and these into groups of four. A group meets clusters, each pair once: of the two
that see a pair of an own particle and a ghost, one has it, and what the ghost feels goes back to its owner. A bit says
of each of the 32 pairs whether it counts. Forces on both ends add up, so the virial is that of forces and places, x f,
and no pair has one of its own (Thompson, Plimpton and Mattson 2009, J. Chem. Phys. 131, 154107). What a pair is,
`charged.reference` says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, FAR

GROUP = 4
EVERY = np.uint32(0xFFFFFFFF)


class ClusterPairs(NamedTuple):
    """The clusters near each group of a rank's own slots.

    Group g meets the clusters others[bounds[g] : bounds[g + 1]], in growing order; of own ones it is in the first at
    most, and ghosts follow. Bit 8 i + k of masks: whether particle i of the group meets k of the cluster. inner, outer,
    inner_parts: as of `cells.reference.Lists`.
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
                where = slice(pairs.bounds[group], pairs.bounds[group + 1])
                bit = np.uint32(1 << int(CLUSTER * (i % GROUP) + j % CLUSTER))
                pairs.masks[where][pairs.others[where] == j // CLUSTER] &= ~bit


def finish(
    positions: np.ndarray,
    own: int,
    ghosts: int,
    center: np.ndarray,
    felt: np.ndarray,
    pushed: np.ndarray,
    measure: bool,
    forces: np.ndarray,
    tallies: np.ndarray,
) -> None:
    """Write forces of own slots and ghosts, and with `measure` twice their virials as tallies; the first slot has those
    of all ghosts, too.

    felt: what groups feel, [own clusters, 3, 8]; pushed: what clusters feel of groups, [all clusters, 3, 8].
    """

    def by_slot(tiles: np.ndarray, slots: int) -> np.ndarray:
        return tiles.transpose(0, 2, 1).reshape(-1, 3)[:slots]

    slots = own + ghosts
    forces[:slots, :3], forces[:slots, 3] = by_slot(pushed, slots), 0.0
    forces[:own, :3] += by_slot(felt, own)
    if not measure or not own:
        return
    tallies[:own, 7] = 0.0
    places = np.where(positions[:slots, :1] < 0.5 * FAR, positions[:slots, :3] - center, 0.0)
    for column, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)), start=1):
        each = 2.0 * places[:, a] * forces[:slots, b]
        tallies[:own, column] = each[:own]
        tallies[0, column] += each[own:].sum()
