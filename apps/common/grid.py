"""A run of an app on a grid: model, field files, metrics, summary; and its dry run."""

from __future__ import annotations

import math
import time as clock
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hpckit.apps.common.loop import Due, Evolution, time_loop
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import t_eff
from hpckit.io.checkpoint.state import Restored, State
from hpckit.io.fields.writer import FieldWriter
from hpckit.run.context import Run
from hpckit.run.steps import is_frame


class GridRun(Evolution):
    """A model on a grid in its run. An app sets its name, the bytes that a step moves per cell, and its metrics.

    The model has config, decomposition, exchange, steps_done; watch() -> a record of diagnostics, output() -> the
    fields to write, saved(**values) and restore(restored). metrics: the reported diagnostics with their units; a value
    of None is omitted. variables: the output fields with their attributes. coord_units: of the coordinates, m if empty.
    """

    app: ClassVar[str]
    bytes_per_cell_step: ClassVar[int]
    metrics: ClassVar[Mapping[str, str]]
    variables: Mapping[str, Mapping[str, Any]]
    coord_units: ClassVar[Mapping[str, str]] = {}

    def __init__(self, run: Run, model: Any) -> None:
        super().__init__(run)
        self.model, self.config = model, model.config
        self.end, self.dt = model.config.time.end, 0.0
        self.cells = math.prod(model.decomposition.global_shape)
        self.writer: FieldWriter
        self.first: Any = None
        self.last: Any = None

    @property
    def wait_seconds(self) -> float:
        """Seconds this rank has waited in halo exchanges so far."""
        return self.model.exchange.wait_seconds

    @abstractmethod
    def coords(self) -> dict[str, np.ndarray]:
        """The coordinates along each dim of the files, in m or `coord_units`."""

    def constants(self) -> Mapping[str, Mapping[str, Any]]:
        """What the files hold that does not change with time: dims, values and attributes by name."""
        return {}

    def corners(self) -> np.ndarray | None:
        """The corners of cells in space, as `FieldWriter` takes them for VTK; None where cells are boxes."""
        return None

    @abstractmethod
    def check(self) -> None:
        """Collective: raise `BlowUpError` if the last watch shows a blow-up."""

    @abstractmethod
    def cfl(self) -> float:
        """The Courant number of the last step."""

    @abstractmethod
    def conserved(self) -> dict[str, dict[str, float]]:
        """The conserved quantities, by `apps.common.loop.conserved`."""

    def more(self) -> Mapping[str, Any]:
        """Entries that the app adds to the summary."""
        return {}

    def begin(self) -> None:
        """Collective: check and write the initial state."""
        self.look()
        self.first = self.last
        self.write()

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint; its first watch is that of the run."""
        self.model.restore(kept)
        self.step = self.model.steps_done
        self.last = self.model.watch()
        self.check()
        self.first = replace(self.last, **kept.values["first"])

    def saved(self) -> State:
        """Collective: the content of a checkpoint."""
        return self.model.saved(first=asdict(self.first))

    def look(self) -> None:
        """Collective: watch, check, and report the metrics."""
        with self.run.timer("diagnostics"):
            self.last = self.model.watch()
            self.check()
            values = {name: getattr(self.last, name) for name in self.metrics if hasattr(self.last, name)}
            values |= getattr(self.last, "more", {})
            told = {name: value for name, value in values.items() if value is not None}
            self.run.metric(step=self.step, time=self.time, dt=self.dt, cfl=self.cfl(), **told)

    def rate(self, steps: int, seconds: float) -> str:
        """Cell-steps per second."""
        return f"{self.cells * steps / seconds / 1e6:.3g} million cell-steps/s"

    def write(self) -> None:
        """Collective: write the fields."""
        self.writer.write(self.time, self.model.output())

    def stop(self, due: Due) -> None:
        """Collective: watch and write the last state, too."""
        if not due.look:
            self.last = self.model.watch()
        if not due.frame:
            self.write()

    def close(self) -> None:
        """Wait for the device."""
        self.run.device.wait()


class FixedSteps(GridRun):
    """Steps of `dt` (s), `steps` of them; the last one ends at `end`; None: it is as long as the others."""

    def __init__(self, run: Run, model: Any, dt: float, steps: int, end: float | None) -> None:
        super().__init__(run, model)
        self.full, self.steps, self.dt = dt, steps, dt
        self.end = steps * dt if end is None else end
        self.last_dt = dt if end is None else end - (steps - 1) * dt

    @property
    def is_over(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.steps

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""
        super().restore(kept)
        self.time = self._time_of(self.step)

    def at_once(self) -> int:
        """The number of steps that the model takes at once now."""
        return 1

    def advance(self) -> Due:
        """Collective: the next step."""
        many = self.at_once()
        step = self.step + many
        self.dt = self.full if step < self.steps else self.last_dt
        once = partial(self.model.step, self.dt, self.run.timer, *([many] if many > 1 else []))
        self.run.advance(step, once, self.model.saved, self.model.restore)
        self.step, self.time = step, self._time_of(step)
        return Due(self.is_looked_at(step), self.is_frame(step))

    def _time_of(self, step: int) -> float:
        return self.end if step == self.steps else step * self.full

    def is_looked_at(self, step: int) -> bool:
        """Whether metrics follow a step."""
        return step % self.config.time.monitor == 0 or step == self.steps

    def is_frame(self, step: int) -> bool:
        """Whether a frame follows a step."""
        return is_frame(self.config, self.full, step, self.steps)


def run_on_grid(
    kind: Callable[[Run, Any], GridRun],
    make: Callable[[Any, Mesh, Device], Any],
    warm_up: Callable[[Any, Device], None],
    config: Any,
    run: Run,
    mesh: Mesh,
) -> None:
    """Collective: do the run on the ranks of `mesh`, and write its summary.

    kind, make: the classes of the run and of its model; warm_up: compiles the kernels.

    Raises `InputError` for invalid settings and `BlowUpError` for a blow-up, on every rank alike.
    """
    begin = clock.perf_counter()
    with run.compiling():
        warm_up(config, run.device)
        model = make(config, mesh, run.device)
    run.say(f"kernels and start state ready in {clock.perf_counter() - begin:.1f} s")
    it = kind(run, model)
    coords = it.coords()
    with FieldWriter(
        mesh,
        run.directory.output,
        model.decomposition,
        coords=coords,
        units=it.coord_units or dict.fromkeys(coords, "m"),
        variables=it.variables,
        attributes={"title": run.title, "source": f"hpckit {it.app}"},
        driver=config.output.driver,
        compression=config.output.compression,
        resume=run.kept("fields"),
        constants=it.constants(),
        one_file=1e9 * config.output.one_file,
        corners=it.corners(),
    ) as it.writer:
        run.keep("fields", it.writer.kept)
        ran = time_loop(it)
        it.writer.close(last=ran.complete)
    cell_steps = it.cells * ran.steps
    run.finish(
        {
            "steps": it.step,
            "cells": it.cells,
            "wall_seconds": ran.seconds,
            "simulated_seconds": it.time,
            "cell_steps_per_second": cell_steps / ran.seconds,
            "bytes_per_cell_step": it.bytes_per_cell_step,
            "t_eff": t_eff(cell_steps * it.bytes_per_cell_step, ran.seconds),
            "conserved": it.conserved(),
            "decomposition": model.decomposition,
            **it.more(),
        },
        status="done" if ran.complete else "stopped",
    )
