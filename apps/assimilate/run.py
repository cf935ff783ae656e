"""The run of an assimilation: iterations or cycles, what they bring, fields, checkpoints."""

from __future__ import annotations

import math
import time as clock
from typing import Any

import numpy as np

from hpckit.apps.assimilate import roughness
from hpckit.apps.assimilate.config import METRICS, Config
from hpckit.apps.assimilate.flood import Valley
from hpckit.apps.assimilate.letkf import Letkf
from hpckit.apps.assimilate.roughness import Roughness
from hpckit.apps.assimilate.twin import VARIABLES, Twin
from hpckit.apps.assimilate.variational import Incremental, Variational
from hpckit.apps.common.loop import Due, Evolution, time_loop
from hpckit.comm.mesh import Mesh
from hpckit.errors import BlowUpError
from hpckit.io.checkpoint.state import Restored, State
from hpckit.io.fields.writer import FieldWriter
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run

AXES = ("y", "x")
METHODS = {"4dvar": Variational, "4dvar_cg": Incremental, "letkf": Letkf}
FIELDS_KEPT = 60  # of a rank, beside the states of the window


class Assimilation(Evolution):
    """The run; `step` counts iterations of 4D-Var, outer loops, or cycles of the filter."""

    waits_in = ""

    def __init__(self, config: Config, run: Run, twin: Twin | Valley) -> None:
        super().__init__(run)
        self.config, self.twin, self.stuck = config, twin, False
        method: Any = Roughness if config.case == "flood" else METHODS[config.method.kind]
        self.method: Any = method(config, twin, run.restored)
        self.first: dict[str, float] = {}  # errors of the first guess
        self.summary: dict[str, Any] = {}
        self.end = float(self.method.last)
        self.found: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether all iterations are done, or the cost does not fall any more."""
        return self.stuck or self.step >= self.method.last

    def begin(self) -> None:
        """Collective: how far the background is off."""
        self.look()

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""
        self.step, self.time = kept.step, float(kept.step)
        self.found, self.first = dict(kept.values["found"]), dict(kept.values["first"])

    def saved(self) -> State:
        """Collective: the content of a checkpoint."""
        pieces, values = self.method.saved()
        return State(pieces, {**values, "found": self.found, "first": self.first})

    def advance(self) -> Due:
        """Collective: one iteration."""
        with self.run.timer("compute"):
            went_on = self.method.step()
        if not went_on:
            self.stuck = True
            self.run.say(f"the cost does not fall any more: the end, after {self.step} iterations")
            return Due(False)
        self.step += 1
        self.time = float(self.step)
        return Due(True)

    def look(self) -> None:
        """Collective: errors beside those without observations. Raises `BlowUpError` if they are not finite."""
        with self.run.timer("diagnostics"):
            found = self.method.metrics(self.first)
        if not all(map(math.isfinite, found.values())):
            raise BlowUpError(
                "the analysis is not finite",
                where=f"step {self.step}",
                do="lower window.dt or background.error, or shorten the window",
            )
        self.found |= found
        self.run.metric(step=self.step, time=self.time, **found)
        told = ", ".join(
            f"{name} {found[name]:.4g}" for name in ("cost", "gradient", "spread", "error") if name in found
        )
        self.run.say(f"{self.step:4d}  {told}")

    def rate(self, steps: int, seconds: float) -> str:
        """The time of an iteration."""
        return f"{seconds / max(steps, 1):.3g} s an iteration"

    def close(self) -> None:
        """Collective: write the fields, and free what the method has."""
        if self.is_over:
            with self.run.timer("output"):
                self._write()
                self.summary = self.method.summary()
        self.method.close()

    def _write(self) -> None:
        config, twin, variables = self.config, self.twin, self.method.variables
        coords = {axis: (np.arange(n) + 0.5) * config.grid.dx for axis, n in zip(AXES, _shape(config), strict=True)}
        dtype = np.float32 if config.output.single else np.float64
        units = dict.fromkeys(AXES, "m")
        told = {"title": self.run.title, "source": "hpckit assimilate"}
        output = self.run.directory.output
        with FieldWriter(twin.mesh, output, twin.decomposition, coords, units, variables, told) as writer:
            for step, fields in self.method.frames():
                writer.write(step * config.window.dt, {name: fields[name].interior.astype(dtype) for name in variables})


def _shape(config: Config) -> tuple[int, int]:
    return config.grid.ny, config.grid.nx


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`. Raises `BlowUpError` where the model or the analysis is not finite."""
    begin = clock.perf_counter()
    floods = config.case == "flood"
    with Mesh(run.comm, y=0, x=0, periodic=() if floods else AXES, shape=_shape(config)) as mesh:
        with run.compiling():
            twin = Valley(config, mesh) if floods else Twin(config, mesh)
            it = Assimilation(config, run, twin)
        run.say(f"{_told(config)}; ready in {clock.perf_counter() - begin:.1f} s")
        ran = time_loop(it)
        run.finish(
            {
                "steps": it.step,
                "cells": math.prod(_shape(config)),
                "wall_seconds": ran.seconds,
                "observations": config.readings,
                "stations": config.observed,
                "assimilation_error": it.found["error"],
                "result": f"The error is {100 * it.found['error']:.3g} % of that of the first guess.",
                "decomposition": twin.decomposition,
                "units": {"time": it.method.unit, "frames": "s", **METRICS},
                **it.summary,
            },
            status="done" if ran.complete else "stopped",
        )


def _told(config: Config) -> str:
    name = "gauges" if config.case == "flood" else "stations"
    return f"{config.observed} {name}, {config.readings} observations"


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    shape = _shape(config)
    periodic = () if config.case == "flood" else AXES
    part = Decomposition(shape, Topology.over(ranks, shape, dict.fromkeys(AXES, 0), periodic), 1)
    cells = max(math.prod(part.local_shape(rank)) for rank in range(ranks))
    filters, variables = config.method.kind == "letkf", VARIABLES
    members, frames = (config.method.members, 1) if filters else (1, 2)
    if config.case == "flood":
        variables, frames = roughness.VARIABLES, 1
    steps = len(config.times) if filters else config.method.iterations
    kept = 0 if filters else min(24 * cells * config.window.steps, int(config.method.memory * 2**20))
    return DryRun(
        ranks=ranks,
        decomposition=[f"{shape[0]} x {shape[1]} cells on {' x '.join(map(str, part.topology.sizes))} ranks"],
        halo_bytes=9 * members * max(halo_plan(part).nbytes(rank, 8) for rank in range(ranks)),
        memory_per_rank=8 * cells * (FIELDS_KEPT + 3 * len(config.times) + 12 * members) + kept,
        output_bytes=len(variables) * (4 if config.output.single else 8) * math.prod(shape) * frames,
        frames=frames,
        steps=steps,
        notes=[_told(config)],
    )
