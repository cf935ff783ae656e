"""The dynamics of a run, and external forces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.motion.groups import ALL, AXES, CountedOf, PushOn, RegionOf, named_in
from hpckit.apps.md.start import Start
from hpckit.errors import InputError
from hpckit.md.external.fields import ExternalFields, Mirror, Wall
from hpckit.md.external.groups import ParticleGroup, Some, Warmth, Within
from hpckit.md.external.pushes import ElectricField, Flat, Friction, Indenter, Leash, Push, Tether
from hpckit.md.granular.rolling import Rolling
from hpckit.md.motion.barostats import MTK, CellRescaling
from hpckit.md.motion.baths import Baths
from hpckit.md.motion.corrections import (
    Corrected,
    Drive,
    Driven,
    HeatSource,
    Rescaling,
    SlabSwap,
    Stilling,
    WeakCoupling,
)
from hpckit.md.motion.deformation import Deformation
from hpckit.md.motion.dynamics import NVE, Dynamics
from hpckit.md.motion.easing import WeakBox
from hpckit.md.motion.fire import Fire
from hpckit.md.motion.leaning import FullMTK
from hpckit.md.motion.relaxation import Relaxation
from hpckit.md.motion.thermostats import Bussi, Langevin, Limited, NoseHoover, Sllod
from hpckit.md.system import System


class Equilibrated:
    """A thermostat for some steps, then the dynamics proper."""

    def __init__(self, thermostat: Dynamics, steps: int, proper: Dynamics) -> None:
        self.thermostat, self.left, self.proper = thermostat, steps, proper

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of the thermostat or the dynamics; see `Dynamics.step`."""
        chosen = self.thermostat if self.left > 0 else self.proper
        self.left -= 1
        chosen.step(system, dt, measure)

    def saved(self) -> dict[str, Any]:
        """The remaining steps of the thermostat, and the state of both."""
        return {"left": self.left, "thermostat": self.thermostat.saved(), "proper": self.proper.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        self.left = values["left"]
        self.thermostat.restore(values["thermostat"])
        self.proper.restore(values["proper"])


class Ramp:
    """A dynamics with temperatures, or a pressure, that go evenly from one value to another in this number of steps.
    values: whose, by which name, from, to.
    """

    def __init__(self, inner: Any, steps: int, values: Sequence[tuple[Any, str, float, float]]) -> None:
        self.inner, self.steps, self.values, self.number = inner, steps, values, 0

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step; see `Dynamics.step`."""
        self.number += 1
        self._set()
        self.inner.step(system, dt, measure)

    def _set(self) -> None:
        share = min(1.0, self.number / max(1, self.steps))
        for each, name, first, last in self.values:
            setattr(each, name, first + share * (last - first))

    def saved(self) -> dict[str, Any]:
        """The steps done, and the state of the dynamics."""
        return {"number": self.number, "inner": self.inner.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        self.number = values["number"]
        self._set()
        self.inner.restore(values["inner"])


def proper_of(dynamics: Any) -> Any:
    """What moves particles and box, without what equilibrates before, or changes its temperature, pressure or box."""
    while isinstance(dynamics, Equilibrated | Ramp | Deformation | Corrected | Driven):
        dynamics = dynamics.proper if isinstance(dynamics, Equilibrated) else dynamics.inner
    return dynamics


def at_temperature(dynamics: Any, temperature: float) -> None:
    """Set the temperature of a thermostat, also of one that equilibrates."""
    both: tuple[Any, ...] = (dynamics,)
    if isinstance(dynamics, Equilibrated):
        both = dynamics.thermostat, dynamics.proper
    for each in both:
        each.temperature = temperature


def dynamics_of(config: Config, first_step: int = 0, start: Start | None = None) -> Dynamics:
    """The integrator of the settings, with its equilibration; first_step: from which its random numbers count; start:
    who knows the particles of groups, if it is made already.
    """
    given = config.dynamics
    start = start or (Start(config) if any(name != ALL for _, name in named_in(given)) else None)
    proper = _proper(config, start, first_step)
    if not given.equilibrate:
        return proper
    thermostat = Bussi(given.temperature, given.damping, given.seed, first_step)
    return Equilibrated(thermostat, given.equilibrate, proper)


def _proper(config: Config, start: Start | None, first_step: int) -> Dynamics:
    moving, given = _ramped(config, _moving(config, start, first_step)), config.deform
    if config.dynamics.drives:
        drives = config.dynamics.drives
        moving = Driven(moving, [Drive(group_of(start, e.group), e.velocity, _dims(e.along)) for e in drives])
    if config.dynamics.corrections:
        moving = _corrected(config, start, moving)
    if not given.changes:
        return moving
    duration = (config.time.steps - config.dynamics.equilibrate) * config.time.dt
    return Deformation(moving, [each.change for each in given.changes], duration, given.every, given.remap == "x")


def give_flow(dynamics: Dynamics, system: System, dt: float) -> None:
    """Give the system the flow of a box that changes from the start on, or none."""
    system.flow = None
    if isinstance(dynamics, Deformation):
        dynamics.begin(system, dt)


def _ramped(config: Config, moving: Dynamics) -> Dynamics:
    given, held, ramps = config.dynamics, config.barostat, list[tuple[Any, str, float, float]]()
    inner: Any = moving.inner if isinstance(moving, WeakBox) else moving
    baths = inner.baths if isinstance(inner, Baths) else [inner]
    for bath, asked in zip(baths, (given, *given.also), strict=True):
        if asked.ramp_to is not None:
            holds = getattr(bath, "thermostat", None) or getattr(bath, "bath", None) or bath
            ramps.append((holds, "temperature", asked.temperature, asked.ramp_to))
    if held.ramp_to is not None:
        ramps.append((moving, "pressure", held.pressure, held.ramp_to))
    return Ramp(moving, config.time.steps - given.equilibrate, ramps) if ramps else moving


def _corrected(config: Config, start: Start | None, moving: Dynamics) -> Dynamics:
    every: list[Any] = []
    for each in config.dynamics.corrections:
        group, counted = group_of(start, each.group), each.counted or CountedOf(group=each.group)
        if each.kind == "momentum":
            every.append(Stilling(group, _dims(each.linear), each.angular, each.energy, each.every))
            continue
        if each.kind == "heat":
            every.append(HeatSource(within(group, each.within), each.power, each.every, each.shifts))
            continue
        if each.kind in ("swap_energy", "swap_momentum"):
            along = None if each.kind == "swap_energy" else "xyz".index(each.dim)
            slabs = "xyz".index(each.across), each.bins, each.pairs
            swapped = SlabSwap(each.name, group, *slabs, along, every=each.every)
            every.append(swapped if each.speed is None else replace(swapped, speed=each.speed))
            continue
        last = each.temperature if each.ramp_to is None else each.ramp_to
        what: dict[str, Any] = {"every": each.every, "warmth": warmth_of(start, counted)}
        if each.kind == "rescale":
            every.append(Rescaling(group, each.temperature, last, each.window, each.fraction, **what))
        else:
            every.append(WeakCoupling(group, each.temperature, last, each.damping, **what))
    steps = config.time.steps - config.dynamics.equilibrate
    return Corrected(moving, every, steps, max(each.before for each in config.dynamics.corrections))


def _dims(along: Sequence[str]) -> tuple[bool, bool, bool]:
    x, y, z = (axis in along for axis in "xyz")
    return x, y, z


def group_of(start: Start | None, *names: str) -> ParticleGroup | None:
    """The particles of any of these groups; None: all."""
    if ALL in names or start is None:
        return None
    return ParticleGroup(np.logical_or.reduce([start.members(name) for name in names])) if names else None


def within(group: ParticleGroup | None, block: Sequence[float] | None) -> Some:
    """Those of a group that are in a block at the time; without a block all of it."""
    if block is None:
        return group
    xlo, xhi, ylo, yhi, zlo, zhi = block
    return Within(group, (xlo, ylo, zlo), (xhi, yhi, zhi))


def within_region(group: ParticleGroup | None, given: RegionOf) -> Within:
    """Those of a group that are in a region at the time."""
    across = tuple(AXES.index(axis) for axis in given.across)
    shape = given.center, given.radius if across else math.inf, across, given.outside
    return Within(group, given.block[::2], given.block[1::2], *shape)


def warmth_of(start: Start | None, counted: CountedOf) -> Warmth:
    """What a temperature counts."""
    return Warmth(group_of(start, counted.group), _dims(counted.along), counted.thermal)


def bind_groups(system: System, config: Config, start: Start) -> None:
    """Give the system what acts on its groups, and what moves; `rebuild` must follow."""
    given = config.dynamics
    system.external = external_of(config, start)
    system.moving = group_of(start, *given.moves)
    plain = given.counted == CountedOf()
    system.counted = None if plain else warmth_of(start, given.counted)


def _moving(config: Config, start: Start | None, first_step: int) -> Dynamics:
    given, held = config.dynamics, config.barostat
    if held.kind == "relax":
        return Fire(given.longest_of_fire, Relaxation(held.pressure, "".join(held.dims), held.together, held.tilts))
    if held.kind == "cell_rescaling":
        thermostat = Bussi(given.temperature, given.damping, given.seed, first_step)
        return CellRescaling(thermostat, held.pressure, held.damping, held.compressibility)
    if held.kind == "mtk":
        return _mtk(config, first_step)
    if config.interaction.kind == "granular":
        return Rolling()
    found = _at_volume(config, start, first_step)
    if held.kind == "berendsen":
        box = held.pressure, held.damping, held.modulus, "".join(held.dims), held.together
        return WeakBox(found, *box)
    return found


def _mtk(config: Config, first_step: int) -> MTK:
    given, held = config.dynamics, config.barostat
    what: dict[str, Any] = {"dims": "".join(held.dims), "coupled": held.together, "length": held.chain}
    what |= {"correction": held.correction, "drag": held.drag}
    chain = None
    if given.kind == "nose_hoover":
        chain = NoseHoover(given.temperature, given.damping, given.chain, drag=given.drag)
    if given.kind == "langevin":
        what["bath"] = _langevin(given, first_step, None)
    if held.tilts:
        return FullMTK(chain, held.pressure, held.damping, tilts=held.tilts, **what)
    return MTK(chain, held.pressure, held.damping, **what)


def _at_volume(config: Config, start: Start | None, first_step: int) -> Dynamics:
    """What moves the particles, without what changes the box."""
    given = config.dynamics
    if given.kind == "fire":
        return Fire(given.longest_of_fire)
    if given.kind == "nve":
        return NVE() if given.longest is None else Limited(given.longest)
    baths = list[Langevin | Bussi | NoseHoover]()
    for each in (given, *given.also):
        group = group_of(start, each.group)
        if each.kind == "langevin":
            baths.append(_langevin(each, first_step, within(group, each.within)))
        elif each.kind == "bussi":
            baths.append(Bussi(each.temperature, each.damping, each.seed, first_step, group))
        elif each is given and given.sllod:
            baths.append(Sllod(each.temperature, each.damping, each.chain, drag=each.drag))
        else:
            baths.append(NoseHoover(each.temperature, each.damping, each.chain, group, each.drag))
    if given.longest is not None and isinstance(baths[0], Langevin):
        return Limited(given.longest, baths[0])
    return Baths(baths) if len(baths) > 1 else baths[0]


def _langevin(given: Any, first_step: int, group: Some) -> Langevin:
    """The bath of these settings, of the whole or of one of more."""
    numbers = given.temperature, given.damping, given.seed
    return Langevin(*numbers, first_step, group, given.name, given.balanced)


def external_of(config: Config, start: Start) -> ExternalFields | None:
    """The field, the walls and the pushes of the settings; None without them."""
    given = config.dynamics
    walls = [
        Wall("xyz".index(wall.dim), end == "low", *(wall.epsilon, wall.sigma, wall.cutoff), wall.law, wall.place, group)
        for wall, group in ((each, group_of(start, each.group)) for each in given.walls)
        for end in (("low", "high") if wall.end == "both" else (wall.end,))
    ]
    mirrors = [
        Mirror("xyz".index(each.dim), each.end == "low", each.place, group_of(start, each.group))
        for each in given.mirrors
    ]
    pushes: list[Any] = [_push(config, start, each) for each in given.pushes]
    for drive in given.drives:
        pushes.append(Push("set", group_of(start, drive.group), (0.0, 0.0, 0.0), _dims(drive.along)))
    if config.system.dims == 2:
        pushes.append(Flat())
    acting = walls or pushes or mirrors or any(given.field)
    return ExternalFields(given.field, walls, pushes, mirrors) if acting else None


def _push(config: Config, start: Start, given: PushOn) -> Any:
    """A push of the settings."""
    group, along = group_of(start, given.group), _dims(given.along)
    if given.kind in ("sphere", "cylinder", "plane"):
        per_step = np.array(given.moving) * config.time.dt
        shape = given.kind, "xyz".index(given.axis), given.inside
        return Indenter(group, *shape, given.stiffness, np.array(given.place), per_step, given.length)
    if given.kind == "tether":
        return Tether(group, given.stiffness, given.place, along, given.length)
    if given.kind == "leash":
        return Leash(group, given.stiffness, start.unwrapped(), along)
    if given.kind == "friction":
        types = len(start.masses)
        if len(given.strengths) not in (1, types):
            raise InputError(
                f"dynamics.pushes.strengths has {len(given.strengths)} numbers, and there are {types} types",
                do="give one number, or one for each type",
            )
        return Friction(group, np.full(types, 1.0) * given.strengths)
    if given.kind == "charges":
        return ElectricField(group, np.array(given.force))
    return Push(given.kind, group, given.force, along)
