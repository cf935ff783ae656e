"""What checkpoints cost: a whole one against the raw disk, and the stall of one that is written beside the run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.measure import Ratios, Rows, Times, ratio, result
from hpckit.bench.ranks import answer, run_ranks, slowest

RANKS = 2
MIB, ROUNDS = 512, 5  # a rank; rounds of raw disk, checkpoint, checkpoint out of an array with halo, and stall
QUICK_MIB, QUICK_ROUNDS = 64, 3
FEW_ROUNDS = 3  # beside faults, whose time is limited
HALO, ROW = 2, 8192


def run(quick: bool = False) -> dict[str, Any]:
    """Start the ranks; rows and ratios of `checkpoint_costs`."""
    return result("checkpoint", *checkpoint_costs(quick))


def checkpoint_costs(quick: bool = False, few: bool = False) -> tuple[Rows, Ratios]:
    """Rows and ratios. ckpt_vs_raw: seconds of a raw O_DIRECT write, a file a rank, with fsync, over those of a whole
    checkpoint (copied out of an array with halo, hashed, synced, committed); ckpt_stall: seconds that a run stands
    still for an asynchronous one, in copies of the state in memory. few: fewer rounds.
    """
    mib, rounds = (QUICK_MIB, QUICK_ROUNDS) if quick else (MIB, FEW_ROUNDS if few else ROUNDS)
    times: Times = run_ranks("hpckit.bench.overhead.checkpoint", RANKS, ((mib, rounds),))[0]
    rows = [
        {
            "what": f"{RANKS} x {mib} MiB: {name}",
            "seconds": median(seconds),
            "GiB/s": RANKS * mib / 1024 / median(seconds),
        }
        for name, seconds in times.items()
    ]
    ratios = {
        "ckpt_vs_raw": ratio(times["raw O_DIRECT write"], times["checkpoint"]),
        "ckpt_contiguous_vs_raw": ratio(times["raw O_DIRECT write"], times["checkpoint without halo"]),
        "ckpt_stall": ratio(times["stall"], times["copy in memory"]),
    }
    return rows, ratios


def _case(mib: int, rounds: int) -> Times:
    """Seconds of each way to keep `mib` MiB a rank, the slowest rank, in turn."""
    from mpi4py import MPI

    from hpckit.comm.agree import share_json

    comm = MPI.COMM_WORLD
    made = tempfile.mkdtemp(prefix="hpckit-bench-", dir=".") if comm.rank == 0 else None
    folder = Path(share_json(comm, made))
    try:
        return _measured(comm, folder, mib, rounds)
    finally:
        comm.Barrier()
        if comm.rank == 0:
            shutil.rmtree(folder)


def _measured(comm: Any, folder: Path, mib: int, rounds: int) -> Times:
    from hpckit.io.checkpoint.state import Piece, State
    from hpckit.io.checkpoint.writer import Writer
    from hpckit.kernels.aligned import pages

    rows = (mib << 17) // ROW
    shape, start = (rows * comm.size, ROW), (rows * comm.rank, 0)
    field = np.empty((rows + 2 * HALO, ROW + 2 * HALO))
    field[...] = comm.rank + np.arange(len(field))[:, None]
    whole, copy = (pages(mib << 20).view(np.float64).reshape(rows, ROW) for _ in range(2))
    whole[...] = field[HALO:-HALO, HALO:-HALO]
    state = State([Piece("state", shape, start, field[HALO:-HALO, HALO:-HALO])])
    dense = State([Piece("state", shape, start, whole)])
    writer, stalled = Writer(comm, folder / "ckpt", keep=1), [0.0]
    again = Writer(comm, folder / "beside", keep=1)
    ways: dict[str, Callable[[], object]] = {
        "raw O_DIRECT write": lambda: _raw(folder / f"raw-{comm.rank}", whole),
        "checkpoint": lambda: writer.save(0, state),
        "checkpoint without halo": lambda: writer.save(0, dense),
        "copy in memory": lambda: np.copyto(copy, whole),
        "stall": lambda: stalled.append(_stall(comm, again, state)),
    }
    times: Times = {name: [] for name in ways}
    for count in range(rounds + 1):  # the first is not counted: it touches memory and disk
        for name, way in ways.items():
            field += 1.0  # new bytes for every one
            comm.Barrier()
            begin = time.perf_counter()
            way()
            seconds = slowest(comm, stalled[-1] if name == "stall" else time.perf_counter() - begin)
            if count:
                times[name].append(seconds)
            writer.close()
            again.close()
            # What is removed is removed before the next way begins.
            (folder / f"raw-{comm.rank}").unlink(missing_ok=True)
            if comm.rank == 0:
                os.sync()
            comm.Barrier()
    return times


def _raw(path: Path, values: np.ndarray) -> None:
    """What a disk can do: the bytes of a rank past the page cache into a file of its own, and fsync."""
    from hpckit.io.checkpoint.hashes import PIECE

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_DIRECT", 0), 0o600)
    data = values.reshape(-1).view(np.uint8).data
    try:
        for offset in range(0, len(data), PIECE):
            part = data[offset : offset + PIECE]
            if os.pwrite(descriptor, part, offset) != len(part):
                raise OSError("a short write: the disk is full")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stall(comm: Any, writer: Any, state: Any) -> float:
    """Seconds in the calls of a checkpoint that is written while a stencil runs."""
    from hpckit.kernels import stencil

    before = writer.stall
    writer.start(0, state)
    old, new = np.ones((2, 512, 512))
    written = False
    while not written:
        stencil.diffuse(new, old, 1.0, 0.1, (1.0, 1.0))
        written = slowest(comm, float(not writer.is_written)) == 0.0
    writer.finish()
    return writer.stall - before


if __name__ == "__main__":
    answer(sys.argv[1:], _case)
