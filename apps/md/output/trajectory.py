"""What a run says and writes of its particles: the thermo table as LAMMPS prints it, and the trajectory, by rank 0."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any, Self, cast

from hpckit.apps.md.config import Config
from hpckit.io.particles.h5md import H5mdWriter
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.io.particles.lammps_dump import DumpWriter
from hpckit.md.motion.replicas import TemperatureReplicas
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import Thermo
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.run.context import Run

HEADER = "   Step          Temp          E_pair         E_mol          TotEng         Press     "
BOX = "     Volume        Density   "  # behind the header where the box changes
ROLL = "    KinEng         RotEng     "  # of spheres, of all of them
# Units of a system as the units module of H5MD spells them.
H5MD_UNITS = {
    "lj": {},
    "metal": {"length": "Angstrom", "time": "ps", "velocity": "Angstrom ps-1", "force": "eV Angstrom-1", "mass": "u"},
    "real": {
        "length": "Angstrom",
        "time": "fs",
        "velocity": "Angstrom fs-1",
        "force": "kcal mol-1 Angstrom-1",
        "mass": "u",
    },
}


class Trajectory:
    """Frames every `output.every` steps in output/trajectory.h5md (or .dump), and the final state as LAMMPS data file.

    given: the particles of the run's file, whose molecules, and terms without forces, the end has, too. A resumed run
    appends after the frames that existed when its state was saved.
    """

    def __init__(
        self,
        config: Config,
        run: Run,
        system: System,
        replicas: TemperatureReplicas | None = None,
        given: Snapshot | None = None,
    ) -> None:
        self.given = given
        self.config, self.run, self.system, self.replicas = config, run, system, replicas
        self.every = config.output.every
        self.stopped = False  # the run ended early, and may be resumed
        self._writer: H5mdWriter | DumpWriter | None = None
        kept = run.kept("trajectory")
        staged = config.staged
        if run.rank == 0 and any(each.output.every for each in staged):
            folder, units = run.directory.output, H5MD_UNITS[config.system.units]
            tilted = any(each.tilts for each in staged) or any(system.domains.tilt)
            if config.output.format == "h5md":
                self._writer = H5mdWriter(folder / "trajectory.h5md", units, resume=kept, tilted=tilted)
            else:
                self._writer = DumpWriter(folder / "trajectory.dump", resume=kept)
            run.keep("trajectory", self._writer.kept)

    @staticmethod
    def frames(config: Config) -> int:
        """Frames of a whole run."""
        every, steps = config.output.every, config.time.steps
        return 0 if not every else 1 + steps // every + (steps % every > 0)

    def is_due(self, step: int, is_over: bool) -> bool:
        """Whether a frame follows this step."""
        return is_over or (self.every > 0 and step % self.every == 0)

    def write(self, step: int, time: float, is_over: bool) -> None:
        """Collective: a frame of the trajectory if it is due; the latest is kept as the data file of the end."""
        if not self.is_due(step, is_over):
            return
        self._last = self._snapshot(step, time)
        if self._writer is not None and self._last is not None and self.every:
            self._writer.write(self._last)

    def write_end(self, step: int, time: float) -> None:
        """Collective: the particles of a run that stops early, as data file only: no frame of the whole run."""
        self.stopped = True
        self._last = self._snapshot(step, time)

    def _snapshot(self, step: int, time: float) -> Snapshot | None:
        """All particles; of several replicas those at the first temperature."""
        within = None if self.replicas is None else (self.replicas.mesh, self.replicas.holds_first)
        return snapshot(self.system, step, time, within=within)

    def __enter__(self) -> Self:
        self._last = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close(last=error is None and not self.stopped)
        if error is None and self._last is not None:
            end, given = self._last, self.given
            if given is not None:
                kept = {name: rows for name, rows in given.terms.items() if name not in end.terms}
                end = replace(end, numbers=given.numbers, **cast(dict[str, Any], kept))
            write_lammps_data(self.run.directory.output / "end.data", end, self.config.system.units)


def row(step: int, thermo: Thermo, count: int, per_particle: bool, box: tuple[float, ...] = ()) -> str:
    """A line of the table; energies for each particle in reduced units, of the whole system in others; box: its volume
    and density where it changes.
    """
    share = 1 / max(count, 1) if per_particle else 1.0
    pairs = thermo.potential - thermo.bonded
    values = [thermo.temperature, pairs * share, thermo.bonded * share, thermo.total * share, thermo.pressure, *box]
    return f"{step:10d} " + " ".join(f"{'-' if value < 0 else ' '}{abs(value):<13.8g}" for value in values)


def performance(count: int, steps: int, seconds: float, dt: float, ranks: int, units: str) -> list[str]:
    """The lines below the table: loop time, and how much simulated time that is in a day."""
    rate = steps / seconds if seconds > 0 else 0.0
    per_day = {
        "lj": f"{rate * dt * 86400:.3f} tau/day",
        "metal": f"{rate * dt * 86400 / 1e3:.3f} ns/day",
        "real": f"{rate * dt * 86400 / 1e6:.3f} ns/day",
    }[units]
    return [
        f"Loop time of {seconds:.6g} on {ranks} procs for {steps} steps with {count} atoms",
        f"Performance: {per_day}, {rate:.3f} timesteps/s, {count * rate / 1e6:.3f} Matom-step/s",
    ]
