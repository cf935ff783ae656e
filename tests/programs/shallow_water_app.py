"""The whole run of the shallow-water app: `shallow_water_app.py FOLDER`, with cases.json in it; a folder a case.

"stop" ends early because its stop file is there; "blow-up" must raise the same error on every rank.
"""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.shallow_water.config import Config
from hpckit.apps.shallow_water.run import run as run_app
from hpckit.comm.agree import gather_json
from hpckit.errors import BlowUpError
from hpckit.run.context import Run

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
for name, settings in json.loads((folder / "cases.json").read_text()).items():
    run = Run(comm, folder / f"{name}-{comm.size}", app="shallow_water", title=name, lines=False)
    if name == "stop" and comm.rank == 0:
        run.directory.request_stop()
    try:
        run_app(Config.model_validate_json(json.dumps(settings), strict=True), run)
    except BlowUpError as error:
        texts = gather_json(comm, error.report())
        if comm.rank == 0:
            assert len(set(texts)) == 1, texts
            (folder / f"{name}-{comm.size}.txt").write_text(texts[0])
        continue
    assert name != "blow-up"
    phases = {"halo", "wait", "step", "diagnostics", "output"}
    phases -= {"diagnostics", "output"} if name == "stop" else set()  # it ends before the first of them
    assert phases <= set(run.timer.seconds), run.timer.seconds
    assert all(np.isfinite(seconds) for seconds in run.timer.seconds.values())
