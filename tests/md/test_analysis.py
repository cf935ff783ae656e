"""What a run measures while it goes on, and the report of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from hpckit.apps.md import report
from hpckit.apps.md.config import PRESETS, Config
from hpckit.apps.md.output.analysis import from_files
from hpckit.apps.md.output.argon import beside_rahman
from hpckit.apps.md.run import dry_run
from hpckit.errors import InputError
from hpckit.md.observables import Measured, Measurements, RadialProfile, StructureFactor
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.report.extension import app_sections
from hpckit.report.run_data import load_run
from hpckit.report.units import with_error
from hpckit.run.settings import with_common

pytestmark = pytest.mark.usefixtures("quick_runs")

SETTINGS = [
    "system.cells=[4,4,3]",
    "system.tilt=[0.6,-0.5,0.4]",
    "time.thermo=20",
    "output.every=20",
    "analysis.every=20",
    "analysis.motion_every=20",
    "analysis.after=100",
    "analysis.reach=2.2",
    "analysis.lags=10",
    "analysis.axis=z",
]


def mixture(folder, ranks, steps=400):
    """The folder of a run of the mixture."""
    words = [
        "run",
        "md/mixture",
        *SETTINGS,
        f"time.steps={steps}",
        "-n",
        str(ranks),
        "--directory",
        str(folder / str(ranks)),
    ]
    command = [sys.executable, "-m", "hpckit.cli.main", *words, "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / str(ranks)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The mixture on 1 and on 2 ranks, with frames written wherever they were measured."""
    folder = tmp_path_factory.mktemp("analysis")
    for ranks in (1, 2):
        mixture(folder, ranks)
    return folder


def test_a_tilted_box_has_the_observables_of_the_upright_one_of_its_lattice():
    """A cell that leans by half an edge, twice along b, fills an upright box; waves are those of the lattice."""
    cell, rng = Cell((1.0, 2.0, 3.0), (6.0, 8.0, 10.0), (2.5, 0.0, 0.0)), np.random.default_rng(2)
    places, count = np.array(cell.lower) + rng.random((300, 3)) @ cell.matrix, 300
    twice = np.concatenate([places, places + cell.matrix[1]])
    upright = Cell((1.0, 2.0, 3.0), (6.0, 14.0, 10.0))
    frames = []
    for box, each in ((cell, places), (upright, twice)):
        wrapped, images = box.wrapped(each, True)
        types = np.tile(np.arange(count) % 2, len(each) // count)
        ends = np.array(box.lower), np.array(box.upper), (True,) * 3, np.arange(1, len(each) + 1), types
        frames.append(Snapshot(*ends, wrapped, images, masses=np.ones(2), tilt=np.array(box.tilt)))
    leaning, straight = (Measurements.of([each], Measured(2.2, axis="z", lags=0), 2).result() for each in frames)
    for part in ("radial", "profile"):
        same(leaning[part], straight[part])
    # A droplet across the faces is round about its own middle.
    drop = rng.normal(0, 0.25, (300, 3)) + cell.matrix.sum(axis=0)
    wrapped, _ = cell.wrapped(drop, True)
    profile = RadialProfile(20)
    profile.add(replace(frames[0], positions=wrapped))
    assert profile.result().density[12:].max() == 0.0
    structure = StructureFactor(4.0, 60)
    structure.add(frames[0])
    waves = np.stack(np.meshgrid(*[np.arange(-9, 10)] * 3, indexing="ij"), axis=-1).reshape(-1, 3) @ cell.reciprocal
    length = np.linalg.norm(waves, axis=1)
    waves, length = waves[(length > 0) & (length <= 4.0)], length[(length > 0) & (length <= 4.0)]
    powers = np.abs(np.exp(1j * places @ waves.T).sum(axis=0)) ** 2 / count
    found = structure.result()
    assert found.waves.sum() == len(waves) // 2
    assert found.s @ found.waves == pytest.approx(powers.sum() / 2, rel=1e-9)
    assert found.k @ found.waves == pytest.approx(length.sum() / 2, rel=1e-9)


def read(folder):
    return json.loads((folder / "output/analysis.json").read_text())


def same(one, other, relative=1e-9):
    """The same numbers in the same places, to rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key], relative)
    elif isinstance(one, list) and one and not isinstance(one[0], dict):
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=relative, atol=1e-9)
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-6, abs=1e-9)
    elif isinstance(one, list):
        for mine, yours in zip(one, other, strict=True):
            same(mine, yours, relative)
    else:
        assert one == other


@pytest.mark.nightly
def test_ranks_and_files_give_the_same(runs):
    one, two = read(runs / "1"), read(runs / "2")
    assert one["radial"]["frames"] == one["motion"]["frames"] == 16
    assert set(one["radial"]["partial"]) == {"1-1", "1-2", "2-2"}
    assert len(one["motion"]["types"]) == 2
    same(one, two, 1e-6)
    later = from_files(with_common(Config).model_validate(load_run(runs / "1").values), runs / "1" / "output")
    assert later.pop("source") == "trajectory"
    del one["source"]
    same(later, one)


@pytest.mark.nightly
def test_the_sections_of_the_report(runs):
    run = load_run(runs / "1")
    found = {section.key: section for section in app_sections(report, run)}
    assert list(found) == ["state", "structure", "motion", "speeds", "profile", "picture"]
    assert not run.problems
    assert all("<svg" in section.html for section in found.values())
    late = [line["temperature"] for line in run.metrics if line["step"] >= 100]
    state = found["state"].numbers
    assert state["temperature"]["mean"] == pytest.approx(np.mean(late))
    assert abs(state["drift"]) < 1e-3
    shown = with_error(state["temperature"]["mean"], state["temperature"]["error"])
    assert f'<td >temperature</td><td class="n">{shown[0]}</td><td class="n">{shown[1]}</td>' in found["state"].html
    assert "errors from the spread over 8 blocks" in found["state"].html
    run.metrics[:] = run.metrics[-2:]
    few = app_sections(report, run)[0]
    assert ">nan<" not in few.html
    assert "drift" not in few.numbers
    assert "no errors: they need 16 values" in few.html
    assert set(found["motion"].numbers) == {"all", "type 1", "type 2"}


def test_the_last_frame_serves_where_nothing_was_measured(tmp_path):
    run = mixture(tmp_path, 1, 120)
    assert read(run)["radial"]["frames"] == 2
    config = with_common(Config).model_validate(load_run(run).values)
    assert from_files(config, tmp_path) == {}
    (tmp_path / "end.data").write_bytes((run / "output/end.data").read_bytes())
    found = from_files(config, tmp_path)
    assert found["source"] == "last frame"
    assert found["radial"]["frames"] == 1
    assert "motion" not in found


def test_rahmans_figures_stand_beside_argon_only():
    argon = Config.model_validate(PRESETS["argon"][1])
    found = {
        "radial": {"peak": [3.7, 2.8]},
        "structure": {"k": [1.0, 2.0], "s": [0.2, 2.3]},
        "motion": {"einstein": {"diffusion": 2.43e-4, "error": None}},
    }
    assert [check.passed for check in beside_rahman(argon, 94.0, found)] == [True] * 4
    found["motion"]["einstein"]["diffusion"] = 3.2e-4
    found["radial"]["peak"][0] = 3.9
    assert [check.passed for check in beside_rahman(argon, 94.0, found)] == [True, False, True, False]
    assert not beside_rahman(argon, 120.0, found)
    assert not beside_rahman(Config(), 94.4, found)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"analysis": {"reach": 9.0}, "system": {"cells": [4, 9, 9]}}, "least periodic width of the box 6.7"),
        ({"analysis": {"k_max": 5.0}, "system": {"periodic": ["x"]}}, "needs a box that is periodic"),
    ],
)
def test_what_does_not_fit_the_box_is_told_before_the_run(settings, said):
    with pytest.raises(InputError, match=said):
        dry_run(Config.model_validate(settings), 2)


@pytest.mark.nightly
def test_an_open_box_and_another_potential_have_their_observables(tmp_path):
    """Two types that attract each other as Morse has it, a thermostat, open ends: profile and picture, and no drift."""
    words = ["system.cells=[6,6,6]", "system.droplet=3", 'system.periodic=["x"]', "time.steps=20", "analysis.every=10"]
    words += ["interaction.kind=morse", "interaction.parameters=[1.0,5.0,1.12]", "dynamics.kind=bussi"]
    words += ["system.masses=[1.0,2.0]", "system.fractions=[0.5,0.5]"]
    words = ["run", "md/droplet", *words, "analysis.after=0", "--directory", str(tmp_path / "r"), "--no-report"]
    command = [sys.executable, "-m", "hpckit.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(tmp_path / "r")
    found = {section.key: section for section in app_sections(report, run)}
    assert {"structure", "profile", "picture"} <= found.keys()
    assert "drift" not in found["state"].numbers
    assert "type 1, type 2" in found["picture"].html
    assert not run.problems
