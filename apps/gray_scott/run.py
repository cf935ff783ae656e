"""The run of gray_scott: two fields, one halo exchange a step, frames, metrics, checkpoints."""

from __future__ import annotations

import math
import time as clock
from functools import partial

import numpy as np

from hpckit.apps.gray_scott.config import Config
from hpckit.comm.mesh import Mesh
from hpckit.errors import BlowUpError
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, State, read_into
from hpckit.io.fields.writer import FieldWriter
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run

AXES = ("y", "x")
VARIABLES = {
    "v": {"units": "1", "long_name": "concentration of v"},
    "u": {"units": "1", "long_name": "concentration of u"},
}
COVERED = 0.1  # v above it counts as pattern


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`. Raises `BlowUpError` if v is not finite."""
    shape = (config.grid.ny, config.grid.nx)
    with Mesh(run.comm, y=0, x=0, periodic=AXES, shape=shape) as mesh:
        part = Decomposition(shape, mesh.topology)
        u, v = (Field.zeros(mesh, part, name=name) for name in ("u", "v"))
        step, begin = 0, clock.perf_counter()
        if run.restored is None:
            start(u, v)
        else:  # hpckit resume, on any number of ranks
            read_into(run.restored, u)
            read_into(run.restored, v)
            step = run.restored.values["step"]
        halo = HaloExchange(mesh, [u, v])
        coords = {"y": np.arange(shape[0]) + 0.5, "x": np.arange(shape[1]) + 0.5}
        units = dict.fromkeys(coords, "1")
        with FieldWriter(
            mesh, run.directory.output, part, coords, units, VARIABLES, resume=run.kept("fields")
        ) as writer:
            run.keep("fields", writer.kept)  # a resumed run goes on after the frames of its checkpoint
            if step == 0:
                writer.write(0.0, {"u": u.interior, "v": v.interior})
            while step < config.time.steps:
                with run.timer("halo"):
                    halo([u, v])
                with run.timer("compute"):
                    advance(u.data, v.data, config)
                step += 1
                if step % config.time.monitor == 0 or step == config.time.steps:
                    watch(v, step, run)
                if step % config.output.every == 0 or step == config.time.steps:
                    with run.timer("output"):
                        writer.write(float(step), {"u": u.interior, "v": v.interior})
                run.progress(step, step, config.time.steps)
                if step < config.time.steps and run.edge(step, partial(state, u, v, step)):
                    break  # asked to stop; the checkpoint is written
        seconds = clock.perf_counter() - begin
        run.finish(
            {
                "steps": step,
                "cells": math.prod(shape),
                "wall_seconds": seconds,
                "decomposition": part,
                "units": {"time": "steps"},
            },
            "done" if step == config.time.steps else "stopped",
        )


def start(u: Field, v: Field) -> None:
    """U = 1 and v = 0, but for a square in the middle, and a little noise that depends on the cell alone."""
    y, x = u.indices()
    ny, nx = u.decomposition.global_shape
    square = (abs(y - ny // 2) < ny // 10) & (abs(x - nx // 2) < nx // 10)
    noise = 0.02 * np.sin(12.9898 * y + 78.233 * x)
    u.interior[...] = np.where(square, 0.5, 1.0) + noise
    v.interior[...] = np.where(square, 0.25, 0.0) + abs(noise)


def advance(u: np.ndarray, v: np.ndarray, config: Config) -> None:
    """One step of both substances [y, x] in place; their halos are filled."""
    it, inner = config.reaction, (slice(1, -1), slice(1, -1))
    reacted = u[inner] * v[inner] * v[inner]
    du = it.du * laplacian(u) - reacted + it.feed * (1 - u[inner])
    dv = it.dv * laplacian(v) + reacted - (it.feed + it.kill) * v[inner]
    u[inner] += du
    v[inner] += dv


def laplacian(a: np.ndarray) -> np.ndarray:
    """The sum over the four neighbors less four times the cell."""
    return a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1]


def watch(v: Field, step: int, run: Run) -> None:
    """Collective: check v, and write a line of metrics; sums have the same bits on any number of ranks."""
    with run.timer("diagnostics"):
        covered = v.like()
        covered.interior[...] = v.interior > COVERED
        highest = v.max()
        line = {"v_mean": v.mean(repro=True), "v_max": highest, "covered": covered.mean(repro=True)}
    if not math.isfinite(highest):
        raise BlowUpError("v is not finite", where=f"step {step}", do="lower reaction.du and reaction.dv")
    run.metric(step=step, time=step, **line)


def state(u: Field, v: Field, step: int) -> State:
    """The content of a checkpoint."""
    return State([Piece.of_field(u), Piece.of_field(v)], {"step": step})


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would need on that many ranks, without MPI; raises the errors that it would raise at its start."""
    shape = (config.grid.ny, config.grid.nx)
    part = Decomposition(shape, Topology.over(ranks, shape, dict.fromkeys(AXES, 0), AXES))
    plan, cells = halo_plan(part), max(math.prod(part.local_shape(rank)) for rank in range(ranks))
    frames = 1 + math.ceil(config.time.steps / config.output.every)
    return DryRun(
        ranks=ranks,
        decomposition=[f"{shape[0]} x {shape[1]} cells on {' x '.join(map(str, part.topology.sizes))} ranks"],
        halo_bytes=2 * max(plan.nbytes(rank, 8) for rank in range(ranks)),
        memory_per_rank=8 * 8 * cells,  # two fields and what a step makes on the way
        output_bytes=2 * 8 * math.prod(shape) * frames,
        frames=frames,
        steps=config.time.steps,
    )
