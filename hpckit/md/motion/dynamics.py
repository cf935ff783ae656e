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


def half_kick_and_drift(system: System, dt: float) -> None:
    """The first part of a step: a kick of half of dt, and a drift of dt.

    Where bonds act in inner steps, the whole step but the last kicks: Tuckerman, Berne and Martyna (1992), J. Chem.
    Phys. 97, 1990; a step of the others' forces around steps of theirs.
    """
    if system.inner > 1:
        _inner_steps(system, dt)
        return
    held = system.constraints
    if held is not None and held.moves:
        held.drift(system, dt)
        return
    if held is not None:
        held.ready(system)
    kick_and_drift(system, 0.5 * dt, dt)


def kick_and_drift(system: System, half: float, dt: float) -> None:
    """A kick of `half`, and a drift of dt, without constraints."""
    particles = system.particles
    with system.timer("integrate"):
        arrays = particles.positions, particles.velocities, particles.forces, system.inverse_masses
        places = None if system.still is None else particles.positions[system.still]
        kick_drift(*arrays, particles.slots, half, dt)
        if places is not None:  # what has a velocity and does not move
            particles.positions[system.still] = places


def half_kick(system: System, dt: float) -> None:
    """The last part of a step."""
    particles = system.particles
    if system.constraints is not None and system.constraints.moves:
        system.constraints.kick(system, dt)
        return
    with system.timer("integrate"):
        arrays = system.inverse_masses, particles.slots
        if system.inner > 1:
            kick(particles.velocities, system.fast, *arrays, 0.5 * dt / system.inner)
            kick(particles.velocities, system.slow, *arrays, 0.5 * dt)
            return
        kick(particles.velocities, particles.forces, *arrays, 0.5 * dt)


def _inner_steps(system: System, dt: float) -> None:
    """A kick of half of dt by slow forces, and the inner steps of dt / n up to the drift of the last."""
    particles, slots, small = system.particles, system.particles.slots, dt / system.inner
    with system.timer("integrate"):
        kick(particles.velocities, system.slow, system.inverse_masses, slots, 0.5 * dt)
    for number in range(system.inner):
        with system.timer("integrate"):
            arrays = particles.velocities, system.fast, system.inverse_masses
            kick_drift(particles.positions, *arrays, slots, 0.5 * small, small)
        if number < system.inner - 1:
            system.refresh_fast()
            with system.timer("integrate"):
                kick(particles.velocities, system.fast, system.inverse_masses, slots, 0.5 * small)
