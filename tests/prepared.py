"""Ranks that start from a prepared process: a copy of one that has imported what most programs import.

Hundreds of ranks start in the tests, and half of what a short one computes is imports. `Prepared` starts servers that
import once; a rank of mpiexec is then a small client (this very file) that hands its environment, its files and its
connection to mpiexec to a server, whose copy runs the program as `python -m mpi4py PROGRAM` would, MPI's start and end
included. The client ends as the copy does. Where a test puts the folder `start` on PYTHONPATH, ranks of `hpckit run`
find the servers by themselves, and with QUICK_FRONT in the environment so does the command. Neighboring ranks are
copies of two servers: an order that hangs on the random hashes of strings, which differ between processes, must still
be seen as different.
"""

import os
import sys

MOST_FILES = 64  # that a rank inherits: its connection to MPICH's launcher, the lock of a run's folder, and others
# What a library reads when it is imported: a rank in which it differs starts by itself.
READ_AT_IMPORT = (
    "NUMBA_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "PYTHON",
    "CUDA_",
    "XDG_",
    "HOME",
    "MPIR_",
    "MPI4PY_",
)
FRONT, USER_RANK = "hpckit.cli.main", "hpckit.cli.user_rank"  # modules that start as they are, not under mpi4py's
BY_ENTRY = ("PYTHONPATH",)  # of these a copy takes what the server has not
MODULES = (
    "h5py",
    "numpy.ma",
    "pydantic",
    "yaml",
    "hpckit.apps.diffusion.run",
    "hpckit.apps.md.model",
    "hpckit.apps.weather.run",
    "hpckit.apps.weather3d.split.model",
    "hpckit.cli.nested",
    "hpckit.collectives",
    "hpckit.comm.observe.check",
    "hpckit.comm.observe.watched_comm",
    "hpckit.grid.exchange",
    "hpckit.io.checkpoint.choose",
    "hpckit.io.checkpoint.manager",
    "hpckit.io.fields.writer",
    "hpckit.launch.memory",
    "hpckit.launch.provenance",
    "hpckit.training.data",
)


def ordinary(words):
    """The words that start a program of Python on a rank by itself."""
    return [sys.executable, "-m", "mpi4py", *words]


def sockets_in(folder):
    """The sockets of the two servers of a folder."""
    return [os.path.join(folder, f"s{at}") for at in range(2)]


def at_import():
    """What a library may have read of the environment."""
    return {
        name: value for name, value in os.environ.items() if name.startswith(READ_AT_IMPORT) and name not in BY_ENTRY
    }


def join(folder, words):
    """Be a rank by a copy, and do not return; return where no server is ready, or the environment is another."""
    import json

    sockets = sockets_in(folder)
    if all(os.path.exists(path) for path in sockets):
        with open(os.path.join(folder, "environment.json")) as file:
            if json.load(file) == at_import():
                client(sockets, words)


def client(sockets, words):
    """Be a rank: hand all over, wait, and end as the copy ended; return where the server is gone."""
    import _socket
    import json

    rank = int(os.environ.get("PMI_RANK", os.getpid()))
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.connect(sockets[rank % len(sockets)])
    except OSError:
        return
    files = [int(name) for name in os.listdir("/proc/self/fd")]
    files = [each for each in files if each != line.fileno() and os.path.exists(f"/proc/self/fd/{each}")]
    given = {"environment": dict(os.environ), "cwd": os.getcwd(), "words": words, "files": files}
    text = json.dumps(given).encode()
    packed = b"".join(each.to_bytes(4, sys.byteorder) for each in files)
    line.sendmsg([len(text).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    line.sendall(text)
    status = line.recv(8)
    if len(status) < 8:
        os._exit(70)  # the server is gone
    code = int.from_bytes(status, "little", signed=True)
    if code < 0:
        import signal

        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(path):
    """Import, listen, and return in each copy, as a rank that is ready; the server itself ends with its stdin."""
    import gc
    import importlib
    import select
    import socket

    import mpi4py

    mpi4py.rc.initialize = False  # each copy does, and ends it
    mpi4py.rc.finalize = True
    for name in MODULES:
        importlib.import_module(name)
    make_compiler()
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path + ".new")
    listener.listen(64)
    os.rename(path + ".new", path)
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave no zombies
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)  # pytest is gone, or done
        line, _ = listener.accept()
        if os.fork():
            line.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        return keep(line)


def make_compiler():
    """What Numba makes when a process first asks for a kernel, one from its cache as well."""
    from numba.core.registry import cpu_target

    from hpckit.kernels.compile import shortcuts

    shortcuts.take()
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def keep(line):
    """Receive what a client hands over and fork its rank, in which this returns; tell the client how that ended."""
    import json
    import select
    import signal
    import socket

    head, files, _, _ = socket.recv_fds(line, 8, MOST_FILES)
    size, text = int.from_bytes(head, "little"), b""
    while len(text) < size:
        part = line.recv(size - len(text))
        if not part:
            os._exit(0)  # the client was killed meanwhile
        text += part
    given = json.loads(text)
    child = os.fork()
    if child == 0:
        line.close()
        environment = given["environment"]
        wanted = given["files"]
        high = [os.dup2(each, 200 + at) for at, each in enumerate(files)]  # above all, so that none is overwritten
        for each in files:
            os.close(each)
        for source, target in zip(high, wanted, strict=True):
            os.dup2(source, target, inheritable=True)
            os.close(source)
        # Pipes may be where files were.
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(given["cwd"])
        for name in BY_ENTRY:
            sys.path[1:1] = [
                each for each in environment.get(name, "").split(os.pathsep) if each and each not in sys.path
            ]
        return given["words"]
    for each in files:
        os.close(each)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, line], [], [])
    if ended not in ready:  # the client was killed
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        line.sendall(code.to_bytes(8, "little", signed=True))
    finally:
        os._exit(0)


class Prepared:
    """Two servers in a folder, which the first pytest process there starts and others use until it ends.

    `command(words)` starts a rank of them, or an ordinary one.
    """

    def __init__(self, folder):
        import fcntl
        import json
        import subprocess

        self._environment_file = folder / "environment.json"
        self.sockets = sockets_in(folder)
        self._servers = []
        self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        self._environment_file.write_text(json.dumps(at_import()))
        self._servers = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            for path in self.sockets
        ]

    def are_ready(self):
        """Whether both servers have imported all."""
        return all(os.path.exists(path) for path in self.sockets)

    def command(self, words):
        """The words that start it as a copy, or by itself where no server is ready or the environment is another."""
        import json

        if not self.are_ready() or at_import() != json.loads(self._environment_file.read_text()):
            return ordinary(words)
        return [sys.executable, "-I", "-S", __file__, "--rank", *self.sockets, *words]

    def close(self):
        for each in self._servers:
            each.stdin.close()
            each.wait()
        os.close(self._lock)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        client(sys.argv[2:4], sys.argv[4:])
        os.execv(sys.executable, ordinary(sys.argv[4:]))
    words = serve(sys.argv[2])
    is_program = words[0] != "-m" or words[1] == USER_RANK
    sys.path[:1] = [""] if is_program else []  # other modules are started with -P, or need nothing there
    if words[:2] != ["-m", FRONT]:
        from mpi4py import MPI, run

        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if words[0] == "-m" and words[1] in (FRONT, USER_RANK):
        import runpy

        sys.argv = ["hpckit", *words[2:]]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["mpi4py", *words]
        run.main()
