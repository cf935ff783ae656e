"""Run the diffusion app on these ranks: `diffusion_app.py FOLDER`, with cases.json in it; a run directory each case.

A case maps its name to settings; one called "blow-up" must raise the same error on every rank, one called "stop" ends
after the first look because the stop file is there.
"""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.diffusion.config import Config
from hpckit.apps.diffusion.run import run as run_app
from hpckit.comm.agree import gather_json
from hpckit.errors import BlowUpError
from hpckit.run.context import Run

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])
for name, settings in json.loads((folder / "cases.json").read_text()).items():
    run = Run(comm, folder / f"{name}-{comm.size}", app="diffusion", title=name, lines=False)
    config = Config.model_validate_json(json.dumps({"app": "diffusion", **settings}), strict=True)
    if name == "stop" and comm.rank == 0:
        run.directory.request_stop()
    try:
        run_app(config, run)
    except BlowUpError as error:
        texts = gather_json(comm, error.report())
        if comm.rank == 0:
            assert len(set(texts)) == 1, texts
            (folder / f"{name}-{comm.size}.txt").write_text(texts[0])
        continue
    assert name != "blow-up"
    # What a rank has timed is there, and the numbers that are to be equal everywhere are.
    phases = {"halo", "core", "wait", "diagnostics", "output"} | ({"rim"} if comm.size > 1 else set())
    phases -= {"diagnostics", "output"} if name == "stop" else set()  # it ends before the first of them
    assert phases <= set(run.timer.seconds), run.timer.seconds
    assert all(np.isfinite(seconds) for seconds in run.timer.seconds.values())
