"""Open sides of the box with split dynamics: a flow stays, waves leave, budgets close."""

from __future__ import annotations

import json

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import Diagnostics, mesh_for
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer

GRID = {"nx": 24, "ny": 6, "nz": 12, "width": 24e3, "length": 6e3, "height": 12e3, "lowest": 600.0}
Budgets = dict[str, dict[str, float]]


def run_of(steps: int, **settings) -> tuple[Diagnostics, dict[str, np.ndarray], Budgets]:
    """The last watch, what is shown, and the budgets after so many large steps of 6 s."""
    given = {"grid": GRID, "dynamics": {"kind": "hevi", "step": 6.0}, "bubbles": [], **settings}
    config = Config.model_validate_json(json.dumps(given), strict=True)
    with mesh_for(config, MPI.COMM_SELF) as mesh:
        model = SplitModel(config, mesh)
        first = model.watch()
        for _ in range(steps):
            model.step(model.dt, PhaseTimer())
        last = model.watch()
        return last, model.shown(), model.budgets(first, last)


def test_a_uniform_flow_through_open_sides_stays():
    sides = {"x": "open", "y": "walls", "width": 4000.0}
    last, *_ = run_of(10, sides=sides, base={"kind": "stable", "u": 10.0}, grid={**GRID, "ny": 8})
    assert max(abs(last.speed_x - 10), last.speed_y, last.speed_z, last.theta_max) < 1e-12


def test_at_open_sides_forcings_leave_a_budget_of_mass_and_none_of_heat():
    sides = {"x": "open", "y": "walls", "width": 0.0}
    *_, budgets = run_of(2, sides=sides, base={"kind": "stable", "u": 10.0}, grid={**GRID, "ny": 8}, drag=0.002)
    assert list(budgets) == ["mass_budget"]


def test_waves_leave_through_open_sides_and_the_mass_is_accounted_for():
    """A warm bubble in stable air sends out waves: in the middle, against a box three times as wide."""

    def stirred(cells: int, **sides) -> tuple[np.ndarray, Budgets]:
        middle, wide = 500.0 * cells, {**GRID, "nx": cells, "width": 1e3 * cells}
        bubble = {"amplitude": 2.0, "x": middle, "y": 3e3, "z": 3e3, "radius_x": 3e3, "radius_y": 1e9, "radius_z": 2e3}
        base = {"kind": "stable", "frequency": 0.01}
        _, shown, budgets = run_of(150, grid=wide, base=base, bubbles=[bubble], sides=sides)
        return shown["theta"][..., cells // 2 - 6 : cells // 2 + 6], budgets

    truth, _ = stirred(96)
    closed, _ = stirred(24, x="walls")
    free, budgets = stirred(24, x="open", width=0.0)
    zone, _ = stirred(24, x="open", width=5000.0, time=100.0)
    off = [float(np.abs(each - truth).max()) for each in (free, zone, closed)]
    assert max(off[:2]) < 0.5 * off[2], off
    mass = budgets["mass_budget"]
    assert abs(mass["unexplained"]) < 1e-9 * abs(mass["through_sides"])
