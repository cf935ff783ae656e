"""Elastic constants: how the stress of a crystal at rest changes with the strain of its box."""

from __future__ import annotations

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.integrate.dispatch import dilate
from hpckit.md.motion.fire import Fire
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.plan.particles.cell import Cell

VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
OF_TENSOR = [0, 1, 2, 5, 4, 3]  # the places of these in xx, yy, zz, xy, xz, yz


def elastic_constants(
    system: System, strain: float = 1e-4, *, dt: float, largest_force: float, steps: int = 10_000, longest: float = 0.1
) -> np.ndarray:
    """Collective: C[i, j] = d stress i / d strain j, float64[6, 6], in the order xx, yy, zz, yz, xz, xy with shears
    that are twice the tensor's; in the unit of the pressure.

    The system is at a minimum of its energy, without a stress or under a pressure; there the stress is that of Cauchy.
    The box is strained by `strain` both ways, particles go down to their minimum by `Fire` (dt, longest) until no force
    exceeds `largest_force`, and differences are central: their error falls with the square of the strain, and what is
    left of forces divides by it. Box and particles are back at the end. Raises `InputError` for an open box, and for
    particles that do not come to rest in `steps`.
    """
    if not all(system.domains.periodic):
        raise InputError("elastic constants are those of a box that is periodic in x, y and z")
    cell, found = system.domains.cell, np.zeros((6, 6))
    for number, (a, b) in enumerate(VOIGT):
        for sign in (1.0, -1.0):
            map_of = np.eye(3)
            map_of[a, b] += sign * strain
            edges = cell.matrix @ map_of.T
            tilt = edges[1, 0], edges[2, 0], edges[2, 1]
            system.reshape(Cell.of(cell.lower, cell.lower + np.diagonal(edges), tilt))
            _rest(system, Fire(longest), dt, largest_force, steps)
            found[:, number] -= np.array(measure(system).tensor)[OF_TENSOR] / (2 * sign * strain)
    system.reshape(cell)
    _rest(system, Fire(longest), dt, largest_force, steps)
    return found


def _rest(system: System, fire: Fire, dt: float, largest_force: float, steps: int) -> None:
    """Collective: bring the particles to the minimum of this box, with energies and virials of it."""
    system.update()
    for _ in range(steps):
        fire.step(system, dt, False)
        if fire.largest_force < largest_force:
            break
    else:
        raise InputError(
            f"particles in a strained box do not come to rest in {steps} steps: a force of {fire.largest_force:.3g}"
            f" is left, and {largest_force:.3g} is asked for",
            do="start at a minimum, raise largest_force, or give a smaller strain",
        )
    dilate(system.particles.velocities, system.particles.slots, np.zeros(3))
    system.update(measure=True)
