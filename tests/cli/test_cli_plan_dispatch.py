"""`hpckit plan dispatch`: tokens to experts on the command line."""

from __future__ import annotations

import json

from hpckit.cli.main import main

FEW = ["plan", "dispatch", "--ranks", "8", "--experts", "16", "--tokens", "12", "--node-size", "4"]


def test_a_dispatch_is_proved_and_priced_in_one_level_and_in_two(capsys, tmp_path):
    assert main([*FEW, "--prove", "--json"]) == 0
    said, proved = capsys.readouterr()
    one, two = json.loads(said)["ways"]
    assert proved.count("proved: ") == 2
    assert (one["levels"], two["levels"]) == (1, 2)
    assert two["between nodes"] < two["between nodes in one level"] < one["rows"]
    assert main([*FEW, "--draw", str(tmp_path / "a.svg")]) == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()
    assert main([*FEW, "--machine", "selene", "--export-trace", str(tmp_path / "trace")]) == 0
    assert (tmp_path / "trace").is_dir()


def test_mistakes_are_told_at_once(capsys):
    assert main(["plan", "dispatch", "--ranks", "0", "--tokens", "-1"]) == 2
    assert "--ranks is 0; --tokens is -1" in capsys.readouterr().err
    assert main([*FEW[:-1], "3", "--top-k", "20"]) == 2
    assert "20 of 16 experts; 8 ranks do not fill nodes of 3" in capsys.readouterr().err
