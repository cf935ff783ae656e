"""Angles, dihedrals and impropers: what bends and twists molecules."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.pair.potential import Form
from hpckit.kernels.particles.terms.forms import NAMES, prepared
from hpckit.kernels.particles.terms.simd import find_terms, term_kernel
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.bonds import lost_partner
from hpckit.md.molecules.charges import Charged
from hpckit.md.system import System
from hpckit.plan.particles.snapshot import BOUND


class Members:
    """Terms between particles given by their ids, from 0: rows int64[terms, 1 + n], type and ids, of `count` particles.

    Every rank holds all rows; at each rebuild it finds the slots of those with a particle of its own. A term whose
    particles lie across a side of the box is there once for each image that holds an own particle. `found`: slots
    [k, n], in the order of the terms, so that sums do not depend on the ranks; `numbers`: of these terms.
    """

    def __init__(self, rows: np.ndarray, count: int) -> None:
        self.rows = np.ascontiguousarray(rows, np.int64)
        terms, size = len(rows), rows.shape[1] - 1
        whose = self.rows[:, 1:].ravel()
        order = np.argsort(whose, kind="stable")
        self._which = np.ascontiguousarray(np.repeat(np.arange(terms), size)[order])
        self._starts = np.searchsorted(whose[order], np.arange(count + 1))
        self._head = np.empty(count, np.int64)
        self.found, self.numbers = np.empty((0, size), np.int64), np.empty(0, np.int64)

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots. Raises `BlowUpError` for a partner that is in none."""
        particles, slots, own = system.particles, system.neighbors.slots, system.particles.slots
        mine = particles.ids[:own]
        mine = mine[mine >= 0]
        most = 1 + int((self._starts[mine + 1] - self._starts[mine]).sum())
        found, numbers = np.empty((most, self.found.shape[1]), np.int64), np.empty(most, np.int64)
        given = self._starts, self._which, self.rows, self._head, np.empty(slots, np.int64)
        count = find_terms(particles.positions, system.ids_of_slots, slots, own, *given, found, numbers)
        if count < 0:
            raise lost_partner(system, -1 - count)
        order = np.argsort(numbers[:count], kind="stable")
        self.found, self.numbers = np.ascontiguousarray(found[order]), numbers[order]


class Terms:
    """Angles, dihedrals or impropers of one form: topology int64[terms, 1 + n], type and ids, from 0.

    name: angles, dihedrals or impropers; kind: of `kernels.particles.terms.forms`; parameters: [types][of the form], as
    in LAMMPS, angles in degrees; weights of charmm are for `exclusions.Fourths`. `energies`: what each own slot has, of
    the last `add` that measured. They must be shorter than the reach of the lists, and half of a periodic box. held:
    bool[terms], those without forces, as constraints hold them. Raises `InputError` for what does not fit.
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
        self.energies = np.zeros(0)
        self._types = np.empty(0, np.int64)

    def require_fit(self, interaction: Any, form: Form) -> None:
        """Raise `InputError` for a GPU, and interactions that are not of pairs."""
        if form.isa == "cuda":
            raise InputError(f"{self.name} run on the CPU only", do="leave --gpu out")
        if not isinstance(interaction, Interaction | Charged):
            raise InputError(f"{self.name} go with pair potentials, not with those of metals or silicon")

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots. Raises `BlowUpError` for a partner that is in none."""
        self.members.attach(system)
        self._types = self.members.rows[self.members.numbers, 0]

    def add(self, system: System, measure: bool) -> None:
        """Add the forces to those of pairs, and with `measure` energies and virials."""
        particles = system.particles
        if measure:
            self.energies = np.zeros(particles.slots)
        kernel = term_kernel(self.name, self.kind, measure)
        out = particles.forces, system.forces.tallies, self.energies
        with system.timer("force"):
            kernel(particles.slots, particles.positions, self.members.found, self._types, self.parameters, *out)
