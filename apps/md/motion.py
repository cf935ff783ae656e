"""How the particles of a run move, and what acts on them from outside."""

from __future__ import annotations

from hpckit.apps.md.config import Config
from hpckit.md.dynamics import NVE, Dynamics
from hpckit.md.external import External, Wall
from hpckit.md.fire import Fire
from hpckit.md.thermostats import Bussi, Langevin, NoseHoover


def dynamics_of(config: Config) -> Dynamics:
    """The integrator that the settings name."""
    given = config.dynamics
    if given.kind == "langevin":
        return Langevin(given.temperature, given.damping, given.seed)
    if given.kind == "bussi":
        return Bussi(given.temperature, given.damping, given.seed)
    if given.kind == "nose_hoover":
        return NoseHoover(given.temperature, given.damping, given.chain)
    return Fire(given.longest) if given.kind == "fire" else NVE()


def external_of(config: Config) -> External | None:
    """Field and walls; None where there are none."""
    given = config.dynamics
    walls = [
        Wall("xyz".index(wall.dim), end == "low", wall.epsilon, wall.sigma, wall.cutoff)
        for wall in given.walls
        for end in (("low", "high") if wall.end == "both" else (wall.end,))
    ]
    return External(given.field, walls) if walls or any(given.field) else None
