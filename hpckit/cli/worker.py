"""A rank of a run: `python -m mpi4py -m hpckit.cli.worker DIR`. The first failure of any rank is kept."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

from hpckit.cli.nested import CASES, start_nested
from hpckit.comm.agree import gather_json
from hpckit.errors import InputError, SetupError, StallError
from hpckit.io.settings import seconds_of
from hpckit.launch.failure import failure_file, failure_record, stalls_folder
from hpckit.launch.first_exit import announce
from hpckit.launch.memory import require_memory_on_nodes
from hpckit.run.context import Run
from hpckit.run.directory import RunDirectory
from hpckit.run.settings import CheckSettings, with_common
from hpckit.settings.identity import identity, require_same

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpckit.comm.device import Device
    from hpckit.comm.observe.watch import Watch
    from hpckit.io.checkpoint.manager import Keeper

GRACE_SECONDS = 0.25  # for the printed report to leave the process before the launcher ends the job
TURN_SECONDS = 15.0  # that a second failing rank waits for the first one, which reports, to end the job
LOOK_SECONDS = 0.2  # between two looks whether the watch ends the job


def main(arguments: list[str] | None = None) -> int:
    """Execute the run prepared in the given folder."""
    parser = argparse.ArgumentParser(prog="hpckit.cli.worker")
    parser.add_argument("directory")
    parser.add_argument("--marks", metavar="FOLDER", help="where ranks on the host of the front end say who they are")
    parser.add_argument("--bar", action="store_true", help="no progress lines: the front end draws a bar")
    options = parser.parse_args(arguments)
    if options.marks:
        announce(options.marks, os.environ)
    from mpi4py import MPI

    execute(RunDirectory(options.directory), MPI.COMM_WORLD, lines=not options.bar)
    return 0


def execute(directory: RunDirectory, comm: MPI.Intracomm, *, lines: bool = True, announce: bool = False) -> str:
    """Run the prepared app on all ranks; returns its status, "done" or "stopped".

    On an exception on any rank it does not return: it writes `failure.json`, and aborts the job with the exit code of
    the error. `announce`: print the failure here, as no front end waits for the end.
    """
    from hpckit.comm.checksums import Checksums
    from hpckit.comm.observe.observer import observer_of
    from hpckit.comm.observe.watched_comm import WatchedComm

    run = None
    try:
        faulthandler.enable()
        record = directory.read_json("resolved.json")
        _check_size(record["ranks"], comm.size)
        rank_logger(directory, comm.rank)
        _record_places(directory, comm)
        require_memory_on_nodes(comm, record.get("memory", 0))
        config_type = with_common(importlib.import_module(f"{record['package']}.config").Config)
        config = config_type.model_validate_json(json.dumps(record["values"]), strict=True)
        checks = getattr(config, "checks", CheckSettings())
        if checks.messages:
            observer_of(comm).listen(Checksums())
        device = _find_device(comm, record.get("gpu"))
        watch = _watch(comm, record.get("watch"), directory)
        if watch is not None and announce:
            world = comm
            end_with_stall(watch, directory, lambda stall: _abort(directory, world, stall, None, announce))
        comm = comm if watch is None else WatchedComm(comm)  # sees the calls of apps, too
        names = {"app": record["app"], "title": record["title"]}
        keeper = _keeper(comm, config, record, directory)
        limit = getattr(getattr(config, "time", None), "limit", "")
        run = Run(
            comm,
            directory,
            **names,
            lines=lines,
            device=device,
            start=start_nested,
            watch=watch,
            traced=bool(record.get("trace")),
            keeper=keeper,
            limit=seconds_of(limit) if limit else None,
            replay=checks.replay,
        )
        _say_resumed(run, keeper)
        if device.is_gpu:
            run.say(f"GPU: {device.describe()}")
            if comm.rank == 0:
                provenance = directory.read_json("provenance.json") or {}
                directory.write_json("provenance.json", {**provenance, "gpu": device.facts()})
        run.stops.listen()
        importlib.import_module(f"{record['package']}.run").run(config, run)
        if run.status == "running":
            run.finish({})
        if watch is not None:
            watch.close()
        return run.status
    except BaseException as error:
        _abort(directory, comm, error, run.step if run else None, announce)


def _check_size(expected: int, size: int) -> None:
    """Raise unless the world has as many ranks as were asked for."""
    if expected != size:
        raise SetupError(
            f"mpiexec was to start {expected} ranks, but MPI sees a world of {size}",
            likely="the mpiexec that was found belongs to another MPI library than the one mpi4py loads",
            do="hpckit doctor, or start it yourself:  mpiexec -n RANKS hpckit run …",
        )


def _find_device(comm: MPI.Intracomm, mpi: str | None) -> Device:
    """The device of this rank: the host, or a GPU if the run asked for one. Collective."""
    from hpckit.comm.device import HOST
    from hpckit.comm.gpu import find_gpu

    return HOST if mpi is None else find_gpu(comm, mpi)


def _watch(comm: MPI.Intracomm, options: dict[str, Any] | None, directory: RunDirectory) -> Watch | None:
    """The watch that the run asked for. Collective."""
    from hpckit.comm.observe.watch import Watch

    return None if options is None else Watch(comm, **options, folder=stalls_folder(directory))


def _keeper(comm: MPI.Intracomm, config: Any, record: dict[str, Any], directory: RunDirectory) -> Keeper:
    """The checkpoints of the run; for a resumed one, with the state that it restarts from. Collective."""
    from hpckit.io.checkpoint.manager import Keeper

    facts = {"app": record["app"], "title": record["title"], "identity": identity(record)}
    keeper = Keeper(comm, directory.checkpoints, config.checkpoint, facts, resume=record.get("attempt", 0) > 0)
    keeper.notes = [f"not used: {note}" for note in keeper.notes]
    if keeper.restored is not None:
        before, name = keeper.restored.manifest.get("identity"), keeper.restored.path.name
        if before is None:
            raise InputError(f"{name} does not say what run it was made in", do="hpckit run DIR/run.toml starts anew")
        told = require_same(before, facts["identity"], str(keeper.restored.path))
        keeper.notes += [f"since {name} {line}" for line in told]
    if keeper.resumed and comm.rank == 0:
        step = 0 if keeper.restored is None else keeper.restored.step
        directory.write_json(f"{directory.attempt_name}/resumed.json", {"step": step})
    return keeper


def _say_resumed(run: Run, keeper: Keeper) -> None:
    """Print where a resumed run restarts, and which checkpoints it does not use."""
    for note in [*keeper.notes, *run.notes]:
        run.say(note)
    if keeper.restored is not None:
        run.say(f"resumed from {keeper.restored.path.name}, step {keeper.restored.step}")
    elif (
        keeper.resumed and not (run.directory.path / CASES).exists()
    ):  # a run of nested runs reports which of them it keeps
        run.say("no checkpoint yet: from the start")


def _record_places(directory: RunDirectory, comm: MPI.Intracomm) -> None:
    """Add host, process, cores and threads of every rank, and the MPI library, to `provenance.json`."""
    from mpi4py import MPI

    own = {
        "rank": comm.rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0") or 0),
    }
    places = gather_json(comm, own)
    if places is not None:
        record = directory.read_json("provenance.json") or {}
        record["mpi"] = {
            "library": " ".join(MPI.Get_library_version().split("\n")[0].split()),
            "standard": MPI.Get_version(),
        }
        record["hosts"] = list(dict.fromkeys(place["host"] for place in places))
        record["placement"] = places
        directory.write_json("provenance.json", record)


def _abort(
    directory: RunDirectory, comm: MPI.Intracomm, error: BaseException, step: int | None, announce: bool
) -> NoReturn:
    """Keep the failure if it is the first of all ranks, and end the job."""
    record = failure_record(error, comm.rank, comm.size, step, directory.path / failure_file(directory))
    code = int(str(record["exit_code"]))
    try:
        first = directory.create_json(failure_file(directory), record)
    except OSError:  # the disk may be what failed
        first, announce = True, True
    if first and announce:
        print(record["report"], file=sys.stderr, flush=True)
        time.sleep(GRACE_SECONDS)
    elif announce:
        time.sleep(TURN_SECONDS)
    sys.stdout.flush()
    comm.Abort(code)
    os._exit(code)  # MPICH's abort returns, and the interpreter would go on until the launcher kills it


class _RankLog(logging.FileHandler):
    """A log file that is never reached through a link."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


def rank_logger(directory: RunDirectory, rank: int) -> None:
    """Send warnings and log records (level WARNING and above) of this rank to its own file, made at the first one."""
    handler = _RankLog(directory.attempt / "ranks" / f"{rank:05d}.log", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)


def end_with_stall(watch: Watch, directory: RunDirectory, abort: Callable[[StallError], None]) -> None:
    """Pass the stall with the watch's report to `abort` when the watch ends the job: ranks under the user's launcher
    have no front end.

    The watcher of a node announces the end in its table, and waits a moment: a thread of each rank then acts as for
    the rank's own error, even if the rank waits in MPI. The watcher kills the others.
    """

    def listen() -> None:
        while not watch.is_ending():
            if watch.closed:
                return
            time.sleep(LOOK_SECONDS)
        from hpckit.cli.ending import stall_that_ended

        folder = stalls_folder(directory)
        text = stall_that_ended(folder) or "ranks wait for an operation that others never begin"
        abort(StallError(text, where="reported by the watch", do=f"look at the lines named; {folder}"))

    watch.listen_for_end()
    threading.Thread(target=listen, daemon=True, name="end of a stalled run").start()


if __name__ == "__main__":
    sys.exit(main())
