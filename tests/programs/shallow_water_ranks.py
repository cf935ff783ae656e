"""The shallow-water model on these ranks: `shallow_water_ranks.py FOLDER`, with cases.json in it; states, refusals."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.shallow_water.config import Config
from hpckit.apps.shallow_water.layout import time_step
from hpckit.apps.shallow_water.model import Model
from hpckit.comm.agree import gather_json
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError, DecompositionError

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])


def mesh_of(config: Config) -> Mesh:
    grid = config.grid
    return Mesh(comm, y=0, x=0, periodic=grid.periodic, shape=(grid.ny, grid.nx), halo=3)


def refusal(config: Config, spoil) -> str:
    """The report of the error that all ranks must raise alike, on rank 0."""
    with mesh_of(config) as mesh:
        model = Model(config, mesh)
        spoil(model)
        try:
            model.require_sound(model.watch(), time_step(config))
        except BlowUpError as error:
            texts = gather_json(comm, error.report())
    if comm.rank:
        return ""
    assert len(set(texts)) == 1, texts
    return texts[0]


for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate_json(json.dumps(settings), strict=True)
    with mesh_of(config) as mesh:
        model = Model(config, mesh)
        first = model.watch()
        at_once = 1 if comm.size % 2 else model.at_once  # the same bits either way
        assert model.at_once == 2
        for _ in range(12 // at_once):
            model.step(time_step(config), PhaseTimer(), at_once)
        assert model.steps_done == 12
        watch = model.watch()
        model.require_sound(watch, time_step(config))
        assert abs(watch.mass / first.mass - 1) < 1e-13, name
        vorticity = model.h.like()
        vorticity.interior[...] = model.vorticity()
        state = {field.name: field.gather() for field in model.fields} | {"vorticity": vorticity.gather()}
        if comm.rank == 0:
            np.savez(folder / f"{name}-{comm.size}.npz", watch=list(vars(watch).values()), **state)

config = Config.model_validate({"grid": {"nx": 29, "ny": 23, "sides": "closed"}, "start": {"kind": "rest"}})
last = comm.size - 1
with mesh_of(config) as mesh:
    start = Model(config, mesh).decomposition.start(last)


def set_v(model: Model, value: float) -> None:
    if comm.rank == last:
        model.v.interior[2, 1] = value


text = refusal(config, lambda model: set_v(model, np.nan))
assert comm.rank or "v is not finite" in text, text
assert comm.rank or f"rank {last}, step 0, cell (y {start[0] + 2}, x {start[1] + 1}), field v" in text, text
text = refusal(config, lambda model: set_v(model, 80.0))
assert comm.rank or "Courant number" in text, text
assert comm.rank or f"rank {last}, step 0, cell (y {start[0] + 2}, x {start[1] + 1})" in text, text


def drain(model: Model) -> None:
    if comm.rank == 0:
        model.h.interior[1, 2] = -0.5


text = refusal(config, drain)
assert comm.rank or "the layer is dry" in text, text
assert comm.rank or "rank 0, step 0, cell (y 1, x 2), field h" in text, text

if comm.size > 1:
    thin = Config.model_validate({"grid": {"nx": 4, "ny": 4}, "start": {"kind": "rest"}})
    try:
        with mesh_of(thin) as mesh:
            Model(thin, mesh)
    except DecompositionError:
        pass
    else:
        raise AssertionError("blocks thinner than their halo were taken")
