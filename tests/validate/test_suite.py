"""The validation suite: some cases at every test run, all of them at night; and each comparison can fail."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import made_once, mpiexec, run_limited

from hpckit.apps.weather.validate import clouds, density_current, floods, linear_waves, rest, rising_bubble, rotating
from hpckit.apps.weather.validate.case import Output
from hpckit.apps.weather.validate.config import CASES, Config
from hpckit.apps.weather.validate.report import curves, sections
from hpckit.apps.weather.validate.run import SUITE, dry_run
from hpckit.report.run_data import load_run

pytestmark = [
    pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`"),
    pytest.mark.usefixtures("quick_runs"),
]


def suite(folder: Path, *words: str, timeout: float, ranks: int = 2) -> tuple[int, dict]:
    """Run `hpckit run weather/validate WORDS`; its exit code and `validation.json`."""
    command = [sys.executable, "-m", "hpckit.cli.main", "run", "weather/validate", *words, "-n", str(ranks)]
    environment = {**os.environ, "HPCKIT_CONFIG": os.devnull}
    done = run_limited([*command, "--directory", str(folder), "--no-report"], timeout, env=environment)
    assert done.code in (0, 1), done.stderr
    return done.code, json.loads((folder / "validation.json").read_text())


def missed(found) -> set[str]:
    return {check.quantity for check in found.checks if not check.passed}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The fast cases, done once."""

    def run(folder: Path) -> None:
        cases = '["rest", "kelvin", "poincare", "geostrophic_jet", "dam_breaks"]'
        # Kernels may compile on a busy machine.
        code, record = suite(folder, "quick=true", f"cases={cases}", timeout=300, ranks=1)
        assert code == 0, [check for check in record["checks"] if not check["passed"]]

    return made_once(tmp_path_factory, "validation", run)


def folders(run: Path, *names: str) -> dict[str, Path]:
    return {name: run / "cases" / name for name in names}


def test_the_fast_cases_pass_and_are_reported(quick):
    record = json.loads((quick / "validation.json").read_text())
    assert len(record["checks"]) > 20
    assert {check["case"] for check in record["checks"]} >= {"kelvin", "poincare-64", "jet-50", "rest-box-analytic"}
    assert all(check["source"] for check in record["checks"])
    made = {section.key: section for section in sections(load_run(quick))}
    assert set(made) == {"validation", "curves", "pictures"}
    assert "Gill 1982" in made["validation"].html
    assert made["validation"].numbers["missed"] == 0
    assert made["curves"].html.count("<svg") == 4
    assert "cannot be drawn" not in made["pictures"].html
    assert '<div class="grid two"><svg class="panel"' in made["pictures"].html


def test_errors_over_spacings_have_the_spacings_on_their_axis():
    lines = {"ours": ([50.0, 100.0, 400.0], [2e-3, 8e-3, 0.12])}
    text = curves({"title": "t", "x_label": "m", "y_label": "error", "lines": lines, "logarithmic": True})
    ticks = re.findall(r">([\d.]+)</text>", text)
    assert ticks[:3] == ["50", "100", "400"]
    assert {"0.01", "0.1"} <= set(ticks[3:])


@pytest.mark.parametrize(
    ("name", "value", "case", "expected"),
    [
        ("F", 1.05e-4, "poincare", {"phase speed", "phase speed on this grid"}),
        ("GRAVITY", 9.9, "kelvin", {"phase speed"}),
        ("F", 1.05e-4, "kelvin", {"decay off the wall"}),
    ],
)
def test_wrong_constants_are_found(quick, monkeypatch, name, value, case, expected):
    """What the runs had, compared with the theory of another gravity or rotation."""
    monkeypatch.setattr(rotating, name, value)
    runs = folders(quick, f"{case}-32", f"{case}-64")
    assert expected <= missed(getattr(rotating, case)(runs))


def test_dam_breaks_of_another_gravity_are_found(quick, monkeypatch):
    runs = folders(quick, "dam-200", "dam-400", "dry-dam-200", "dry-dam-400")
    assert not missed(floods.dams(runs))
    monkeypatch.setattr(floods, "GRAVITY", 9.81 * 1.01)
    assert "relative L1 error of the depth" in missed(floods.dams(runs))


def test_a_disturbed_rest_is_found(quick, monkeypatch):
    real = Output.__getitem__

    def disturbed(self, name):
        values = real(self, name)
        if name == "theta":
            values[-1, 3] += 1e-8
        return values

    monkeypatch.setattr(Output, "__getitem__", disturbed)
    assert any("theta" in quantity for quantity in missed(rest.compare(folders(quick, "rest-slab-analytic"))))


def test_every_case_is_in_the_suite():
    assert tuple(SUITE) == CASES
    plan = dry_run(Config(), 2)
    assert len(plan.decomposition) == len(Config().cases)
    assert set(Config().cases) <= set(CASES)
    quick_plan = dry_run(Config(quick=True), 2)
    assert quick_plan.steps < plan.steps


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The whole suite."""
    folder = tmp_path_factory.mktemp("suite") / "run"
    return folder, *suite(folder, timeout=3600)


@pytest.mark.nightly
@pytest.mark.timeout(3700)
def test_the_whole_suite_passes(everything):
    _, code, record = everything
    assert [check for check in record["checks"] if not check["passed"]] == []
    assert code == 0


@pytest.mark.nightly
@pytest.mark.timeout(1900)
def test_clouds_and_storms_are_within_their_spread_on_coarse_grids(tmp_path, monkeypatch):
    """Cumuli, stratocumulus, a supercell and a squall line; cumuli without water in the air miss."""
    code, record = suite(tmp_path / "run", "quick=true", 'cases=["bomex", "dycoms", "storms"]', timeout=1800)
    assert [check for check in record["checks"] if not check["passed"]] == []
    assert code == 0
    monkeypatch.setattr(clouds.CloudColumns, "__init__", _clear)
    assert "lowest level with 1 % of cloud" in missed(clouds.compare_bomex(folders(tmp_path / "run", "bomex-quick")))


def _clear(self, folder):
    with h5py.File(folder / "output" / "statistics.h5") as file:
        self._rows = {name: np.asarray(file[name][...], float) for name in file if file[name].dtype.kind == "f"}
    self.times, self.z = self._rows["time"], self._rows["z"]
    self._rows["cloud_fraction"] *= 0.0


@pytest.mark.nightly
@pytest.mark.timeout(3700)
def test_the_long_cases_can_miss(everything, monkeypatch):
    """Another diffusion, another temperature, another gravity: seen in the numbers that they matter for."""
    run, _, _ = everything
    config = Config()
    cases = [name for key in config.cases for name in SUITE[key].runs(config, run)]  # from coarse to fine
    monkeypatch.setattr(linear_waves, "WIND", 20.5)
    assert missed(linear_waves.compare(folders(run, *(name for name in cases if name.startswith("waves-")))))
    monkeypatch.setattr(rising_bubble, "GRAVITY", 9.8 * 1.05)
    bubbles = folders(run, "bubble-start", "bubble-10m", "bubble-5m")
    assert "greatest acceleration" in missed(rising_bubble.compare(bubbles))
    monkeypatch.setattr(rotating, "F", 1.03e-4)
    assert "Rossby radius" in missed(rotating.adjustment(folders(run, "adjustment")))
    monkeypatch.setattr(floods, "GRAVITY", 9.81 * 1.01)
    lakes = floods.lakes(folders(run, *(name for name in cases if name.split("-")[0] in ("bowl", "ripple", "island"))))
    assert {"relative L1 error", "order of the L1 error"} <= missed(lakes)
    straka = folders(run, "straka-theta-100m")
    fronts = density_current.compare({"straka-100m": straka["straka-theta-100m"]})
    assert "front at 900 s" in missed(fronts)  # theta perturbed is not temperature perturbed
    assert np.isfinite([check.ours for check in fronts.checks]).all()
