"""Where the time of a run went that failed and was resumed, and how often it should save."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hpckit.report.run_data import RunData
from hpckit.report.sections.goodput import daly_interval, goodput, goodput_section


def write(path: Path, **values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def test_time_that_counts_is_what_checkpoints_and_failures_leave(tmp_path: Path) -> None:
    """100 steps in 50 s, killed; 80 of them counted; 60 more in 30 s: 10 s are lost, 4 s went into checkpoints."""
    first, second = tmp_path / "attempts/000", tmp_path / "attempts/001"
    write(first / "progress.json", step=100, elapsed_seconds=50.0)
    write(first / "failure.json", exit_code=7)
    write(second / "resumed.json", step=80)
    run = RunData(tmp_path)
    run.summary = {"wall_seconds": 30.0, "steps": 140, "checkpoints": {"count": 2, "stall_seconds": 4.0}}
    found = goodput(run)
    assert found is not None
    assert (found["total"], found["lost"], found["checkpoints"], found["useful"]) == (80.0, 10.0, 4.0, 66.0)
    assert (found["failures"], found["attempts"], found["goodput"]) == (1, 2, 66 / 80)
    assert found["interval"] == daly_interval(2.0, 80.0)
    said = goodput_section(found)
    assert "Checkpoints: 2, failures: 1, starts: 2." in said
    assert f"checkpoint.every = &quot;{math.ceil(found['interval'])} s&quot;" in said
    (second / "resumed.json").unlink()
    assert goodput(run)["lost"] == 50.0, "begun at the start again: all of it is lost"
    run.summary = {}
    assert goodput(run) is None
    assert goodput_section(None) == ""


def test_the_interval_loses_least() -> None:
    """Against the expected run time with failures at random, Daly's eq. 13: M exp(R/M) (exp((W + C)/M) - 1) T/W."""

    def expected(wait: float, cost: float, between: float) -> float:
        return between * math.expm1((wait + cost) / between) / wait

    for cost, between in ((1.0, 3600.0), (60.0, 7200.0), (300.0, 86400.0)):
        best = daly_interval(cost, between)
        assert best == pytest.approx(math.sqrt(2 * cost * between), rel=0.15)
        for other in (0.9 * best, 1.1 * best):
            assert expected(best, cost, between) < expected(other, cost, between)
    assert daly_interval(100.0, 40.0) == 40.0
