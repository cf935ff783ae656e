"""The ranks of the benchmark of checkpoints."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.ranks import answer
from hpckit.checkpoint_state import Piece, State
from hpckit.io.checkpoint.hashes import PIECE
from hpckit.io.checkpoint.stream import pages
from hpckit.io.checkpoint.writer import Writer
from hpckit.kernels import stencil
from hpckit.run_context import share_json

HALO, ROW = 2, 8192


def case(mib: int, rounds: int) -> dict[str, Any]:
    """Seconds of each way to keep `mib` MiB a rank, the slowest rank, in turn."""
    comm = MPI.COMM_WORLD
    made = tempfile.mkdtemp(prefix="hpckit-bench-", dir=".") if comm.rank == 0 else None
    folder = Path(share_json(comm, made))
    try:
        return {"seconds": _measured(comm, folder, mib, rounds)}
    finally:
        comm.Barrier()
        if comm.rank == 0:
            shutil.rmtree(folder)


def _measured(comm: MPI.Intracomm, folder: Path, mib: int, rounds: int) -> dict[str, list[float]]:
    rows = (mib << 17) // ROW
    shape, start = (rows * comm.size, ROW), (rows * comm.rank, 0)
    field = np.empty((rows + 2 * HALO, ROW + 2 * HALO))
    field[...] = comm.rank + np.arange(len(field))[:, None]
    whole = pages(mib << 20).view(np.float64).reshape(rows, ROW)
    whole[...] = field[HALO:-HALO, HALO:-HALO]
    copy = pages(mib << 20).view(np.float64).reshape(rows, ROW)
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
    times: dict[str, list[float]] = {name: [] for name in ways}
    for count in range(rounds + 1):  # the first is not counted: it touches memory and disk
        for name, way in ways.items():
            field += 1.0  # new bytes for every one
            comm.Barrier()
            begin = time.perf_counter()
            way()
            seconds = np.array(stalled[-1] if name == "stall" else time.perf_counter() - begin)
            comm.Allreduce(MPI.IN_PLACE, seconds, op=MPI.MAX)
            if count:
                times[name].append(float(seconds))
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


def _stall(comm: MPI.Intracomm, writer: Writer, state: State) -> float:
    """Seconds in the calls of a checkpoint that is written while a stencil runs."""
    before = writer.stall
    writer.start(0, state)
    old, new = np.ones((2, 512, 512))
    while True:
        stencil.diffuse(new, old, 1.0, 0.1, (1.0, 1.0))
        written = np.array(writer.is_written, np.int64)
        comm.Allreduce(MPI.IN_PLACE, written, op=MPI.MIN)
        if written:
            break
    writer.finish()
    return writer.stall - before


if __name__ == "__main__":
    answer(sys.argv[1:], case)
