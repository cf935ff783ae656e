"""A coupling parameter: pairs and restraints that are switched on step by step, and the free energy that takes.

Pairs fade by the soft core of Beutler et al. (1994, Chem. Phys. Lett. 222, 529), as `lj/cut/soft` of LAMMPS has it:
4 epsilon l^n (1 / y^2 - 1 / y) with y = a (1 - l)^2 + (r / sigma)^6, which at l = 1 is Lennard-Jones's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.pair.custom import make_potential
from hpckit.kernels.particles.pair.dispatch import TALLY, forces, stored_table
from hpckit.md.external.biases import Restraint
from hpckit.md.forces import PairForces
from hpckit.md.interaction import Interaction
from hpckit.md.system import System
from hpckit.md.thermo import add_ranks

SMALL = 1e-4  # of the parameter, for slopes by central differences: exact to its square


def soft_core(power: int) -> Any:
    """The energy of a pair (r2, parameters: epsilon, sigma^6, l, softness)."""

    def energy(r2: Any, p: Any) -> Any:
        y = p[3] * (1.0 - p[2]) * (1.0 - p[2]) + r2 * r2 * r2 / p[1]
        return 4.0 * p[0] * p[2] ** power * (1.0 / (y * y) - 1.0 / y)

    return energy


class SoftPairs:
    """Lennard-Jones pairs of which some fade: those of a coupled type with one that is not.

    epsilon, sigma, cutoffs: [types, types]; coupled: bool[types]. Energies end in a step at the cutoff unless `shift`.
    """

    def __init__(
        self,
        epsilon: np.ndarray,
        sigma: np.ndarray,
        cutoffs: np.ndarray,
        coupled: np.ndarray,
        softness: float = 0.5,
        power: int = 1,
        shift: bool = False,
    ) -> None:
        self.potential = make_potential(f"soft_core{power}", soft_core(power), 4)
        self._given = epsilon, sigma, cutoffs, softness, shift
        self._energy, self.mixed = soft_core(power), coupled[:, None] != coupled[None, :]

    def at(self, coupling: float) -> Interaction:
        """The interaction where the parameter has this value."""
        epsilon, sigma, cutoffs, softness, shift = self._given
        each = np.where(self.mixed, coupling, 1.0)
        # A particle without a diameter has no well.
        sixth = np.where(sigma > 0, sigma, 1.0) ** 6
        own = np.stack([np.where(sigma > 0, epsilon, 0.0), sixth, each, np.full_like(each, softness)], axis=-1)
        shifts = np.zeros_like(cutoffs)
        if shift:
            for place in np.ndindex(cutoffs.shape):
                shifts[place] = self._energy(float(cutoffs[place]) ** 2, tuple(map(float, own[place])))
        return Interaction(self.potential, np.concatenate([cutoffs[..., None] ** 2, shifts[..., None], own], axis=-1))


class Coupling:
    """A system whose coupling parameter goes through states, an equal number of steps in each.

    states: values of the parameter; steps: of the whole run. pairs: what fades of the pairs, or None; restraints: those
    whose energy is times the parameter. `select` must be called before each step. Raises `InputError` for fewer than
    two states, and steps that are too few.
    """

    def __init__(
        self,
        states: Sequence[float],
        steps: int,
        pairs: SoftPairs | None,
        restraints: Sequence[Restraint] = (),
    ) -> None:
        if len(states) < 2 or steps < len(states):
            raise InputError(f"a coupling goes through 2 states or more, and has a step in each, not {len(states)}")
        self.states, self.each = tuple(map(float, states)), steps // len(states)
        self.pairs, self.restraints = pairs, [each for each in restraints if each.coupled]
        self.state = -1
        self._out: tuple[Any, Any] = (np.zeros((0, 4)), np.zeros((0, TALLY)))
        if pairs is not None:
            near = [value + sign * SMALL for value in self.states for sign in (1, -1)]
            self._tables = [pairs.at(value) for value in (*self.states, *near)]

    def place(self, step: int) -> tuple[int, float]:
        """The state at a step, from 1, and which share of its steps is over."""
        state = min(max(step - 1, 0) // self.each, len(self.states) - 1)
        return state, (step - state * self.each) / self.each

    def select(self, system: System, step: int) -> None:
        """Set the parameter for the forces of this step."""
        state, _ = self.place(step)
        if state == self.state:
            return
        self.state = state
        for each in self.restraints:
            each.coupling = self.states[state]
        if self.pairs is not None:
            assert isinstance(system.forces, PairForces)
            system.interaction = self._tables[state]
            system.forces.set_table(self._tables[state])

    def energies(self, system: System, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Collective: the slope of the energy by the parameter, and what depends on it at each state [states]; of the
        places of now, where the variables have these values.
        """
        count = len(self.states)
        found, slope = np.zeros(count), 0.0
        if self.pairs is not None:
            chosen = [*self._tables[:count], *self._tables[count + 2 * self.state : count + 2 * self.state + 2]]
            each = self._of_pairs(system, chosen)
            found, slope = each[:count], float(each[count] - each[count + 1]) / (2 * SMALL)
        whole = sum(each.whole(values, system.steps) for each in self.restraints)
        return slope + whole, found + whole * np.array(self.states)

    def _of_pairs(self, system: System, tables: Sequence[Interaction]) -> np.ndarray:
        pair_forces, neighbors, particles = system.forces, system.neighbors, system.particles
        assert isinstance(pair_forces, PairForces)
        lists, parts, slots = neighbors.lists, neighbors.parts, particles.slots
        assert lists is not None
        device = system.device
        if len(self._out[0]) < slots:
            self._out = device.zeros((particles.capacity, 4)), device.zeros((particles.capacity, TALLY))
        columns, there = [], device.to_host(particles.ids[:slots]) >= 0
        for each in tables:
            table = device.to_device(stored_table(each.table, pair_forces.form, None, None))
            for part in (parts.inner, parts.outer):
                if len(part):
                    what = part, pair_forces.records(particles), lists.bounds, neighbors.ends, lists.entries, table
                    forces(pair_forces.kernel(True), pair_forces.form, *what, *self._out)
            columns.append(np.where(there, device.to_host(self._out[1][:slots, 0]), 0.0))
        rows = np.ascontiguousarray(np.stack(columns, axis=1))
        return 0.5 * add_ranks(system.mesh.comm, rows, max(8 * system.count, system.mesh.size), system.forces.exact)
