"""`hpckit plan train`: tables, JSON, drawings, and wrong input."""

from __future__ import annotations

import json

from hpckit.cli.main import main

TRAIN = ["plan", "train"]
SMALL = [*TRAIN, "llama3-8b", "--ranks", "16", "--machine", "selene", "--batch", "64"]


def test_a_choice_comes_with_its_reasons(capsys):
    assert main(SMALL) == 0
    said = capsys.readouterr().out
    for part in ("MFU", "memory of the fullest rank", "messages of the axes", "runner-up", "half the network", "why"):
        assert part in said


def test_json_has_everything_and_parts_add_up(capsys):
    assert main([*SMALL, "--brief", "--tp", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    best = said["best"]
    assert best["split"]["tp"] == 4
    assert sum(best["parts"].values()) == best["seconds"]
    assert best["tokens_per_second"] == 64 * 8192 / best["seconds"]
    assert said["others"][0]["seconds"] >= best["seconds"]
    assert set(said["traffic"]) >= {"tp"}


def test_several_numbers_of_ranks_make_a_table(capsys):
    assert main([*TRAIN, "llama3-8b", "--ranks", "2,16", "--machine", "llama3", "--batch", "64"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert any(row[:1] == ["2"] and "fit:" in row for row in rows)
    assert any(row[:1] == ["16"] and "none" in row for row in rows)


def test_the_step_is_drawn(capsys, tmp_path):
    picture = tmp_path / "step.svg"
    assert main([*SMALL, "--pp", "4", "--schedule", "1f1b", "--draw", str(picture)]) == 0
    assert picture.read_text().startswith("<svg")


def test_a_preset_of_the_app_is_a_model(capsys):
    more = ["--ranks", "4", "--machine", "selene", "--batch", "64", "--brief", "--ep", "2"]
    assert main([*TRAIN, "train/moe", *more]) == 0
    assert "train/moe, 0.009" in capsys.readouterr().out  # B parameters
    more += ["--pp", "2", "--schedule", "zb_v", "--json"]
    for given, there in ("--paired", True), ("--no-paired", False):
        assert main([*TRAIN, "train/moe", *more, given]) == 0
        assert json.loads(capsys.readouterr().out)["best"]["split"]["paired"] is there


def test_all_mistakes_are_said_at_once(capsys):
    wrong = [*TRAIN, "llama3-9b", "--ranks", "0", "--machine", "ethernet", "--batch", "-1"]
    assert main(wrong) == 2
    said = capsys.readouterr().err
    for part in ("no model 'llama3-9b'", "--ranks is 0", "does not say what its ranks compute", "--batch is -1"):
        assert part in said
    assert main([*TRAIN, "llama3-405b", "--ranks", "64", "--machine", "selene"]) == 2
    said = capsys.readouterr().err
    assert "does not fit" in said
    assert "take about" in said
    for words, part in (
        (["--ranks", "8", "--tp", "5"], "tp=5 does not divide 8 ranks"),
        (["--ranks", "10", "--tp", "5"], "tp=5 does not divide 32 heads"),
        (["--ranks", "8", "--ep", "2"], "no experts"),
        (["--ranks", "2", "--tp", "1", "--pp", "1", "--cp", "1", "--batch", "3"], "no mesh of 2 ranks"),
    ):
        assert main([*TRAIN, "llama3-8b", "--machine", "selene", *words]) == 2
        assert part in capsys.readouterr().err


def test_the_step_is_proved_and_exported(capsys, tmp_path):
    small = [*SMALL, "--pp", "2", "--tp", "4", "--brief"]
    assert main([*small, "--prove"]) == 0
    said = capsys.readouterr().out
    assert "no rank waits for ever" in said
    assert "price of its plan" in said
    folder = tmp_path / "trace"
    assert main([*small, "--export-trace", str(folder)]) == 0
    assert "smpirun -replay" in capsys.readouterr().err
    assert (folder / "rank15").exists()
    for words in (["allreduce", "--ranks", "4", "--algorithm", "ring"], ["halo", "--ranks", "4", "--shape", "64x64"]):
        assert main(["plan", *words, "--machine", "selene", "--export-trace", str(tmp_path / words[0])]) == 0
    times = ["--times", "1,1,1", "--schedule", "1f1b", "--machine", "selene"]
    assert main(["plan", "pipeline", *times, "--export-trace", str(tmp_path / "pipeline")]) == 0
