"""Observables measured during a run, or afterwards from its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import reaches
from hpckit.errors import InputError
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.io.particles.lammps_dump import read_lammps_dump
from hpckit.md import snapshots
from hpckit.md.observables.measurements import Measured, Measurements, least_width
from hpckit.md.system import System
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.run.context import Run

FILE = "analysis.json"
DIAMETERS = 4.0  # default reach of g(r)
CORE = 0.4  # of the cutoff: the diameter, if the potential has none
MOST_FRAMES, MOST_PLACES = 100, 4_000_000  # read from a trajectory at most: frames, particles in all frames


def diameters(config: Config, types: int) -> list[float]:
    """The diameter of each type: sigma of Lennard-Jones, a share of the cutoff for other potentials."""
    pair = config.interaction
    return list(pair.sigma) if pair.kind == "lennard_jones" else [CORE * max(reaches(config))] * types


def measured(config: Config, widths: np.ndarray, periodic: Sequence[bool] | np.ndarray) -> Measured:
    """The observables of the settings in a box of these widths. Raises `InputError` if they do not fit into it."""
    given = config.analysis
    shortest = least_width(widths, periodic)
    if given.reach > 0.5 * shortest:
        raise InputError(
            f"analysis.reach is {given.reach:g}, and the least periodic width of the box {shortest:g}",
            do=f"give a reach of at most {0.5 * shortest:g}, or 0 for what fits",
        )
    if given.k_max and not all(periodic):
        raise InputError("analysis.k_max asks for S(k), which needs a box that is periodic in x, y and z")
    reach = given.reach or min(DIAMETERS * max(diameters(config, 1)), 0.5 * shortest)
    return Measured(
        reach=reach,
        bins=given.bins,
        k_max=given.k_max,
        shells=given.shells,
        axis=given.axis,
        slabs=given.slabs,
        lags=given.lags,
        spacing=given.spacing,
    )


class Analysis:
    """Measures as the section `analysis` says; results go to output/analysis.json. All methods are collective."""

    def __init__(self, config: Config, run: Run, system: System) -> None:
        self.settings, self.run, self.system = config.analysis, run, system
        self.begin = config.settled
        self._measurements: Measurements | None = None
        if self.settings.measures:
            what = measured(config, system.domains.cell.widths, system.domains.periodic)
            self._measurements = Measurements(what, len(system.masses))

    def add(self, step: int, time: float) -> None:
        """Measure the particles if a sample is due after this step."""
        if self._measurements is None or step < self.begin:
            return
        structure, motion = (
            every > 0 and (step - self.begin) % every == 0
            for every in (self.settings.every, self.settings.motion_every)
        )
        if not (structure or motion):
            return
        with self.run.timer("analysis"):
            frame = snapshots.frame(self.system, step, time)
            if structure:
                self._measurements.add_structure(frame, self.run.comm)
            if motion:
                self._measurements.add_motion(frame, self.run.comm)

    def finish(self) -> None:
        """Write the results."""
        if self._measurements is None:
            return
        found = self._measurements.result(self.run.comm)
        if self.run.rank == 0:
            self.run.directory.write_json(f"output/{FILE}", {"source": "run", **found})


def from_files(config: Config, output: Path) -> dict[str, Any]:
    """The observables from the trajectory in the folder `output`, else from the last frame, else {}.

    Frames before `Config.settled` are skipped; of a long trajectory the last frames are used.
    """
    for name, read in (("trajectory.h5md", read_h5md), ("trajectory.dump", read_lammps_dump)):
        if (output / name).is_file():
            return {"source": "trajectory", **_of_trajectory(config, read, output / name)}
    frame = last_frame(config, output)
    return {} if frame is None else {"source": "last frame", **_of_frames(config, [frame], motion=False)}


def last_frame(config: Config, output: Path) -> Snapshot | None:
    """The particles at the end of a run, None if they were not written."""
    path, periodic = output / "end.data", config.system.periodic
    if not path.is_file():
        return None
    return read_lammps_data(path, periodic=("x" in periodic, "y" in periodic, "z" in periodic))


def _of_trajectory(config: Config, read: Callable[[Path], Iterator[Snapshot]], path: Path) -> dict[str, Any]:
    steps, count = [], 0
    for frame in read(path):
        steps.append(frame.step)
        count = frame.count
    late = [number for number, step in enumerate(steps) if step >= config.settled] or [len(steps) - 1]
    if len(late) > 2 and steps[-1] - steps[-2] != steps[-2] - steps[-3]:
        late.pop()  # the last frame of a run may come early
    first, end = late[0], late[-1] + 1
    most = max(1, min(MOST_FRAMES, MOST_PLACES // max(count, 1)))
    first = max(first, end - most)
    frames = list(islice(read(path), first, end))
    return _of_frames(config, frames, motion=len(frames) > 4)


def _of_frames(config: Config, frames: list[Snapshot], motion: bool) -> dict[str, Any]:
    first = frames[0]
    types = int(first.types.max(initial=0)) + 1 if first.masses is None else len(first.masses)
    made = Measurements(measured(config, first.cell.widths, first.periodic), types)
    for frame in frames:
        made.add_structure(frame)
        if motion:
            made.add_motion(frame)
    return made.result()
