"""What the end of a run says of going on."""

from __future__ import annotations

import pytest

from hpckit.cli.ending import end_of_run
from hpckit.cli.launch import JobEnd
from hpckit.run_directory import RunDirectory


@pytest.mark.parametrize(
    ("cases", "command"), [(False, "hpckit resume {run}"), (True, "hpckit run {run}/run.toml")], ids=["run", "suite"]
)
def test_a_stopped_run_says_how_to_go_on(tmp_path, capsys, cases, command):
    """A run of runs has no state to resume from."""
    directory = RunDirectory.create(tmp_path / "run")
    if cases:
        (directory.path / "cases").mkdir()
    directory.write_json("summary.json", {"status": "stopped", "app": "probe", "ranks": 1, "exit_code": 75})
    assert end_of_run(directory, JobEnd(0), report=False) == 75
    assert capsys.readouterr().out.splitlines()[-1].endswith(": " + command.format(run=directory.path))
