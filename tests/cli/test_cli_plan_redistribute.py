"""`hpckit plan redistribute`: changes of layout on the command line."""

from __future__ import annotations

import json

import pytest

from hpckit.cli.main import main

SUMS = [
    "plan",
    "redistribute",
    "--shape",
    "64x30",
    "--mesh",
    "dp=2,tp=4",
    "--from",
    "dp=S0,tp=P",
    "--to",
    "dp=S0,tp=S1",
]


def test_the_ways_are_proved_and_priced(capsys):
    assert main([*SUMS, "--prove", "--json"]) == 0
    said, proved = capsys.readouterr()
    found = json.loads(said)
    assert proved.count("proved: ") == len(found["ways"]) == 2
    assert found["ranks"] == 8
    ways = {row["way"]: row for row in found["ways"]}
    scattered = ways["reduce-scatter"]
    assert (scattered["messages"], scattered["sent_bytes"]) == (3, 32 * (30 - 7) * 4)  # all but its own 7 columns
    for row in ways.values():
        parts = ("latency", "transfer", "contention", "reduction")
        assert row["seconds"] == pytest.approx(sum(row[part] for part in parts))
    assert main(SUMS) == 0
    assert "rank 0 holds 32 x 30, then 32 x 8" in capsys.readouterr().out


def test_pictures(capsys, tmp_path):
    assert main([*SUMS, "--draw"]) == 0
    assert "redistribution of 64 x 30" in capsys.readouterr().out
    target = tmp_path / "ways.svg"
    assert main([*SUMS, "--draw", str(target)]) == 0
    assert target.read_text().startswith("<svg")


def test_all_mistakes_are_told_at_once(capsys):
    assert main(["plan", "redistribute", "--shape", "5y", "--mesh", "a=2", "--from", "b=S0", "--to", "a=Q"]) == 2
    said = capsys.readouterr().err
    for words in ("--shape is '5y'", "no axis b", "--to is 'a=Q'"):
        assert words in said
    assert main(["plan", "redistribute", "--shape", "5", "--mesh", "a=2", "--to", "a=S1"]) == 2
    assert "a cuts dim 1 of 1" in capsys.readouterr().err
