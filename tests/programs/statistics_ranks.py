"""Column statistics of a moist and of an explicit box on these ranks: `statistics_ranks.py FOLDER`, a file a case."""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from hpckit.apps.weather3d import model, split
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.products.statistics import Statistics
from hpckit.comm.observe.timer import PhaseTimer

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])

for name, settings in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate_json(json.dumps(settings), strict=True)
    kind = split if config.dynamics.kind == "hevi" else model
    with mesh_for(config, comm) as mesh:
        made = kind.Model(config, mesh)
        statistics = Statistics(made, folder / f"{name}-{comm.size}", {}, None)
        for step in range(4):
            made.step(made.dt, PhaseTimer())
            statistics.sample((step + 1) * made.dt)
        statistics.writer.write()
