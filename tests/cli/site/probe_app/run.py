"""The program: steps with a collective call in each, so that a rank that fails leaves the others waiting."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time

from hpckit.errors import BlowUpError, DecompositionError, InputError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from probe_app.config import Config


def decomposition(config: Config, ranks: int) -> Decomposition:
    return Decomposition((config.grid.nz, config.grid.nx), Topology(("z", "x"), (1, ranks), ("x",)), halo=(0, 2))


def dry_run(config: Config, ranks: int) -> DryRun:
    dec = decomposition(config, ranks)
    if config.grid.nx // ranks < 2:
        raise DecompositionError("too thin", do="ranks: 1 to 20")
    cells = config.grid.nx * config.grid.nz
    lines = [f"rank {rank}: x {dec.start(rank)[1]} + {dec.owned(rank)[1]}" for rank in range(ranks)]
    return DryRun(ranks, lines, 64, 8 * cells // ranks, 8 * cells, 1, config.time.steps, ["only a probe"])


def run(config: Config, run: Run) -> None:
    if config.failure.kind == "leave":
        os._exit(0)
    run.say(f"probe on {run.size} ranks, table {config.input.table}")
    if run.rank == 0:
        (run.directory.output / "complete.txt").write_text("written before the steps\n")
    logging.getLogger("probe").warning("a warning of rank %d", run.rank)
    status = "done"
    for step in range(1, config.time.steps + 1):
        with run.timer("compute"):
            time.sleep(config.time.seconds_per_step)
        run.progress(step, time=float(step), end=float(config.time.steps), rate="1 cell/s")
        run.metric(step=step, time=float(step))
        if step == config.failure.step:
            fail(config.failure.kind, run, config.failure.rank)
        run.comm.Barrier()
        if run.stop_requested():
            status = "stopped"
            break
    if config.failure.kind == "late" and run.rank == config.failure.rank:
        raise RuntimeError("after the last step")
    summary = {"steps": step, "cells": 800, "wall_seconds": 1.0, "cell_steps_per_second": 800.0 * step}
    run.finish({**summary, "decomposition": decomposition(config, run.size)}, status)


def fail(kind: str, run: Run, rank: int) -> None:
    if kind == "all":
        raise InputError("bad on every rank alike", where="the table", do="mend the table")
    if kind == "everywhere":
        raise BlowUpError("u is not finite", where=f"rank 0, step {run.step}", do="dt <= 0.1")
    if run.rank != rank:
        return
    if kind == "raise":
        raise ZeroDivisionError("a fault of the program")
    if kind == "blow-up":
        raise BlowUpError(
            "u is not finite", where=f"rank {run.rank}, step {run.step}, cell (z 3, x 17)", do="dt <= 0.1"
        )
    if kind == "exit":
        sys.exit(9)
    if kind == "stuck":
        while True:
            time.sleep(1)
    if kind == "vanish":
        os._exit(0)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
