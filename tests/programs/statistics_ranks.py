"""Column statistics of a moist and of an explicit box on these ranks: `statistics_ranks.py FOLDER`, a file a case."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather3d import model
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.products.maps import Maps
from hpckit.apps.weather3d.products.parcels import Parcels
from hpckit.apps.weather3d.products.stations import Stations
from hpckit.apps.weather3d.products.statistics import Statistics
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])

for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate_json(json.dumps(settings), strict=True)
    kind = SplitModel if config.dynamics.kind == "hevi" else model.Model
    with mesh_for(config, comm) as mesh:
        made = kind(config, mesh)
        statistics = Statistics(made, folder / f"{name}-{comm.size}", {}, None)
        others = []
        if config.output.maps:
            where = folder / f"{name}-{comm.size}"
            y, x = (
                (np.arange(n) + 0.5) * d
                for n, d in ((config.grid.ny, config.grid.dy), (config.grid.nx, config.grid.dx))
            )
            maps = Maps(made, where, {"y": y, "x": x}, {}, None)
            parcels = Parcels(made, where, {}, None)
            parcels.begin()
            others = [Stations(made, where, {}, None), parcels]
        for step in range(4):
            made.step(made.dt, PhaseTimer())
            if others:
                maps.sample()
                parcels.move(made.dt)
                if step == 2:  # as a resumed run
                    parcels.restore(parcels.values())
            for each in (statistics, *others):
                each.sample((step + 1) * made.dt)
        for each in (statistics, *others):
            each.writer.write()
        if others:
            maps.write(4 * made.dt)
            maps.writer.close()
