"""The weather model on these ranks: `weather_ranks.py FOLDER`, with cases.json in it; a state a case, and refusals."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.atmosphere.blow_up import require_sound
from hpckit.apps.weather.config import Config
from hpckit.apps.weather.model import Model
from hpckit.comm.agree import gather_json
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError, DecompositionError
from hpckit.kernels.euler.constants import HALO

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])


def same_error(error: Exception) -> str:
    """The report of an error that all ranks must raise alike."""
    texts = gather_json(comm, error.report())
    if comm.rank:
        return ""
    assert len(set(texts)) == 1, texts
    return texts[0]


for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate_json(json.dumps(settings), strict=True)
    with Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
        model = Model(config, mesh)
        if comm.size == 1 and model.force.size:
            force = model.force
            assert force[:, -HALO:].any()
            np.testing.assert_array_equal(force[:, :HALO], force[:, -2 * HALO : -HALO])
            np.testing.assert_array_equal(force[:, -HALO:], force[:, HALO : 2 * HALO])
        for _ in range(10):
            model.step(model.dt, PhaseTimer())
        watch = model.watch()
        require_sound(model, watch, model.dt)
        state = model.state.gather()
        if comm.rank == 0:
            np.savez(folder / f"{name}-{comm.size}.npz", state=state, watch=list(vars(watch).values()))

if comm.size > 1:
    config = Config.model_validate({"grid": {"nx": 29, "nz": 8}})
    with Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
        model = Model(config, mesh)
        dec, last = model.decomposition, comm.size - 1
        if comm.rank == last:
            model.state.interior[2, 3, 4] = np.nan
        try:
            require_sound(model, model.watch(), model.dt)
        except BlowUpError as error:
            text = same_error(error)
        column = dec.start(last)[1] + 4
        assert comm.rank or "rho_w is not finite" in text, text
        assert comm.rank or f"rank {last}, step 0, cell (z 3, x {column})" in text, text

        # A jet too fast for dt, in one cell of rank 0.
        model = Model(config, mesh)
        if comm.rank == 0:
            model.state.interior[1, 5, 2] = 200.0
        model.step(0.0 * model.dt + 1e-9, PhaseTimer())
        try:
            require_sound(model, model.watch(), model.dt)
        except BlowUpError as error:
            text = same_error(error)
        assert comm.rank or "Courant number |u| + c in x" in text, text
        assert comm.rank or "rank 0, step 1, cell (z 5, x 2)" in text, text

        # Lost while stepping: the first step that saw it is named, not the one at which it is looked for.
        model = Model(config, mesh)
        for step in range(4):
            if step == 1 and comm.rank == last:
                model.state.interior[3, 6, 1] = np.inf
            model.step(model.dt, PhaseTimer())
        try:
            require_sound(model, model.watch(), model.dt)
        except BlowUpError as error:
            text = same_error(error)
        assert comm.rank or ", step 2, cell" in text, text

        try:
            Model(Config.model_validate({"grid": {"nx": 6 * comm.size - 1, "nz": 8}}), mesh)
        except DecompositionError as error:
            same_error(error)
        else:
            raise AssertionError("blocks thinner than their halo were taken")
