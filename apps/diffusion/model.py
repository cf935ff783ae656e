"""The diffusion model on a mesh: the temperature, its step, diagnostics and output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from hpckit.apps.common.lost import first_lost
from hpckit.apps.diffusion.config import Config
from hpckit.apps.diffusion.layout import time_step
from hpckit.apps.diffusion.start import start, wall_fill
from hpckit.comm.agree import share_numbers
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels import stencil
from hpckit.plan.grid.decomposition import Decomposition


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics over all ranks: heat (integral of the temperature, K m2 or K m3), extremes (K)."""

    heat: float
    temperature_min: float
    temperature_max: float


class Model:
    """The temperature on this rank: `step` advances it, `watch` checks the whole field.

    `dt` (s) divides the run into equal steps. The temperature can never leave `bounds` (K), the extremes of the initial
    state and of the walls (maximum principle).
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        self.config, self.mesh = config, mesh
        self.decomposition = decomposition = Decomposition(config.grid.shape, mesh.topology, halo=1)
        self.dt, self.steps = time_step(config)
        self.steps_done = 0
        self.now = Field.zeros(mesh, decomposition, name="temperature", units="K", device=device)
        self.now.set_from_host(start(config, decomposition.global_slices(mesh.rank)))
        self.next = self.now.like()
        self.core, self.rim = self.now.core, self.now.rim
        fills = {
            axis: tuple(wall_fill(wall) for wall in config.walls.of(axis))
            for axis in config.grid.axes
            if axis not in config.grid.periodic
        }
        self.exchange = HaloExchange(mesh, self.now, walls=fills)
        self.overlaps = self.exchange.nbytes > 0  # otherwise there is no exchange to hide
        held = [wall for axis in config.grid.axes for wall in config.walls.of(axis) if wall != "insulated"]
        low, high = min([self.now.min(), *held]), max([self.now.max(), *held])
        room = 1e-9 * max(abs(low), abs(high), high - low)
        self.bounds = (low - room, high + room)

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): the core while the halo travels, then the rim; all at once without an exchange."""
        config, now, after = self.config, self.now.data, self.next.data
        begun = perf_counter()
        self.exchange.start(now)
        if self.overlaps:
            sent = perf_counter()
            stencil.diffuse(after, now, config.diffusivity, dt, config.grid.spacing, self.core)
            computed = perf_counter()
            self.exchange.finish(now)
            came = perf_counter()
            stencil.diffuse(after, now, config.diffusivity, dt, config.grid.spacing, self.rim)
            timer.overlapped(begun, sent, computed, came, perf_counter())
        else:
            self.exchange.finish(now)
            came = perf_counter()
            stencil.diffuse(after, now, config.diffusivity, dt, config.grid.spacing, self.decomposition.interior)
            ended = perf_counter()
            timer.overlapped(begun, came, ended, ended, ended)
        self.now, self.next = self.next, self.now
        self.steps_done += 1

    def saved(self, **values: Any) -> State:
        """The content of a checkpoint: the temperature, the step, and extra `values`."""
        return State([Piece.of_field(self.now)], {"step": self.steps_done, **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        read_into(restored, self.now)
        self.steps_done = restored.values["step"]

    def watch(self) -> Diagnostics:
        """Collective: heat and extremes, the same on every rank.

        Raises `BlowUpError` on all ranks if the temperature is not finite or leaves its bounds.
        """
        low, high = self.now.min(), self.now.max()
        if not (self.bounds[0] <= low and high <= self.bounds[1]):
            self._raise_blow_up()
        volume = math.prod(self.config.grid.spacing)
        return Diagnostics(self.now.sum(repro=True) * volume, low, high)

    def output(self) -> dict[str, np.ndarray]:
        """The output field, on the owned cells."""
        dtype = np.float32 if self.config.output.single else np.float64
        return {"temperature": self.now.to_host().astype(dtype)}

    def _raise_blow_up(self) -> None:
        """Raise `BlowUpError` with the first cell, by rank and index, that is not finite or out of bounds."""
        values, (low, high), safety = self.now.to_host(), self.bounds, self.config.time.safety
        lost = first_lost(self.mesh, self.decomposition, [~((values >= low) & (values <= high))], self.steps_done)
        value = np.array(values[lost.cell] if self.mesh.rank == lost.rank else 0.0, np.float64)
        raise BlowUpError(
            f"the temperature is {share_numbers(self.mesh.comm, value, lost.rank):g} K;"
            f" it can only lie between {low:g} K and {high:g} K",
            where=f"{lost.where}, field temperature",
            likely=f"time.safety is {safety:g}, and above 1 the scheme is unstable" if safety > 1 else "",
            do="set time.safety to 0.9" if safety > 1 else "look at the frames written before this step",
        )


def warm_up(config: Config, device: Device) -> None:
    """Compile the kernel (or load it), on 3 cells along each dim, so that the time loop does not."""
    shape = (3,) * len(config.grid.shape)
    small = [device.zeros(shape), device.zeros(shape)]
    stencil.diffuse(*small, config.diffusivity, 1e-6, config.grid.spacing)
    device.wait()
