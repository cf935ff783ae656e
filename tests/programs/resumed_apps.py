"""Apps stopped in the middle and resumed on other numbers of ranks: `resumed_apps.py FOLDER CASE …` on 4 ranks.

The fields written by a run that goes through 2, 3, 1 and 4 ranks are those of an unbroken run on 1 rank, to the bit.
"""

import importlib
import sys
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

from hpckit.checkpoint_settings import Checkpoint
from hpckit.io.checkpoint.keeper import Keeper
from hpckit.run_context import Run
from hpckit.run_directory import RunDirectory

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
MD = {
    "system": {"cells": [5, 4, 4]},
    "time": {"steps": 60, "thermo": 13},
    "output": {"every": 14},
    "repro": True,
    "precision": "double",
}
CASES = {
    "diffusion": ("diffusion", "heat", {"grid": {"shape": [23, 31]}, "time": {"steps": 40, "monitor": 7}}, (9, 14, 31)),
    "weather": (
        "weather",
        "thermal",
        {"grid": {"nx": 31, "nz": 11}, "time": {"end": 60.0}, "output": {"every": 15.0}},
        (5, 8, 17),
    ),
    "weather_diffusion": (
        "weather",
        "straka",
        {"grid": {"nx": 37, "nz": 12}, "time": {"end": 40.0}, "output": {"every": 10.0}},
        (4, 7, 19),
    ),
    "weather3d": (
        "weather3d",
        "thermal3d",
        {
            "grid": {"nx": 25, "ny": 23, "nz": 9},
            "time": {"end": 50.0},
            "output": {"every": 12.0},
            "sides": {"x": "open"},
            "smagorinsky": {"coefficient": 0.2},
            "coriolis": 1e-4,
            "tracers": [{"name": "dust"}],
        },
        (3, 6, 13),
    ),
    "shallow_water": (
        "shallow_water",
        "double_gyre",
        {"grid": {"nx": 19, "ny": 23}, "time": {"end": 150000.0}, "output": {"every": 40000.0}},
        (4, 9, 14),
    ),
    "flood": (
        "flood",
        "partial_dam_break",
        {"grid": {"nx": 23, "ny": 19}, "time": {"end": 6.0}, "output": {"every": 1.5}},
        (3, 8, 15),
    ),
    **{
        f"md_{name}": ("md", "mixture", {**MD, "dynamics": dynamics}, stops)
        for name, dynamics, stops in (
            ("nve", {"kind": "nve"}, (13, 31, 47)),
            ("langevin", {"kind": "langevin"}, (9, 20, 44)),
            ("bussi", {"kind": "nve", "equilibrate": 30}, (12, 29, 41)),
            ("nose_hoover", {"kind": "nose_hoover"}, (7, 22, 50)),
        )
    },
}
RANKS = (2, 3, 1, 4)


class StoppedRun(Run):
    """A run that is asked to stop after a step."""

    stop_at = sys.maxsize

    def edge(self, step, state):
        if step >= self.stop_at:
            self._stop = True
            if self._edge is not None:
                self._edge._next = 0
        return super().edge(step, state)


def laid_over(below, above):
    both = dict(below)
    for key, value in above.items():
        both[key] = laid_over(both.get(key, {}), value) if isinstance(value, dict) else value
    return both


def go(app, config, ranks, name, stop_at, resume):
    """A part of the run, on the first of these ranks."""
    comm = world.Split(world.rank < ranks, world.rank)
    if world.rank < ranks:
        if comm.rank == 0 and not resume:
            RunDirectory.create(folder / name)
        comm.Barrier()
        directory = RunDirectory(folder / name)
        keeper = Keeper(comm, directory.checkpoints, Checkpoint(every=3, keep=1), {}, resume)
        run = StoppedRun(comm, directory, app=app, lines=False, keeper=keeper)
        run.stop_at = stop_at
        importlib.import_module(f"hpckit.apps.{app}.run").run(config, run)
        assert run.status == ("stopped" if stop_at < sys.maxsize else "done"), (name, run.status)
        if resume:
            assert run.restored is not None
    comm.Free()
    world.Barrier()


def check(case):
    """Every dataset of the two files is the same, and the fields have changed in the run."""
    path = "output/fields.h5"
    with h5py.File(folder / f"{case}-whole" / path) as whole, h5py.File(folder / f"{case}-parts" / path) as parts:
        assert set(whole) == set(parts)
        assert len(whole["time"]) >= 4, case
        names = [name for name in whole if isinstance(whole[name], h5py.Dataset)]
        for name in names:
            assert np.array_equal(whole[name][...], parts[name][...], equal_nan=True), (case, name)
        fields = [name for name in names if whole[name].ndim > 1]
        assert any(not np.array_equal(whole[name][0], whole[name][-1]) for name in fields), f"{case} did nothing"


def check_particles(case):
    """Every frame and the end of the two trajectories are the same, to the bit."""
    path = "output/trajectory.h5"
    with h5py.File(folder / f"{case}-whole" / path) as whole, h5py.File(folder / f"{case}-parts" / path) as parts:
        for name in ("position", "velocity", "image"):
            ours, theirs = (file[f"particles/all/{name}/value"][...] for file in (parts, whole))
            assert np.array_equal(ours, theirs), (case, name, np.abs(ours - theirs).max())
            assert len(ours) == 6, (case, len(ours))
        steps = parts["particles/all/position/step"][...]
        assert steps.tolist() == [0, 14, 28, 42, 56, 60], steps
        assert np.array_equal(steps, whole["particles/all/position/step"][...])
    ends = [(folder / f"{case}-{part}/output/end.data").read_bytes() for part in ("whole", "parts")]
    assert ends[0] == ends[1], case
    metrics = [(folder / f"{case}-{part}/metrics.jsonl").read_text().splitlines() for part in ("whole", "parts")]
    assert metrics[0] == metrics[1], case


for case in sys.argv[2:]:
    app, preset, settings, stops = CASES[case]
    module = importlib.import_module(f"hpckit.apps.{app}.config")
    more = {} if app == "md" else {"output": {"single": False}}
    tree = laid_over(module.PRESETS[preset][1], laid_over(settings, more))
    config = module.Config.model_validate({"app": app, **tree})
    go(app, config, 1, f"{case}-whole", sys.maxsize, False)
    for number, (ranks, stop_at) in enumerate(zip(RANKS, (*stops, sys.maxsize), strict=True)):
        go(app, config, ranks, f"{case}-parts", stop_at, number > 0)
    if world.rank == 0:
        check_particles(case) if app == "md" else check(case)
