"""Starting and watching processes, without MPI."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_command import clean_environment
from conftest import mpiexec, run_limited, wait_until

from hpckit.errors import SetupError
from hpckit.launch import first_exit
from hpckit.launch import mpiexec as launch
from hpckit.launch.first_exit import FirstExit, ProcessEnds
from hpckit.launch.launcher import Joined, leave
from hpckit.launch.one_node import NETWORKS, SEVERAL_NODES, keep_to_loopback, without_network
from hpckit.launch.provenance import VARIABLES, git_state, provenance


@pytest.fixture
def sleepers():
    processes = [subprocess.Popen(["sleep", "900"]) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def announced(folder: Path, *processes: subprocess.Popen) -> FirstExit:
    for rank, process in enumerate(processes):
        (folder / f"{rank}-{process.pid}").touch()
    first = FirstExit(folder, len(processes))
    wait_until(lambda: len(list(folder.glob("*.seen"))) == len(processes))
    return first


def test_the_first_process_to_end_is_known(sleepers: list[subprocess.Popen], tmp_path: Path) -> None:
    first = announced(tmp_path, *sleepers)
    assert first.watching
    assert first.when is None
    sleepers[1].send_signal(signal.SIGTERM)
    sleepers[1].wait()
    for other in (0, 2):
        sleepers[other].kill()
    first.settle()
    assert first.rank == 1
    assert first.how in ("Terminated (signal 15)", "")  # kernels before 6.15 do not tell it
    assert not first.all_well


def test_a_regular_end_is_no_loss_and_order_is_kept(sleepers: list[subprocess.Popen], tmp_path: Path) -> None:
    ends = ProcessEnds()
    assert all(ends.add(process.pid, number) for number, process in enumerate(sleepers))
    first = announced(tmp_path, *sleepers)
    (tmp_path / f"0-{sleepers[0].pid}.end").touch()
    for number in (0, 2, 1):  # one after the other, and looked at only after all of them
        sleepers[number].kill()
        sleepers[number].wait()
    first.settle()
    assert first.rank == 2
    assert [found[0] for _ in range(3) if (found := ends.next())] == [0, 2, 1]
    assert ends.next() is None
    assert not ends.add(sleepers[0].pid, 0), "it is gone"
    ends.close()


@pytest.fixture
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that `FirstExit` sees is seen at one time."""
    monkeypatch.setattr(first_exit, "time", SimpleNamespace(monotonic=lambda: 7.0))


def noted(folder: Path, *hows: str) -> FirstExit:
    """What is made of such ends of ranks 0, 1, …, seen in this order."""
    first = FirstExit()
    first._folder, first._names = folder, [f"{rank}-{100 + rank}" for rank in range(len(hows))]
    for number, how in enumerate(hows):
        first._note(number, how)
    return first


@pytest.mark.usefixtures("one_moment")
def test_a_rank_that_the_launcher_ends_does_not_hide_the_one_that_it_followed(tmp_path: Path) -> None:
    killed, crashed = "Killed (signal 9)", "Segmentation fault (signal 11)"
    assert noted(tmp_path, killed, killed, crashed, killed).rank == 2
    assert noted(tmp_path, killed, "exit code 5", crashed).rank == 1
    assert noted(tmp_path, killed, "Terminated (signal 15)", "").rank == 0
    assert noted(tmp_path, killed, "exit code 0", killed).rank == 1, "os._exit(0)"
    assert noted(tmp_path, crashed, "exit code 5", killed).rank == 0
    (tmp_path / "1-101.end").touch()
    assert noted(tmp_path, killed, "exit code 5").rank == 0


@pytest.mark.usefixtures("one_moment")
def test_only_what_ends_at_once_can_have_been_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(first_exit, "TOGETHER_SECONDS", 0.0)
    assert noted(tmp_path, "Killed (signal 9)", "Segmentation fault (signal 11)").rank == 0


def test_a_job_that_goes_on_without_a_rank_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch, "ALONE_SECONDS", 0.2)
    first = FirstExit()
    first.rank, first.when = 2, time.monotonic()
    words = ["sh", "-c", f"trap 'kill $!; exit 1' TERM; sleep 900 & wait; touch {tmp_path}/slept"]
    end = launch.run_job(words, {}, lambda text, is_error: None, lambda times, process: None, first=first)
    assert not (tmp_path / "slept").exists()
    assert end.lost == {"how": "its process left while the others went on", "rank": "2", "host": first.host}
    assert end.code != 0


def test_lines_and_the_words_of_the_launcher_are_told_apart() -> None:
    script = """
echo one; echo
echo two
echo
echo '==================================================================================='
echo '=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES'
echo 'YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)'
echo 'mpirun noticed that process rank 3 with PID 0 on node vm exited on signal 9 (Killed).'
printf '\\377 torn' >&2
exit 9
"""
    lines: list[tuple[str, bool]] = []
    words = ["sh", "-c", script]
    end = launch.run_job(words, {}, lambda text, is_error: lines.append((text, is_error)), lambda times, process: None)
    assert [text for text, is_error in lines if not is_error] == ["one", "", "two"]
    assert [text for text, is_error in lines if is_error] == ["\ufffd torn"]
    assert end.code == 9
    assert end.lost == {"rank": "3", "how": "signal 9 (Killed)"}
    assert len(end.noise) == 4


def test_nohup_stays_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked, looked = tmp_path / "asked", tmp_path / "looked"
    ticks = 0

    def on_tick() -> None:
        nonlocal ticks
        ticks += asked.exists()
        if ticks == 2:  # the whole of a turn came after the signal
            looked.touch()

    try:
        script = f"kill -HUP $PPID; : > {asked}; until [ -e {looked} ]; do sleep 0.02; done; echo lived"
        lines: list[str] = []
        stops: list[int] = []
        launch.run_job(
            ["sh", "-c", script], {}, lambda text, _: lines.append(text), lambda times, _: stops.append(times), on_tick
        )
        assert (lines, stops) == (["lived"], [])
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_comes_while_the_job_is_made_is_one_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    popen, stops = subprocess.Popen, []
    missed: list[int] = []

    def made(*words, **options) -> subprocess.Popen:
        os.kill(os.getpid(), signal.SIGUSR1)
        return popen(*words, **options)

    def on_stop(times: int, process: subprocess.Popen) -> None:
        stops.append(times)
        process.terminate()

    before = signal.signal(signal.SIGUSR1, lambda number, frame: missed.append(number))
    try:
        monkeypatch.setattr(subprocess, "Popen", made)
        end = launch.run_job(["sleep", "10"], {}, lambda text, is_error: None, on_stop)
        assert (stops, end.stops, missed) == ([1], 1, [])
        assert signal.getsignal(signal.SIGUSR1) is not before
        os.kill(os.getpid(), signal.SIGUSR1)
        assert missed == [signal.SIGUSR1], "the handler is the one from before again"
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end it")
def test_what_is_to_end_with_its_parent_does_not_begin_when_that_is_gone(tmp_path: Path) -> None:
    """The parent is killed before the interpreter between has come to ask for it."""
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nuntil [ -e {tmp_path}/gone ]; do sleep 0.02; done\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    program = f"""
import os, subprocess, sys
from hpckit.jobs.process import with_parent
real, sys.executable = sys.executable, {str(slow)!r}
subprocess.Popen(with_parent("/bin/sh", ["-c", "touch {tmp_path}/begun"]), pass_fds=(int(sys.argv[1]),))
os._exit(0)
"""
    reading, writing = os.pipe()
    subprocess.run([sys.executable, "-c", program, str(writing)], pass_fds=(writing,), check=True)
    os.close(writing)
    (tmp_path / "gone").touch()
    assert os.read(reading, 1) == b"", "all that held the other end have ended"
    os.close(reading)
    assert not (tmp_path / "begun").exists()


def test_no_launcher_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no mpiexec") as caught:
        launch.find_mpiexec()
    assert "hpckit[mpi]" in caught.value.do
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.1'\n")
    (tmp_path / "mpirun").chmod(0o755)
    words = launch.command(3, ["x.py"])
    assert words[0] == str(tmp_path / "mpirun")
    assert words[1:5] == ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    assert words[-4:] == [sys.executable, "-m", "mpi4py", "x.py"]


def test_provenance_keeps_a_whitelist_of_variables(tmp_path: Path) -> None:
    record = provenance(["run", "a b.toml"], 2, {"TOKEN": "s3cret", "OMP_NUM_THREADS": "1"})
    assert record["environment"] == {"OMP_NUM_THREADS": "1"}
    assert "TOKEN" not in VARIABLES
    assert record["command"] == "hpckit run 'a b.toml'"
    assert git_state(tmp_path) is None


def test_provenance_names_the_commit_and_changes(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    commit = git("rev-parse", "HEAD").strip()
    assert git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path) == {"commit": commit, "dirty": True}


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec")
def test_files_of_the_current_folder_are_no_modules(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "hpckit"
    if not script.exists():
        pytest.skip("hpckit is not installed as a command")
    for name in ("mpi4py", "hpckit", "numpy", "json", "probe_app"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the user')\n")
    outcome = run_limited([str(script), "run", "short", "--no-report"], 30, cwd=tmp_path, env=clean_environment())
    assert outcome.code == 0, outcome.stderr


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec")
def test_a_job_goes_on_when_the_reader_of_its_lines_has_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpckit.cli.main", "run", "probe", "time.seconds_per_step=0.2", "--no-report"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "summary.json").exists()


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec")
def test_nothing_lives_on_when_the_front_end_is_killed(tmp_path: Path) -> None:
    words = ["run", "probe", "failure.kind=stuck", "-n", "2", "--no-report"]  # prints nothing that could break a pipe
    command = [sys.executable, "-m", "hpckit.cli.main", *words]
    process = subprocess.Popen(command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.DEVNULL)
    wait_until(lambda: list(tmp_path.glob("runs/*/metrics.jsonl")), "the job did not start")
    (record,) = tmp_path.glob("runs/*/provenance.json")
    pids = [place["pid"] for place in json.loads(record.read_text())["placement"]]
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), "ranks live on")


def alive(pid: int) -> bool:
    """A rank of ours runs under `pid`."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and b"hpckit.cli.worker" in command.read_bytes()


def test_waiting_for_ranks_that_do_not_start_is_said(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"""#!/bin/sh
[ "$1" = --version ] && exit
until [ -e {said} ]; do sleep 0.05; done
sleep 0.5
"""
    (tmp_path / "mpiexec").write_text(script)
    (tmp_path / "mpiexec").chmod(0o755)
    program = """
import sys
from pathlib import Path
from hpckit.cli import job
from hpckit.cli.verbs import run
from hpckit.launch import mpiexec
from hpckit.settings.table import PlainLines

class Lines(PlainLines):
    def line(self, text, is_error=False):
        super().line(text, is_error)
        if "not started" in text:
            Path(sys.argv[2]).touch()

job.display = Lines
mpiexec.find_mpiexec = lambda: sys.argv[1]
job.START_SECONDS = 0.2
sys.exit(run.main(["short", "--no-report"]))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "mpiexec"), str(said)]
    outcome = run_limited(command, 30, cwd=tmp_path, env=clean_environment())
    assert outcome.code == 7
    assert outcome.stderr.count("mpiexec has not started the ranks yet") == 1
    assert "rank lost" in outcome.stderr


def test_under_a_launcher_rank_0_alone_tells_the_code(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)  # `leave` would end MPI for all tests after this one
    assert leave(None, 4) == 4
    assert leave(Joined(3, 0, "mpiexec"), 4) == 4
    assert leave(Joined(3, 1, "mpiexec"), 4) == 0, "a launcher would mix the codes of several ranks"


# What this process listens to: "ADDRESS%DEVICE" for each port. Descriptors of its parents count: whoever connects to
# them is heard.
LISTENERS = """
import os, socket

def listeners():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with one:
            inet = one.family in (socket.AF_INET, socket.AF_INET6)
            if inet and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                device = one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(bytes(1)).decode()
                found.append(one.getsockname()[0] + "%" + device)
    return found
"""


def test_a_job_on_one_node_listens_to_nobody_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if mpiexec() is None:
        pytest.skip("no mpiexec here")
    for name in (*SEVERAL_NODES, *NETWORKS):
        monkeypatch.delenv(name, raising=False)
    server = "import socket, time; one = socket.create_server(('', 0)); print(flush=True); time.sleep(900)"
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        may = keep_to_loopback(child.pid)
        child.kill()
    if not may:
        pytest.skip("this kernel or container keeps us from the sockets of our children")
    (tmp_path / "ports.py").write_text(
        f"import time\n{LISTENERS}\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nend = time.monotonic() + 20\n"
        "while not all(text.endswith('%lo') for text in listeners()) and time.monotonic() < end:\n"
        "    time.sleep(0.05)\n"
        "import os\nos.write(1, f'listens {listeners()}\\n'.encode())\n"  # in one piece: lines of ranks may mix
    )
    words = [sys.executable, "-m", "hpckit.cli.main", "run", "ports.py", "-n", "2"]
    ended = run_limited(words, 60, cwd=tmp_path, env=clean_environment())
    lines = [line for line in ended.stdout.splitlines() if line.startswith("listens")]
    assert (ended.code, len(lines)) == (0, 2), ended.stdout + ended.stderr
    assert all(text.endswith("%lo") for line in lines for text in re.findall(r"'([^']+)'", line)), lines


def test_ranks_that_may_be_elsewhere_or_that_the_user_connects_keep_their_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*SEVERAL_NODES, *NETWORKS):
        monkeypatch.delenv(name, raising=False)
    assert bool(without_network(os.environ)) == (Path(sys.executable).parent / "mpiexec").exists()
    assert not without_network({**os.environ, "UCX_TLS": "tcp"})
    assert launch.rank_environment(2, ours=False).keys() <= os.environ.keys() | set(launch.THREAD_VARIABLES)
    monkeypatch.setenv("PBS_JOBID", "3")
    assert not without_network(os.environ)
