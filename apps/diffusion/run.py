"""The diffusion app's run: time loop, metrics, output, summary."""

from __future__ import annotations

import math
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.diffusion.config import Config
from hpckit.apps.diffusion.start import places, start, wall_fill
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer, t_eff
from hpckit.errors import BlowUpError
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.io.fields.writer import FieldWriter
from hpckit.kernels import stencil
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun, Run
from hpckit.run.steps import count_steps

BYTES_PER_CELL_STEP = 16  # the temperature read once and written once
VARIABLES = {"temperature": {"units": "K", "long_name": "temperature"}}


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `BlowUpError` where the solution is lost, on every rank alike.
    """
    grid = config.grid
    axes = dict.fromkeys(grid.axes, 0)
    with Mesh(run.comm, shape=grid.shape, periodic=grid.periodic, **axes) as mesh:
        decomposition = Decomposition(grid.shape, mesh.topology, halo=1)
        model = Model(config, mesh, decomposition, run.device)
        with FieldWriter(
            run.directory.output,
            mesh,
            decomposition,
            coords=dict(zip(grid.axes, places(config), strict=True)),
            units=dict.fromkeys(grid.axes, "m"),
            variables=VARIABLES,
            attributes={"title": run.title, "source": "hpckit diffusion"},
            driver=config.output.driver,
            compression=config.output.compression,
            resume=run.kept("fields"),
        ) as writer:
            run.keep("fields", writer.kept)
            first, last, done, seconds = _loop(model, run, writer)
        cell_steps = math.prod(grid.shape) * done
        run.finish(
            {
                "steps": model.step,
                "cells": math.prod(grid.shape),
                "wall_seconds": seconds,
                "simulated_seconds": model.time,
                "cell_steps_per_second": cell_steps / seconds,
                "bytes_per_cell_step": BYTES_PER_CELL_STEP,
                "t_eff": t_eff(cell_steps * BYTES_PER_CELL_STEP, seconds),
                "conserved": _conserved(config, first["heat"], last["heat"]),
                "decomposition": decomposition,
            },
            status="done" if model.step == model.steps else "stopped",
        )


def _conserved(config: Config, initial: float, final: float) -> dict[str, dict[str, float]]:
    """The heat, where no wall lets any through."""
    walls = [wall for axis in config.grid.axes for wall in config.walls.of(axis)]
    if any(wall != "insulated" for wall in walls) or not initial:
        return {}
    return {"heat": {"initial": initial, "final": final, "relative_change": (final - initial) / initial}}


class Model:
    """The temperature and what moves it on: `advance` does a step, `watch` looks at the whole field.

    `dt` is in s and divides the end into equal steps; `bounds` is what the temperature can never leave in K (maximum
    principle): the extremes at the start and of the walls.
    """

    def __init__(self, config: Config, mesh: Mesh, decomposition: Decomposition, device: Device = HOST) -> None:
        self.config, self.decomposition, self.mesh = config, decomposition, mesh
        self.dt, self.steps = time_step(config)
        self.step = 0
        self.now = Field.zeros(mesh, decomposition, name="temperature", units="K", device=device)
        self.now.set_from_host(start(config, decomposition.global_slices(mesh.rank)))
        self.next = self.now.like()
        self.core, self.rim = self.now.core, self.now.rim
        fills = {
            axis: tuple(wall_fill(wall) for wall in config.walls.of(axis))
            for axis in config.grid.axes
            if axis not in config.grid.periodic
        }
        self.halo = HaloExchange(mesh, self.now, walls=fills)
        self.overlaps = self.halo.nbytes > 0  # else there is nothing to wait for, and no reason to cut the grid
        held = [wall for axis in config.grid.axes for wall in config.walls.of(axis) if wall != "insulated"]
        low, high = min([self.now.min(), *held]), max([self.now.max(), *held])
        room = 1e-9 * max(abs(low), abs(high), high - low)
        self.bounds = (low - room, high + room)

    @property
    def time(self) -> float:
        """Simulated so far, s."""
        return self.step * self.dt

    def advance(self, timer: PhaseTimer) -> None:
        """One step: the core while the halo is on its way, then the rim; all at once where no halo travels."""
        config, now, after = self.config, self.now.data, self.next.data
        begun = perf_counter()
        self.halo.start(now)
        if self.overlaps:
            sent = perf_counter()
            stencil.diffuse(after, now, config.diffusivity, self.dt, config.grid.spacing, self.core)
            computed = perf_counter()
            self.halo.finish(now)
            came = perf_counter()
            stencil.diffuse(after, now, config.diffusivity, self.dt, config.grid.spacing, self.rim)
            timer.overlapped(begun, sent, computed, came, perf_counter())
        else:
            self.halo.finish(now)
            came = perf_counter()
            stencil.diffuse(after, now, config.diffusivity, self.dt, config.grid.spacing, self.decomposition.interior)
            ended = perf_counter()
            timer.overlapped(begun, came, ended, ended, ended)
        self.now, self.next = self.next, self.now
        self.step += 1

    def saved(self, **values: Any) -> State:
        """What a checkpoint holds: the temperature, the step, and the values given."""
        return State([Piece.of_field(self.now)], {"step": self.step, **values})

    def restore(self, restored: Restored) -> None:
        """Go on from a checkpoint."""
        read_into(restored, self.now)
        self.step = restored.values["step"]

    def watch(self) -> dict[str, float]:
        """Heat (integral of the temperature, K m2 or K m3) and extremes, the same on every rank. Collective.

        Raises `BlowUpError` on all ranks where the temperature is not finite or leaves its bounds.
        """
        low, high = self.now.min(), self.now.max()
        if not (self.bounds[0] <= low and high <= self.bounds[1]):
            self._raise_blow_up()
        volume = math.prod(self.config.grid.spacing)
        return {"heat": self.now.sum(repro=True) * volume, "temperature_min": low, "temperature_max": high}

    def _raise_blow_up(self) -> None:
        """Name the first cell, by rank and then by place, that is not finite or out of bounds."""
        comm, values = self.mesh.comm, self.now.to_host()
        bad = ~((values >= self.bounds[0]) & (values <= self.bounds[1]))
        lowest = np.array([comm.rank if bad.any() else comm.size])
        comm.Allreduce(MPI.IN_PLACE, lowest, MPI.MIN)
        rank = int(lowest[0])
        found = np.zeros(len(self.decomposition.shape) + 1)
        if comm.rank == rank:
            cell = np.unravel_index(int(np.argmax(bad)), bad.shape)
            found[:-1] = np.add(cell, self.decomposition.start(rank))
            found[-1] = values[cell]
        comm.Bcast(found, rank)
        cell_text = ", ".join(f"{axis} {int(i)}" for axis, i in zip(self.config.grid.axes, found[:-1], strict=True))
        safety = self.config.time.safety
        low, high = self.bounds
        raise BlowUpError(
            f"the temperature is {found[-1]:g} K; it can only lie between {low:g} K and {high:g} K",
            where=f"rank {rank}, step {self.step}, cell ({cell_text}), field temperature",
            likely=f"time.safety is {safety:g}, and above 1 the scheme is unstable" if safety > 1 else "",
            do="set time.safety to 0.9" if safety > 1 else "look at the frames written before this step",
        )


def time_step(config: Config) -> tuple[float, int]:
    """The step in s, at most `safety` times the stability limit, and how many make the run.

    Raises `InputError` where there is no such step, or more than 2**53 of them.
    """
    with np.errstate(all="ignore"):  # cells too small for numbers: told by their time step
        limit = config.time.safety * float(stencil.largest_step(config.diffusivity, config.grid.spacing))
    if config.time.steps is not None:
        return limit, count_steps(config.time.steps * limit, limit, 0.5)
    steps = count_steps(config.time.end, limit)
    return config.time.end / steps, steps


def is_frame(config: Config, step: int, steps: int) -> bool:
    """Whether a frame follows `step`: they divide the run evenly, and the last step has one."""
    frames = min(config.output.frames, steps)
    return step * frames // steps > (step - 1) * frames // steps


def _loop(model: Model, run: Run, writer: FieldWriter) -> tuple[dict[str, float], dict[str, float], int, float]:
    """From the start, or a checkpoint, to the end or to an early stop: first and last watch, steps, wall seconds."""
    config, timer = model.config, run.timer
    limit = stencil.largest_step(config.diffusivity, config.grid.spacing)
    cells, end = math.prod(config.grid.shape), model.steps * model.dt
    dtype = np.float32 if config.output.single else np.float64

    def look() -> dict[str, float]:
        watch = model.watch()
        run.metric(step=model.step, time=model.time, dt=model.dt, cfl=model.dt / limit, **watch)
        return watch

    def write() -> None:
        writer.write(model.time, {"temperature": model.now.to_host().astype(dtype)})

    if run.restored is None:
        first = last = look()
        write()
    else:
        model.restore(run.restored)
        first = last = run.restored.values["first"]
    done = model.step
    _warm_up(model)
    timer.reset()
    waited, begin = model.halo.wait_seconds, perf_counter()
    for step in range(done + 1, model.steps + 1):
        run.advance(step, partial(model.advance, timer), model.saved, model.restore)
        monitor, frame = step % config.time.monitor == 0 or step == model.steps, is_frame(config, step, model.steps)
        if monitor:
            with timer("diagnostics"):
                last = look()
            rate = cells * (step - done) / (perf_counter() - begin) / 1e6
            run.progress(step, model.time, end, f"{rate:.3g} million cell-steps/s")
        if frame:
            with timer("output"):
                write()
        if step < model.steps and run.edge(step, lambda: model.saved(first=first)):
            if not monitor:
                last = look()
            if not frame:
                write()
            break
    model.now.device.wait()
    seconds = perf_counter() - begin
    timer.seconds["wait"] = model.halo.wait_seconds - waited
    timer.seconds["halo"] -= timer.seconds["wait"]
    return first, last, model.step - done, seconds


def _warm_up(model: Model) -> None:
    """Compile the kernel outside the time that is measured, on an array of 3 cells a dim."""
    device, shape = model.now.device, (3,) * model.now.data.ndim
    small = [device.zeros(shape), device.zeros(shape)]
    stencil.diffuse(*small, model.config.diffusivity, model.dt, model.config.grid.spacing)
    device.wait()


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
    grid = config.grid
    topology = Topology.over(ranks, grid.shape, dict.fromkeys(grid.axes, 0), grid.periodic)
    decomposition = Decomposition(grid.shape, topology, halo=1)
    plan = halo_plan(decomposition)
    dt, steps = time_step(config)
    frames = 1 + min(config.output.frames, steps)
    local = max(math.prod(decomposition.local_shape(rank)) for rank in range(ranks))
    blocks = sorted({decomposition.owned(rank) for rank in range(ranks)})
    by = " x "
    each = " or ".join(by.join(map(str, block)) for block in blocks)
    return DryRun(
        ranks=ranks,
        decomposition=[
            f"{by.join(map(str, grid.shape))} cells ({', '.join(grid.axes)}) of "
            f"{by.join(f'{h:.4g} m' for h in grid.spacing)}",
            f"{by.join(map(str, topology.sizes))} ranks, blocks of {each}",
        ],
        halo_bytes=max(plan.nbytes(rank, 8) for rank in range(ranks)),
        memory_per_rank=2 * 8 * local,
        output_bytes=frames * (4 if config.output.single else 8) * math.prod(grid.shape),
        frames=frames,
        steps=steps,
        notes=[f"dt {dt:.4g} s; one halo exchange a step; output bytes are before compression"],
    )
