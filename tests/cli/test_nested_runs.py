"""APP/PRESET, apps inside apps, runs inside runs, and validations that miss a number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_command import hpckit, probe_app  # noqa: F401  (a fixture)
from conftest import mpiexec

from hpckit.apps.common.validation import Check, at_least, at_most, convergence_order, near

pytestmark = pytest.mark.usefixtures("quick_ranks")

needs_mpi = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`")


def read(path: Path):
    return json.loads(path.read_text())


def written(path: Path) -> tuple[int, int]:
    """Changes with every writing of a file, and not when it is read."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


@needs_mpi
def test_a_run_of_runs(tmp_path):
    words = ("-n", 2, "--directory", "outer", "--no-report", "checks.messages=true")
    outcome = hpckit("run", "probe/twice", *words, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "1 of 1 numbers are what they should be" in outcome.stdout
    assert "probe on 2 ranks" not in outcome.stdout  # nested runs are silent
    first = tmp_path / "outer" / "cases" / "first"
    assert read(first / "summary.json")["status"] == "done"
    assert read(first / "resolved.json")["values"]["grid"]["nx"] == 41
    assert read(first / "resolved.json")["values"]["time"]["steps"] == 3  # of the preset
    assert read(first / "resolved.json")["values"]["checks"] == {"replay": 0, "messages": True}  # of the outer run
    assert len((first / "metrics.jsonl").read_text().splitlines()) == 3
    outcome = hpckit("run", "outer/cases/first/run.toml", "--directory", "again", "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert read(tmp_path / "again" / "resolved.json")["values"] == read(first / "resolved.json")["values"]


@pytest.mark.nightly
@needs_mpi
def test_a_run_of_runs_goes_on_with_those_that_are_left(tmp_path):
    """It was lost in its second run; then somebody had changed what the first was; then the second had not begun."""
    outcome = hpckit("run", "probe/twice", "-n", 2, "--directory", "outer", "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    outer, first, second = (tmp_path / name for name in ("outer", "outer/cases/first", "outer/cases/second"))
    for lost in (outer / "summary.json", second / "summary.json"):
        lost.unlink()
    (second / "torn").write_text("left by the lost run")
    before = written(first / "summary.json")
    outcome = hpckit("resume", "outer", "-n", 1, "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "first: has ended before, kept" in outcome.stdout
    assert "second: has ended" not in outcome.stdout
    assert written(first / "summary.json") == before
    assert (read(second / "summary.json")["steps"], (second / "torn").exists()) == (3, False)
    assert read(outer / "summary.json")["status"] == "done"
    (outer / "summary.json").unlink()
    record = read(first / "resolved.json")
    record["values"]["grid"]["nx"] = 40
    (first / "resolved.json").write_text(json.dumps(record))
    outcome = hpckit("resume", "outer", "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "second: has ended before, kept" in outcome.stdout
    assert read(first / "resolved.json")["values"]["grid"]["nx"] == 41
    (outer / "summary.json").unlink()
    shutil.rmtree(second)
    outcome = hpckit("resume", "outer", "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert read(second / "summary.json")["status"] == "done"


@pytest.mark.nightly
@needs_mpi
def test_a_number_that_misses_ends_with_1(tmp_path):
    outcome = hpckit("run", "probe/twice/four", "-n", 2, "--directory", "missed", "--no-report", cwd=tmp_path)
    assert outcome.code == 1
    assert "MISS" in outcome.stdout
    assert "missed: second, steps: 4, should be 3 ± 0.5" in outcome.stdout
    assert read(tmp_path / "missed" / "summary.json")["status"] == "missed"
    outcome = hpckit("run", "probe/twice", "fail=true", "-n", 2, "--directory", "lost", "--no-report", cwd=tmp_path)
    assert outcome.code == 1, outcome.stderr
    assert "missed: second, steps: not finite" in outcome.stdout
    inner = tmp_path / "lost" / "cases" / "second"
    assert read(inner / "summary.json")["exit_code"] == 4
    assert "u is not finite" in read(inner / "attempts" / "000" / "failure.json")["report"]
    outcome = hpckit("run", "probe/twice", "wrong=true", "-n", 2, "--directory", "wrong", "--no-report", cwd=tmp_path)
    assert outcome.code == 2
    assert "settings of the nested run second" in outcome.stderr
    assert "nq" in outcome.stderr


@pytest.mark.nightly
@needs_mpi
def test_a_stop_ends_the_runs_inside_too(tmp_path):
    """The stop file of the outer run is there before the inner one looks."""
    folder = tmp_path / "stop"
    program = (
        "from mpi4py import MPI\n"
        "from hpckit.cli.nested import start_nested\n"
        "from hpckit.run.context import Run\n"
        f"run = Run(MPI.COMM_WORLD, {str(folder)!r}, app='outer', start=start_nested)\n"
        "if run.rank == 0:\n    run.directory.request_stop()\n"
        "inner = run.nested('probe', {'time': {'steps': 9}}, 'inner')\n"
        "assert inner.read_json('summary.json')['status'] == 'stopped'\n"
        "assert inner.read_json('summary.json')['steps'] == 1\n"
    )
    (tmp_path / "program.py").write_text(program)
    outcome = hpckit("run", "program.py", "-n", 2, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr


@pytest.mark.usefixtures("probe_app")
def test_presets_by_app(tmp_path):
    from hpckit.errors import InputError
    from hpckit.settings.apps import find_preset
    from hpckit.settings.config import is_run_file

    for name in ("probe/short", "probe.short", "short"):
        app, preset = find_preset(name)
        assert (app.name, preset) == ("probe", "short")
        assert not is_run_file(name)
    assert find_preset("probe/twice")[0].package == "probe_app.twice"
    assert find_preset("probe/twice/four") == (find_preset("probe/twice")[0], "four")
    assert find_preset("weather/validate")[0].package == "hpckit.apps.weather.validate"
    with pytest.raises(InputError, match="the app probe has no preset 'shrt'") as caught:
        find_preset("probe/shrt")
    assert "did you mean 'short'?" in caught.value.likely
    assert "twice" in caught.value.do
    with pytest.raises(InputError, match="the app probe has no preset 'thermal3d'") as caught:
        find_preset("probe/thermal3d")
    assert "did you mean weather3d/thermal3d?" in caught.value.likely
    assert is_run_file("folder/short")
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "short").write_text("")
    assert is_run_file("probe/short")  # a file that is there wins


@needs_mpi
def test_a_run_made_by_hand_starts_no_other(tmp_path):
    program = (
        "from mpi4py import MPI\n"
        "from hpckit.errors import SetupError\n"
        "from hpckit.run.context import Run\n"
        "try:\n    Run(MPI.COMM_WORLD, 'alone').nested('probe', {}, 'inner')\n"
        "except SetupError as error:\n    assert 'cannot start another app' in error.message\n"
        "else:\n    raise AssertionError\n"
    )
    (tmp_path / "program.py").write_text(program)
    outcome = hpckit("run", "program.py", "-n", 1, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr


def test_checks():
    assert near("c", "q", 1.04, 1.0, 0.05, "s").passed
    assert not near("c", "q", 1.06, 1.0, 0.05, "s").passed
    assert not near("c", "q", float("nan"), 1.0, 0.05, "s").passed
    assert at_most("c", "q", -3.0, 1.0, "s").passed
    assert not at_most("c", "q", float("inf"), 1.0, "s").passed
    assert not at_least("c", "q", 0.9, 1.0, "s").passed
    assert near("c", "q", 0, 12.0, 0.5, "s").allowed == "12 ± 0.5"
    assert near("c", "q", 0, 15537.0, 400.0, "s").allowed == "15537 ± 400"
    assert at_most("c", "q", 0, 1e-9, "s").allowed == "at most 1e-09"
    assert at_least("c", "q", 0, 1.9, "s").allowed == "at least 1.9"
    assert Check("c", "q", 0.0, 1.0, 2.0, "s").allowed == "1 to 2"
    assert convergence_order([4.0, 2.0, 1.0], [9.0, 8.0, 1.0]) == pytest.approx(3.0)
