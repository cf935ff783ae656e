"""A run directory without a run: a plausible thermal, with every record that `hpckit run` leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from lone import LoneMesh

from hpckit.io import FieldWriter
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

# Options of a report that is built quickly, for tests of something else.
LEAN = {"times": 2, "frames": 0, "hovmoeller": "off", "spectra": False, "roofline": False}
TIMES = np.linspace(0.0, 1000.0, 9)


def make_run(directory: Path, shape=(50, 100), noise: float = 0.0, **options) -> Path:
    """A bubble that rises and spreads; returns the directory. options: of the writer of the fields."""
    directory.mkdir(parents=True)
    write_fields(directory / "output", shape, noise, **options)
    cells = Decomposition(shape, Topology(("z", "x"), (1, 3), ("x",)))
    blocks = [
        {"rank": rank, "host": f"node{rank // 2}", "start": cells.start(rank), "shape": cells.owned(rank)}
        for rank in range(3)
    ]
    summary = {
        "status": "done",
        "app": "weather",
        "title": "a thermal",
        "ranks": 3,
        "steps": 600,
        "cells": shape[0] * shape[1],
        "wall_seconds": 10.0,
        "simulated_seconds": 1000.0,
        "cell_steps_per_second": shape[0] * shape[1] * 60.0,
        "bytes_per_cell_step": 192,
        "t_eff": shape[0] * shape[1] * 600 * 192 / 10.0 / 1e9,
        "phases": {
            "x sweep": [4.0, 4.2, 6.0],
            "z sweep": [1.5, 1.5, 1.5],
            "wait": [3.0, 2.8, 1.0],
            "output": [0.4] * 3,
        },
        "conserved": {"mass": {"initial": 2.0e8, "final": 2.0e8 * (1 + 3e-15), "relative_change": 3e-15}},
        "decomposition": {"axes": ["z", "x"], "sizes": [1, 3], "shape": shape, "blocks": blocks},
        "exit_code": 0,
    }
    placement = [{"rank": rank, "host": "node0", "cores": [0, 1], "threads": 1} for rank in range(3)]
    provenance = {"hpckit": "0.1.0", "started": "2026-01-01T00:00:00Z", "hosts": ["node0"], "placement": placement}
    values = {"grid": {"nx": shape[1], "nz": shape[0]}, "note": "<script>alert(1)</script>"}
    origins = {"grid.nx": "run.toml:3", "grid.nz": "default", "note": "command line"}
    units = {"mass": "kg/m", "energy": "J/m", "w_max": "m/s"}
    resolved = {"app": "weather", "title": "a thermal", "units": units, "values": values, "origins": origins}
    for name, record in (("summary", summary), ("provenance", provenance), ("resolved", resolved)):
        (directory / f"{name}.json").write_text(json.dumps(record))
    lines = [
        {
            "step": step,
            "time": t,
            "dt": 1.6,
            "cfl": 0.9 + 0.05 * math.sin(t),
            "mass": 2e8 * (1 + 1e-15 * step),
            "w_max": t / 70,
        }
        for step, t in enumerate(np.linspace(0.0, 1000.0, 50).tolist())
    ]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 51, "ti')
    return directory


def write_fields(output: Path, shape, noise: float, **options) -> None:
    """Frames of two variables on 20 km x 10 km."""
    mesh = LoneMesh("z", "x", periodic=("x",))
    cells = Decomposition(shape, mesh.topology)
    z, x = ((np.arange(n) + 0.5) * length / n for n, length in zip(shape, (10e3, 20e3), strict=True))
    variables = {
        "theta": {"units": "K", "long_name": "potential temperature perturbation"},
        "p": {"units": "Pa", "long_name": "pressure <of air>"},
    }
    dice = np.random.default_rng(1)
    with FieldWriter(mesh, output, cells, {"z": z, "x": x}, {"z": "m", "x": "m"}, variables, **options) as writer:
        for t in TIMES:
            top, width = 2000.0 + 4.5 * t, 1000.0 + 1.2 * t
            distance = np.hypot((x[None] - 10e3) / width, (z[:, None] - top) / 800.0)
            theta = 3.0 * np.exp(-(distance**2)) + noise * dice.standard_normal(shape)
            writer.write(t, {"theta": theta, "p": 1e5 * np.exp(-z[:, None] / 8e3) + 0.0 * x})
