"""The sphere app on these ranks: `sphere_ranks.py FOLDER`, with cases.json in it; states after some steps, refusals."""

import json
import sys
from pathlib import Path

import numpy as np

import hpckit as hp
from hpckit.apps.sphere.config import Config
from hpckit.apps.sphere.layout import WIDTHS, axes_of, time_step
from hpckit.apps.sphere.model import Model
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import DecompositionError

comm = hp.world()
folder = Path(sys.argv[1])
for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate(settings)
    n = config.grid.n
    with hp.Mesh(comm, shape=(6, n, n), halo=WIDTHS, **axes_of(comm.size)) as mesh:
        model, dt = Model(config, mesh), time_step(config)
        first = model.watch()
        for _ in range(5):
            model.step(dt, PhaseTimer())
        last = model.watch()
        assert abs(last.mass / first.mass - 1) < 1e-13, (name, first, last)
        fields = {"state": model.state.gather(), **model.output()}
        whole = hp.Field.zeros(mesh, model.decomposition)
        whole.set_from_host(model.vorticity())
        fields["vorticity"] = whole.gather()
    if comm.rank == 0:
        np.savez(folder / f"{name}-{comm.size}.npz", state=fields["state"], vorticity=fields["vorticity"])
        one = folder / f"{name}-1.npz"
        with np.load(one) as serial:
            for each in serial:
                np.testing.assert_array_equal(fields[each], serial[each], err_msg=f"{name}, {each}")
if comm.size == 5:
    try:
        hp.Mesh(comm, shape=(6, 7, 7), halo=WIDTHS, **axes_of(comm.size))
    except DecompositionError:
        pass
    else:
        raise AssertionError("blocks thinner than the halo")
