"""What is done to velocities after a step, of a group of the particles: fix temp/rescale, temp/berendsen, momentum,
heat, thermal/conductivity, viscosity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hpckit.collectives.whole import rows_of_ranks
from hpckit.errors import BlowUpError
from hpckit.md.external.groups import (
    ParticleGroup,
    Some,
    Warmth,
    center_of,
    scale,
    slots_of,
    unwrapped,
    weighted_sums,
)
from hpckit.md.motion.dynamics import Dynamics
from hpckit.md.system import System


class Correction(Protocol):
    """Changes velocities every so many steps (`every`)."""

    every: int

    def act(self, system: System, dt: float, share: float) -> None:
        """Collective, after a step: change velocities; share: of the run that is over."""


@dataclass(frozen=True)
class Rescaling:
    """Scales the velocities of a group toward a temperature, where it is off by more than `window`: away goes
    `fraction` of the difference. last: the temperature at the end of the run.
    """

    group: ParticleGroup | None
    temperature: float
    last: float
    window: float = 0.0
    fraction: float = 1.0
    every: int = 1
    warmth: Warmth = field(default_factory=Warmth)

    def act(self, system: System, dt: float, share: float) -> None:
        """Collective: see `Correction.act`. Raises `BlowUpError` for particles at rest."""
        now, wanted = _now(self.warmth, system), self.temperature + share * (self.last - self.temperature)
        if now and abs(now - wanted) > self.window:
            aim = now - self.fraction * (now - wanted)
            scale(system, self.group, math.sqrt(aim / now), self.warmth.along)


@dataclass(frozen=True)
class WeakCoupling:
    """Scales the velocities of a group such that its temperature goes to another one in a time `damping`: Berendsen et
    al. (1984), J. Chem. Phys. 81, 3684. The distribution is not canonical.
    """

    group: ParticleGroup | None
    temperature: float
    last: float
    damping: float
    every: int = 1
    warmth: Warmth = field(default_factory=Warmth)

    def act(self, system: System, dt: float, share: float) -> None:
        """Collective: see `Correction.act`. Raises `BlowUpError` for particles at rest."""
        now, wanted = _now(self.warmth, system), self.temperature + share * (self.last - self.temperature)
        if now:
            factor = math.sqrt(max(1.0 + dt / self.damping * (wanted / now - 1.0), 0.0))
            scale(system, self.group, factor, self.warmth.along)


@dataclass(frozen=True)
class Stilling:
    """Takes away the mean velocity of a group, by mass, along some dims (`linear`), and its rotation about its center
    (`angular`); energy: then scales the velocities such that the kinetic energy is what it was.
    """

    group: ParticleGroup | None
    linear: tuple[bool, bool, bool] = (True, True, True)
    angular: bool = False
    energy: bool = False
    every: int = 1

    def act(self, system: System, dt: float, share: float) -> None:
        """Collective: see `Correction.act`."""
        before = Warmth(self.group).doubled(system) if self.energy else 0.0
        if any(self.linear):
            still(system, self.group, self.linear)
        if self.angular:
            unturned(system, self.group)
        if self.energy and (now := Warmth(self.group).doubled(system)):
            scale(system, self.group, math.sqrt(before / now))


@dataclass(frozen=True)
class HeatSource:
    """Gives particles an energy in a unit of time, below 0: takes it, by a factor of their velocities about their mean,
    which stays. shifts: places, too, so that the energy of the whole does not drift (Wirnsberger, Frenkel and Dellago
    (2015), J. Chem. Phys. 143, 124104).
    """

    group: Some
    power: float
    every: int = 1
    shifts: bool = False

    def act(self, system: System, dt: float, share: float) -> None:
        """Collective: see `Correction.act`. Raises `BlowUpError` where they have less than is taken."""
        particles, xp, masses = system.particles, system.device.xp, system.slot_masses[:, None]
        v, forces = particles.velocities[: particles.slots, :3], particles.forces[: particles.slots, :3]
        columns = [masses * v, masses, masses * (v * v).sum(axis=1)[:, None]]
        if self.shifts:
            columns += [forces, (v * forces).sum(axis=1)[:, None]]
        sums = weighted_sums(system, self.group, xp.concatenate(columns, axis=1))
        momenta, (mass, motion) = sums[:3], sums[3:5].tolist()
        mean = momenta / mass if mass else np.zeros(3)
        free = 0.5 * system.units.energy * (motion - mass * float(mean @ mean))
        left = free + self.power * self.every * dt
        if not left >= 0 or not free > 0:
            raise BlowUpError(
                f"particles have a kinetic energy of {free:g}, and {-self.power * self.every * dt:g} is to be taken",
                likely="too much heat is taken from too few particles, or none are there",
                do="give less power, or a larger block",
            )
        factor, here = math.sqrt(left / free), slots_of(system, self.group)
        if self.shifts:
            unit, to_device = 1.0 / system.units.energy, system.device.to_device
            pulls, worked = sums[5:8], float(sums[8])
            power, kept = self.power * self.every * unit, free * unit
            along = power / (2.0 * kept**2) * (power / 48.0 + unit * (worked - float(pulls @ mean)) / 6.0)
            away = along * (v - to_device(mean))
            pull = unit * (forces / system.slot_masses[:, None] - to_device(pulls / mass))
            away = dt**3 * (away - power / (12.0 * kept) * pull)
            particles.positions[: particles.slots, :3][here] -= away[here]
            system.reshaped = True
        v[here] = factor * v[here] - (factor - 1.0) * system.device.to_device(mean)


CANDIDATE = np.dtype([("key", "f8"), ("id", "i8"), ("velocity", "f8", 3), ("mass", "f8")])
FASTEST = 1e10  # the speed that is wanted where the fastest ones are


@dataclass(frozen=True)
class SlabSwap:
    """Particles of two slabs collide, as if they met: the first of `bins` across a dim and the middle one (Mueller-
    Plathe (1997), J. Chem. Phys. 106, 6082; (1999), Phys. Rev. E 59, 4894). Energy goes up: the hottest of the first
    slab with the coldest of the middle; or momentum along a dim: those nearest to a speed, forward in the first slab
    and backward in the middle. pairs: how many; name: whose sum in `System.given` grows by the energy that the middle
    slab gets, or the momentum that the first one gets.
    """

    name: str
    group: ParticleGroup | None
    across: int
    bins: int
    pairs: int = 1
    along: int | None = None  # of momentum
    speed: float = FASTEST
    every: int = 1

    def act(self, system: System, dt: float, share: float) -> None:
        """Collective: see `Correction.act`."""
        hot, cold = (self._first(system, slab) for slab in (0, self.bins // 2))
        dims = slice(0, 3) if self.along is None else slice(self.along, self.along + 1)
        given, changed = 0.0, dict[int, np.ndarray]()
        for one, other in zip(hot, cold, strict=False):
            v, w, m, n = one["velocity"][dims], other["velocity"][dims], one["mass"], other["mass"]
            mean = (m * v + n * w) / (m + n)
            changed |= {int(one["id"]): 2.0 * mean - v, int(other["id"]): 2.0 * mean - w}
            kept = -system.units.energy * mean if self.along is None else np.ones(1)
            given += 2.0 * float(m * (kept @ (mean - v)))
        ids = system.device.to_host(system.particles.ids[: system.particles.slots])
        for number, velocity in changed.items():
            for slot in np.flatnonzero(ids == number).tolist():
                system.particles.velocities[slot, dims] = system.device.to_device(velocity)
        system.given[self.name] = system.given.get(self.name, 0.0) + given

    def _first(self, system: System, slab: int) -> np.ndarray:
        """Collective: the particles of a slab that come first, on all ranks, in their order."""
        particles, to_host, box = system.particles, system.device.to_host, system.domains
        slots, dim = np.flatnonzero(to_host(slots_of(system, self.group))), self.across
        along, low, high = to_host(particles.positions)[slots, dim], float(box.lower[dim]), float(box.upper[dim])
        along = along + np.where(along < low, high - low, 0.0) - np.where(along >= high, high - low, 0.0)
        ends = [low + (slab + k) * (high - low) / self.bins for k in (0, 1)]
        slots = slots[(along >= ends[0]) & (along < ends[1])]
        each = np.zeros(len(slots), CANDIDATE)
        each["id"], each["velocity"] = to_host(particles.ids)[slots], to_host(particles.velocities)[slots, :3]
        each["mass"] = to_host(system.slot_masses)[slots]
        sign = 1.0 if slab == 0 else -1.0
        if self.along is None:
            each["key"] = -sign * each["mass"] * (each["velocity"] ** 2).sum(axis=1)
        else:
            each["key"] = np.abs(each["velocity"][:, self.along] - sign * self.speed)
            each = each[sign * each["velocity"][:, self.along] >= 0.0]
        own = each[np.lexsort((each["id"], each["key"]))][: self.pairs]
        every = np.concatenate(rows_of_ranks(own, system.mesh))
        return every[np.lexsort((every["id"], every["key"]))][: self.pairs]


def still(system: System, group: ParticleGroup | None, along: Sequence[bool] = (True, True, True)) -> None:
    """Collective: take away the mean velocity of a group by mass."""
    particles, masses = system.particles, system.slot_masses[:, None]
    slots = particles.slots
    sums = weighted_sums(
        system, group, system.device.xp.concatenate([masses * particles.velocities[:slots, :3], masses], axis=1)
    )
    _slow(system, group, system.device.to_device(np.where(along, sums[:3] / sums[3], 0.0)))


def unturned(system: System, group: ParticleGroup | None) -> None:
    """Collective: take away the rotation of a group about its center of mass, as of a rigid body."""
    particles, xp, masses = system.particles, system.device.xp, system.slot_masses[:, None]
    slots = particles.slots
    center, _ = center_of(system, group)
    arms = unwrapped(system) - system.device.to_device(center)
    spins = masses * xp.cross(arms, particles.velocities[:slots, :3])
    moments = (masses[:, :, None] * arms[:, :, None] * arms[:, None, :]).reshape(slots, 9)
    found = weighted_sums(system, group, xp.concatenate([spins, moments], axis=1))
    spread = found[3:].reshape(3, 3)
    inertia = np.trace(spread) * np.eye(3) - spread
    turn = np.linalg.lstsq(inertia, found[:3], rcond=1e-12)[0]
    _slow(system, group, xp.cross(system.device.to_device(turn), arms))


def _slow(system: System, group: ParticleGroup | None, away: Any) -> None:
    """Take velocities away from those of a group: one, or one of each slot."""
    here = slots_of(system, group)
    system.particles.velocities[: system.particles.slots, :3][here] -= away if away.ndim == 1 else away[here]


def _now(warmth: Warmth, system: System) -> float:
    found = warmth.temperature(system)
    if not found and warmth.freedom(system):
        raise BlowUpError(
            "particles whose temperature is to be scaled are at rest",
            likely="velocities that were never set",
            do="draw velocities at the start (system.velocities, system.temperature)",
        )
    return found


class Corrected:
    """A dynamics with corrections of velocities after its steps, in their order; steps: of the run; before: how many
    steps there were before, from which `every` of a correction counts.
    """

    def __init__(self, inner: Dynamics, corrections: Sequence[Correction], steps: int, before: int = 0) -> None:
        self.inner, self.corrections, self.steps, self.before, self.number = inner, corrections, steps, before, 0

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step; see `Dynamics.step`."""
        self.number += 1
        self.inner.step(system, dt, measure)
        for each in self.corrections:
            if (self.before + self.number) % each.every == 0:
                each.act(system, dt, min(1.0, self.number / max(1, self.steps)))

    def saved(self) -> dict[str, Any]:
        """The steps done, and the state of the dynamics."""
        return {"number": self.number, "inner": self.inner.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        self.number = values["number"]
        self.inner.restore(values["inner"])


@dataclass(frozen=True)
class Drive:
    """A velocity that particles of a group have along some dims, whatever their forces (fix move linear of LAMMPS)."""

    group: ParticleGroup | None
    velocity: tuple[float, float, float]
    along: tuple[bool, bool, bool] = (True, True, True)

    def set(self, system: System) -> None:
        """Set the velocities of this rank."""
        here = system.device.xp.flatnonzero(slots_of(system, self.group))
        for dim in range(3):
            if self.along[dim]:
                system.particles.velocities[here, dim] = self.velocity[dim]


class Driven:
    """A dynamics in which groups are driven: their forces along those dims must be 0 (`….external.pushes.Push`)."""

    def __init__(self, inner: Dynamics, drives: Sequence[Drive]) -> None:
        self.inner, self.drives = inner, list(drives)

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step; see `Dynamics.step`."""
        for each in self.drives:
            each.set(system)
        self.inner.step(system, dt, measure)

    def saved(self) -> dict[str, Any]:
        """The state of the dynamics."""
        return {"inner": self.inner.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        self.inner.restore(values["inner"])
