"""The molecular dynamics app: what it writes, and mistakes explained."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.report import mean_after
from hpckit.apps.md.run import dry_run
from hpckit.apps.md.run import run as run_md
from hpckit.errors import BlowUpError, DecompositionError, InputError
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.report.numbers import numbers
from hpckit.report.run_data import load_run
from hpckit.report.sections.findings import find
from hpckit.run.context import Run

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_say_what_they_would_take(preset):
    plan = dry_run(Config.model_validate(PRESETS[preset][1]), 4)
    assert plan.steps > 0
    assert plan.memory_per_rank > 0
    assert re.match(r"\d+ particles", plan.decomposition[0])


def test_a_run_prints_a_thermo_table_and_leaves_its_particles(tmp_path):
    words = ["run", "md.mixture", "system.cells=[4,5,3]", "time.steps=40", "time.thermo=20", "output.every=25"]
    command = [sys.executable, "-m", "hpckit.cli.main", *words, "--directory", str(tmp_path / "r"), "--no-report"]
    for ranks in (1, 2):
        folder = tmp_path / f"r{ranks}"
        command[-2] = str(folder)
        done = subprocess.run([*command, "-n", str(ranks)], capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        table = re.findall(r"^ +(\d+) +(-?[\d.]+) +(-?[\d.]+) +0 +(-?[\d.]+) +(-?[\d.]+)", done.stdout, re.MULTILINE)
        assert [row[0] for row in table] == ["0", "20", "40"]
        assert float(table[0][1]) == 2.0
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert lines[-1]["temperature"] == pytest.approx(float(table[-1][1]), rel=1e-7)
        frames = list(read_h5md(folder / "output/trajectory.h5md"))
        assert [frame.step for frame in frames] == [0, 25, 40]
        assert np.bincount(frames[0].types).tolist() == [192, 48]
        end = read_lammps_data(folder / "output/end.data")
        np.testing.assert_array_equal(end.unwrapped, frames[-1].unwrapped)
    one, two = (read_lammps_data(tmp_path / f"r{ranks}/output/end.data") for ranks in (1, 2))
    np.testing.assert_allclose(two.positions, one.positions, atol=1e-10)
    energies = [
        json.loads((tmp_path / f"r{ranks}/summary.json").read_text())["conserved"]["energy"] for ranks in (1, 2)
    ]
    assert energies[0]["final"] == pytest.approx(energies[1]["final"], rel=1e-11)
    assert abs(energies[0]["relative_change"]) < 1e-3


def alone(folder, settings):
    """A run on one rank, in this process; returns its summary."""
    run_md(Config.model_validate(settings), Run(MPI.COMM_SELF, folder, app="md"))
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"system": {"density": 20.0}}, "energy of a particle has jumped"), ({"time": {"dt": 5.0}}, "lost")],
)
def test_energy_from_nowhere_is_a_blow_up(tmp_path, settings, said):
    few = {"system": {"cells": (5, 5, 5), **settings.get("system", {})}}
    with pytest.raises(BlowUpError, match=said) as caught:
        alone(
            tmp_path / "r",
            {**few, "neighbors": {"every": 20, "check": False}, "time": {"steps": 20, **settings.get("time", {})}},
        )
    assert re.match(r"rank 0, particle \d+, step \d+$", caught.value.where)
    assert caught.value.exit_code == 4


def test_nothing_is_counted_before_the_equilibration_ends(tmp_path, capsys):
    settings = {
        "system": {"cells": (4, 4, 4), "temperature": 1.0},
        "dynamics": {"equilibrate": 105, "temperature": 1.0, "damping": 50.0},  # too slow: half of it melts the lattice
        "time": {"steps": 200, "thermo": 20},
        "analysis": {"every": 10, "after": 40},
    }
    found = alone(tmp_path / "r", settings)
    said = capsys.readouterr().out
    assert "equilibrated: T = 0." in said
    assert "you asked for 1" in said
    run = load_run(tmp_path / "r")
    late = [line for line in run.metrics if line["step"] >= 105]
    assert late[0]["step"] == 105
    assert (
        json.loads((tmp_path / "r/output/analysis.json").read_text())["radial"]["frames"] == 10
    )  # at 105, 115, ... 195
    mean = np.mean([line["temperature"] for line in late])
    assert found["temperature"] == {"asked": 1.0, "mean": pytest.approx(mean), "missed": True}
    assert find(numbers(run, []))[0].text == found["findings"][0]["text"]
    energy = found["conserved"]["energy"]
    assert energy["initial"] == late[0]["energy"]
    assert abs(energy["relative_change"]) < 1e-3
    times, changes = run.changes("energy")
    assert (times, changes[0]) == ([line["time"] for line in late], 0.0)
    assert mean_after(run, Config.model_validate(settings), "temperature")[0] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"system": {"masses": [1.0, 2.0]}}, "1 fractions for 2 masses"),
        ({"system": {"fractions": [0.5]}}, "add up to 1"),
        ({"interaction": {"epsilon": [1.0, 1.0]}}, "epsilon has 2 types and sigma 1"),
        ({"interaction": {"pairs": [{"types": [1, 2]}]}}, "the types are 1 to 1"),
        ({"interaction": {"kind": "python"}}, "file.py:name"),
        ({"interaction": {"switch": 2.6}}, "below every cutoff"),
        ({"interaction": {"shift": True, "tail": True}}, "not one that is shifted"),
        ({"repro": True, "precision": "mixed"}, "set precision to double"),
        ({"system": {"cells": [0, 1, 1]}}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_are_explained(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(settings)


def test_a_box_of_less_than_two_cutoffs_is_told():
    for cells, told in ((1, True), (3, False)):
        melt = Config.model_validate({"system": {"cells": (cells, cells, cells)}})
        assert any("shorter than twice the cutoff" in note for note in dry_run(melt, 1).notes) == told


def test_a_dry_run_refuses_what_the_run_would(tmp_path):
    (tmp_path / "mine.py").write_text("def energy(r2, p):\n    return p[0] / r2\n")
    wrong = {"interaction": {"kind": "python", "function": f"{tmp_path}/mine.py:enrgy", "parameters": [1.0]}}
    with pytest.raises(InputError, match="has no function 'enrgy'"):
        dry_run(Config.model_validate(wrong), 1)
    for counts, said in (([3, 0, 0], "start 3 ranks or a multiple of them"), ([3, 1, 1], "start 3 ranks, or")):
        split = Config.model_validate({"ranks": dict(zip("xyz", counts, strict=True))})
        with pytest.raises(DecompositionError, match="4 ranks cannot be laid over ranks") as caught:
            dry_run(split, 4)
        assert said in caught.value.do
