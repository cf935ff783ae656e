"""`assimilate_ranks.py KIND…` on these ranks: the metrics of some iterations of each method, all digits."""

import json
import sys

from mpi4py import MPI

from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.flood import Valley
from hpckit.apps.assimilate.roughness import Roughness
from hpckit.apps.assimilate.run import METHODS
from hpckit.apps.assimilate.twin import Twin
from hpckit.comm.mesh import Mesh

comm = MPI.COMM_WORLD
SMALL = {
    "grid": {"ny": 21, "nx": 27},
    "window": {"steps": 12},
    "truth": {"spin_up": 3, "scale": 4.0},
    "background": {"scale": 4.0},
    "observations": {"share": 0.05, "every": 4},
}
METHOD = {"members": 5, "inner": 3, "radius": 6.0, "memory": 0.0625}
STEPS = {"4dvar": 2, "4dvar_cg": 1, "letkf": 2}
FLOOD = {
    "case": "flood",
    "grid": {"ny": 17, "nx": 23, "dx": 25.0},
    "window": {"steps": 16, "dt": 1.5},
    "roughness": {"scale": 3.0},
}

for kind, steps in ((kind, steps) for kind, steps in STEPS.items() if kind in sys.argv):
    config = Config.model_validate({**SMALL, "method": {**METHOD, "kind": kind}})
    with Mesh(comm, y=0, x=0, periodic=("y", "x"), shape=(21, 27)) as mesh:
        twin = Twin(config, mesh)
        method = METHODS[kind](config, twin, None)
        for _ in range(steps):
            assert method.step()
        found = method.metrics({}) | twin.off(method.state(), getattr(method, "at", 0))
        if kind == "letkf":
            method.close()
    if comm.rank == 0:
        print(kind, json.dumps(found))

if "flood" in sys.argv:
    config = Config.model_validate({**FLOOD, "method": {"memory": 0.0625}})
    with Mesh(comm, y=0, x=0, shape=(17, 23)) as mesh:
        valley = Valley(config, mesh)
        method = Roughness(config, valley, None)
        for _ in range(2):
            assert method.step()
        found = method.metrics({})
    if comm.rank == 0:
        print("flood", json.dumps(found))
