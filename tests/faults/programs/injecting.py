"""Values that change by themselves while an app runs: `injecting.py FOLDER SEED WITHOUT KIND:APP …`, on 2 ranks of MPI.

`nan`: a number becomes NaN after a step: the app must see it, end with HPK-400 and tell the step. `gate`: the same
where the app seldom looks: the element must be named before a checkpoint holds it, and the one before must stay.
`flip`: a bit of the state turns while a step is computed that is computed twice: HPK-501 must name the element.
`message`: a bit of a message turns on its way: HPK-501 must name sender and receiver. Since only the receiver knows, it
ends the job: such a case is the last of its job. Where both ranks know, as after a collective, the one whose message
was changed tells. A row of each goes to FOLDER/rows.json.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm import checksums
from hpckit.comm.agree import broadcast_bytes
from hpckit.comm.checksums import End
from hpckit.comm.observe.observer import observer_of
from hpckit.errors import HpckitError
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.manager import Keeper
from hpckit.io.files import replace_file
from hpckit.io.settings import Checkpoint
from hpckit.run.context import Run
from hpckit.run.directory import RunDirectory
from hpckit.run.redundant_step import Kept
from tests.faults.jobs import ROWS
from tests.faults.programs.cases import CASES, TEXT, Case, laid_over
from tests.faults.taken_out import replaced, taken_out

world = MPI.COMM_WORLD
PIPELINE = "pipeline"  # training whose ranks are stages
EVERY = 2  # steps between two checkpoints
SELDOM = 10**6
TELL_SECONDS = 40.0  # that a rank leaves to the one whose message was changed, until it tells how it ended itself


class SpoiledRun(Run):
    """A run whose state is changed on a rank after a step: `spoil(array)` gets its block of a random array."""

    at, who = SELDOM, 0
    spoil: Callable[[np.ndarray], None]
    random: Random
    told = ""  # the element that was changed

    def advance(self, step: int, once: Any, state: Any, restore: Any) -> Any:
        """As `Run.advance`."""

        def spoiled() -> Any:
            result = once()
            if step == self.at and not self.told:
                self._change(step, state, restore)
            return result

        return super().advance(step, spoiled, state, restore)

    def _change(self, step: int, state: Any, restore: Any) -> None:
        kept = Kept(step, state())
        name = self.random.choice([each for each in kept.names if self._may_change(kept, each)])
        start, block = kept.block(name)
        # Not at an end of the block: what stands on a wall is set anew by the next step.
        place = tuple(self.random.randrange(min(1, n - 1), max(1, n - 1)) for n in block.shape)
        told = f"{name}[{', '.join(str(a + b) for a, b in zip(place, start, strict=True))}]"
        self.told = broadcast_bytes(self.comm, told.encode(), self.who).decode()
        if self.rank == self.who:
            self.spoil(block[(*place, None)])
        restore(kept)

    def _may_change(self, kept: Kept, name: str) -> bool:
        # Places of particles decide which rank has them; with NaN none has.
        return kept.dtype(name).kind == "f" and name not in ("position", "built", "bottom")


def to_nan(one: np.ndarray) -> None:
    """Make the one element NaN."""
    one[:] = np.nan


def flipped(one: np.ndarray, random: Random) -> None:
    """Turn one of its low bits."""
    bits = one.view(f"u{one.itemsize}")
    bits ^= bits.dtype.type(1 << random.randrange(8 * one.itemsize // 2))


def spoiled_run(kind: str, name: str, case: Case, folder: Path, random: Random) -> str:
    """What is wrong with how a run ended; '' for nothing."""
    at, who = EVERY * random.randint(1, 3), random.randrange(world.size)
    if (kind, case.app) == ("gate", "train"):
        who = 0  # checkpoints are of the first replica
    if world.rank == 0:
        RunDirectory.create(folder / f"{kind}-{name}")
    world.Barrier()
    directory = RunDirectory(folder / f"{kind}-{name}")
    saves = Checkpoint(every="never" if kind == "nan" else EVERY, asynchronous=False)
    keeper = Keeper(world, directory.checkpoints, saves, {})
    run = SpoiledRun(world, directory, app=case.app, lines=False, keeper=keeper, replay=at if kind == "flip" else 0)
    run.at, run.who, run.random = at, who, Random(random.random())
    run.spoil = (lambda one: flipped(one, run.random)) if kind == "flip" else to_nan
    looks = {"md": "thermo"}.get(case.app, "monitor")
    seldom = laid_over(case.settings, {"time": {looks: 1 if kind == "nan" else SELDOM}})
    if case.app == "shallow_water":  # which looks at its frames, too, and would see it before the checkpoint does
        seldom = laid_over(seldom, {"output": {"every": 1e9}})
    config = Case(case.app, case.preset, seldom, case.steps).config(folder)
    error = _error_of(lambda: importlib.import_module(f"hpckit.apps.{case.app}.run").run(config, run))
    code = "HPK-501" if kind == "flip" else "HPK-400"
    if error is None or error.code != code:
        return f"{run.told} on rank {who} in step {at}: ended with {error and error.report()}"
    words = [f"step {at}"]
    if (kind, case.app) == ("nan", "train"):  # seen in the loss of the next step, or of the one after a moment is used
        words = ["step"]
    words += [f"rank {who}", run.told] if kind != "nan" else []
    missing = [word for word in words if word not in error.where]
    if missing:
        return f"not told: {missing}; told: {error.report()}"
    return _unsaved(directory, at) if kind != "nan" else ""


def _unsaved(directory: RunDirectory, at: int) -> str:
    """What is wrong with the checkpoints: the newest must be of before, and finite."""
    found, _ = choose(MPI.COMM_SELF, directory.checkpoints)
    if found is None:
        return "" if at == EVERY else "no checkpoint is left"
    if found.step != at - EVERY:
        return f"the newest checkpoint is of step {found.step}, not {at - EVERY}"
    arrays = (found.read(name, (0,) * len(found.shape(name)), found.shape(name)) for name in found.names)
    return "" if all(np.isfinite(array).all() for array in arrays) else "a checkpoint holds what is not finite"


def _error_of(do: Callable[[], None]) -> HpckitError | None:
    with redirect_stdout(io.StringIO()):
        try:
            do()
        except HpckitError as error:
            return error
    return None


def spoiled_message(name: str, folder: Path, random: Random, tell: Callable[[str], None]) -> None:
    """A bit of a message turns before it is looked at on a rank; that one tells what is wrong."""
    case = CASES["train" if name == PIPELINE else name]
    stages = world.size if name == PIPELINE else 1
    who, left = random.randrange(world.size), random.randint(1, 12)
    finish, check_result = checksums.Seals.finish, checksums.check_result
    check_single = checksums.SingleSeals.check
    spoiled: list[str] = []

    def spoil(array: np.ndarray, what: str) -> None:
        nonlocal left
        left -= 1
        if left == 0 and world.rank == who:
            flat = array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else array[..., :1, :1]
            where = (0,) * flat.ndim
            flat[where] = flat[where] ^ np.uint8(4) if flat.dtype == np.uint8 else np.nextafter(flat[where], np.inf)
            spoiled.append(what)

    def finish_spoiled(seals: checksums.Seals, received: list[End]) -> None:
        full = [end for end in received if any(array.size for array in end.arrays)]
        if full:
            spoil(next(array for array in full[0].arrays if array.size), f"from rank {full[0].peer} to rank {who}")
        finish(seals, received)

    def result_spoiled(comm: MPI.Comm, operation: str, result: np.ndarray) -> None:
        spoil(result, operation)
        check_result(comm, operation, result)

    def single_spoiled(seals: checksums.SingleSeals, due: Any, peer: int, array: np.ndarray) -> None:
        spoil(array, f"from rank {peer} to rank {who}")
        check_single(seals, due, peer, array)

    observer_of(world).listen(checksums.Checksums())
    if world.rank == 0:
        RunDirectory.create(folder / f"message-{name}")
    world.Barrier()
    with replaced(
        (checksums.Seals, "finish", finish_spoiled),
        (checksums.SingleSeals, "check", single_spoiled),
        (checksums, "check_result", result_spoiled),
    ):
        run = Run(world, RunDirectory(folder / f"message-{name}"), app=case.app, lines=False)
        module = importlib.import_module(f"hpckit.apps.{case.app}.run")
        error = _error_of(lambda: module.run(case.config(folder, stages), run))
    told = "" if error is None else error.report()
    if world.rank != who:
        time.sleep(TELL_SECONDS)
    if error is None or error.code != "HPK-501" or (spoiled and spoiled[0] not in told):
        tell(f"{spoiled} on rank {who}: {told or 'the run went on'}")
    else:
        tell("")


def main(folder: Path, seed: str, without: str, names: list[str]) -> None:
    """The cases, one after the other."""
    if world.rank == 0:
        (folder / TEXT).write_text("the quick brown fox jumps over the lazy dog; " * 40, encoding="utf-8")
    world.Barrier()

    def tell(name: str, problem: str) -> None:
        path = folder / ROWS
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        row = {"app": name, "case": name.replace(":", " in "), "problem": problem}
        replace_file(path, json.dumps([*rows, row]).encode())  # whole, whenever another rank ends the job

    with taken_out(without):
        for name in names:
            kind, _, app = name.partition(":")
            random = Random(f"{seed} {name}")
            if kind == "message":
                spoiled_message(app, folder, random, partial(tell, name))
                world.Abort(0)
                os._exit(0)  # MPICH returns
            problem = spoiled_run(kind, app, CASES[app], folder, random)
            if world.rank == 0:
                tell(name, problem)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
