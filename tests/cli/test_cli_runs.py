"""Whole runs of the probe app: started, joined, stopped, and failing in every way that a rank can."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_command import HPCKIT, clean_environment, hpckit
from conftest import Outcome, by_day, is_open_mpi, mpiexec, wait_until

OPEN_MPI = is_open_mpi()
SPOKEN, LAUNCHER = ("pmix", "mpirun") if OPEN_MPI else ("pmi2", "mpiexec")
pytestmark = [
    pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`"),
    pytest.mark.usefixtures("quick_ranks"),
]
quick = pytest.mark.usefixtures("quick_runs")  # where the command gets no signal

PROGRAM = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
sys.stdout.write(f"rank {comm.rank} of {comm.size} {' '.join(sys.argv[1:])}\\n")
sys.stdout.flush()
comm.Barrier()
if "raise" in sys.argv and comm.rank == 1:
    raise ValueError("a fault of the program")
if "exit" in sys.argv and comm.rank == 1:
    sys.exit(9)
if "kill" in sys.argv and comm.rank == 1:
    import os
    os.kill(os.getpid(), 9)
if "vanish" in sys.argv and comm.rank == 1:
    import os
    os._exit(0)
comm.Barrier()
"""


def the_run(folder: Path) -> Path:
    """The one run directory below `folder`."""
    (found,) = (folder / "runs").iterdir()
    return found


def read(run: Path, name: str) -> Any:
    return json.loads((run / name).read_text())


@quick
def test_a_run_leaves_its_story(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("app = 'probe'\n[time]\nsteps = 4\n")
    outcome = hpckit("run", "mine.toml", "-n", 2, "grid.nx=41", "--no-report", cwd=tmp_path, SECRET_TOKEN="s3cret")
    assert outcome.code == 0, outcome.stderr
    run = the_run(tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{4}-probe-mine-p2-[0-9a-f]{6}", run.name)
    assert run.stat().st_mode & 0o777 == 0o700
    lines = outcome.stdout.splitlines()
    assert lines[0] == str(run)
    assert lines[1] == "probe on 2 ranks, table None"
    steps = [line for line in lines if " %  step " in line]  # others where the run was held up
    assert steps[-1].startswith("100.0 %  step 4  t 4 of 4")
    assert lines[2] == steps[0]
    assert lines[-1].startswith("done: probe mine, 4 steps on 2 ranks, 0:01 in the time loop, 3.2 k cell-steps/s")
    assert (run / "run.toml").read_text() == (tmp_path / "mine.toml").read_text()
    resolved = read(run, "resolved.json")
    assert resolved["values"]["grid"]["nx"] == 41
    assert resolved["origins"]["time.steps"] == "mine.toml:3"
    assert resolved["origins"]["grid.nx"] == "command line"
    provenance = read(run, "provenance.json")
    assert [place["rank"] for place in provenance["placement"]] == [0, 1]
    assert all(place["cores"] and place["threads"] >= 1 for place in provenance["placement"])
    assert provenance["command"] == "hpckit run mine.toml -n 2 grid.nx=41 --no-report"
    assert provenance["ended"] >= provenance["started"]
    assert "MPI" in provenance["mpi"]["library"].upper()
    assert len(provenance["hosts"]) == 1
    summary = read(run, "summary.json")
    assert (summary["status"], summary["exit_code"], summary["ranks"]) == ("done", 0, 2)
    assert sum(block["shape"][1] for block in summary["decomposition"]["blocks"]) == 41
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4
    assert "a warning of rank 1" in (run / "attempts/000/ranks/00001.log").read_text()
    assert "s3cret" not in "".join(path.read_text() for path in run.rglob("*") if path.is_file())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "runs"]

    again = hpckit("run", run / "run.toml", "--directory", run, cwd=tmp_path)
    assert again.code == 2
    assert "not an empty folder" in again.stderr
    listed = hpckit("ls", cwd=tmp_path)
    assert run.name in listed.stdout
    assert "done" in listed.stdout


@pytest.mark.nightly
def test_a_preset_leaves_a_run_file_that_runs_again(tmp_path: Path) -> None:
    outcome = hpckit("run", "short", "--directory", "first", "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "3 steps on 1 rank," in outcome.stdout
    outcome = hpckit("run", "first/run.toml", "--directory", "second", "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    first, second = (read(tmp_path / name, "resolved.json")["values"] for name in ("first", "second"))
    assert first == second


@quick
def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    outcome = hpckit("run", "short", "-n", 3, "--dry-run", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.startswith("probe short on 3 ranks: 3 steps, nothing started\n  rank 0: x 0 + 14\n")
    assert "64 B" in outcome.stdout
    assert "6.25 KiB" in outcome.stdout
    assert "note: only a probe" in outcome.stdout
    assert not list(tmp_path.iterdir())
    for extra in (["--dry-run"], []):
        outcome = hpckit("run", "short", "-n", 30, *extra, cwd=tmp_path)
        assert outcome.code == 2
        assert "HPK-201 bad decomposition" in outcome.stderr
        assert "ranks that fit" in outcome.stderr
        assert not list(tmp_path.iterdir())


HOST = socket.gethostname()
FAILURES = [
    ("raise", 1, "HPK-000 error: ZeroDivisionError: a fault of the program"),
    ("all", 2, "HPK-200 bad input: bad on every rank alike\n  where:  the table\n  do:     mend the table"),
    ("exit", 9, "HPK-000 error: sys.exit(9) was called before the run was over"),
    ("blow-up", 4, "HPK-400 blow-up: u is not finite\n  where:  rank 1, step 4, cell (z 3, x 17)"),
    ("late", 1, "HPK-000 error: RuntimeError: after the last step"),
    ("kill", 7, f"HPK-700 rank lost: rank 1 on {HOST} ended without an answer: Killed (signal 9)"),
    ("vanish", 7, f"HPK-700 rank lost: rank 1 on {HOST} ended without an answer"),
    ("leave", 7, "HPK-700 rank lost: rank "),
]


@quick
def test_a_blow_up_leaves_a_report_that_names_it(tmp_path: Path) -> None:
    outcome = hpckit("run", "probe", "time.steps=5", "failure.step=4", "failure.kind=blow-up", "-n", 2, cwd=tmp_path)
    assert outcome.code == 4
    page = (the_run(tmp_path) / "report/index.html").read_text()
    assert "u is not finite" in page
    assert "cell (z 3, x 17)" in page


@quick
@pytest.mark.parametrize(
    ("kind", "code", "message"),
    by_day(FAILURES, *(each for each in FAILURES if each[0] in ("blow-up", "kill"))),
)
def test_a_failure_ends_the_job_and_is_told_once(kind: str, code: int, message: str, tmp_path: Path) -> None:
    # Ranks that went on without the one that failed would be at it beyond the 60 s that the command has.
    steps = 5 if kind == "late" else 1000
    words = [f"time.steps={steps}", "time.seconds_per_step=0.15", "failure.step=4", f"failure.kind={kind}"]
    outcome = hpckit("run", "probe", *words, "--no-report", "-n", 2, cwd=tmp_path)
    run = the_run(tmp_path)
    failure = read(run, "attempts/000/failure.json")
    check_failure(outcome, failure, code, message)
    summary = read(run, "summary.json")
    assert (summary["status"], summary["exit_code"]) == ("failed", code)
    if kind != "leave":
        assert (run / "output/complete.txt").read_text() == "written before the steps\n"
    if kind in ("raise", "exit", "blow-up", "late"):
        assert (failure["rank"], failure["step"]) == (1, 5 if kind == "late" else 4)
        assert "run.py" in "".join(failure["traceback"])
    check_nobody_is_left(run)


def check_failure(outcome: Outcome, failure: dict[str, Any], code: int, message: str) -> None:
    assert outcome.code == failure["exit_code"] == code, outcome.stderr
    assert outcome.stderr.count(message) == 1
    assert outcome.stderr.count("HPK-") == 1
    assert "Traceback" not in outcome.stderr
    for noise in ("BAD TERMINATION", "MPI_Abort", "EXIT STRING"):
        assert noise not in outcome.stdout + outcome.stderr


def check_nobody_is_left(run: Path) -> None:
    """No rank of the run lives on; one that was just killed may need a core to go."""
    for place in read(run, "provenance.json").get("placement", []):
        wait_until(lambda pid=place["pid"]: not is_rank(pid), f"process {place['pid']} lives on")


def is_rank(pid: int) -> bool:
    try:
        return b"hpckit.cli.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it is gone, perhaps since it was opened
        return False


@pytest.mark.parametrize("kind", by_day(["none", "raise", "all"], "none"))
def test_joining_ranks_that_are_there(kind: str, tmp_path: Path) -> None:
    words = ["run", "probe", f"failure.kind={kind}", "--no-report"]
    outcome = hpckit(*words, cwd=tmp_path, under=2)
    run = the_run(tmp_path)
    assert read(run, "resolved.json")["ranks"] == 2
    assert len(read(run, "provenance.json")["placement"]) == 2
    if kind == "none":
        assert outcome.code == 0, outcome.stderr
        assert outcome.stdout.splitlines()[0] == str(run)
        assert outcome.stdout.splitlines()[-1].startswith("done: probe, 5 steps on 2 ranks")
    else:
        code = read(run, "attempts/000/failure.json")["exit_code"]
        assert outcome.code == code == {"raise": 1, "all": 2}[kind], outcome.stderr
        assert outcome.stderr.count("HPK-") == 1
        assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "probe", "-n", "3"], f"-n 3, but {LAUNCHER} has started 2 ranks"),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in (
                (["run", "probe", "failure.knd=raise"], "did you mean failure.kind?"),
                (["run", "probe", "--nix"], "unrecognized arguments: --nix"),
                (["run", "probe", "grid.nx=3"], "HPK-201"),
            )
        ),
    ],
)
def test_a_mistake_under_a_launcher_is_told_once(words: list[str], message: str, tmp_path: Path) -> None:
    outcome = hpckit(*words, cwd=tmp_path, under=2)
    assert outcome.code == 2
    assert outcome.stderr.count(message) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.nightly
def test_dry_run_under_a_launcher_speaks_once(tmp_path: Path) -> None:
    outcome = hpckit("run", "short", "--dry-run", cwd=tmp_path, under=2)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("probe short on 2 ranks") == 1


@pytest.mark.parametrize(
    ("variables", "advice"),
    [
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "mpiexec -n 2"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "mpiexec -n 2"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}, f"srun --mpi={SPOKEN} -n 2"),
    ],
)
@pytest.mark.parametrize("target", by_day(["short", "program.py"], "short"))
def test_worlds_of_one_rank_each_are_refused(
    variables: dict[str, str], advice: str, target: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text("print('never')\n")
    outcome = hpckit("run", target, cwd=tmp_path, **variables)
    assert outcome.code == 3
    assert "started 2 ranks, but MPI sees a world of 1" in outcome.stderr
    assert advice in outcome.stderr
    assert "never" not in outcome.stdout
    assert not (tmp_path / "runs").exists()


def test_a_shell_of_one_task_is_no_launcher(tmp_path: Path) -> None:
    outcome = hpckit("run", "short", "--dry-run", "-n", 2, cwd=tmp_path, SLURM_STEP_NUM_TASKS="1", SLURM_PROCID="0")
    assert outcome.code == 0, outcome.stderr


def test_an_mpiexec_of_another_mpi_is_refused(tmp_path: Path) -> None:
    from hpckit.cli import worker
    from hpckit.errors import SetupError

    class World:
        size = 1

    with pytest.raises(SetupError, match="was to start 4 ranks, but MPI sees a world of 1"):
        worker._check_size(4, World.size)


def started(tmp_path: Path, *words: str) -> tuple[subprocess.Popen, Path]:
    """A running job that has done a step, in a session of its own."""
    process = subprocess.Popen(
        [*HPCKIT, "run", "probe", "-n", "2", "--no-report", *words],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: list(tmp_path.glob("runs/*/metrics.jsonl")), "the job did not start")
    except AssertionError:
        process.kill()
        raise
    return process, the_run(tmp_path)


@pytest.mark.parametrize("number", by_day([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_the_first_interrupt_stops_with_complete_files(number: int, tmp_path: Path) -> None:
    process, run = started(tmp_path, "time.steps=1000", "time.seconds_per_step=0.05")
    os.killpg(process.pid, number)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 75
    assert "stopping at the next check" in stderr
    assert "stopped early, files complete" in stdout
    summary = read(run, "summary.json")
    assert (summary["status"], summary["exit_code"]) == ("stopped", 75)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == summary["steps"] < 1000
    assert read(run, "progress.json")["status"] == "stopped"
    check_nobody_is_left(run)


def test_the_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    process, run = started(tmp_path, "time.steps=1000", "time.seconds_per_step=0.05", "failure.kind=stuck")
    # Rank 0 has left the check of the first step; from the second, in which rank 1 is stuck, it never comes to one.
    wait_until(lambda: (run / "metrics.jsonl").read_text().count("\n") == 2, "no second step")
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    while "stopping at the next check" not in (line := process.stderr.readline()):
        assert line, "it has ended"
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 7
    assert "ended on request" in stderr
    assert (run / "output/complete.txt").read_text() == "written before the steps\n"
    check_nobody_is_left(run)


@quick
def test_a_program_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    outcome = hpckit("run", "program.py", "-n", 2, "--steps", 3, "-n", 5, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert sorted(outcome.stdout.splitlines()) == [f"rank {rank} of 2 --steps 3 -n 5" for rank in range(2)]
    outcome = hpckit("run", "-n", 2, "program.py", "--", "a=1", cwd=tmp_path)
    assert sorted(outcome.stdout.splitlines()) == [f"rank {rank} of 2 a=1" for rank in range(2)]
    outcome = hpckit("run", "program.py", "x", cwd=tmp_path, under=2)
    assert sorted(outcome.stdout.splitlines()) == [f"rank {rank} of 2 x" for rank in range(2)]
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


@quick
@pytest.mark.parametrize(
    ("word", "code", "message"),
    by_day(
        [("raise", 1, "ValueError"), ("exit", 9, ""), ("kill", 7, "rank 1 on"), ("vanish", 7, "rank 1 on")],
        ("raise", 1, "ValueError"),
    ),
)
def test_a_program_that_fails_on_one_rank(word: str, code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    outcome = hpckit("run", "program.py", "-n", 2, word, cwd=tmp_path)
    assert outcome.code == code, outcome.stderr
    assert message in outcome.stderr
    assert "BAD TERMINATION" not in outcome.stdout + outcome.stderr


def test_threads_and_time_limit_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpckit.launch import mpiexec as launch

    monkeypatch.setattr(launch, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("MPIEXEC_TIMEOUT", "3")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    environment = launch.rank_environment(3)
    assert environment["OMP_NUM_THREADS"] == "5", "what the user set stays"
    assert environment["NUMBA_NUM_THREADS"] == "2"
    assert "MPIEXEC_TIMEOUT" not in environment, "mpiexec would end the job with exit code 0"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert launch.rank_environment(16)["OMP_NUM_THREADS"] == "1"


def test_more_ranks_than_cores_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from hpckit.launch import mpiexec as launch

    monkeypatch.setattr(launch, "cores", lambda: 2)
    launch.warn_if_crowded(2)
    assert capsys.readouterr().err == ""
    launch.warn_if_crowded(3)
    assert "3 ranks share 2 cores" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    import pty

    try:
        leader, follower = pty.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo terminal here: {error}")
    process = subprocess.Popen(
        [*HPCKIT, "run", "probe", "time.seconds_per_step=0.2", "--no-report"],
        cwd=tmp_path,
        env=clean_environment(TERM="xterm", COLUMNS="100"),
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 65536):
            seen += chunk
    except OSError:  # the terminal's end, as Linux tells it
        pass
    assert process.wait(300) == 0
    text = seen.decode()
    assert "\u2501" in text
    assert "100.0 %" in text
    assert "steps/s" not in re.sub(r"cell-steps/s", "", text), "no progress lines beside the bar"
    assert "done: probe" in text
