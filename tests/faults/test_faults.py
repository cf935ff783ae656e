"""The fault tests in short, and that they notice what they are for; `python -m tests.faults` runs them all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from hpckit.bench.command import main_of
from hpckit.comm.observe.watcher import process_state
from hpckit.errors import InputError
from tests.faults import figures, hangs, hostile
from tests.faults import run as faults
from tests.faults.deaths import again_if_slow, deaths
from tests.faults.run_directories import run_files, run_kills
from tests.faults.untrusted import untrusted

ROOT = Path(__file__).parents[2]


def test_faults_in_short() -> None:
    found_figures = {}
    for only in ("kill", "failpoint", "corruption", "power loss"):
        found = faults.run(quick=True, seed=20261121, only=only)
        assert not found["misses"]
        found_figures |= {key: value["median"] for key, value in found["ratios"].items()}
    assert found_figures == {"kills_bitwise": 1.0, "corrupt_silent": 0.0, "corrupt_crash": 0.0, "powerloss_lost": 0.0}


def test_figures_and_what_they_must_be(capsys, monkeypatch) -> None:
    rows = [{"what": "mutant", "passed": number > 0} for number in range(20)]
    rows += [{"what": "corruption", "passed": False, "ending": ending} for ending in ("loaded", "silent")]
    found = figures.figures_of(rows)
    assert {key: it["median"] for key, it in found.items()} == {
        "mutants_killed": 0.95,
        "corrupt_silent": 1,
        "corrupt_crash": 0,
    }
    costs = {"ckpt_vs_raw": {"median": 0.5}, "ckpt_stall": {"median": 1.5}}
    assert figures.missed(found | costs) == ["corrupt_silent"]
    told = figures.table(found | costs).splitlines()
    verdicts = {line.split()[0]: line.split()[-1] for line in told if line.split()[-1].isupper()}
    assert verdicts == {"corrupt_silent": "MISSED", "ckpt_vs_raw": "SLOWER"}
    for rest, code in (({"missed": ["corrupt_silent"]}, 1), ({"missed": []}, 0), ({}, 0)):
        monkeypatch.setattr(faults, "run", lambda rest=rest, **given: {"bench": "faults", **rest})
        assert main_of(faults, "faults", ["--json"]) == code
        assert json.loads(capsys.readouterr().out) == {"bench": "faults", **rest}


def test_jobs_end_with_the_benchmark() -> None:
    """SIGTERM to the benchmark, as of a time limit, ends the jobs that it started, which are sessions of their own."""
    code = """
import os, signal, sys, threading
from tests.faults.jobs import at_once, job, none_left
begun = threading.Semaphore(0)
def wait():
    with job([sys.executable, "-c", "import time; time.sleep(60)"]) as started:
        os.write(1, f"{started.pid}\\n".encode())  # print writes the end of the line apart: another may be between
        begun.release()
        started.wait()
def end_when_two_run():
    begun.acquire()
    begun.acquire()
    os.kill(os.getpid(), signal.SIGTERM)
with none_left():
    threading.Thread(target=end_when_two_run).start()
    list(at_once([wait, wait, wait]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=150, check=False
    )
    assert ended.returncode == 128 + signal.SIGTERM
    pids = [int(line) for line in ended.stdout.split()]
    assert len(pids) == 2, "the third does not begin"
    assert not [pid for pid in pids if process_state(pid)[0]]


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
    told = [{"what": "kill", "case": "x", "passed": True, "problem": ""}]
    monkeypatch.setitem(faults._KINDS, "kill", lambda tier, seed, random: tier.kills * told)
    assert faults.run(quick=True, only="kill", cases=7)["results"][0]["cases"] == 7
    for only in (None, "mutant"):
        with pytest.raises(InputError, match="7 cases of"):
            faults.run(quick=True, only=only, cases=7)


# What it holds -> where it is given.
HOSTILE = {
    "brackets": ("run file", "site file", "weights", "script of LAMMPS"),
    "digits": ("run file", "machine"),
    "dotted key": ("run file", "graph"),
    "quoted dotted key": ("site file",),
    "many keys": ("run file",),
    "memory": ("run file", "dump", "any trajectory", "sounding", "compared files", "atoms of a script"),
    "pipe": ("run file", "machine", "schedule", "layers", "dump", "extended XYZ", "H5MD", "compared files", "weights"),
    "endless": ("run file", "graph", "atoms"),
    "terminal, bare": ("machine", "schedule", "dump", "word", "option", "settings"),
    "only digits": ("settings",),
    "safetensors brackets": ("weights",),
    "wide columns": ("extended XYZ",),
    "positions of text": ("H5MD",),
    "long line": ("schedule",),
}


def test_files_made_to_do_harm_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HPCKIT_CONFIG", os.devnull)
    monkeypatch.setattr(hostile, "SECONDS", 60.0)  # here nothing is timed
    for number, (name, place) in enumerate((name, place) for name, places in HOSTILE.items() for place in places):
        folder = tmp_path / str(number)
        folder.mkdir()
        hostile.given(name, place, folder, Random(number))


@pytest.mark.nightly
def test_killed_runs_and_changed_run_directories() -> None:
    rows = [*run_kills(Random(5), 4), *run_files(Random(5), 60)]
    assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []


@pytest.mark.nightly
def test_every_safeguard_of_checkpoints_is_tested() -> None:
    found = faults.run(quick=True, seed=1, only="mutant")
    assert [row["case"] for row in found["misses"]] == []
    assert found["ratios"]["mutants_killed"]["median"] == 1.0


@pytest.mark.nightly
def test_models_and_prompts_made_to_do_harm_are_refused(monkeypatch) -> None:
    from tests.faults import hostile_models

    monkeypatch.setattr(hostile_models, "SECONDS", 60.0)  # here nothing is timed
    found = list(hostile_models.campaign())
    assert len(found) > 300
    assert [(case, problem) for case, problem in found if problem] == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["config", "data file", "hostile"])
def test_random_settings_and_files_are_read_or_refused(kind: str) -> None:
    rows = list(untrusted(kind, 11, 30))
    assert len(rows) == 30
    assert [row["problem"] for row in rows if not row["passed"]] == []


@pytest.mark.parametrize(("kind", "ranks", "who", "when"), [("missing", 2, 1, 9)])
def test_hangs_are_named(kind: str, ranks: int, who: int, when: int) -> None:
    row = hangs.hang(kind, ranks, who, when)
    assert row["passed"], row["problem"]


def test_what_a_machine_that_stands_still_spoils_is_tried_again(monkeypatch) -> None:
    """A hang whatever was wrong, with longer limits; a death where nothing but its time was."""
    limits = []

    def hang(kind, ranks, who, when, limit, end):
        limits.append((limit, end))
        return {"passed": len(limits) == 2, "problem": "" if len(limits) == 2 else "told: rank 0"}

    monkeypatch.setattr(hangs, "_hang", hang)
    assert hangs.hang("missing", 2, 1, 9) == {"passed": True, "problem": "", "at_first": "told: rank 0"}
    assert limits == [(hangs.LIMIT, hangs.END), (10 * hangs.LIMIT, 10 * hangs.END)]
    assert not hangs.hang("missing", 2, 1, 9)["passed"], "wrong twice"
    for problems, last in ((["gone after 9.0 s", ""], ""), (["exit code 3, not 7", ""], "exit code 3, not 7")):
        ends = iter(problems)
        assert again_if_slow(lambda ends=ends: {"problem": next(ends)})["problem"] == last


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
