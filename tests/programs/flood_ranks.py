"""The flood app on these ranks: `flood_ranks.py FOLDER`, with cases.json in it; states, a whole run, refusals."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.flood.config import Config
from hpckit.apps.flood.model import Model
from hpckit.apps.flood.run import run as run_app
from hpckit.comm.agree import gather_json
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError, InputError
from hpckit.run.context import Run

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])


def mesh_of(config: Config) -> Mesh:
    grid = config.grid
    return Mesh(comm, y=0, x=0, periodic=grid.periodic, shape=(grid.ny, grid.nx), halo=2)


cases = json.loads((folder / "cases.json").read_text())
for name, settings in cases.items():
    config = Config.model_validate(settings)
    with mesh_of(config) as mesh:
        model = Model(config, mesh)
        first = model.watch()
        for _ in range(8):
            model.time += model.step(1e9, PhaseTimer())
        watch = model.watch()
        model.require_sound(watch)
        if "open" not in config.grid.sides.values():
            assert abs(watch.mass / first.mass - 1) < 1e-13, name
        state = {field.name: field.gather() for field in model.fields} | {"bottom": model.bottom.gather()}
        if comm.rank == 0:
            numbers = [value for value in vars(watch).values() if value is not None]
            np.savez(folder / f"{name}-{comm.size}.npz", time=model.time, watch=numbers, **state)

config = Config.model_validate({"grid": {"nx": 29, "ny": 23}})
last = comm.size - 1
with mesh_of(config) as mesh:
    model = Model(config, mesh)
    begin = model.decomposition.start(last)
    if comm.rank == last:
        model.fields[2].interior[1, 1] = np.nan
    try:
        model.require_sound(model.watch())
    except BlowUpError as error:
        texts = gather_json(comm, error.report())
    assert comm.rank or len(set(texts)) == 1, texts
    assert comm.rank or f"rank {last}, step 0, cell (y {begin[0] + 1}, x {begin[1] + 1}), field hv" in texts[0], texts

for file, text in (("empty.npy", "not a NumPy file of numbers"), ("small.npy", "the grid has [23, 29] cells")):
    if comm.rank == 0:
        (folder / "empty.npy").touch()
        np.save(folder / "small.npy", np.zeros((3, 3)))
    comm.Barrier()
    settings = {"grid": {"nx": 29, "ny": 23}, "bottom": {"kind": "file", "file": str(folder / file)}}
    config = Config.model_validate(settings)
    try:
        with mesh_of(config) as mesh:
            Model(config, mesh)
    except InputError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{file} was taken")

settings = {"grid": {"nx": 40, "ny": 5}, "time": {"end": 20.0}, "output": {"every": 7.0, "single": False}}
run = Run(comm, folder / f"run-{comm.size}", app="flood", title="run", lines=False)
run_app(Config.model_validate(settings), run)
