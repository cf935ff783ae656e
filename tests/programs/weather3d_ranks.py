"""The box model on these ranks: `weather3d_ranks.py FOLDER`, with cases.json in it; a state a case, and refusals."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.atmosphere.blow_up import require_sound
from hpckit.apps.weather.config import Config as SlabConfig
from hpckit.apps.weather.model import Model as SlabModel
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import Model, mesh_for
from hpckit.apps.weather3d.run import run as run_app
from hpckit.comm.agree import gather_json
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError, DecompositionError
from hpckit.run.context import Run

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
AXES = {1: "x", 2: "y", 3: "xy", 4: "xb", 6: "b"}


def same_error(error: Exception) -> str:
    """The report of an error that all ranks must raise alike."""
    texts = gather_json(comm, error.report())
    if comm.rank:
        return ""
    assert len(set(texts)) == 1, texts
    return texts[0]


def refused(model: Model) -> str:
    try:
        require_sound(model, model.watch(), model.dt)
    except BlowUpError as error:
        return same_error(error)
    raise AssertionError("a lost solution was taken")


for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate_json(json.dumps(settings), strict=True)
    for axis in AXES[comm.size]:
        with mesh_for(config, comm, **{"x": {"y": 1}, "y": {"x": 1}, "b": {"y": 2}}[axis]) as mesh:
            model = Model(config, mesh)
            for _ in range(9):
                model.step(model.dt, PhaseTimer())
            watch = model.watch()
            require_sound(model, watch, model.dt)
            state = model.state.gather()
            tracers = model.tracers.field.gather() if model.tracers else None
            if comm.rank == 0:
                values = [value for value in vars(watch).values() if not isinstance(value, dict)]
                values += watch.more.values()
                more = {} if tracers is None else {"tracers": tracers}
                np.savez(
                    folder / f"{name}-{comm.size}{axis}.npz",
                    state=state,
                    watch=values,
                    sizes=mesh.topology.sizes,
                    **more,
                )

if comm.size > 1:
    config = Config.model_validate({"grid": {"nx": 29, "ny": 27, "nz": 8}})
    with mesh_for(config, comm) as mesh:
        model = Model(config, mesh)
        dec, last = model.decomposition, comm.size - 1
        if comm.rank == last:
            model.state.interior[2, 3, 4, 5] = np.nan
        text = refused(model)
        _, y, x = dec.start(last)
        assert comm.rank or "rho_v is not finite" in text, text
        assert comm.rank or f"rank {last}, step 0, cell (z 3, y {y + 4}, x {x + 5})" in text, text

        # Too fast for dt, in one cell of rank 0.
        model = Model(config, mesh)
        if comm.rank == 0:
            model.state.interior[2, 5, 2, 1] = 200.0
        text = refused(model)
        assert comm.rank or "Courant number |v| + c in y" in text, text
        assert comm.rank or "rank 0, step 0, cell (z 5, y 2, x 1)" in text, text

        # Lost while stepping: the first step that saw it is named, not the one at which it is looked for.
        model = Model(config, mesh)
        for step in range(4):
            if step == 1 and comm.rank == last:
                model.state.interior[4, 6, 1, 1] = np.inf
            model.step(model.dt, PhaseTimer())
        text = refused(model)
        assert comm.rank or ", step 2, cell" in text, text

    try:
        with mesh_for(Config.model_validate({"grid": {"nx": 6, "ny": 6 * comm.size - 1, "nz": 8}}), comm, x=1):
            pass
    except DecompositionError as error:
        same_error(error)
    else:
        raise AssertionError("blocks thinner than their halo were taken")

if comm.size == 1:  # uniform in y the box is the slab, the order of its sweeps included
    flat = {"nx": 40, "nz": 16}
    config = Config.model_validate({"grid": {**flat, "ny": 9}})
    with Mesh(comm, z=1, x=0, periodic=("x",)) as line, mesh_for(config, comm) as mesh:
        slab = SlabModel(SlabConfig.model_validate({"grid": flat}), line)
        model = Model(config, mesh)
        model.state.interior[:] = 0.0
        model.state.interior[[0, 1, 3, 4]] = slab.state.interior[:, :, None]
        for _ in range(21):
            slab.step(slab.dt, PhaseTimer())
            model.step(slab.dt, PhaseTimer())
        state = model.state.interior
        assert not state[2].any()
        assert not np.ptp(state, axis=2).any()
        difference = np.abs(state[[0, 1, 3, 4], :, 0] - slab.state.interior).max(axis=(1, 2))
        assert (difference < 1e-13 * np.abs(slab.state.interior).max(axis=(1, 2))).all(), difference
        assert np.abs(slab.state.interior[2]).max() > 0.1

# The whole app: done, and stopped early because the stop file is there.
for name, end in (("whole", 40.0), ("stop", 1e4)):
    settings = {"grid": {"nx": 17, "ny": 19, "nz": 8}, "time": {"end": end, "monitor": 3}, "coriolis": 1e-4}
    run = Run(comm, folder / f"{name}-{comm.size}", app="weather3d", title=name, lines=False)
    if name == "stop" and comm.rank == 0:
        run.directory.request_stop()
    run_app(Config.model_validate({**settings, "output": {"every": 20.0, "single": False}}), run)
    phases = {"halo", "wait", "x sweep", "y sweep", "z sweep", "coriolis", "diagnostics", "output"}
    phases -= {"diagnostics", "output"} if name == "stop" else set()  # it ends before the first of them
    assert phases <= set(run.timer.seconds), run.timer.seconds
