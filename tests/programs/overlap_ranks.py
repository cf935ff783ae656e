"""Slab and box with blocks wide enough to overlap, and too thin: `overlap_ranks.py FOLDER`; a state a case."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather.config import PRESETS
from hpckit.apps.weather.config import Config as SlabConfig
from hpckit.apps.weather.model import Model as Slab
from hpckit.apps.weather3d.config import Config as BoxConfig
from hpckit.apps.weather3d.model import Model as Box
from hpckit.apps.weather3d.model import mesh_for
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
WIDE = {"x": 1105, "y": 49}
starts = {"early": 0}
started = HaloExchange.start


def counted(exchange: HaloExchange, fields: object) -> None:
    """Count the exchanges that are started apart from their finish."""
    starts["early"] += 1
    started(exchange, fields)


def advance(model: Slab | Box, name: str, overlaps: bool) -> None:
    starts["early"] = 0
    whole = HaloExchange.__call__
    HaloExchange.start = counted
    HaloExchange.__call__ = lambda exchange, fields: (started(exchange, fields), exchange._finish())[0]
    try:
        for _ in range(4):
            model.step(model.dt, PhaseTimer())
    finally:
        HaloExchange.start, HaloExchange.__call__ = started, whole
    assert bool(starts["early"]) == overlaps, (name, starts, comm.size)
    assert model.wait_seconds >= 0
    state = model.state.gather()
    if comm.rank == 0:
        np.save(folder / f"{name}-{comm.size}.npy", state)


# Within a node sweeps are not cut in parts: the halo travels in every other of the eight sweeps only.
config = SlabConfig.model_validate({**PRESETS["collision"][1], "grid": {"nx": 1601, "nz": 9}})
with Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
    model = Slab(config, mesh)
    assert model.exchange.within_node
    advance(model, "near", 1 < comm.size <= 3)
    assert starts["early"] == (2 if comm.size in (2, 3) else 0), starts
    assert not HaloExchange(mesh, model.state, within_node=False).within_node or comm.size == 1
if comm.size > 1:
    HaloExchange.within_node = False  # from here on as between nodes

preset = PRESETS["gravity_waves"][1]
force = {"source": {"amplitude": 0.01, "x": 9800.0, "radius_x": 6000.0}, "compat": True}
for name, settings, nx, most in (
    ("collision", PRESETS["collision"][1], 1601, 3),
    ("forced", preset | force, 1601, 3),
    ("diffusing", {"diffusion": 20.0}, 1601, 3),
    ("thin", PRESETS["collision"][1], 61, 0),
):
    config = SlabConfig.model_validate({**settings, "grid": {"nx": nx, "nz": 9}})
    with Mesh(comm, z=1, x=0, periodic=("x",)) as mesh:
        advance(Slab(config, mesh), name, 1 < comm.size <= most)

for name, more in (
    ("box", {}),
    ("open", {"sides": {"x": "open", "y": "walls"}}),
    ("tracer", {"tracers": [{"name": "a"}]}),
):
    config = BoxConfig.model_validate({"grid": {"nx": WIDE["x"], "ny": WIDE["y"], "nz": 5}, **more})
    splits = {1: ({},), 2: ({"x": 1}, {"y": 1}), 3: ({"y": 1},), 4: ({"y": 2, "x": 2},)}[comm.size]
    for number, sizes in enumerate(splits):
        with mesh_for(config, comm, **sizes) as mesh:
            advance(Box(config, mesh), f"{name}{number}", comm.size in (2, 4) and name != "tracer")
