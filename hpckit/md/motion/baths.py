"""Several thermostats at once, each of a group of the particles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.md.external.groups import ParticleGroup, slots_of
from hpckit.md.motion.dynamics import half_kick, half_kick_and_drift
from hpckit.md.motion.thermostats import Bussi, Langevin, NoseHoover
from hpckit.md.system import System

Bath = Langevin | Bussi | NoseHoover


class Baths:
    """One step of velocity Verlet for all, between half steps of the chains; friction and noise act in its drift, and
    velocities are rescaled after it. Raises `InputError` for two baths of friction and noise that share particles.
    """

    def __init__(self, baths: Sequence[Bath]) -> None:
        self.baths = list(baths)
        self._noisy = [each for each in baths if isinstance(each, Langevin)]
        self._chains = [each for each in baths if isinstance(each, NoseHoover)]
        held = [each.group for each in self._noisy]
        several = len(held) > 1
        groups = [each.members for each in held if isinstance(each, ParticleGroup)]
        if several and (None in held or (groups and (np.sum(groups, axis=0) > 1).any())):
            raise InputError("two thermostats with friction and noise share particles", do="give groups that do not")

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step; see `Dynamics.step`."""
        for each in self._chains:
            each.half(system, dt)
        if self._noisy:
            self._drift(system, dt)
        else:
            half_kick_and_drift(system, dt)
        system.update(measure)
        half_kick(system, dt)
        for each in self._chains:
            each.half(system, dt)
        for one in self.baths:
            if isinstance(one, Bussi):
                one.rescale(system, dt)

    def saved(self) -> dict[str, Any]:
        """The state of each."""
        return {"baths": [each.saved() for each in self.baths]}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        for each, state in zip(self.baths, values["baths"], strict=True):
            each.restore(state)

    def _drift(self, system: System, dt: float) -> None:
        """The first half of a step, in which each noisy bath moves its own particles, and the first one all others."""
        arrays = system.particles.positions, system.particles.velocities
        before = [array.copy() for array in arrays] if len(self._noisy) > 1 else []
        first, *others = self._noisy
        first.move(system, dt)
        after = [array.copy() for array in arrays] if others else []
        for bath in others:
            for array, old in zip(arrays, before, strict=True):
                array[...] = old
            here = system.device.xp.flatnonzero(slots_of(system, bath.group))
            bath.move(system, dt)
            for array, new in zip(arrays, after, strict=True):
                new[here] = array[here]
        for array, new in zip(arrays, after, strict=False):
            array[...] = new
