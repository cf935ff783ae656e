"""What the end of a run says of going on."""

from __future__ import annotations

import pytest

from hpckit.cli.ending import end_of_run
from hpckit.cli.launch import JobEnd
from hpckit.run_directory import RunDirectory


@pytest.mark.parametrize("cases", [False, True], ids=["run", "suite"])
def test_a_stopped_run_says_how_to_go_on(tmp_path, capsys, cases):
    directory = RunDirectory.create(tmp_path / "run")
    if cases:
        (directory.path / "cases").mkdir()
    directory.write_json("summary.json", {"status": "stopped", "app": "probe", "ranks": 1, "exit_code": 75})
    assert end_of_run(directory, JobEnd(0), report=False) == 75
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.endswith(f": hpckit resume {directory.path}")
    assert ("finished runs are complete" in said) is cases
