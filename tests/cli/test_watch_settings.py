"""Every run is watched: what the run file and the command line say of it, and what the watcher makes of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_command import probe_app  # noqa: F401  (a fixture)

from hpckit.cli.verbs.run import parser, prepare
from hpckit.comm.observe import status_file
from hpckit.comm.observe.status_file import node_lines, read_nodes
from hpckit.comm.observe.table import GROUPS, HEAD, RUNNING, CallRecord, place, read_head, table_of, write_call
from hpckit.comm.observe.watcher import Options, Watcher
from hpckit.errors import InputError
from hpckit.settings.config import load


@pytest.mark.usefixtures("probe_app")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"limit": 60.0, "check": False, "end": 600.0}),
        (["watch.warn=7", "watch.abort=70"], {"limit": 7.0, "check": False, "end": 70.0}),
        (["watch.warn=7", "--watch", "9"], {"limit": 9.0, "check": False, "end": 600.0}),
        (["--watch", "900"], {"limit": 900.0, "check": False, "end": 900.0}),
        (["--watch-end", "5", "--check"], {"limit": 5.0, "check": True, "end": 5.0}),
        (["watch.off=true"], None),
        (["watch.off=true", "--check"], {"limit": 60.0, "check": True, "end": 600.0}),
        (["--no-watch"], None),
    ],
)
def test_what_is_watched(words: list[str], expected: dict | None) -> None:
    options = parser().parse_intermixed_args(["short", *words])
    directory = prepare(options, ["short", *words], 2)
    assert directory.read_json("resolved.json")["watch"] == expected
    again = load(str(directory.path / "run.toml"), [])
    assert again.values()["watch"]["off"] is ("watch.off=true" in words), "the run file keeps it"


@pytest.mark.usefixtures("probe_app")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["watch.abort=5"], "watch: abort is 5 s, before warn at 60 s"),
        (["watch.worn=5"], "did you mean watch.warn?"),
        (["watch.warn=0"], "watch.warn = 0: expected a number, at least 0.01"),
        (["--no-watch", "--check"], "--no-watch is given with"),
        (["--watch", "9", "--watch-end", "5"], "--watch-end 5 is before --watch 9"),
    ],
)
def test_mistakes(words: list[str], said: str) -> None:
    options = parser().parse_intermixed_args(["short", *words])
    with pytest.raises(InputError, match=said.replace("?", "\\?")):
        prepare(options, ["short", *words], 2)


@pytest.fixture
def two_ranks(tmp_path: Path):
    """A watcher of two processes: rank 0 waits in an operation that rank 1, asleep or not, has not come to."""
    code = "import time; print(flush=True); time.sleep(900)"
    sleeps, computes = (subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2))
    for process in (sleeps, computes):
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"  # the start, with its reading and computing, is over
    table = table_of(tmp_path, 2, create=True)
    for slot in (0, 1):
        HEAD.pack_into(table, place(slot), sleeps.pid, RUNNING, slot, 0, 0)
        words = [["group", 0, "dp", "dp", [0, 1]], ["site", 1, 0, "sum", "float64", "/a/b.py", 7, "f", -1]]
        (tmp_path / f"sites-{slot}").write_text("".join(json.dumps(line) + "\n" for line in words))
    write_call(table, 0, CallRecord(1, 1, 1, 4, -1, ended=0, digest=0))
    table[place(0) + GROUPS] = 1

    def watcher(**options) -> Watcher:
        given = {"limit": 1.0, "end": 3.0, "keep": tmp_path / "kept", "spare_computing": False, **options}
        return Watcher(Options(folder=tmp_path, ranks=2, **given))

    yield table, watcher, sleeps.pid, computes.pid
    for process in (sleeps, computes):
        process.kill()
        process.communicate()


def look(watcher: Watcher, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Look at the ranks now and `seconds` later; the processes that it would end."""
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid) if number == 9 else None)
    now = time.monotonic()
    for moment in (now, now + seconds):
        watcher._look([read_head(watcher.table, slot) for slot in (0, 1)], moment)
    return ended


def test_a_stall_is_told_then_ended_but_not_while_a_late_rank_may_take_its_time(two_ranks, monkeypatch) -> None:
    table, watcher, asleep, computing = two_ranks
    it = watcher()
    assert look(it, 2.0, monkeypatch) == []
    assert (it.told.kind, it.told.culprits, it.told.waiting) == ("late", (1,), (0,))
    assert look(watcher(), 4.0, monkeypatch) == [asleep, asleep]
    kept = json.loads((it.options.keep / "stall.json").read_text())
    assert (kept["ended"], kept["culprits"], kept["ranks"][0]["last"]["sequence"]) == (True, [1], 1)
    # Rank 1 computes: a program of the user's own may take its time, a run of an app may not.
    HEAD.pack_into(table, place(1), computing, RUNNING, 1, 0, 0)
    spared = watcher(spare_computing=True)
    monkeypatch.setattr(
        "hpckit.comm.observe.watcher.process_state", lambda pid, count=[0]: ("R", count.append(0) or 10**6 * len(count))
    )
    assert look(spared, 4.0, monkeypatch) == []
    assert spared.told is not None
    assert look(watcher(), 4.0, monkeypatch) == [asleep, computing]


def test_the_node_says_in_a_file_what_its_ranks_do(two_ranks, monkeypatch) -> None:
    _, watcher, asleep, _ = two_ranks
    monkeypatch.setattr(status_file, "EVERY", 0.0)
    it = watcher(end=0.0)
    look(it, 50.0, monkeypatch)
    (node,) = read_nodes(it.options.keep.parent)
    late, waits = node["ranks"][1], node["ranks"][0]
    assert (waits["inside"], waits["operation"], waits["place"]) == (True, "sum of 4 float64 on dp", "b.py:7 (f)")
    assert (late["pid"], late["life"], late["doing"], late["still"]) == (asleep, "running", "asleep", 50.0)
    said = node_lines(node, node["written"] + 3)
    assert said[0].endswith(": 0 of 2 ranks go on")
    assert said[2] == "  rank 1 is asleep, before its first operation, unchanged for 53 s"
    assert "no word from" in node_lines(node, node["written"] + 1000)[0]
    it.file.remove()
    assert not read_nodes(it.options.keep.parent)


def test_a_rank_that_compiles_or_moves_files_is_no_culprit(two_ranks, monkeypatch) -> None:
    table, watcher, asleep, _ = two_ranks
    HEAD.pack_into(table, place(1), asleep, RUNNING, 1, 0, int(time.monotonic()) + 100)
    it = watcher()
    assert look(it, 50.0, monkeypatch) == []
    assert it.told is None, "it said that it would take 100 s"
    assert look(watcher(), 200.0, monkeypatch) != []
    HEAD.pack_into(table, place(1), asleep, RUNNING, 1, 0, 0)
    sizes = iter((0, 0, 0, 2**24))  # of rank 0 and 1, at first and then
    monkeypatch.setattr("hpckit.comm.observe.watcher._bytes_moved", lambda pid: next(sizes))
    it = watcher()
    assert look(it, 50.0, monkeypatch) == []
    assert it.told is None


def test_a_node_where_nothing_begins_is_idle(two_ranks, monkeypatch) -> None:
    table, watcher, asleep, _ = two_ranks
    write_call(table, 0, CallRecord(1, 1, 1, 4, -1, ended=1, digest=0))  # rank 0 is out of its operation
    it = watcher()
    assert look(it, 2.0, monkeypatch) == []
    assert it.told is None, "computing for longer than the first limit is no stall"
    assert look(it, 4.0, monkeypatch) == [asleep, asleep]
    assert (it.told.kind, it.told.culprits) == ("idle", (0, 1))
    assert "have begun no" in it.told.text()
