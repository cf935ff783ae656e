"""Longer runs of the weather model, any number of ranks: `weather_physics.py FOLDER SOUNDING...`; figures as JSON."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.atmosphere.blow_up import require_sound
from hpckit.apps.atmosphere.loop import step_count
from hpckit.apps.weather.config import PRESETS, Config
from hpckit.apps.weather.model import Model
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
found = {}


def simulate(preset: str, end: float, mesh: Mesh, **more) -> tuple[Model, dict]:
    """A preset, changed, to its end; what it kept and its extremes."""
    config = Config.model_validate({**PRESETS[preset][1], "time": {"end": end}, **more})
    model = Model(config, mesh)
    before, steps = model.watch(), step_count(config, model.dt)
    for step in range(1, steps + 1):
        model.step(model.dt if step < steps else end - (steps - 1) * model.dt, PhaseTimer())
    after = model.watch()
    require_sound(model, after, model.dt)
    return model, {
        "steps": steps,
        "mass": after.mass / before.mass - 1,
        "energy": after.energy / before.energy - 1,
        "w_max": after.w_max,
        "theta": [after.theta_min, after.theta_max],
    }


with Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
    _, found["golden thermal 100x50"] = simulate("thermal", 400.0, mesh, grid={"nx": 100, "nz": 50}, compat=True)
    wide = {"nx": 200, "nz": 100}
    model, found["golden thermal 200x100"] = simulate("thermal", 300.0, mesh, grid=wide, compat=True)
    _, found["golden collision 200x100"] = simulate("collision", 300.0, mesh, grid=wide, compat=True)
    _, found["golden gravity_waves 100x50"] = simulate(
        "gravity_waves", 150.0, mesh, grid={"nx": 100, "nz": 50}, compat=True
    )
    state = model.state.gather()
    if comm.rank == 0:
        mirror = state[..., ::-1] * np.array([1, -1, 1, 1])[:, None, None]
        found["asymmetry"] = float((np.abs(state - mirror).max(axis=(1, 2)) / np.abs(state).max(axis=(1, 2))).max())
    for preset in ("thermal", "collision", "density_current", "gravity_waves", "injection"):
        _, found[preset] = simulate(preset, 60.0, mesh, grid={"nx": 80, "nz": 40})
    for index, path in enumerate(sys.argv[2:]):
        for wind in (False, True):
            base = {"kind": "sounding", "file": path, "wind": wind}
            config = {"grid": {"nx": 37, "nz": 45, "height": 9000.0}, "base": base, "bubbles": []}
            model = Model(Config.model_validate(config), mesh)
            start = model.state.interior.copy()
            for _ in range(200):
                model.step(model.dt, PhaseTimer())
            moved = np.abs(model.state.interior - start).max(axis=(1, 2))
            comm.Allreduce(MPI.IN_PLACE, moved, op=MPI.MAX)
            found[f"rest {index} {'wind' if wind else 'calm'}"] = moved.tolist()
            found[f"wind {index}"] = float(np.abs(model.base.wind).max())

if comm.rank == 0:
    (folder / "physics.json").write_text(json.dumps(found))
