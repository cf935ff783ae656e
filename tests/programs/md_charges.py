"""Scripts on these ranks: `md_charges.py FOLDER STEPS NAME…` runs the scripts in.NAME; figures, the box and places."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.md.saved import pieces_of
from hpckit.md.snapshots import snapshot
from hpckit.md.thermo import measure


def run(comm: MPI.Intracomm, folder: Path, steps: int, names: list[str]) -> None:
    """Run the scripts on the ranks of `comm`; rank 0 writes NAME-RANKS.npz."""
    for name in names:
        config = Config.model_validate({**settings_of(folder / f"in.{name}").tree, "repro": True})
        start = Start(config)
        system = make_system(config, start, comm, PhaseTimer())
        dynamics, rows = dynamics_of(config), []
        for step in range(steps + 1):
            wanted = step % 10 == 0
            if step:
                dynamics.step(system, config.time.dt, wanted)
            if wanted:
                it = measure(system)
                box = *system.domains.upper, *system.domains.tilt
                rows.append([it.temperature, it.potential, it.coulomb, it.long_range, it.pressure, *it.tensor, *box])
        kept = {piece.name: piece for piece in pieces_of(system)}
        charges = np.concatenate(comm.allgather(kept["charge"].block)) if system.charged else None
        spins = np.concatenate(comm.allgather(kept["spin"].block)) if "spin" in kept else None
        found = snapshot(system, forces=True)
        if found is not None:
            given = {key: getattr(found, key) for key in ("positions", "images", "velocities", "forces")}
            if charges is not None:
                assert np.array_equal(charges, found.charges)
                given["charges"] = charges
            if spins is not None:
                given["spins"] = spins
            np.savez(folder / f"{name}-{comm.size}.npz", rows=rows, builds=system.neighbors.builds, **given)
        system.mesh.close()


if __name__ == "__main__":
    run(MPI.COMM_WORLD, Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
