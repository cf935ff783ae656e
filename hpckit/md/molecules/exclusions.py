"""Partners in a molecule: particles that bonds join, directly or over others, and that interact as pairs in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.charged.clusters.dispatch import mask_out
from hpckit.kernels.particles.charged.dispatch import add_partners, choose_partners, leave_out
from hpckit.kernels.particles.charged.screening import Screening, cut
from hpckit.kernels.particles.lennard_jones import dispatch as lennard_jones
from hpckit.kernels.particles.pair.potential import Potential
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.bonds import Partners
from hpckit.md.molecules.charges import Charged, ChargedForces
from hpckit.md.system import System

Lists = tuple[Any, Any, Any]  # bounds, partners and their kinds
NO_CHARGES = replace(cut(1.0), constants=np.array([0.0, 2.0, 0.0, 0.0, 0.0]))  # all are beyond the cutoff


def partners_of(bonds: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The partners of each of `count` particles: others[starts[g] : starts[g + 1]], in the order of their ids, and
    how many bonds less one lie between (0, 1 or 2; the fewest). bonds: [n, 2], ids from 0.
    """
    ends = np.concatenate([bonds, bonds[:, ::-1]]).astype(np.int64)
    one = np.unique(ends[:, 0] * count + ends[:, 1])
    starts, others = np.searchsorted(one // max(count, 1), np.arange(count + 1)), one % max(count, 1)
    every, kinds, last = [one], [np.zeros(len(one), np.int32)], one
    for kind in (1, 2):
        first, middle = last // max(count, 1), last % max(count, 1)
        widths = starts[middle + 1] - starts[middle]
        within = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        onward = np.unique(np.repeat(first, widths) * count + others[np.repeat(starts[middle], widths) + within])
        onward = onward[onward // max(count, 1) != onward % max(count, 1)]
        last = np.setdiff1d(onward, np.concatenate(every), assume_unique=True)
        every.append(last)
        kinds.append(np.full(len(last), kind, np.int32))
    pairs, found = np.concatenate(every), np.concatenate(kinds)
    order = np.argsort(pairs, kind="stable")
    pairs, found = pairs[order], found[order]
    return np.searchsorted(pairs // max(count, 1), np.arange(count + 1)), pairs % max(count, 1), found


@dataclass(frozen=True, eq=False)
class Fourths:
    """Pairs at the ends of dihedrals with a Lennard-Jones potential of their own: CHARMM's.

    rows: ids from 0, int64[n, 2]; weights: float64[n], the share of that potential and of Coulomb's that a pair has
    beside those of its distance in bonds, added up over rows; table: of `lennard_jones`, [types, types, parameters].
    """

    rows: np.ndarray
    weights: np.ndarray
    table: np.ndarray


class Exclusions:
    """What is left of pair potential and Coulomb's between partners in a molecule: `special_bonds` of LAMMPS.

    bonds: ids from 0, [n, 2], of `count` particles. pairs, charges: the share over one, two and three bonds. Partners
    are taken out of the lists at each rebuild, and have what remains computed by themselves; a sum over all images
    still sees them, which is made up for. fourths: pairs three bonds apart with a potential of their own. `left_out`:
    ids of partners without any share, from each side: int64[n, 2]. Raises `InputError` for shares outside of 0 to 1.
    """

    def __init__(
        self,
        bonds: np.ndarray,
        count: int,
        pairs: Sequence[float] = (0.0, 0.0, 0.0),
        charges: Sequence[float] = (0.0, 0.0, 0.0),
        fourths: Fourths | None = None,
    ) -> None:
        shares = np.array([tuple(pairs), tuple(charges)], np.float64).T
        if shares.shape != (3, 2) or not ((shares >= 0) & (shares <= 1)).all():
            raise InputError("shares of partners over one, two and three bonds are three numbers from 0 to 1")
        starts, others, kinds = partners_of(bonds, count)
        whose = np.repeat(np.arange(count), np.diff(starts))
        own = np.zeros(len(others))
        if fourths is not None:
            own = _weights(whose * count + others, fourths, count)
        # A kind for each distance in bonds and weight: its shares, and the weight of the potential of its own.
        chosen, kinds = np.unique(np.stack([kinds.astype(np.float64), own], axis=1), axis=0, return_inverse=True)
        kinds = kinds.reshape(-1).astype(np.int32)
        weights = chosen[:, 1]
        self.shares = np.ascontiguousarray(shares[chosen[:, 0].astype(int)])
        self.shares[:, 1] += weights
        self._fourths, self._weights = fourths, np.stack([weights, weights], axis=1)
        kept = (self.shares[kinds] != 1.0).any(axis=1) | (weights[kinds] != 0.0)
        whose = whose[kept]
        self.over = 1 + max(np.flatnonzero((shares != 1.0).any(axis=1)).tolist(), default=2)
        self.each = len(whose) / max(count, 1)
        self._partners = Partners(np.searchsorted(whose, np.arange(count + 1)), others[kept], kinds[kept])
        self._copies: dict[int, tuple[np.ndarray, Any]] = {}  # of arrays on the device, which they keep alive
        self.left_out = np.stack([whose, others[kept]], axis=1)[(self.shares[kinds[kept]] == 0.0).all(axis=1)]
        self._partly = bool(self.shares[np.unique(kinds[kept]), 0].any())

    def require_fit(self, interaction: Any) -> None:
        """Raise `InputError` for interactions that are not of pairs."""
        if not isinstance(interaction, Interaction | Charged):
            raise InputError("exclusions go with pair potentials, not with those of metals or silicon")
        pairs = interaction.pairs if isinstance(interaction, Charged) else interaction
        if pairs.potential.rows_at is not None and (self.shares[:, 0] % 1).any():
            raise InputError("pairs of a table between partners can only be left out whole: shares of 0 or 1")

    def find(self, system: System) -> tuple[Any, Any] | None:
        """Collective, in a rebuild: find the slots of partners; their bounds and slots, if lists leave them out."""
        self._partners.attach(system)
        of_lists = not system.forces.by_clusters and not system.device.is_gpu
        return (self._partners.bounds, self._partners.slots) if of_lists else None

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: take partners out of the clusters, or the lists of a GPU."""
        neighbors, device, found = system.neighbors, system.device, self._partners
        slots, own = neighbors.slots, system.particles.slots
        self._copies = {}
        self._nothing = device.zeros((slots,))  # for pairs without charges
        every = found.bounds, found.slots, found.kinds
        if neighbors.clusters is not None:
            mask_out(neighbors.clusters, *every[:2], own)
        elif device.is_gpu:
            assert neighbors.lists is not None
            leave_out(neighbors.lists.bounds, neighbors.lists.entries, *every[:2], own)
        # Each pair of own particles is computed once, but where sums must not depend on which these are.
        self._once = not system.forces.exact and not device.is_gpu
        self._all = self._ends = every  # whoever has a share of 0 has nothing
        if not device.is_gpu and (self._partly or isinstance(system.interaction, Charged)):
            self._all = self._chosen(every, np.ones(len(self._weights), bool))
        if not device.is_gpu and self._fourths is not None:
            self._ends = self._chosen(every, self._weights[:, 0] != 0.0)

    def _chosen(self, every: Lists, wanted: np.ndarray) -> Lists:
        bounds, partners, kinds = (np.empty_like(each) for each in every)
        choose_partners(*every, wanted, self._once, bounds, partners, kinds)
        return bounds, partners[: bounds[-1]], kinds[: bounds[-1]]

    def add(self, system: System, measure: int) -> None:
        """Add what partners have to the forces, and with `measure` to energies and virials; with VIRIAL to their sum
        alone.
        """
        interaction, forces = system.interaction, system.forces
        if self._fourths is not None:
            own = lennard_jones.POTENTIAL, self._fourths.table, NO_CHARGES
            self._run(system, self._ends, *own, self._nothing, self._nothing, self._weights, measure)
        if isinstance(interaction, Charged) and isinstance(forces, ChargedForces):
            pairs, screening = interaction.pairs, interaction.of_partners or interaction.screening
            charges, energies = forces.charges, forces.energies
        elif isinstance(interaction, Interaction) and self._partly:
            pairs, screening = interaction, NO_CHARGES
            charges = energies = self._nothing
        else:
            return
        self._run(system, self._all, pairs.potential, pairs.table, screening, charges, energies, self.shares, measure)

    def _run(
        self,
        system: System,
        lists: Lists,
        potential: Potential,
        table: np.ndarray,
        screening: Screening,
        charges: Any,
        energies: Any,
        shares: np.ndarray,
        measure: int,
    ) -> None:
        if not len(lists[1]):
            return
        particles = system.particles
        given = self._placed(system, table), charges, *(self._placed(system, x) for x in (screening.constants, shares))
        what = potential, screening.key, particles.slots, particles.positions, *lists, *given
        with system.timer("force"):
            add_partners(*what, particles.forces, system.forces.tallies, energies, measure, self._once)

    def _placed(self, system: System, array: np.ndarray) -> Any:
        """An array on the device of the particles; it is copied once."""
        if id(array) not in self._copies:
            self._copies[id(array)] = array, system.device.to_device(array)
        return self._copies[id(array)][1]


def _weights(pairs: np.ndarray, fourths: Fourths, count: int) -> np.ndarray:
    """The weight of each of the pairs (first * count + second, in growing order). Raises `InputError` for others."""
    found = np.zeros(len(pairs))
    for one, other in (fourths.rows.T, fourths.rows[:, ::-1].T):
        keys = one * count + other
        places = np.searchsorted(pairs, keys)
        if (pairs[np.minimum(places, len(pairs) - 1)] != keys).any():
            raise InputError("the ends of a dihedral with a weight are not within three bonds of each other")
        np.add.at(found, places, fourths.weights)
    return found
