"""The box with split dynamics on these ranks: `split_ranks.py FOLDER`, with cases.json in it; a file a case."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.agree import gather_json
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.grid.exchange import HaloExchange

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
AXES = {1: "x", 2: "xy", 3: "xy", 4: "b", 6: "b"}
STEPS, HALF = 8, 4

for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate_json(json.dumps(settings), strict=True)
    for axis in AXES[comm.size]:
        with mesh_for(config, comm, **{"x": {"y": 1}, "y": {"x": 1}, "b": {"y": 2}}[axis]) as mesh:
            model, resumed = SplitModel(config, mesh), SplitModel(config, mesh)
            first = model.watch()
            for step in range(STEPS):
                if step == HALF:  # what a checkpoint holds is all that there is
                    for old, new in zip(model.fields, resumed.fields, strict=True):
                        new.interior[...] = old.interior
                    resumed.own(model.values())
                model.step(model.dt, PhaseTimer())
            for _ in range(HALF, STEPS):
                resumed.step(model.dt, PhaseTimer())
            for old, new in zip(model.fields, resumed.fields, strict=True):
                assert (old.interior == new.interior).all(), f"{name}: resumed is not the same"
            watch = model.watch()
            model.require_sound(watch, model.dt)
            gathered = [field.gather() for field in model.fields]
            if comm.rank == 0:
                for more in model.budgets(first, watch).values():
                    whole = more.get("in_air", more.get("warmed", watch.mass))
                    assert abs(more["unexplained"]) < 1e-12 * abs(whole), more
                closed = "open" not in (config.sides.x, config.sides.y)
                for tracer in config.tracers if closed else ():
                    changed = watch.more[f"{tracer.name}_mass"] / first.more[f"{tracer.name}_mass"] - 1
                    assert abs(changed) < 1e-12, (name, tracer.name, changed)
                if closed:
                    assert abs(watch.mass / first.mass - 1) < 1e-14, f"{name}: mass"
                more = {f"field{i}": values for i, values in enumerate(gathered)}
                w_max = np.array([watch.w_max])
                np.savez(folder / f"{name}-{comm.size}{axis}.npz", w_max=w_max, **more)

config = Config.model_validate({"grid": {"nx": 29, "ny": 27, "nz": 8}, "dynamics": {"kind": "hevi"}})
with mesh_for(config, comm) as mesh:
    model = SplitModel(config, mesh)
    for poison, words in ((np.nan, "is not finite"), (500.0, "the wind of")):
        if comm.rank == comm.size - 1:
            model.state.interior[1, 3, 2, 2] = poison
        try:
            model.require_sound(model.watch(), model.dt)
        except BlowUpError as error:
            texts = gather_json(comm, error.report())
            assert comm.rank or (len(set(texts)) == 1 and words in texts[0]), texts
        else:
            raise AssertionError("a lost solution was taken")

grid = {"nx": 17, "ny": 61, "nz": 8, "width": 12e3, "length": 43e3}
hill = {"kind": "bell", "height": 300.0, "half_width": 3e3, "x": 5e3, "y": 8e3}
configs = [
    Config.model_validate({"grid": grid, "dynamics": {"kind": "hevi"}, **more}) for more in ({}, {"terrain": hill})
]
within_node, found = HaloExchange.within_node, {}
for near in (True, False):  # rims come first between nodes, and slow tendencies in a pass of their own
    HaloExchange.within_node = within_node if near else False
    for number, config in enumerate(configs):
        with mesh_for(config, comm, x=1) as mesh:
            model = SplitModel(config, mesh)
            for _ in range(2):
                model.step(model.dt, PhaseTimer())
            assert model.sweeps > 1
            # On few ranks not all rows fit in the cache.
            assert (model.near[1].shape[2] < model.state.data.shape[2]) == (near and comm.size <= 2)
            found[near, number] = model.state.gather()
for number in range(len(configs)) if comm.rank == 0 else ():
    np.testing.assert_array_equal(found[True, number], found[False, number])
    assert np.ptp(found[True, number][1]) > 0
