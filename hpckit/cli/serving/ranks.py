"""What the verbs `generate` and `serve` share: the options of an engine, and its ranks."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.cli.ending import likely, lost_rank
from hpckit.cli.job import of_the_job, require_ranks
from hpckit.errors import InputError, RankLostError, SetupError
from hpckit.launch import mpiexec
from hpckit.launch.first_exit import FirstExit, announce
from hpckit.launch.launcher import Joined, check_world
from hpckit.launch.scratch import scratch
from hpckit.serving.plan.places import Places

DRAFTED = 3  # guesses of a smaller model, where nothing else is said
ANNOUNCED = "HPCKIT_ANNOUNCED"  # the folder in which the ranks that we start say who they are
# A launcher ends all ranks as soon as it sees that one was killed: it sees this shell, which waits for rank 0 to tell
# the clients.
OUTLIVE = ("sh", "-c", '"$@"; code=$?; [ $code -le 128 ] || sleep 5; exit $code', "sh")

if TYPE_CHECKING:
    from hpckit.serving.engine import Engine


def add_engine(it: argparse.ArgumentParser) -> None:
    """MODEL and the options of an engine."""
    it.add_argument("model", type=Path, metavar="MODEL", help="a run of `train`, a Hugging Face folder or a .gguf file")
    it.add_argument("-n", "--ranks", type=int, metavar="N", help="ranks that split every weight (1)")
    it.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="groups of these ranks, each with texts of its own (1)"
    )
    it.add_argument(
        "--stages", type=int, default=0, metavar="N", help="groups of ranks with a part of the layers each (one a node)"
    )
    it.add_argument(
        "--weights", default="", metavar="KIND", help="float32, bfloat16, bfloat16_dot, q8_0 or q4_0 (as the file has)"
    )
    it.add_argument("--rows", type=int, default=512, metavar="N", help="most tokens of a step (512)")
    it.add_argument("--texts", type=int, default=32, metavar="N", help="most texts that run at once (32)")
    it.add_argument("--chunk", type=int, metavar="N", help="most tokens of a prompt in a step beside other texts")
    it.add_argument("--kv-tokens", type=int, metavar="N", help="tokens whose keys and values are kept (up to 4 GiB)")
    it.add_argument("--speculate", type=int, default=0, metavar="K", help="tokens to guess from the text itself (0)")
    it.add_argument("--record", type=Path, metavar="DIR", help="write a record there, and a page at the end")
    it.add_argument("--draft", type=Path, metavar="MODEL", help="a smaller model of the same tokens that guesses them")


def engine_of(options: argparse.Namespace, comm: Any) -> Engine:
    """The engine that the options describe. Collective."""
    from hpckit.serving.engine import Engine

    return Engine(
        options.model,
        weights=options.weights,
        rows=options.rows,
        texts=options.texts,
        chunk=options.chunk,
        kv_tokens=options.kv_tokens,
        speculate=options.speculate or (DRAFTED if options.draft else 0),
        draft=options.draft,
        comm=comm,
        replicas=options.replicas,
        stages=options.stages,
    )


@contextmanager
def recorded(engine: Engine, options: argparse.Namespace, verb: str) -> Iterator[None]:
    """What runs inside is recorded, if `--record` says so; its page is drawn at the end, where matplotlib is there."""
    if options.record is None or engine.team.rank:
        yield
        return
    from hpckit.serving.server.record import ServingRecord

    record = ServingRecord(options.record, engine, {"model": options.model.resolve().name, "verb": verb})
    try:
        yield
    finally:
        record.close()
        try:
            from hpckit.serving.server.page import build_page

            print(build_page(options.record), file=sys.stderr, flush=True)
        except SetupError as problem:
            print(f"no page: {problem.message}; hpckit report {options.record}", file=sys.stderr, flush=True)


def on_ranks(
    verb: str,
    arguments: Sequence[str],
    options: argparse.Namespace,
    work: Callable[[Any], int],
    refuse: Callable[[str, str], None] | None = None,
) -> int:
    """Run work(comm) on the ranks of a launcher above us, on one rank here, or on those that we start.

    refuse: of a server, whose rank 0 ends all by itself after a first SIGTERM: it writes the number of its process and
    where it listens to `options.mark`. Called with the latter and the message when one of our ranks is lost, after
    rank 0 has told its clients so.
    """
    ranks = options.ranks
    if ranks is not None and ranks < 1:
        raise InputError(f"-n {ranks}", do="give 1 or more")
    if ranks is not None:
        Places(ranks, options.stages or 1, options.replicas)

    def here(above: Joined | None) -> int:
        require_ranks(ranks, above)
        if above is None:
            return work(None) if ranks in (None, 1) else _started(verb, arguments, ranks, refuse)
        announce(os.environ.get(ANNOUNCED, ""), os.environ)
        from mpi4py import MPI

        check_world(above, MPI.COMM_WORLD.size)
        return work(MPI.COMM_WORLD)

    return of_the_job(here)


def _started(verb: str, arguments: Sequence[str], ranks: int, refuse: Callable[[str, str], None] | None = None) -> int:
    """The verb on ranks that we start; the second request to stop ends them at once.

    Raises `RankLostError` where one of them is killed or crashes.
    """
    mpiexec.require_room(ranks)
    mpiexec.warn_if_crowded(ranks)

    def show(line: str, is_error: bool) -> None:
        print(line, file=sys.stderr if is_error else sys.stdout, flush=True)

    with scratch() as folder:
        mark, announced = Path(folder, "rank0"), Path(folder, "announced")
        announced.mkdir()

        def stop(times: int, process: subprocess.Popen) -> None:
            if refuse and mark.exists():
                os.kill(int(mark.read_text(encoding="utf-8").split()[0]), signal.SIGTERM)
            else:
                process.terminate()

        told = ["--mark", str(mark)] if refuse else []
        words = mpiexec.command(ranks, ["-m", "hpckit.cli.main", verb, *arguments, *told], "-P")
        if refuse:
            at = words.index(sys.executable)
            words[at:at] = OUTLIVE
        environment = mpiexec.rank_environment(ranks) | {ANNOUNCED: str(announced)}
        end = mpiexec.run_job(words, environment, show, stop, first=FirstExit(announced, ranks))
        where = mark.read_text(encoding="utf-8") if refuse and mark.exists() else ""
    if "how" in end.lost and not end.stops and (not end.aborted or end.code == RankLostError.exit_code):
        message = f"{verb}: {lost_rank(end.lost)}"
        if refuse and where:
            refuse(where, message)
        raise RankLostError(message, likely=likely(end.lost), do="hpckit explain HPK-700")
    return end.code
