"""A real Slurm on loopback: its own munge, controller and virtual nodes, in a folder of its own; nothing is left."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

TOOLS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "srun", "scancel")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
CORES = 2  # of each virtual node
GPU_FILES = ("/dev/null", "/dev/zero")  # devices that stand for the GPUs of a node: Slurm hands out their numbers
START_SECONDS = 120.0
END_SECONDS = 20.0
PREFIX, OWNER = "hpckit-slurm-", "owner"  # of the folder of a cluster; the file in it with the process that made it


def missing() -> str:
    """Why no Slurm can be started here; empty where it can."""
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    if lacking:
        return f"no {', '.join(lacking)}: apt-get install slurm-wlm munge"
    if os.geteuid():
        return "slurmd starts jobs as root only"
    return ""


class Cluster:
    """A running Slurm; `environment` is that of its commands and of what submits to it."""

    def __init__(self, nodes: int, gpus: int = 0) -> None:
        self.nodes, self.gpus = nodes, gpus
        # Short: a socket's path has at most 107 bytes.
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.folder / OWNER).write_text(str(os.getpid()))
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in [name for name in self.environment if name.startswith(("SLURM_JOB", "SBATCH", "PMI_"))]:
            del self.environment[name]
        self._daemons: list[subprocess.Popen] = []

    def start(self) -> None:
        """Start munge, the controller and the nodes, and wait until all are idle."""
        folder = self.folder
        (folder / "state").mkdir()
        socket_file = folder / "munge"
        subprocess.run([self._tool("mungekey"), "-c", "-k", folder / "key"], check=True)
        self._daemon(
            "munged", "-F", "--force", f"--socket={socket_file}", f"--key-file={folder / 'key'}",
            f"--pid-file={folder / 'munged.pid'}", f"--log-file={folder / 'munged.log'}",
            f"--seed-file={folder / 'seed'}",
        )  # fmt: skip
        _wait(socket_file.exists, START_SECONDS)
        (folder / "slurm.conf").write_text(self._configuration(socket_file))
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        files = GPU_FILES[: self.gpus]
        (folder / "gres.conf").write_text("".join(f"Name=gpu File={file}\n" for file in files))
        self._daemon("slurmctld", "-D")
        for node in self._names():
            (folder / "spool" / node).mkdir(parents=True)
            self._node = self._daemon("slurmd", "-D", "-N", node)
        _wait(
            lambda: self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split() == ["idle"] * self.nodes,
            START_SECONDS,
        )

    def stop(self) -> None:
        """Cancel all jobs, end the daemons and what they started, remove the folder."""
        try:
            with contextlib.suppress(subprocess.SubprocessError):
                self.run("scancel", "--me", check=False)
                _wait(lambda: not self.run("squeue", "-h", check=False).strip(), END_SECONDS)
        finally:
            for daemon in reversed(self._daemons):
                daemon.terminate()
            for daemon in self._daemons:
                try:
                    daemon.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            _kill_all(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: str, check: bool = True, cwd: Path | None = None) -> str:
        """What a command of Slurm says."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=60, check=False, cwd=cwd
        )
        assert not (check and done.returncode), f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def job(self, number: str | int) -> dict[str, str]:
        """What Slurm knows of a job: the words of `scontrol show job`."""
        words = self.run("scontrol", "--oneliner", "show", "job", str(number)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number: str | int, seconds: float = 300) -> dict[str, str]:
        """Wait for the end of a job; returns what Slurm knows of it."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        _wait(lambda: self.job(number)["JobState"] in ended, seconds, lambda: f"job {number}: {self.job(number)}")
        return self.job(number)

    def kill_node(self) -> None:
        """End the only node and all that runs on it, before any of it can tell, and let the controller know."""
        assert self.nodes == 1
        _kill_all(self.folder, {daemon.pid for daemon in self._daemons} - {self._node.pid})
        self._node.wait()
        self.run("scontrol", "update", "nodename=n1", "state=down", "reason=killed")

    def revive_node(self) -> None:
        """Start the killed node again, with all that was in its memory for files."""
        self._node = self._daemon("slurmd", "-D", "-N", "n1")
        self.run("scontrol", "update", "nodename=n1", "state=resume")

    def _daemon(self, name: str, *words: str) -> subprocess.Popen:
        with open(self.folder / f"{name}.out", "ab") as out:
            daemon = subprocess.Popen(
                [self._tool(name), *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                start_new_session=True,
            )
        self._daemons.append(daemon)
        return daemon

    def _tool(self, name: str) -> str:
        found = shutil.which(name, path=PATH)
        assert found is not None, name
        return found

    def _names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    def _configuration(self, socket_file: Path) -> str:
        host = socket.gethostname().split(".")[0]
        ports = _free_ports(1 + self.nodes)
        folder, gres = self.folder, f" Gres=gpu:{self.gpus}" if self.gpus else ""
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CORES} RealMemory=2000{gres}"
            for name, port in zip(self._names(), ports[1:], strict=True)
        )
        # Job numbers of no other cluster: MPICH names shared memory by them, and killed steps leave it behind.
        return f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
FirstJobId={secrets.randbelow(900_000) + 1}
AuthType=auth/munge
AuthInfo=socket={socket_file},cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmi2
ReturnToService=2
SchedulerParameters=sched_interval=2,batch_sched_delay=0
KillWait=5
{"GresTypes=gpu" if self.gpus else ""}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def cluster(nodes: int, gpus: int = 0) -> Iterator[Cluster]:
    """A Slurm of so many virtual nodes, each with so many GPUs in name (2 at most), while the block lasts."""
    it = Cluster(nodes, gpus)
    try:
        it.start()
        yield it
    finally:
        it.stop()


def sweep() -> None:
    """Remove the clusters of test processes that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            if folder.stat().st_uid == os.geteuid() and not Path("/proc", (folder / OWNER).read_text()).exists():
                _kill_all(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _kill_all(folder: Path, spared: Collection[int] = ()) -> None:
    """End all processes that have the cluster in this folder in their environment, but `spared` ones: job steps outlive
    the daemons. None sees another end.
    """
    mark = f"SLURM_CONF={folder}/".encode()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (os.getpid(), *spared):
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        os.kill(int(entry.name), number)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _wait(done: Callable[[], object], seconds: float, state: Callable[[], str] = str) -> None:
    """Wait until `done()`, for a limited time."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds} s {state()}"
        time.sleep(0.1)
