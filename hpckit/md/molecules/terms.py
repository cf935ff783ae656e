"""Angles, dihedrals and impropers: what bends and twists molecules."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.molecules.terms.dispatch import add_terms, attach_terms, find_terms, once, order_terms
from hpckit.kernels.particles.molecules.terms.forms import NAMES, prepared
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.bonds import entries_of, lost_partner
from hpckit.md.molecules.charges import Charged
from hpckit.md.system import System
from hpckit.plan.particles.snapshot import BOUND


class Members:
    """Terms between particles given by their ids, from 0: rows int64[terms, 1 + n], type and ids, of `count` particles.

    Every rank holds all rows; at each rebuild it finds the slots of those with a particle of its own: `found`, slots
    [k, n], and `numbers`, of these terms. A term whose particles lie across a side of the box is there once for each
    image that holds an own particle, in the order of the terms, so that sums do not depend on the ranks, and `bounds`
    is None; on a GPU once for each own particle, and slot s has those of bounds[s] to bounds[s + 1] - 1, unless
    `once` is set.
    """

    def __init__(self, rows: np.ndarray, count: int, once: bool = False) -> None:
        self._once = once
        self.rows = np.ascontiguousarray(rows, np.int64)
        terms, size = len(rows), rows.shape[1] - 1
        whose = self.rows[:, 1:].ravel()
        order = np.argsort(whose, kind="stable")
        which = np.ascontiguousarray(np.repeat(np.arange(terms), size)[order])
        self._given = np.searchsorted(whose[order], np.arange(count + 1)), which, self.rows
        self._there: Any = None  # the same on the device
        self.bounds: Any = None
        self.found: Any = np.empty((0, size), np.int64)
        self.numbers: Any = np.empty(0, np.int64)

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots. Raises `BlowUpError` for a partner that is in none."""
        particles, device, own = system.particles, system.device, system.particles.slots
        if self._there is None:
            self._there = tuple(map(device.to_device, self._given))
        most = entries_of(particles, self._there[0]) + (not device.is_gpu)
        found, numbers = device.zeros((most, self.found.shape[1]), np.int64), device.zeros((most,), np.int64)
        given = particles.positions, system.molecules.ids, system.neighbors.slots, own, *self._there
        if device.is_gpu:
            self.bounds = device.zeros((own + 1,), np.int64)
            lost = attach_terms(*given, *system.molecules.of_ids, self.bounds, found, numbers)
            self.found, self.numbers = once(own, self.bounds, found, numbers) if self._once else (found, numbers)
        else:
            count = find_terms(*given, *system.molecules.of_ids, found, numbers)
            lost = -1 - count
            there = max(count, 0)
            self.found, self.numbers = np.empty((there, found.shape[1]), np.int64), np.empty(there, np.int64)
            order_terms(there, found, numbers, np.empty(len(self.rows) + 1, np.int64), self.found, self.numbers)
        if lost >= 0:
            raise lost_partner(system, lost)


class Terms:
    """Angles, dihedrals or impropers of one form: topology int64[terms, 1 + n], type and ids, from 0.

    name: angles, dihedrals or impropers; kind: of `kernels.particles.molecules.terms.forms`; parameters: [types][of the
    form], as in LAMMPS, angles in degrees; weights of charmm are for `exclusions.Fourths`. `energies`: what each own
    slot has, of the last `add` that measured. They must be shorter than half of a periodic box, and than ghosts come
    from afar: `contributions.STRETCH` times the length of a bond, and a skin. held: bool[terms], those without forces,
    as constraints hold them. Raises `InputError` for what does not fit.
    """

    def __init__(
        self, name: str, topology: np.ndarray, count: int, kind: str, parameters: Any, held: Any = None
    ) -> None:
        if name not in NAMES or kind not in NAMES[name]:
            raise InputError(f"there are no {name} of kind {kind!r}", do=f"choose {', '.join(NAMES.get(name, NAMES))}")
        rows, wanted = [tuple(map(float, row)) for row in parameters], NAMES[name][kind]
        if not rows or any(len(row) != len(wanted) for row in rows):
            raise InputError(f"{name} of kind {kind} need the parameters {', '.join(wanted)} for each type")
        table = np.array(rows)
        if len(topology) and (
            topology[:, 0].max() >= len(rows) or topology.min() < 0 or topology[:, 1:].max() >= count
        ):
            raise InputError(f"{name} name types beyond 1 to {len(rows)}, or particles beyond 1 to {count}")
        folds = table[:, wanted.index("n")] if "n" in wanted else np.zeros(1)
        if (folds != np.abs(np.rint(folds))).any():
            raise InputError(f"{name} of kind {kind} have n maxima in a turn, a whole number of 0 or more")
        self.name, self.kind, self.parameters = name, kind, prepared(name, kind, table)
        self.topology = np.asarray(topology, np.int64).reshape(-1, 1 + BOUND[name])
        self.members = Members(self.topology if held is None else self.topology[~held], count)
        self.energies: Any = np.zeros(0)
        self._types: Any = np.empty(0, np.int64)
        self._there: Any = None  # types of all terms, and the parameters, on the device

    @property
    def over(self) -> int:
        """Over how many bonds particles of a term are apart."""
        return int(self.topology.shape[1]) - 2

    def require_fit(self, interaction: Any) -> None:
        """Raise `InputError` for interactions that are not of pairs."""
        if not isinstance(interaction, Interaction | Charged):
            raise InputError(f"{self.name} go with pair potentials, not with those of metals or silicon")

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots. Raises `BlowUpError` for a partner that is in none."""
        self.members.attach(system)
        if self._there is None:
            to_device = system.device.to_device
            self._there = to_device(self.members.rows[:, 0].copy()), to_device(self.parameters)
        self._types = self._there[0][self.members.numbers]

    def add(self, system: System, measure: int) -> None:
        """Add the forces to those of pairs, and with `measure` energies and virials; with VIRIAL their sum alone."""
        particles, members = system.particles, self.members
        if measure and measure != VIRIAL:
            self.energies = system.device.zeros((particles.slots,))
        where = particles.slots, particles.positions, members.bounds, members.found, self._types, self._there[1]
        with system.timer("force"):
            add_terms(self.name, self.kind, measure, *where, particles.forces, system.forces.tallies, self.energies)
