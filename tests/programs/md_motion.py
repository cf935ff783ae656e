"""Thermostats, walls, minimization on these ranks: `md_motion.py FOLDER`; figures of each as JSON and arrays."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.md.motion.dynamics import NVE
from hpckit.md.motion.fire import Fire
from hpckit.md.snapshots import snapshot
from hpckit.md.thermo import measure

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])

for name, case in json.loads((folder / "cases.json").read_text()).items():
    config = Config.model_validate(case["settings"])
    system = make_system(config, Start(config), comm, PhaseTimer())
    dynamics = dynamics_of(config)
    rows, speeds = [], []
    for _ in range(case.get("shake", 0)):
        NVE().step(system, 0.005, False)
    for step in range(1, config.time.steps + 1):
        wanted = step % case["every"] == 0
        dynamics.step(system, config.time.dt, wanted)
        if wanted:
            it = measure(system)
            kept = dynamics.conserved(system, it.total) if hasattr(dynamics, "conserved") else it.total
            rows.append([step, it.temperature, it.kinetic, it.potential, kept, it.pressure, it.volume])
            own = system.particles.own
            speeds.append(system.particles.velocities[own, 0])
        if isinstance(dynamics, Fire) and dynamics.largest_force < config.dynamics.largest_force:
            break
    found = snapshot(system)
    if found is not None:
        largest = dynamics.largest_force if isinstance(dynamics, Fire) else 0.0
        np.savez(
            folder / f"{name}-{comm.size}.npz",
            rows=rows,
            positions=found.positions,
            velocities=found.velocities,
            speeds=np.concatenate(speeds) if speeds else [],
            largest=largest,
            steps=step,
            box=[found.lower, found.upper],
        )
    system.mesh.close()
