"""Bonds between particles: chains, and molecules without angles."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.molecules.bonds.dispatch import add_bonds, attach
from hpckit.kernels.particles.molecules.bonds.forms import NAMES
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.charges import Charged
from hpckit.md.system import System
from hpckit.particles.particles import Particles


class Partners:
    """Particles given by their ids, from 0, that others in their molecule are bound to: particle g has the partners
    others[starts[g] : starts[g + 1]], of these kinds.

    At each rebuild a rank finds the slots of those of its own particles: `bounds`, `slots` and `kinds`, by slot, on the
    device of the particles; once for all that have the same partners (`MoleculeSlots.partners`).
    """

    def __init__(self, starts: np.ndarray, others: np.ndarray, kinds: np.ndarray) -> None:
        self._given = tuple(np.ascontiguousarray(each, np.int32) for each in (starts, others, kinds))
        self._most = int(np.diff(starts).max(initial=0))
        self._name = hashlib.sha256(b"".join(each.tobytes() for each in self._given)).digest()
        self._there: Any = None  # the same on the device
        self.bounds: Any = np.zeros(1, np.int64)
        self.slots: Any = np.empty(0, np.int32)
        self.kinds: Any = np.empty(0, np.int32)

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots. Raises `BlowUpError` for a partner that is in none."""
        particles, device, own = system.particles, system.device, system.particles.slots
        if self._name in system.molecules.partners:
            self.bounds, self.slots, self.kinds = system.molecules.partners[self._name]
            return
        if self._there is None:
            self._there = tuple(map(device.to_device, self._given))
        most = entries_of(particles, self._there[0]) if device.is_gpu else self._most * own
        self.bounds = device.zeros((own + 1,), np.int64)
        self.slots, self.kinds = device.zeros((most,), np.int32), device.zeros((most,), np.int32)
        given = system.neighbors.slots, own, *self._there, *system.molecules.of_ids
        lost = attach(particles.positions, system.molecules.ids, *given, self.bounds, self.slots, self.kinds)
        if lost >= 0:
            raise lost_partner(system, lost)
        if not device.is_gpu:
            self.slots, self.kinds = self.slots[: self.bounds[-1]], self.kinds[: self.bounds[-1]]
        system.molecules.partners[self._name] = self.bounds, self.slots, self.kinds


def entries_of(particles: Particles, starts: Any) -> int:
    """How many entries the own particles have, of which particle g has starts[g + 1] - starts[g]; waits for a GPU."""
    mine = particles.ids[: particles.slots]
    mine = mine[mine >= 0]
    return int((starts[mine + 1] - starts[mine]).sum())


class Bonds:
    """Bonds of one form between particles given by their ids, from 0: topology int [bonds, 3], type and two ids.

    kind: harmonic, morse or fene (`kernels.particles.molecules.bonds.forms`); parameters: [types of bonds][of the
    form]. Whether bonded particles interact as pairs, too, say `Exclusions`. Every rank holds the topology; at each
    rebuild it finds the slots of the bonds of its own particles. Bonds are counted at both ends, so no force is sent
    back. They must be shorter than half of a periodic box, and than ghosts come from afar: 1.5 times the longest
    `length`, and a skin. held: bool[bonds], those without forces, as constraints hold them. Raises
    `InputError` for what does not fit.
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
        self._partners = Partners(np.searchsorted(both[:, 0], np.arange(count + 1)), both[:, 1], both[:, 2])
        self._there: Any = None  # the parameters on the device

    def require_fit(self, interaction: Any) -> None:
        """Raise `InputError` for interactions that are not of pairs."""
        if not isinstance(interaction, Interaction | Charged):
            raise InputError("bonds go with pair potentials, not with those of metals or silicon")

    @property
    def length(self) -> float:
        """The longest of the lengths at rest."""
        column = NAMES[self.kind].index("sigma" if self.kind == "fene" else "r0")
        return float(self.parameters[:, column].max())

    def attach(self, system: System) -> None:
        """Collective, after a rebuild: find the slots of all bonds. Raises `BlowUpError` for one that is too long."""
        self._partners.attach(system)
        if self._there is None:
            self._there = system.device.to_device(self.parameters)

    def add(self, system: System, measure: int) -> None:
        """Add the forces of bonds to those of pairs, and with `measure` energies and virials."""
        particles, found = system.particles, self._partners
        what = particles.slots, particles.positions, found.bounds, found.slots, found.kinds, self._there
        with system.timer("force"):
            add_bonds(self.kind, bool(measure), *what, particles.forces, system.forces.tallies)


def lost_partner(system: System, particle: int) -> BlowUpError:
    """The error for a particle (its id, from 0) with a partner in its molecule that is in no slot of this rank."""
    return BlowUpError(
        f"a bond of particle {particle + 1} is longer than the neighbor lists reach",
        where=f"rank {system.mesh.rank}",
        likely="a chain that broke: a time step too long, or bonds that start stretched",
        do="lower time.dt, or raise neighbors.skin",
    )
