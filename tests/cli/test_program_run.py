"""Programs of a user's own with checkpoints and runs: early stops with exit code 75, one run directory, mistakes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest
from cli_command import HPCKIT, clean_environment, hpckit
from conftest import PATIENCE, mpi_command, wait_until

COUNTING = """
import os, sys, time
import hpckit as hp

mesh = hp.Mesh(hp.world(), x=0)
T = hp.Field.zeros(mesh, hp.Decomposition((13,), mesh.topology), name="T")
with hp.Run("run", title="counting", units={"T": "K"}) as run:
    with hp.Checkpoints(mesh, run, T, every="never") as saved:
        writer = run.writer(mesh, T.decomposition, {"x": range(13)}, {"x": "m"}, {"T": {"units": "K"}})
        for step in range(saved.step + 1, 301):
            T.interior[...] += T.indices()[0]
            run.metric(step=step, time=float(step), T=T.max())
            if step % 50 == 0:
                writer.write(float(step), {"T": T.interior})
            if step == 120 and sys.argv[1] == "slow":
                open("stopped", "w").close()
            if step > 120 and not os.path.isdir("run/attempts/001"):
                time.sleep(0.05)  # SIGTERM comes meanwhile
            if saved.edge(step):
                break
"""


@pytest.mark.nightly
def test_a_program_that_is_asked_to_stop_ends_with_75_and_resumes_in_its_run_directory(tmp_path):
    """SIGTERM to the front end; then the same run on other ranks has the metrics and frames of an unbroken one."""
    mpi_command(1)
    (tmp_path / "count.py").write_text(COUNTING)
    with subprocess.Popen(
        [*HPCKIT, "run", "count.py", "-n", "2", "slow"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: (tmp_path / "stopped").exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        said, wrong = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 75, wrong
    assert f"files complete in {tmp_path / 'run'}; to go on: hpckit resume {tmp_path / 'run'}" in said
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"
    listed = hpckit("ls", ".", cwd=tmp_path).stdout
    assert "stopped" in listed
    outcome = hpckit("resume", "run", "-n", 1, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["T"]) for line in lines] == [(step, 12.0 * step) for step in range(1, 301)]
    frames = json.loads((tmp_path / "run" / "report" / "report.json").read_text())
    assert frames["status"] == "done"
    assert (tmp_path / "run" / "attempts" / "001").is_dir()
    again = hpckit("run", "count.py", "fast", cwd=tmp_path)
    assert again.code == 2
    assert "is done" in again.stderr


MISTAKE = """
import hpckit as hp
from hpckit.errors import BlowUpError, InputError
comm = hp.world()
with hp.Run("failed") as run:
    run.metric(step=3, time=1.0)
    raise InputError("the table has a hole", where=f"rank {comm.rank}, the table", do="mend it")
"""


@pytest.mark.usefixtures("quick_runs")
def test_errors_that_differ_only_in_their_place_are_told_once_and_kept_in_the_run(tmp_path):
    (tmp_path / "wrong.py").write_text(MISTAKE)
    outcome = hpckit("run", "wrong.py", "-n", 3, cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.stderr.count("HPK-200 bad input: the table has a hole") == 1
    failure = json.loads((tmp_path / "failed" / "attempts" / "000" / "failure.json").read_text())
    assert failure["error"]["message"] == "the table has a hole"
    assert "failed (2" in hpckit("ls", ".", cwd=tmp_path).stdout


@pytest.mark.usefixtures("quick_runs")
def test_checkpoints_in_a_folder_of_their_own_are_listed_and_verified(tmp_path):
    """By a limit that is over at the first step, and without a run directory."""
    (tmp_path / "own.py").write_text(
        "import hpckit as hp\n"
        "mesh = hp.Mesh(hp.world(), x=0)\n"
        "T = hp.Field.zeros(mesh, hp.Decomposition((13,), mesh.topology), name='T')\n"
        "with hp.Checkpoints(mesh, 'saved', T, limit='0.001 s') as saved:\n"
        "    step = 1\n"
        "    while not saved.edge(step):\n"
        "        step += 1\n"
    )
    outcome = hpckit("run", "own.py", "one", "two words", cwd=tmp_path)
    assert outcome.code == 75, outcome.stderr
    again = r"stopped early after step \d+, files complete in saved; to go on: hpckit run own.py one 'two words' -n 1"
    assert re.search(again, outcome.stdout), outcome.stdout
    assert "complete" in hpckit("ckpt", "ls", "saved", cwd=tmp_path).stdout
    assert ": whole" in hpckit("ckpt", "verify", "saved", cwd=tmp_path).stdout
    assert hpckit("ckpt", "prune", "saved", cwd=tmp_path).code == 0
    os.mkdir(tmp_path / "empty")
    assert "holds no checkpoints" in hpckit("ckpt", "ls", "empty", cwd=tmp_path).stderr


@pytest.mark.usefixtures("quick_runs")
def test_an_app_is_written_and_runs_from_its_folder(tmp_path):
    """Its own test passes on 2 ranks: the bits of NumPy."""
    assert hpckit("init", "--app", "mine", cwd=tmp_path).code == 0
    assert "gray_scott" not in "".join(path.read_text() for path in (tmp_path / "mine").glob("*.py"))
    outcome = hpckit("run", "./mine/solitons", "--show-config", cwd=tmp_path)
    assert "reaction.kill" in outcome.stdout, outcome.stderr
    wrong = hpckit("run", "mine/solitns", cwd=tmp_path)
    assert "did you mean 'solitons'?" in wrong.stderr
    assert "HPK-200" in hpckit("init", "--app", "numpy", cwd=tmp_path).stderr
    command = [HPCKIT[0], "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "2", "mine"]
    done = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
