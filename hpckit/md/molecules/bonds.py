"""Bonds between particles: chains, and molecules without angles."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.bonds.forms import NAMES
from hpckit.kernels.particles.bonds.simd import attach, bond_kernel
from hpckit.kernels.particles.pair.potential import Form
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.charges import Charged
from hpckit.md.system import System


class Bonds:
    """Bonds of one form between particles given by their ids, from 0: topology int [bonds, 3], type and two ids.

    kind: harmonic, morse or fene (`kernels.particles.bonds.forms`); parameters: [types of bonds][of the form]. Whether
    bonded particles interact as pairs, too, say `Exclusions`. Every rank holds the topology; at each rebuild it finds
    the slots of the bonds of its own particles. Bonds are counted at both ends, so no force is sent back. They must be
    shorter than the reach of the lists, and half of a periodic box. held: bool[bonds], those without forces, as
    constraints hold them. Raises `InputError` for what does not fit.
    """

    def __init__(self, topology: np.ndarray, count: int, kind: str, parameters: Any, held: Any = None) -> None:
        if kind not in NAMES:
            raise InputError(f"there are no bonds of kind {kind!r}", do=f"choose {', '.join(NAMES)}")
        rows = [tuple(map(float, row)) for row in parameters]
        if not rows or any(len(row) != len(NAMES[kind]) for row in rows):
            raise InputError(f"bonds of kind {kind} have the parameters {', '.join(NAMES[kind])}, for each type")
        if len(topology) and (
            topology[:, 0].max() >= len(rows) or topology.min() < 0 or topology[:, 1:].max() >= count
        ):
            raise InputError(f"bonds name types beyond 1 to {len(rows)}, or particles beyond 1 to {count}")
        self.topology, self.kind = np.asarray(topology, np.int64), kind
        self.parameters = np.array(rows)
        acting = self.topology if held is None else self.topology[~held]
        both = np.concatenate([acting[:, [1, 2, 0]], acting[:, [2, 1, 0]]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]  # sums in the order of the partners' ids, on every rank
        self._starts = np.searchsorted(both[:, 0], np.arange(count + 1))
        self._others, self._kinds = np.ascontiguousarray(both[:, 1]), both[:, 2].astype(np.int32)
        self._head = np.empty(count, np.int64)
        self._bounds, self._partners = np.zeros(1, np.int64), np.empty(0, np.int64)
        self._partner_kinds = np.empty(0, np.int32)

    def require_fit(self, interaction: Any, form: Form) -> None:
        """Raise `InputError` for a GPU, and interactions that are not of pairs."""
        if form.isa == "cuda":
            raise InputError("bonds run on the CPU only", do="leave --gpu out")
        if not isinstance(interaction, Interaction | Charged):
            raise InputError("bonds go with pair potentials, not with those of metals or silicon")

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots of all bonds. Raises `BlowUpError` for one that is too long."""
        particles, slots, own = system.particles, system.neighbors.slots, system.particles.slots
        mine = particles.ids[:own]
        mine = mine[mine >= 0]
        most = int((self._starts[mine + 1] - self._starts[mine]).sum())
        self._bounds = np.empty(own + 1, np.int64)
        self._partners, self._partner_kinds = np.empty(most, np.int64), np.empty(most, np.int32)
        given = self._starts, self._others, self._kinds, self._head, np.empty(slots, np.int64)
        out = self._bounds, self._partners, self._partner_kinds
        lost = attach(particles.positions, system.ids_of_slots, slots, own, *given, *out)
        if lost >= 0:
            raise lost_partner(system, lost)

    def add(self, system: System, measure: bool) -> None:
        """Add the forces of bonds to those of pairs, and with `measure` energies and virials."""
        particles = system.particles
        kernel = bond_kernel(self.kind, measure)
        what = self._bounds, self._partners, self._partner_kinds, self.parameters
        with system.timer("force"):
            kernel(particles.slots, particles.positions, *what, particles.forces, system.forces.tallies)


def lost_partner(system: System, particle: int) -> BlowUpError:
    """The error for a particle (its id, from 0) with a partner in its molecule that is in no slot of this rank."""
    return BlowUpError(
        f"a bond of particle {particle + 1} is longer than the neighbor lists reach",
        where=f"rank {system.mesh.rank}",
        likely="a chain that broke: a time step too long, or bonds that start stretched",
        do="lower time.dt, or raise neighbors.skin",
    )
