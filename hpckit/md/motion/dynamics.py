"""How a system moves: velocity Verlet, alone or with a thermostat around it."""

from __future__ import annotations

from typing import Any, Protocol

from hpckit.kernels.particles.integrate.dispatch import kick, kick_drift, largest_move
from hpckit.md.system import System


class Dynamics(Protocol):
    """Advances a system by steps; `step_number` counts them over the whole run."""

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; with `measure` the system's energies and virials are those at its end."""

    def saved(self) -> dict[str, Any]:
        """Its state beyond the particles, as plain values, the same on every rank."""

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved state."""


class NVE:
    """Velocity Verlet: second order in positions and velocities; the error of the energy stays bounded."""

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; with `measure` energies and virials are those at its end."""
        half_kick_and_drift(system, dt)
        system.update(measure)
        half_kick(system, dt)

    def saved(self) -> dict[str, Any]:
        """No state: forces follow from the positions."""
        return {}

    def restore(self, values: dict[str, Any]) -> None:
        """Nothing."""


def warm_up(system: System) -> None:
    """Collective: compile or load all kernels of a step, without changing the system. Forces must be up to date."""
    particles = system.particles
    arrays = particles.velocities, particles.forces, system.inverse_masses
    kick_drift(particles.positions, *arrays, 0, 0.0, 0.0)
    kick(*arrays, 0, 0.0)
    largest_move(particles.positions, system.neighbors.built, 0)
    system.refresh(False)
    system.compute(True)


def half_kick_and_drift(system: System, dt: float, way: float | None = None) -> None:
    """The first half of a step: a kick of half of dt, and a drift of dt, or of `way`."""
    particles = system.particles
    with system.timer("integrate"):
        arrays = particles.positions, particles.velocities, particles.forces, system.inverse_masses
        kick_drift(*arrays, particles.slots, 0.5 * dt, dt if way is None else way)


def half_kick(system: System, dt: float) -> None:
    """The second half of a step."""
    particles = system.particles
    with system.timer("integrate"):
        kick(particles.velocities, particles.forces, system.inverse_masses, particles.slots, 0.5 * dt)
