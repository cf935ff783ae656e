"""The run of a weather app: the work of the time loop besides model steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from hpckit.apps.atmosphere.base import BaseState
from hpckit.apps.atmosphere.blow_up import Checked, courant, require_sound
from hpckit.apps.atmosphere.output import base_profiles
from hpckit.apps.common.grid import FixedSteps
from hpckit.apps.common.loop import conserved
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.io.checkpoint.state import Restored
from hpckit.run.context import Run
from hpckit.run.steps import step_count


class WeatherModel(Checked, Protocol):
    """The model of a weather app."""

    base: BaseState

    @property
    def dt(self) -> float:
        """The full time step, s."""

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s)."""

    def watch(self) -> Any:
        """Collective: mass, energy, extremes."""

    def output(self) -> dict[str, np.ndarray]:
        """The output fields."""

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""


class AtmosphereRun(FixedSteps):
    """The run of a weather model."""

    model: WeatherModel

    def __init__(self, run: Run, model: WeatherModel) -> None:
        super().__init__(run, model, model.dt, step_count(model.config, model.dt), model.config.time.end)

    @property
    def wait_seconds(self) -> float:
        """Seconds this rank has waited so far, in all of the model's exchanges."""
        return self.model.wait_seconds

    def coords(self) -> dict[str, np.ndarray]:
        """The cell centers, m."""
        grid = self.config.grid
        across = {"y": "ny", "x": "nx"} if "y" in self.model.spacing else {"x": "nx"}
        middles = {name: (np.arange(getattr(grid, n)) + 0.5) * self.model.spacing[name] for name, n in across.items()}
        return {"z": self.model.base.height, **middles}

    def constants(self) -> Mapping[str, Mapping[str, Any]]:
        """The base state."""
        return base_profiles(self.model.base)

    def check(self) -> None:
        """Collective: raise `BlowUpError` for a state that is not finite or too fast for the step."""
        require_sound(self.model, self.last, self.full)

    def cfl(self) -> float:
        """The Courant number of sound and wind together."""
        return courant(self.model, self.last, self.dt)

    def conserved(self) -> dict[str, dict[str, float]]:
        """The initial and final mass and energy."""
        first, last = self.first, self.last
        return conserved(mass=(first.mass, last.mass), energy=(first.energy, last.energy))
