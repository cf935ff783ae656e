"""Motion at a given pressure: the box changes its edges, and the particles move along.

Box and particles are stretched about the middle of the box, which stays. The pressure is that of all forces and of
the motion, so each step needs the virial; energies are those of the last step that was to be measured.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.integrate.dispatch import dilate, drift
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.md.motion.dynamics import half_kick, half_kick_and_drift
from hpckit.md.motion.thermostats import Bussi, Chain, Langevin, NoseHoover, slowed
from hpckit.md.system import System
from hpckit.md.thermo import Totals, freedom, totals, volume

MOST_STRETCH = 1.1  # of an edge in one step
VOLUMES = 1  # stream of random numbers, beside the thermostat's own


class Barostat:
    """What all barostats have in common: the dims of the box that change, together or each by itself, and the pressure.

    dims: which edges change. coupled: dims that feel their mean pressure and change by one factor, of "xyz"; "" for
    none. Raises `InputError` for a box that is open along one of the dims, at the first step.
    """

    def __init__(self, pressure: float, period: float, dims: str = "xyz", coupled: str = "xyz") -> None:
        if not math.isfinite(pressure) or not (period > 0 and math.isfinite(period)):
            raise InputError(f"a barostat needs a pressure and a time scale above 0, not {pressure} and {period}")
        if not dims or not set(coupled) <= set(dims) or not set(dims) <= set("xyz") or len(coupled) == 1:
            raise InputError(f"a barostat changes dims of xyz and couples some of these, not {dims!r} and {coupled!r}")
        self.pressure, self.period = pressure, period
        self.dims = np.array([axis in dims for axis in "xyz"])
        self.together = np.array([axis in coupled for axis in "xyz"])
        self._now: Totals | None = None  # at the end of the last step

    def begin(self, system: System) -> Totals:
        """Collective: sums at the start of a step."""
        if not system.domains.periodic[self.dims].all():
            raise InputError(
                "a barostat changes edges of the box along which it is open",
                do="make these dims periodic (system.periodic), or take them out of the dims that change",
            )
        if not system.measured:
            system.compute(measure=True)
        return self._now or totals(system)

    def excess(self, system: System, now: Totals) -> np.ndarray:
        """What the pressure is above the one asked for along x, y, z, as energy per volume; the mean where coupled."""
        found = (now.motion + now.virial)[:3] / volume(system)
        if self.together.any():
            found[self.together] = found[self.together].sum() / self.together.sum()
        return found - self.pressure / system.units.pressure

    def saved(self) -> dict[str, Any]:
        """The sums at the end of the last step."""
        now = self._now
        if now is None:
            return {"sums": []}
        return {
            "sums": [*now.motion.tolist(), *now.virial.tolist(), now.potential, now.bonded, now.coulomb, now.long_range]
        }

    def restore(self, values: dict[str, Any]) -> None:
        """Set what was saved."""
        sums = values["sums"]
        self._now = Totals(np.array(sums[:6]), np.array(sums[6:12]), *sums[12:]) if sums else None

    def _stretch(self, system: System, factors: np.ndarray) -> None:
        self._require_small(factors)
        system.stretch(factors)

    def _require_small(self, factors: np.ndarray) -> None:
        if not ((factors > 1 / MOST_STRETCH) & (factors < MOST_STRETCH)).all():
            raise BlowUpError(
                f"a barostat would change the edges of the box by factors of {np.round(factors, 3).tolist()} in a step",
                where="all ranks",
                likely="a box that is far from its pressure, or a barostat that is too fast",
                do="raise barostat.damping, lower time.dt, or bring the particles to rest first at constant volume",
            )

    def _scale(self, system: System, now: Totals, factors: np.ndarray) -> Totals:
        """Scale the velocities by a factor in each dim; the sums after that."""
        with system.timer("integrate"):
            dilate(system.particles.velocities, system.particles.slots, factors)
        return scaled(now, factors)


def scaled(now: Totals, factors: np.ndarray) -> Totals:
    """Sums after velocities are scaled by a factor in each dim."""
    pairs = [*zip(range(3), range(3), strict=True), *itertools.combinations(range(3), 2)]
    products = np.array([factors[a] * factors[b] for a, b in pairs])
    return Totals(now.motion * products, now.virial, now.potential, now.bonded)


class MTK(Barostat):
    """Martyna, Tobias and Klein: a barostat with a mass, each edge (or all of them together) by an equation of motion.

    J. Chem. Phys. 101, 4177 (1994), in the splitting of Tuckerman et al. (2006, J. Phys. A 39, 5629), the order that
    LAMMPS has: with the same input both give the same digits. thermostat: a chain that holds the temperature; None: the
    enthalpy is kept. period: of the barostat's oscillation. length: links of the chain that holds the barostat.
    correction: the terms that make the distribution of volumes canonical. Where the temperature goes from one value to
    another, the masses of barostat and chain stay those of the first, as LAMMPS has it. drag: what box and chain lose
    of their speeds (`slowed`); nothing is conserved with it. bath: friction and noise in place of a thermostat.
    """

    def __init__(
        self,
        thermostat: NoseHoover | None,
        pressure: float,
        period: float,
        *,
        dims: str = "xyz",
        coupled: str = "xyz",
        length: int = 3,
        correction: bool = True,
        drag: float = 0.0,
        bath: Langevin | None = None,
    ) -> None:
        super().__init__(pressure, period, dims, coupled)
        self.thermostat, self.correction, self.drag, self.bath = thermostat, correction, drag, bath
        self.chain, self.speeds = Chain(length, period, even=True, drag=drag), np.zeros(3)
        self._thermal = 0.0 if self.holds is None else -1.0  # 0: not known yet
        self._first = self._before = 0.0 if self.holds is None else self.holds.temperature

    @property
    def holds(self) -> NoseHoover | Langevin | None:
        """What holds the temperature."""
        return self.thermostat or self.bath

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; energies and virials are those at its end."""
        now = self.begin(system)
        self._hold_barostat(system, dt, now)
        now = self._hold(system, now, dt)
        self._push(system, now, dt)
        self._slow(system, dt)
        half_kick(system, dt)
        self._grow(system, 0.5 * dt)
        self._drift(system, dt)
        self._grow(system, 0.5 * dt)
        if system.constraints is not None:
            system.constraints.expect(np.exp(0.5 * dt * self.speeds) ** 2, self._drag(system, dt) ** 2)
        system.update(measure or VIRIAL)
        half_kick(system, dt)
        self._slow(system, dt)
        now = totals(system)
        self._push(system, now, dt)
        now = self._hold(system, now, dt)
        self._hold_barostat(system, dt, now)
        self._now = now

    def conserved(self, system: System, total: float) -> float:
        """The conserved quantity: the total energy, P V, and the energies of the barostat and the chains."""
        thermal, units = self._kt(system, self._now), system.units
        kept = total + self.pressure * volume(system) / units.pressure
        kept += 0.5 * float((self._masses(system, thermal) * self.speeds**2).sum())
        kept += self.chain.energy(self._freedom, self._held_at(system, thermal), thermal)
        return kept if self.thermostat is None else self.thermostat.conserved(system, kept)

    def saved(self) -> dict[str, Any]:
        """Barostat and chains."""
        holds = {} if self.holds is None else self.holds.saved()
        own = {"speeds": self.speeds.tolist(), "thermal": self._thermal, "chain": self.chain.saved()}
        return {**super().saved(), **own, "thermostat": holds}

    def restore(self, values: dict[str, Any]) -> None:
        """Set what was saved."""
        super().restore(values)
        self.speeds, self._thermal = np.array(values["speeds"]), values["thermal"]
        self.chain.restore(values["chain"])
        if self.holds is not None:
            self.holds.restore(values["thermostat"])
        if self.thermostat is not None:
            self._before = self.thermostat.temperature

    @property
    def _freedom(self) -> int:
        """Degrees of freedom of the box, as LAMMPS counts them: edges that change, or 1 where all change alike."""
        return 1 if self.together.all() else int(self.dims.sum())

    def _kt(self, system: System, now: Totals | None) -> float:
        """The thermal energy k T by which barostat and chain have their masses: the first one."""
        if self.holds is not None:
            return system.units.boltzmann * self._first
        if not self._thermal and now is not None:
            self._thermal = float(now.motion[:3].sum()) / freedom(system)
        return self._thermal

    def _held_at(self, system: System, thermal: float) -> float:
        """The thermal energy k T at which the chain holds the barostat: that which the thermostat had last."""
        return thermal if self.thermostat is None else system.units.boltzmann * self._before

    def _masses(self, system: System, thermal: float) -> np.ndarray:
        return np.where(self.dims, (system.count + 1) * thermal * (self.period / (2 * math.pi)) ** 2, 1.0)

    def _push(self, system: System, now: Totals, dt: float) -> None:
        """Half a step of the barostat's speeds under the pressure."""
        force = self.excess(system, now) * volume(system)
        if self.correction:
            force = force + now.motion[:3][self.dims].sum() / (self.dims.sum() * system.count)
        push = 0.5 * dt * force / self._masses(system, self._kt(system, now))
        self.speeds = slowed(self.drag, self.period, dt) * (self.speeds + np.where(self.dims, push, 0.0))

    def _drift(self, system: System, dt: float) -> None:
        """The drift of the particles, with the bath's friction and noise in its middle."""
        if self.bath is not None:
            self.bath.move(system, dt, kick=0.0)
            return
        particles = system.particles
        with system.timer("integrate"):
            drift(particles.positions, particles.velocities, particles.slots, dt)

    def _grow(self, system: System, dt: float) -> None:
        """Change the box for a time dt."""
        self._stretch(system, np.exp(dt * self.speeds))

    def _slow(self, system: System, dt: float) -> None:
        """Half a step of the velocities, which go against the box."""
        with system.timer("integrate"):
            dilate(system.particles.velocities, system.particles.slots, self._drag(system, dt))

    def _drag(self, system: System, dt: float) -> np.ndarray:
        """The factors of velocities in half a step."""
        more = self.speeds[self.dims].sum() / (self.dims.sum() * system.count) if self.correction else 0.0
        return np.exp(-0.5 * dt * (self.speeds + more))

    def _hold(self, system: System, now: Totals, dt: float) -> Totals:
        """Half a step of the thermostat."""
        if self.thermostat is None:
            return now
        self._before = self.thermostat.temperature
        doubled, kt = float(now.motion[:3].sum()), self.thermostat.thermal(system)
        factor = self.thermostat.chain.half(dt, doubled, freedom(system), kt)
        return self._scale(system, now, np.full(3, factor))

    def _hold_barostat(self, system: System, dt: float, now: Totals) -> None:
        """Half a step of the chain that holds the barostat."""
        kt = self._kt(system, now)
        doubled = float((self._masses(system, kt) * self.speeds**2)[self.dims].sum())
        self.speeds = self.speeds * self.chain.half(dt, doubled, self._freedom, self._held_at(system, kt), kt)


class CellRescaling(Barostat):
    """Stochastic cell rescaling: the volume relaxes to the pressure with noise, in its canonical distribution.

    Bernetti and Bussi (2020), J. Chem. Phys. 153, 114107, for the square root of the volume, with the thermostat of
    Bussi, Donadio and Parrinello. All edges change by one factor. relaxation: the time in which the volume relaxes,
    for a system of this compressibility (inverse of a pressure); a wrong one changes only that time.
    """

    def __init__(self, thermostat: Bussi, pressure: float, relaxation: float, compressibility: float) -> None:
        super().__init__(pressure, relaxation)
        if not (compressibility > 0 and math.isfinite(compressibility)):
            raise InputError(f"cell rescaling needs a compressibility above 0, not {compressibility}")
        self.thermostat, self.compressibility = thermostat, compressibility

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of dt; energies and virials are those at its end."""
        now, thermostat = self.begin(system), self.thermostat
        half_kick_and_drift(system, dt)
        self._scale(system, now, self._resize(system, now, dt))
        system.update(measure or VIRIAL)
        half_kick(system, dt)
        thermostat.number += 1
        now = totals(system)
        kinetic = 0.5 * float(now.motion[:3].sum())
        factor = math.sqrt(thermostat.share(kinetic, system, dt)) if kinetic > 0 else 1.0
        self._now = self._scale(system, now, np.full(3, factor))

    def saved(self) -> dict[str, Any]:
        """Barostat and thermostat."""
        return {**super().saved(), "thermostat": self.thermostat.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Set what was saved."""
        super().restore(values)
        self.thermostat.restore(values["thermostat"])

    def _resize(self, system: System, now: Totals, dt: float) -> np.ndarray:
        """Change the box by a step of the volume's Langevin equation; the factors of the velocities."""
        room, units = volume(system), system.units
        root, thermal = math.sqrt(room), units.boltzmann * self.thermostat.temperature
        eased = self.compressibility * units.pressure / self.period  # per time and energy density
        key = [self.thermostat.seed, self.thermostat.number]
        random = np.random.Generator(np.random.Philox(key=key, counter=VOLUMES << 192))
        push = 0.5 * eased * root * (float(self.excess(system, now)[0]) + 0.5 * thermal / room)
        grown = root + push * dt + math.sqrt(0.5 * eased * thermal * dt) * random.standard_normal()
        factor = (grown / root) ** (2 / 3)
        self._stretch(system, np.full(3, factor))
        return np.full(3, 1 / factor)
