"""Runs that stop and go on on other numbers of ranks: `resizing.py FOLDER SEED WITHOUT CASE …`, on 4 ranks of MPI.

A run of each case goes through seven parts on other numbers of ranks each. At every stop the checkpoint must hold the
bits that the state of an unbroken run on one rank had after that step, and at the end the files must be the same.
Training is compared at load to the bit, and by its losses. Rank 0 writes a row of each of the six pairs to
FOLDER/rows.json. WITHOUT is a safeguard that is taken out, `-` for none.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from hpckit.apps.train.layout import layout
from hpckit.apps.train.trainer import Trainer
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.manager import Keeper
from hpckit.io.checkpoint.reader import Generation
from hpckit.io.checkpoint.writer import Writer
from hpckit.io.files import replace_file
from hpckit.io.settings import Checkpoint
from hpckit.run.context import Run
from hpckit.run.directory import RunDirectory
from hpckit.run.redundant_step import Kept
from tests.faults.jobs import ROWS
from tests.faults.programs.cases import CASES, MORE, TEXT, Case
from tests.faults.taken_out import taken_out

world = MPI.COMM_WORLD
PAIRS = 6
NEVER = sys.maxsize


class StoppedRun(Run):
    """A run that is asked to stop after the step `stop_at`, and keeps digests of its state after `looks`."""

    stop_at = NEVER
    looks: frozenset[int] = frozenset()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.digests: dict[int, str] = {}

    def edge(self, step: int, state: Any) -> bool:
        """As `Run.edge`."""
        if step in self.looks:
            self.digests[step] = digest(Kept(step, state()))
        if step >= self.stop_at:
            self.stops.ask()
            if self._edge is not None:
                self._edge._next = 0
        return super().edge(step, state)


def meet() -> None:
    """Wait for all ranks without holding a core: there may be more ranks than cores, and some have nothing to do."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def digest(state: Kept | Generation) -> str:
    """All bits of a whole state."""
    total = hashlib.sha256()
    for name in sorted(state.names):
        shape = state.shape(name)
        total.update(name.encode() + state.read(name, (0,) * len(shape), shape).tobytes())
    return total.hexdigest()[:16]


def chain(random: Random, case: Case) -> tuple[list[int], list[int]]:
    """The ranks of each part, no two alike that follow each other, and the steps after which all but the last stop."""
    ranks = [random.choice((2, 3, 4))]
    while len(ranks) <= PAIRS:
        ranks.append(random.choice([count for count in (1, 2, 3, 4) if count != ranks[-1]]))
    return ranks, sorted(random.sample(range(case.every, case.steps - 1, case.every), PAIRS))


def part(
    case: Case, folder: Path, name: str, ranks: int, stop_at: int, looks: frozenset[int] = frozenset()
) -> dict[int, str]:
    """A part of the run, on the first of these ranks; the digests of the states that it was to look at, on rank 0."""
    comm, digests = world.Split(world.rank < ranks, world.rank), {}
    if world.rank < ranks:
        path = folder / name
        resume = path.exists()
        comm.Barrier()
        if comm.rank == 0 and not resume:
            RunDirectory.create(path)
        comm.Barrier()
        directory = RunDirectory(path)
        settings = Checkpoint(every=case.every if case.every > 1 else 5, keep=1)
        keeper = Keeper(comm, directory.checkpoints, settings, {}, resume)
        run = StoppedRun(comm, directory, app=case.app, lines=False, keeper=keeper)
        run.stop_at, run.looks = stop_at, looks
        module = importlib.import_module(f"hpckit.apps.{case.app}.run")
        with redirect_stdout(io.StringIO()):
            module.run(case.config(folder, ranks), run)
        digests = run.digests
    comm.Free()
    meet()
    return digests


def resized(name: str, case: Case, folder: Path, ranks: list[int], stops: list[int]) -> list[str]:
    """What is wrong with each of the pairs, on rank 0."""
    whole = part(case, folder, f"{name}-whole", 1, NEVER, frozenset(stops))
    problems = []
    for number, count in enumerate(ranks):
        stop = [*stops, NEVER][number]
        part(case, folder, f"{name}-parts", count, stop)
        if world.rank == 0 and stop < NEVER:
            problems.append(_difference(folder / f"{name}-parts", stop, whole))
    if world.rank:
        return []
    # The state after part k was made by the ranks of part k out of those of part k - 1: the first has no pair.
    return [*(problem for problem in problems[1:]), _files_differ(name, case, folder) or problems[0]]


def _difference(path: Path, step: int, whole: dict[int, str]) -> str:
    """What is wrong with the checkpoint of a stop."""
    found, _ = choose(MPI.COMM_SELF, RunDirectory(path).checkpoints)
    if found is None or found.step != step or step not in whole:
        return f"no checkpoint of step {step}"
    return "" if digest(found) == whole[step] else f"the state after step {step} has other bits"


def _files_differ(name: str, case: Case, folder: Path) -> str:
    """The first dataset of the output files that has other bits than that of the unbroken run."""
    whole_run, parts_run = (folder / f"{name}-{kind}" / "output" for kind in ("whole", "parts"))
    files = ["trajectory.h5md"] if case.app == "md" else ["fields.h5", "maps/fields.h5"]
    files += sorted(path.name for path in whole_run.glob("*.h5") if path.name not in files)
    for file in files:
        if not (whole_run / file).is_file():
            continue
        with h5py.File(whole_run / file) as whole, h5py.File(parts_run / file) as parts:
            names: list[str] = []
            whole.visititems(lambda path, it, names=names: names.append(path) if isinstance(it, h5py.Dataset) else None)
            for path in names:
                if path not in parts or not np.array_equal(whole[path][...], parts[path][...], equal_nan=False):
                    return f"{path} of {file} differs from the unbroken run"
    return ""


def trained(name: str, case: Case, folder: Path, ranks: list[int], stops: list[int]) -> list[str]:
    """The same of training: what is loaded has the bits that were saved, and the losses are those of one rank."""
    whole = train_part(case, folder, f"{name}-whole", 1, case.steps)[1]
    problems, saved = [], ""
    for number, count in enumerate(ranks):
        begun = stops[number - 1] if number else 0
        loaded, losses = train_part(case, folder, f"{name}-parts", count, [*stops, case.steps][number])
        if world.rank == 0:
            problem = "" if loaded == saved else "what was loaded has other bits than what was saved"
            far = [abs(a / b - 1) for a, b in zip(losses, whole[begun:], strict=False)]
            problems.append(problem or (f"losses differ by {max(far):.1g}" if max(far) > 1e-9 else ""))
            found, _ = choose(MPI.COMM_SELF, folder / f"{name}-parts" / "ckpt")
            saved = "" if found is None else digest(found)
    return problems[1:]


def train_part(case: Case, folder: Path, name: str, ranks: int, stop_at: int) -> tuple[str, list[float]]:
    """Training up to a step: the digest of what it began with, made of what the ranks hold, and the losses."""
    comm = world.Split(world.rank < ranks, world.rank)
    loaded, losses = "", []
    if world.rank < ranks:
        config, root = case.config(folder, ranks), folder / name / "ckpt"
        root.mkdir(parents=True, exist_ok=True)
        comm.Barrier()
        laid = layout(config, ranks)
        with Mesh(comm, dp=laid.plan.dp, pp=laid.plan.pp) as mesh:
            trainer = Trainer(config, laid, mesh)
            trainer.warm_up()
            found, _ = choose(comm, root)
            if found is not None:
                trainer.restore(found)
                loaded = _digest_of_all(comm, trainer, root.with_name("loaded"))
            losses = [trainer.step(PhaseTimer()).loss for _ in range(stop_at - trainer.done)]
            writer = Writer(comm, root, keep=1)
            writer.save(trainer.done, trainer.state())
            writer.close()
    comm.Free()
    meet()
    return loaded, losses


def _digest_of_all(comm: MPI.Comm, trainer: Trainer, root: Path) -> str:
    """Collective: of the state that the ranks hold together, by way of a checkpoint of its own."""
    root.mkdir(exist_ok=True)
    comm.Barrier()
    writer = Writer(comm, root, keep=1)
    writer.save(trainer.done, trainer.state())
    writer.close()
    found, _ = choose(comm, root)
    return digest(found) if comm.rank == 0 and found is not None else ""


def main(folder: Path, seed: str, without: str, names: list[str]) -> None:
    """The cases, one after the other."""
    rows: list[dict[str, Any]] = []
    if world.rank == 0:
        (folder / TEXT).write_text("the quick brown fox jumps over the lazy dog; " * 40, encoding="utf-8")
    world.Barrier()
    with taken_out(without):
        for name in names:
            case = {**CASES, **MORE}[name]
            ranks, stops = chain(Random(f"{seed} {name}"), case)
            problems = (trained if case.app == "train" else resized)(name, case, folder, ranks, stops)
            pairs = zip(ranks, ranks[1:], stops, problems, strict=False)
            rows += [
                {"app": name, "case": f"{name}, {a} to {b} ranks after step {stop}", "problem": problem}
                for a, b, stop, problem in pairs
            ]
            if world.rank == 0:
                replace_file(folder / ROWS, json.dumps(rows).encode())  # whole, whenever another rank ends the job


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
