"""`hpckit report DIR --picture FILE`."""

from __future__ import annotations

from made_run import make_run

from hpckit.cli.main import main


def test_a_picture_is_drawn_from_the_command_line(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    (run / "resolved.json").touch()
    picture = tmp_path / "thermal.png"
    assert main(["report", str(run), "--picture", str(picture), "--times", "2"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(run), "--picture", str(tmp_path / "thermal.gif")]) == 2
    assert main(["report", str(run), "--picture", str(picture), "--times", "0"]) == 2
    assert main(["report", str(run), "--picture", str(picture), "--variable", "thta"]) == 2
    assert "theta" in capsys.readouterr().err
    assert main(["report", str(run), "--picture", str(tmp_path / "nowhere/thermal.png")]) == 3
    said = capsys.readouterr().err
    assert "cannot write thermal.png: there is no such folder" in said
    assert ".tmp" not in said
