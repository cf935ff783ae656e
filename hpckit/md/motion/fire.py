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
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.md.motion.dynamics import half_kick, half_kick_and_drift
from hpckit.md.motion.relaxation import Relaxation
from hpckit.md.system import System
from hpckit.md.thermo import add_ranks

DELAY, GROW, SHRINK, ALPHA, ALPHA_SHRINK, FASTEST = 5, 1.1, 0.5, 0.1, 0.99, 10.0


class Fire:
    """Dynamics toward a minimum of the potential energy; `largest_force` is the largest |component| at the last step.

    longest: no particle moves farther in a step, a length. box: how the cell moves along, down to the pressure asked
    for; the energy is the enthalpy then.
    """

    def __init__(self, longest: float = 0.1, box: Relaxation | None = None) -> None:
        self.longest, self.box, self.largest_force = longest, box, math.inf
        self._step = 0.0
        self._alpha, self._downhill = ALPHA, 0

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step; dt is the first and a tenth of the longest time step. See `Dynamics.step`."""
        particles, slots, held = system.particles, system.particles.slots, system.constraints
        dt *= min(1.0, math.sqrt(float(system.masses.min())))  # the way down is that of heavier particles
        if held is not None:
            dt = min(dt, held.longest_step / FASTEST)
        if not self._step:  # from rest
            self._step = dt
            self._rest(system)
        if self.box is not None and not self.box.count:
            self.box.push(system)
        uphill, forces, speeds = self._powers(system)
        if uphill > 0:
            self._downhill += 1
            toward = self._alpha * math.sqrt(speeds / forces) if forces > 0 else 0.0
            steer(particles.velocities, particles.forces, slots, 1 - self._alpha, toward)
            if self.box is not None:
                self.box.steer(1 - self._alpha, toward)
            if self._downhill > DELAY:
                self._step = min(self._step * GROW, FASTEST * dt)
                self._alpha *= ALPHA_SHRINK
        else:
            if speeds > 0:
                drift(particles.positions, particles.velocities, slots, -0.5 * self._step)
                if self.box is not None:
                    self.box.grow(system, -0.5 * self._step)
                self._step = max(self._step * SHRINK, 0.02 * dt)
            self._downhill, self._alpha = 0, ALPHA
            self._rest(system)
        self._limit(system, speeds)
        half_kick_and_drift(system, self._step)
        if self.box is None:
            system.update(measure)
            half_kick(system, self._step)
            return
        self.box.kick(0.5 * self._step)
        self.box.limit(self.longest / self._step)
        self.box.grow(system, self._step)
        system.update(measure or VIRIAL)
        half_kick(system, self._step)
        self.box.push(system)
        self.box.kick(0.5 * self._step)

    def _limit(self, system: System, speeds: float) -> None:
        """Shorten velocities and forces that would move a particle farther than `longest` in this step.

        Each particle by itself: where two overlap, they go apart by `longest` a step, and the others move as ever.
        """
        h, particles, slots, xp = self._step, system.particles, system.particles.slots, system.device.xp
        lightest = 1.0 / float(system.masses.min())
        kick = math.sqrt(3.0) * system.units.acceleration * lightest * self.largest_force
        if (math.sqrt(max(speeds, 0.0)) + 0.5 * h * kick) * h < self.longest:
            return  # nobody can: most steps end here
        velocities, forces = particles.velocities[:slots, :3], particles.forces[:slots, :3]
        pushes = 0.5 * h * system.inverse_masses[:slots, None] * forces
        for each, moves in ((velocities, velocities), (forces, pushes)):
            far = h * xp.sqrt((moves * moves).sum(axis=1)) / (0.5 * self.longest)
            each /= xp.maximum(far, 1.0)[:, None]

    def _rest(self, system: System) -> None:
        """Bring all to rest."""
        dilate(system.particles.velocities, system.particles.slots, np.zeros(3))
        if self.box is not None:
            self.box.rates[:] = 0.0

    def saved(self) -> dict[str, Any]:
        """The time step and the state that adapts it."""
        own = {"step": self._step, "alpha": self._alpha, "downhill": self._downhill}
        return own if self.box is None else {**own, "rates": self.box.rates.tolist()}

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved time step and its state."""
        self._step, self._alpha, self._downhill = values["step"], values["alpha"], values["downhill"]
        if self.box is not None:
            self.box.rates = np.array(values["rates"])

    def _powers(self, system: System) -> tuple[float, float, float]:
        particles, found = system.particles, system.device.zeros((4,))
        powers(particles.velocities, particles.forces, particles.ids, particles.slots, found)
        own = system.device.to_host(found)
        sums, largest = own[:3].copy(), own[3:].copy()
        if system.forces.exact:
            chosen, host = particles.own, system.device.to_host
            v, f = host(particles.velocities)[chosen, :3], host(particles.forces)[chosen, :3]
            each = np.stack([(f * v).sum(axis=1), (f * f).sum(axis=1), (v * v).sum(axis=1)], axis=1)
            sums = add_ranks(system.mesh.comm, each, max(system.count, system.mesh.size), True)
        else:
            sum_of_ranks(system.mesh.comm, sums)
        max_of_ranks(system.mesh.comm, largest)
        self.largest_force = float(largest[0])
        if self.box is not None:
            sums += self.box.powers()
            self.largest_force = max(self.largest_force, self.box.largest_force)
        return float(sums[0]), float(sums[1]), float(sums[2])
