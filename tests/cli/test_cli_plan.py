"""`hpckit plan`: tables, JSON, drawings and wrong input."""

from __future__ import annotations

import json

import pytest

from hpckit.cli.main import main
from hpckit.cli.verbs.plan import verb
from hpckit.errors import InputError, PlanError
from hpckit.settings.sizes import parse_bytes


def test_algorithms_are_compared_best_first(capsys):
    assert main(["plan", "allreduce", "--ranks", "512", "--bytes", "64MiB", "--machine", "nvlink", "--prove"]) == 0
    out = capsys.readouterr().out
    assert "proved: all_reduce by ring: 512 ranks" in out
    first = [line.split()[0] for line in out.splitlines() if line.strip()]
    rows = [word for word in first if word in ("torus", "ring", "tree", "naive")]
    assert rows == ["torus", "ring", "tree", "naive"]
    assert "data sheet" in out


def test_a_long_plan_that_cannot_be_the_quickest_is_told_by_a_bound(capsys, monkeypatch):
    arguments = ["plan", "allreduce", "--ranks", "100", "--bytes", "1KiB", "--machine", "ethernet", "--json"]
    assert main(arguments) == 0
    exact = {row["algorithm"]: row for row in json.loads(capsys.readouterr().out)["algorithms"]}
    monkeypatch.setattr(verb, "MOST_MESSAGES", 2000)
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["algorithms"]
    ring = next(row for row in rows if row["algorithm"] == "ring")
    assert ring["seconds"] is None
    assert rows[0]["seconds"] < ring["at_least"] <= exact["ring"]["seconds"]
    assert main(arguments[:-1]) == 0
    out = capsys.readouterr().out
    told = next(line for line in out.splitlines() if line.startswith("slower than the quickest, by a bound"))
    assert "--algorithm ring" in told
    assert main([*arguments, "--algorithm", "ring"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["algorithms"]
    assert row["seconds"] == exact["ring"]["seconds"]


def test_json_has_everything(capsys):
    assert main(["plan", "all-to-all", "--ranks", "6", "--bytes", "1.5MB", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["operation"], said["bytes"], said["ranks"]) == ("all_to_all", 1_500_000, 6)
    assert {row["algorithm"] for row in said["algorithms"]} == {"pairwise", "staged", "symmetric"}  # on one node
    for row in said["algorithms"]:
        parts = ("latency", "transfer", "contention", "reduction")
        assert row["seconds"] == pytest.approx(sum(row[part] for part in parts))


def test_drawings(capsys, tmp_path):
    assert main(["plan", "allreduce", "--ranks", "4", "--algorithm", "ring", "--draw"]) == 0
    assert "all_reduce by ring: 4 ranks" in capsys.readouterr().out
    target = tmp_path / "ring.svg"
    assert main(["plan", "allreduce", "--ranks", "4", "--algorithm", "ring", "--draw", str(target)]) == 0
    assert target.read_text().startswith("<svg")
    assert main(["plan", "allreduce", "--ranks", "4", "--draw", str(target)]) == 2
    assert "one plan goes into one picture" in capsys.readouterr().err
    target = tmp_path / "nowhere/ring.svg"
    assert main(["plan", "allreduce", "--ranks", "4", "--algorithm", "ring", "--draw", str(target)]) == 3
    assert "there is no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["allredce"], "did you mean 'all_reduce'"),
        (["allreduce", "--machine", "nix"], "there is no machine 'nix'"),
        (["mesh"], "choose one of all_reduce"),
        (["halos"], "did you mean 'halo': hpckit plan halo"),
        (["gosip"], "did you mean 'gossip'"),
        (["allreduce", "--bytes", "3foo"], "'3foo' is not a size"),
        (["allreduce", "--ranks", "0"], "0 ranks"),
        (["broadcast", "--root", "16"], "one of the 16 ranks"),
        (["allreduce", "--root", "0"], "all_reduce takes no --root"),
        (["allreduce", "--algorithm", "ring", "--node-size", "2", "--servers", "3"], "takes no --servers, --node-size"),
        (["gossip", "--segments", "2", "--node-size", "2"], "takes no --segments, --node-size"),
        (["allreduce", "--algorithm", "rnig"], "did you mean 'ring'"),
    ],
)
def test_wrong_input_is_one_message(arguments, said, capsys):
    assert main(["plan", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_sizes():
    assert [parse_bytes(text) for text in ("0", "4096", "64KiB", "1.5GB", "2k", "1e6 B")] == [
        0, 4096, 65536, 1_500_000_000, 2048, 1_000_000,
    ]  # fmt: skip
    for text in ("", "-1", "1 2", "5 parsecs"):
        with pytest.raises(InputError):
            parse_bytes(text)


def test_an_algorithm_of_ones_own_is_proved_and_compared(tmp_path, capsys):
    """`--from`: one that is right, wrong in its numbers, and every way in which none is found."""
    file = tmp_path / "mine.py"
    file.write_text(
        """
from hpckit.plan.collective.algorithms import collective_plan
from dataclasses import replace

def ring(ranks, segments=1):
    return collective_plan("all_reduce", "ring", ranks, segments=segments)

def short(ranks):
    return replace(ring(ranks), length=ranks)

def broken(ranks):
    return 1 // 0

def other(ranks):
    return 7
"""
    )
    arguments = ["allreduce", "--ranks", "8", "--segments", "2", "--json", "--from"]
    assert verb.main([*arguments, f"{file}:ring"]) == 0
    said = capsys.readouterr()
    assert "proved: all_reduce by ring" in said.err
    rows = [row for row in json.loads(said.out)["algorithms"] if row["algorithm"] == "ring"]
    assert len(rows) == 2
    assert rows[0]["seconds"] == rows[1]["seconds"]
    with pytest.raises(PlanError):
        verb.main([*arguments, f"{file}:short"])
    for name, words in (
        (f"{file}:none", "no function 'none'"),
        (f"{file}:broken", "ZeroDivisionError"),
        (f"{file}:other", "returns 7"),
        (f"{tmp_path}/no.py:ring", "no file"),
        (str(file), "FILE.py:FUNCTION"),
    ):
        with pytest.raises(InputError, match=words):
            verb.main([*arguments, name])
    with pytest.raises(InputError, match="not of broadcast"):
        verb.main(["broadcast", "--from", f"{file}:ring"])
