"""The fault tests in short, and that they notice what they are for; `hpckit bench faults --tier T0` runs them all."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hpckit.bench import faults
from hpckit.bench.fault_cases import hangs
from hpckit.bench.fault_cases.deaths import deaths
from hpckit.bench.fault_cases.untrusted import untrusted
from hpckit.cli.bench import benchmarks
from hpckit.errors import InputError


def test_faults_in_short() -> None:
    figures = {}
    for only in ("kill", "failpoint", "corruption", "power loss"):
        found = faults.run(quick=True, seed=20261121, only=only)
        assert not found["misses"]
        figures |= {key: value["median"] for key, value in found["ratios"].items()}
    assert figures == {"kills_bitwise": 1.0, "corrupt_silent": 0.0, "corrupt_crash": 0.0, "powerloss_lost": 0.0}
    assert "seed" in benchmarks()["faults"]


def test_what_was_found_is_kept_and_not_run_again(tmp_path: Path, monkeypatch) -> None:
    def half(tier, seed, random):
        yield {"what": "kill", "case": "first", "passed": True, "problem": ""}
        raise OSError("no process can be made")

    monkeypatch.setitem(faults._KINDS, "kill", half)
    kept = tmp_path / "found.json"
    found = faults.run(quick=True, seed=3, only="kill", keep=kept)
    assert found["ratios"]["kills_bitwise"]["median"] == 0.5, "a kind that cannot be run is no success"
    assert "no process can be made" in found["misses"][0]["problem"]
    monkeypatch.setitem(faults._KINDS, "kill", lambda tier, seed, random: pytest.fail("it was run again"))
    again = faults.run(quick=True, only="kill", keep=kept)
    assert again["seed"] == 3
    assert again["ratios"] == found["ratios"]
    for arguments in ({"seed": 4}, {"tier": "T1", "quick": False}):
        with pytest.raises(InputError, match="not what this tier and seed found"):
            faults.run(**{"quick": True, "only": "kill", "keep": kept, **arguments})
    with pytest.raises(InputError, match="no kind 'kills'"):
        faults.run(quick=True, only="kills")


@pytest.mark.nightly
def test_every_safeguard_of_checkpoints_is_tested() -> None:
    found = faults.run(quick=True, seed=1, only="mutant")
    assert [row["case"] for row in found["misses"]] == []
    assert found["ratios"]["mutants_killed"]["median"] == 1.0


@pytest.mark.parametrize("kind", ["config", "data file"])
def test_random_settings_and_files_are_read_or_refused(kind: str) -> None:
    rows = list(untrusted(kind, 11, 30))
    assert len(rows) == 30
    assert [row["problem"] for row in rows if not row["passed"]] == []


@pytest.mark.parametrize(("kind", "ranks", "who", "when"), [("missing", 2, 1, 9), ("root", 2, 0, 3)])
def test_hangs_are_named(kind: str, ranks: int, who: int, when: int) -> None:
    row = hangs.hang(kind, ranks, who, when)
    assert row["passed"], row["problem"]


def test_a_report_that_names_another_rank_or_line_is_no_good() -> None:
    call = {"operation": "Reduce", "line": hangs.line_of("REDUCE"), "group": "world"}
    due = {"operation": "Allreduce", "line": hangs.line_of("SUM"), "group": "world"}
    ranks = [{"rank": rank, "last": call, "stack": []} for rank in range(4)]
    good = {"kind": "differ", "culprits": [2], "calls": {"2": call}, "due": due, "ranks": ranks, "text": "x"}
    assert hangs.named("mismatch", 4, 2, 5, good) == "", "as it should be"
    for wrong in ({"culprits": [1]}, {"culprits": [1, 2]}, {"calls": {"2": {**call, "line": 1}}}, {"due": None}):
        assert hangs.named("mismatch", 4, 2, 5, {**good, **wrong}) != ""
    assert hangs.named("mismatch", 4, 2, 5, None) == "no report"


@pytest.mark.nightly
def test_hangs_and_deaths() -> None:
    rows = [*hangs.hangs(Random(3), 1), *deaths(Random(3), 12)]
    assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []
