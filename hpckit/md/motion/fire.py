"""Minimization of the energy by FIRE: dynamics steered downhill, and stopped when it moves uphill.

Bitzek et al. (2006), Phys. Rev. Lett. 97, 170201, as corrected by Guénolé et al. (2020), Comput. Mater. Sci. 175: half
a step back after an uphill step, and no longer time steps for a while after the start.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.kernels.particles.integrate.dispatch import dilate, drift, powers, steer
from hpckit.md.motion.dynamics import half_kick, half_kick_and_drift
from hpckit.md.system import System

DELAY, GROW, SHRINK, ALPHA, ALPHA_SHRINK, FASTEST = 5, 1.1, 0.5, 0.1, 0.99, 10.0


class Fire:
    """Dynamics toward a minimum of the potential energy; `largest_force` is the largest |component| at the last step.

    longest: no particle moves farther in a step, a length.
    """

    def __init__(self, longest: float = 0.1) -> None:
        self.longest, self.largest_force = longest, math.inf
        self._step = 0.0
        self._alpha, self._downhill = ALPHA, 0

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step; dt is the first and a tenth of the longest time step. See `Dynamics.step`."""
        particles, slots = system.particles, system.particles.slots
        if not self._step:  # from rest
            self._step = dt
            dilate(particles.velocities, slots, np.zeros(3))
        uphill, forces, speeds = self._powers(system)
        if uphill > 0:
            self._downhill += 1
            toward = self._alpha * math.sqrt(speeds / forces) if forces > 0 else 0.0
            steer(particles.velocities, particles.forces, slots, 1 - self._alpha, toward)
            if self._downhill > DELAY:
                self._step = min(self._step * GROW, FASTEST * dt)
                self._alpha *= ALPHA_SHRINK
        else:
            if speeds > 0:
                drift(particles.positions, particles.velocities, slots, -0.5 * self._step)
                self._step = max(self._step * SHRINK, 0.02 * dt)
            self._downhill, self._alpha = 0, ALPHA
            dilate(particles.velocities, slots, np.zeros(3))
        fastest = math.sqrt(max(speeds, 0.0))
        now = self._step if fastest * self._step < self.longest else self.longest / fastest
        half_kick_and_drift(system, min(self._step, max(now, 0.02 * dt)))
        system.update(measure)
        half_kick(system, self._step)

    def saved(self) -> dict[str, Any]:
        """The time step and the state that adapts it."""
        return {"step": self._step, "alpha": self._alpha, "downhill": self._downhill}

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved time step and its state."""
        self._step, self._alpha, self._downhill = values["step"], values["alpha"], values["downhill"]

    def _powers(self, system: System) -> tuple[float, float, float]:
        particles, found = system.particles, system.device.zeros((4,))
        powers(particles.velocities, particles.forces, particles.ids, particles.slots, found)
        own = system.device.to_host(found)
        sums, largest = own[:3].copy(), own[3:].copy()
        sum_of_ranks(system.mesh.comm, sums)
        max_of_ranks(system.mesh.comm, largest)
        self.largest_force = float(largest[0])
        return float(sums[0]), float(sums[1]), float(sums[2])
