"""How spheres move: velocity Verlet of places and of spins (`fix nve/sphere` of LAMMPS)."""

from __future__ import annotations

from typing import Any

from hpckit.md.granular.contacts import SphereForces
from hpckit.md.motion.dynamics import half_kick, half_kick_and_drift
from hpckit.md.system import System


class Rolling:
    """Velocity Verlet of spheres, whose contacts slide on by a step with the forces of each step."""

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; see `Dynamics.step`."""
        forces = system.forces
        assert isinstance(forces, SphereForces)
        forces.turn(system.particles, 0.5 * dt)
        half_kick_and_drift(system, dt)
        forces.dt = dt
        try:
            system.update(measure)
        finally:
            forces.dt = 0.0
        half_kick(system, dt)
        forces.turn(system.particles, 0.5 * dt)

    def saved(self) -> dict[str, Any]:
        """No state: spins and contacts are the system's."""
        return {}

    def restore(self, values: dict[str, Any]) -> None:
        """Nothing."""
