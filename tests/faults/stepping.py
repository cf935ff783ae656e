"""A small run with checkpoints, in a process of its own that may be killed: it goes on from the newest whole one."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.errors import HpckitError
from hpckit.io import failpoints
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.state import Piece, State
from hpckit.io.checkpoint.writer import Writer

SHAPE, SEED = (61, 83), 7
INTERVAL = 2  # steps between two checkpoints
DONE, FAILED = 0, 3  # exit codes of `forked`


def values(step: int) -> np.ndarray:
    """The state after so many steps, from the start."""
    field = np.random.default_rng(SEED).random(SHAPE)
    for number in range(step):
        field = stepped(field, number)
    return field


def stepped(field: np.ndarray, step: int) -> np.ndarray:
    """One step; chaotic, so that a wrong bit does not die out."""
    return 3.9 * field * (1.0 - field) * (1.0 - 1e-3 * (step % 3))


def state_of(field: np.ndarray, step: int) -> State:
    """What a checkpoint holds."""
    return State([Piece("field", SHAPE, (0, 0), field)], {"step": step})


def digest(field: np.ndarray) -> str:
    """All bits of a state, short."""
    return hashlib.sha256(np.ascontiguousarray(field).tobytes()).hexdigest()


def go_on(root: Path, steps: int, tell: Callable[[str], None] = lambda line: None) -> str:
    """From the newest whole generation below `root` to the end; returns the digest of the last state.

    `tell` hears `begin STEP`, `saved STEP` once that checkpoint counts, and `end DIGEST`.
    """
    generation, _ = choose(MPI.COMM_SELF, root)
    field, begin = values(0), 0
    if generation is not None:
        field, begin = generation.read("field", (0, 0), SHAPE), generation.values["step"]
    tell(f"begin {begin}")
    writer = Writer(MPI.COMM_SELF, root, keep=2)
    for step in range(begin, steps):
        field = stepped(field, step)
        if (step + 1) % INTERVAL == 0:
            writer.save(step + 1, state_of(field, step + 1))
            tell(f"saved {step + 1}")
    writer.close()
    tell(f"end {digest(field)}")
    return digest(field)


def forked(root: Path, steps: int, hook: failpoints.Hook | None = None) -> tuple[int, int]:
    """`go_on` in a child process with a hook in its file operations: (process, descriptor of what it tells)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        failpoints.install(hook)
        go_on(root, steps, lambda line: _tell(writing, line))
        code = DONE
    except HpckitError as error:
        os.write(writing, f"{error.code}\n".encode())
        code = FAILED
    finally:
        os._exit(code)  # MPI belongs to the parent


def _tell(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())


def heard(child: int, reading: int) -> tuple[int, dict[str, str]]:
    """Wait for the end of a child: its exit code (negative: by a signal), and the last of each thing that it told."""
    with open(reading, encoding="ascii") as lines:
        words = [(*line.split(), "") for line in lines if line.endswith("\n")]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), {line[0]: line[1] for line in words}


if __name__ == "__main__":
    begun = time.monotonic()
    print(go_on(Path(sys.argv[1]), int(sys.argv[2]), print), f"{time.monotonic() - begun:.2f} s")
