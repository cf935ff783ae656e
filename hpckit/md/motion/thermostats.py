"""Motion at a given temperature: Langevin, Bussi's velocity rescaling, Nosé-Hoover chains.

Random numbers are functions of (seed, step, particle), so that trajectories do not depend on the decomposition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.integrate.cell.dispatch import deform
from hpckit.kernels.particles.integrate.dispatch import langevin
from hpckit.md.external.groups import ParticleGroup, Some, Warmth, scale, slots_of, weighted_sums
from hpckit.md.motion.dynamics import half_kick, half_kick_and_drift, kick_and_drift
from hpckit.md.system import System
from hpckit.md.thermo import freedom, kinetic_energy
from hpckit.particles.flow import Flow

LANGEVIN = 3  # stream of random numbers


class Langevin:
    """Friction and noise: dv = F/m dt - v/damping dt + sqrt(2 k T / (m damping)) dW.

    The BAOAB splitting of Leimkuhler and Matthews (2013, J. Chem. Phys. 138, 174102), whose averages over positions
    are of higher order in dt than those of other splittings. damping: the decay time of velocities. group: the
    particles that have friction and noise, None: all. name: whose sum in `System.given` falls by the energy that
    particles get; empty: it is not counted. balanced: whether the noise of all of them adds up to nothing, so that it
    pushes their center nowhere.
    """

    def __init__(
        self,
        temperature: float,
        damping: float,
        seed: int,
        first_step: int = 0,
        group: Some = None,
        name: str = "",
        balanced: bool = False,
    ) -> None:
        _require(temperature, damping)
        self.temperature, self.damping, self.seed, self.number = temperature, damping, seed, first_step
        self.group, self.name, self.balanced = group, name, balanced
        self._of: Any = None  # the masses by slot of the last rebuild, of which
        self._widths: Any = None  # these are 1 / sqrt(m), 0 in empty slots

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; with `measure` energies and virials are those at its end."""
        self.move(system, dt)
        system.update(measure)
        half_kick(system, dt)

    def move(self, system: System, dt: float, kick: float = 0.5) -> None:
        """The first part of a step of dt: a kick of `kick` times dt by forces, and a drift with friction and noise in
        its middle.
        """
        if system.constraints is not None or system.inner > 1:
            raise InputError("langevin goes with neither constraints nor inner steps", do="take bussi or nose_hoover")
        self._act(system, dt, kick * dt, 0.5 * dt)

    def rub(self, system: System, dt: float) -> None:
        """Friction and noise of dt alone."""
        self._act(system, dt, 0.0, 0.0)

    def _act(self, system: System, dt: float, half: float, way: float) -> None:
        """A kick of `half`, and friction and noise of dt between two drifts of `way`."""
        self.number += 1
        particles, units = system.particles, system.units
        with system.timer("integrate"):
            keep = math.exp(-dt / self.damping)
            strength = math.sqrt((1 - keep * keep) * units.boltzmann * self.temperature / units.energy)
            if system.slot_masses is not self._of:
                self._of, self._widths = system.slot_masses, 1 / system.slot_masses**0.5
                self._widths[particles.ids[: particles.slots] < 0] = 0.0
            moved = particles.positions, particles.velocities, particles.forces
            each = system.inverse_masses, self._widths, particles.ids
            noise = self.seed, self.number, LANGEVIN
            others = self._others(system, half, 2.0 * way)
            held = slots_of(system, self.group) if self.name else None
            before = self._energies(system, half) if self.name else None
            slowed = keep * self._kicked(system, half) if self.balanced else None
            langevin(*moved, *each, particles.slots, half, way, keep, strength, noise)
            if others is not None:
                which, places, velocities = others
                particles.positions[which], particles.velocities[which] = places, velocities
            if slowed is not None:
                self._balance(system, slowed, way)
            if held is not None:
                more = (self._energies(system, 0.0) - before) * held[:, None]
                gained = float(weighted_sums(system, None, more)[0])
                system.given[self.name] = system.given.get(self.name, 0.0) - gained

    def _balance(self, system: System, slowed: Any, way: float) -> None:
        """Take the mean of the momenta that noise gave off each of the particles; slowed: velocities without noise."""
        particles, slots = system.particles, system.particles.slots
        columns = system.device.zeros((slots, 4))
        columns[:, :3] = system.slot_masses[:, None] * (particles.velocities[:slots, :3] - slowed)
        columns[:, 3] = 1.0 * (system.inverse_masses > 0.0)
        *momentum, count = weighted_sums(system, self.group, columns)
        if not count:
            return
        shares = system.inverse_masses * slots_of(system, self.group)
        for dim, each in enumerate(momentum):
            particles.velocities[:slots, dim] -= (each / count) * shares
            particles.positions[:slots, dim] -= (way * each / count) * shares

    def _kicked(self, system: System, kick: float) -> Any:
        """The velocities of the slots after a kick: [slots, 3]."""
        particles, slots = system.particles, system.particles.slots
        forces = particles.forces[:slots, :3]
        return particles.velocities[:slots, :3] + kick * system.inverse_masses[:, None] * forces

    def _energies(self, system: System, kick: float) -> Any:
        """The kinetic energies of the slots after a kick: [slots, 1]."""
        v = self._kicked(system, kick)
        return 0.5 * system.units.energy * system.slot_masses[:, None] * (v * v).sum(axis=1)[:, None]

    def _others(self, system: System, kick: float, drift: float) -> tuple[Any, Any, Any] | None:
        """The slots that feel neither friction nor noise, with their places and velocities after a kick and a drift."""
        if self.group is None and system.still is None:
            return None
        particles, slots = system.particles, system.particles.slots
        which = particles.ids[:slots] >= 0
        which &= False if self.group is None else ~self.group.slots(system)
        if system.still is not None:
            which[system.still] = True
        shares = system.inverse_masses[which][:, None]
        velocities = particles.velocities[:slots][which] + kick * shares * particles.forces[:slots][which]
        moves = system.slot_masses[:slots] >= 0.0  # all
        if system.still is not None:
            moves[system.still] = False
        way = drift * velocities * moves[which][:, None]
        which = system.device.xp.flatnonzero(which)
        return which, particles.positions[which] + way, velocities

    def saved(self) -> dict[str, Any]:
        """The step, which random numbers are a function of."""
        return {"number": self.number}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on with the random numbers of the next step."""
        self.number = values["number"]


class Limited:
    """Velocity Verlet in which no particle moves farther than `longest` in a step, for what begins with overlaps: `fix
    nve/limit` of LAMMPS. bath: friction and noise before each step.
    """

    def __init__(self, longest: float, bath: Langevin | None = None) -> None:
        self.longest, self.bath = longest, bath

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; with `measure` energies and virials are those at its end."""
        if self.bath is not None:
            self.bath.rub(system, dt)
        self._kick(system, dt)
        kick_and_drift(system, 0.0, dt)
        system.update(measure)
        self._kick(system, dt)

    def _kick(self, system: System, dt: float) -> None:
        """A kick of half of dt, after which no speed is beyond the limit."""
        half_kick(system, dt)
        xp, most = system.device.xp, (self.longest / dt) ** 2
        velocities = system.particles.velocities[: system.particles.slots]
        squares = velocities[:, 0] ** 2 + velocities[:, 1] ** 2 + velocities[:, 2] ** 2
        squares *= system.inverse_masses > 0.0  # what does not move keeps its velocity
        velocities *= xp.sqrt(most / xp.maximum(squares, most))[:, None]

    def saved(self) -> dict[str, Any]:
        """The state of the bath."""
        return {} if self.bath is None else self.bath.saved()

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        if self.bath is not None:
            self.bath.restore(values)


class Bussi:
    """Velocities rescaled at random so that the kinetic energy has its canonical distribution.

    Bussi, Donadio and Parrinello (2007), J. Chem. Phys. 126, 014101, with the sum of Gaussians drawn as a gamma number.
    damping: the relaxation time of the kinetic energy. group: the particles that are rescaled, None: all.
    """

    def __init__(
        self, temperature: float, damping: float, seed: int, first_step: int = 0, group: ParticleGroup | None = None
    ) -> None:
        _require(temperature, damping)
        self.temperature, self.damping, self.seed, self.number = temperature, damping, seed, first_step
        self.group = group

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; with `measure` energies and virials are those at its end."""
        half_kick_and_drift(system, dt)
        system.update(measure)
        half_kick(system, dt)
        self.rescale(system, dt)

    def rescale(self, system: System, dt: float) -> None:
        """Collective: what it does to the velocities at the end of a step."""
        self.number += 1
        kinetic = _kinetic(system, self.group)
        if kinetic > 0:
            scale(system, self.group, math.sqrt(self.share(kinetic, system, dt)))

    def saved(self) -> dict[str, Any]:
        """The step, which random numbers are a function of."""
        return {"number": self.number}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on with the random numbers of the next step."""
        self.number = values["number"]

    def share(self, kinetic: float, system: System, dt: float) -> float:
        """New over old kinetic energy: their equation A7."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, self.number]))
        degrees = _freedom(system, self.group)
        wanted = 0.5 * degrees * system.units.boltzmann * self.temperature
        keep = math.exp(-dt / self.damping)
        one = random.standard_normal()
        others = 2.0 * random.standard_gamma(0.5 * (degrees - 1)) if degrees > 1 else 0.0
        mean = wanted / (degrees * kinetic)
        share = keep + mean * (1 - keep) * (one * one + others) + 2 * one * math.sqrt(mean * keep * (1 - keep))
        return max(share, 0.0)


class Chain:
    """Links of a Nosé-Hoover chain: a thermostat, the next one that holds the first, and so on.

    Martyna, Tuckerman, Tobias and Klein (1996, Mol. Phys. 87, 1117). period: that of its oscillation. even: the first
    link is as light as the others, whatever it holds. drag: what the links lose of their speeds, see `slowed`.
    """

    def __init__(self, length: int, period: float, even: bool = False, drag: float = 0.0) -> None:
        if length < 0:
            raise InputError(f"the length of a chain is 0 or more, not {length}")
        self.places, self.speeds, self.period, self.even = np.zeros(length), np.zeros(length), period, even
        self.drag = drag
        self._thermal: float | None = None  # of the last half step

    def half(self, dt: float, doubled: float, freedom: int, thermal: float, weight: float | None = None) -> float:
        """Advance by half of dt, and return the factor of the velocities that it holds.

        doubled: twice their kinetic energy, of so many degrees of freedom; thermal: k T; weight: the k T by which the
        links have their masses, if it is another; then the links above the first feel the T of the half step before
        until they are pushed again, as in LAMMPS.
        """
        if not len(self.speeds):
            return 1.0
        masses, speeds = self._masses(freedom, thermal if weight is None else weight), self.speeds
        last = len(speeds) - 1
        factor, quarter, eighth, less = 1.0, 0.25 * dt, 0.125 * dt, slowed(self.drag, self.period, dt)
        above = thermal if weight is None or self._thermal is None else self._thermal
        self._thermal = thermal

        def pull(link: int) -> float:
            inner = doubled * factor**2 - freedom * thermal if link == 0 else None
            push = inner if inner is not None else masses[link - 1] * speeds[link - 1] ** 2 - above
            return float(push / masses[link])

        speeds[last] = less * (speeds[last] + quarter * pull(last))
        for link in range(last - 1, -1, -1):
            slow = math.exp(-eighth * speeds[link + 1])
            speeds[link] = slow * (less * (slow * speeds[link] + quarter * pull(link)))
        factor, above = math.exp(-0.5 * dt * speeds[0]), thermal
        self.places += 0.5 * dt * speeds
        for link in range(last):
            slow = math.exp(-eighth * speeds[link + 1])
            speeds[link] = slow * (slow * speeds[link] + quarter * pull(link))
        speeds[last] += quarter * pull(last)
        return factor

    def energy(self, freedom: int, thermal: float, weight: float | None = None) -> float:
        """The energy of the links; see `half`."""
        if not len(self.speeds):
            return 0.0
        masses = self._masses(freedom, thermal if weight is None else weight)
        links = 0.5 * masses * self.speeds**2 + thermal * self.places
        return float(links.sum()) + (freedom - 1) * thermal * float(self.places[0])

    def saved(self) -> dict[str, Any]:
        """Places and speeds of the links."""
        return {"places": self.places.tolist(), "speeds": self.speeds.tolist()}

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved links."""
        self.places, self.speeds = np.array(values["places"]), np.array(values["speeds"])

    def _masses(self, freedom: int, thermal: float) -> np.ndarray:
        masses = np.full(len(self.speeds), thermal * (self.period / (2 * math.pi)) ** 2)
        masses[0] *= 1 if self.even else freedom
        return masses


def slowed(drag: float, period: float, dt: float) -> float:
    """What is left of the speed of a thermostat or barostat after half a step of dt: 1 without drag, which damps its
    oscillation; drag: a share in period / 2 pi, as the word `drag` of LAMMPS's `fix npt`.
    """
    return 1.0 - 2 * math.pi * dt * drag / period


class NoseHoover:
    """A chain of Nosé-Hoover thermostats: deterministic, conserves `conserved` up to the error of the time step.

    One step of the chain around each half of velocity Verlet. damping: the period of the thermostat; length: links of
    the chain; group: the particles that it holds, None: all; drag: see `slowed`, with which nothing is conserved.
    """

    def __init__(
        self,
        temperature: float,
        damping: float,
        length: int = 3,
        group: ParticleGroup | None = None,
        drag: float = 0.0,
    ) -> None:
        _require(temperature, damping)
        if length < 1:
            raise InputError(f"a chain has at least one link, not {length}")
        self.temperature, self.chain, self.group = temperature, Chain(length, damping, drag=drag), group

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; with `measure` energies and virials are those at its end."""
        self.half(system, dt)
        half_kick_and_drift(system, dt)
        system.update(measure)
        half_kick(system, dt)
        self.half(system, dt)

    def saved(self) -> dict[str, Any]:
        """The chain."""
        return self.chain.saved()

    def restore(self, values: dict[str, Any]) -> None:
        """Set the saved chain."""
        self.chain.restore(values)

    def conserved(self, system: System, total: float) -> float:
        """The conserved quantity: the total energy plus that of the chain."""
        return total + self.chain.energy(_freedom(system, self.group), self.thermal(system))

    def thermal(self, system: System) -> float:
        """The thermal energy k T of the temperature that it holds."""
        return system.units.boltzmann * self.temperature

    def half(self, system: System, dt: float) -> None:
        """Collective: half a step of the chain, and the velocities scaled by it."""
        doubled, degrees = 2 * _kinetic(system, self.group), _freedom(system, self.group)
        scale(system, self.group, self.chain.half(dt, doubled, degrees, self.thermal(system)))


class Sllod(NoseHoover):
    """`NoseHoover` about the flow of a box that changes while its particles stay (`System.flow`): the SLLOD equations
    of motion, in which a sheared liquid has the stress of its viscosity.

    Evans and Morriss (1984), Phys. Rev. A 30, 1528, in the order of LAMMPS's `fix nvt/sllod`: the chain holds what
    velocities have beyond the flow u = A x, and half a step takes A of that from each. The temperature that a step
    begins with is the one that the step before has left to its chain.
    """

    _left: float | None = None  # twice the kinetic energy that the chain has left in the last step

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; see `NoseHoover.step`. Raises `InputError` in a box without a flow."""
        if system.flow is None:
            raise InputError("sllod needs a box that changes while its particles stay", do="set deform.remap = 'v'")
        self._hold(system, system.flow, dt, self._left)
        half_kick_and_drift(system, dt)
        system.update(measure)
        half_kick(system, dt)
        self._left = self._hold(system, system.flow, dt, None)

    def saved(self) -> dict[str, Any]:
        """The chain, and what it has left."""
        return {**super().saved(), "sums": [] if self._left is None else [self._left]}

    def restore(self, values: dict[str, Any]) -> None:
        """Set what was saved."""
        super().restore(values)
        self._left = values["sums"][0] if values.get("sums") else None  # a stage begins with the temperature it finds

    def _hold(self, system: System, flow: Flow, dt: float, doubled: float | None) -> float:
        """Collective: half a step of the chain for velocities beyond the flow, of which twice the kinetic energy is
        `doubled`, None: that of now; what it leaves of that.
        """
        particles = system.particles
        flow.add(particles, -1)
        if doubled is None:
            doubled = 2 * kinetic_energy(system)
        factor = self.chain.half(dt, doubled, freedom(system), self.thermal(system))
        with system.timer("integrate"):
            deform(particles.velocities, particles.slots, factor * np.eye(3) - 0.5 * dt * flow.gradient)
        flow.add(particles)
        return factor**2 * doubled


def _kinetic(system: System, group: ParticleGroup | None) -> float:
    """Collective: the kinetic energy of a group."""
    return kinetic_energy(system) if group is None else 0.5 * Warmth(group).doubled(system)


def _freedom(system: System, group: ParticleGroup | None) -> int:
    """Its degrees of freedom."""
    return freedom(system) if group is None else max(round(Warmth(group).freedom(system)), 1)


def _require(temperature: float, damping: float) -> None:
    if not (temperature >= 0 and math.isfinite(temperature)) or not (damping > 0 and math.isfinite(damping)):
        raise InputError(
            f"a thermostat needs a temperature of at least 0 and a damping time above 0, not {temperature}, {damping}"
        )
