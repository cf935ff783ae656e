"""`hpckit plan md`: the plans of molecular dynamics on the command line."""

from __future__ import annotations

import json

import pytest

from hpckit.cli.main import main

SMALL = ["plan", "md", "--ranks", "8", "--particles", "2000"]


def test_ghosts_and_migration_are_proved_and_priced(capsys):
    assert main([*SMALL, "--prove", "--json"]) == 0
    said, proved = capsys.readouterr()
    assert proved.count("proved: ") == 2
    plans = json.loads(said)["plans"]
    assert set(plans) == {"ghosts", "migration"}
    for row in plans.values():
        assert row["seconds"] == pytest.approx(
            sum(row[part] for part in ("latency", "transfer", "contention", "reduction"))
        )
    assert plans["ghosts"]["messages"] == 5  # 4 x 2 x 1 ranks: both sides of x, with and without the step along y
    assert plans["ghosts"]["sent_bytes"] > plans["migration"]["sent_bytes"]
    assert main([*SMALL, "--node-size", "4"]) == 0
    assert "4 x 2 x 1" in capsys.readouterr().out


def test_pictures(capsys, tmp_path):
    assert main([*SMALL, "--draw"]) == 0
    text = capsys.readouterr().out
    assert "ghosts of 2000 particles" in text
    assert "migration of" in text
    for plan in ("ghosts", "migration"):
        target = tmp_path / f"{plan}.svg"
        assert main([*SMALL, "--draw", str(target), "--of", plan]) == 0
        assert target.read_text().startswith("<svg")


def test_forces_of_ghosts_and_a_mesh_of_charges_are_plans_too(capsys, tmp_path):
    charged = [*SMALL, "--returns", "--mesh", "16x20x18"]
    assert main([*charged, "--prove", "--json"]) == 0
    said, proved = capsys.readouterr()
    assert proved.count("proved: ") == 4
    plans = json.loads(said)["plans"]
    assert plans["returns"]["messages"] == plans["ghosts"]["messages"]
    assert plans["mesh"]["sent_bytes"] > 0
    assert main([*charged, "--draw"]) == 0
    assert "mesh of charges of 16 x 20 x 18 points" in capsys.readouterr().out
    for plan in ("returns", "mesh"):
        target = tmp_path / f"{plan}.svg"
        assert main([*charged, "--draw", str(target), "--of", plan]) == 0
        assert target.read_text().startswith("<svg")
        assert main([*SMALL, "--draw", str(target), "--of", plan]) == 2
        assert f"--{plan}" in capsys.readouterr().err


WRONG = {"--ranks": "0", "--density": "-1", "--skin": "nan", "--box": "1x2", "--periodic": "x,q", "--mesh": "8x8"}


@pytest.mark.parametrize("wrong", [*WRONG.items(), ("--order", "9")])
def test_what_cannot_be_is_refused(wrong, capsys):
    assert main([*SMALL, *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err
