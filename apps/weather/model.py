"""The slab model on a mesh: state, time step, diagnostics and output."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, base_state
from hpckit.apps.atmosphere.output import full_fields
from hpckit.apps.atmosphere.overlap import Lines, Order, edges_first
from hpckit.apps.atmosphere.profiles import profile_of
from hpckit.apps.weather.config import Config
from hpckit.apps.weather.setups import inflow_rows, initial_state, vertical_force
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab.dispatch import (
    NO_SEAMS,
    columns_at_once,
    diagnose,
    diffuse,
    has_inner,
    sweep_x,
    sweep_z,
)
from hpckit.kernels.euler.status import new_status, read_status
from hpckit.kernels.parts import INNER, OUTER, WHOLE
from hpckit.plan.grid.decomposition import Decomposition

NONE = np.zeros((0, 0))


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics over all ranks: mass (kg) and energy (J), each per meter of depth; speeds m/s, theta' K."""

    mass: float
    energy: float
    speed_x: float
    speed_z: float
    w_max: float
    theta_min: float
    theta_max: float
    broken_cells: int


class Model:
    """The state of a run on this rank, and its time step.

    `mesh` splits x only: `Mesh(comm, z=1, x=0, periodic=("x",))`. device: where the state lives. Raises
    `DecompositionError` for blocks thinner than 6 cells and `InputError` for an invalid base state, on every rank
    alike.
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        grid = config.grid
        self.config = config
        self.mesh = mesh
        self.spacing = {"x": grid.dx, "z": grid.dz}
        self.cells = grid.nx * grid.nz
        self.decomposition = Decomposition((grid.nz, grid.nx), mesh.topology, halo=(0, HALO))
        profile = profile_of(config.base)
        self.base: BaseState = base_state(profile, grid.nz, grid.dz, config.compat)
        start, cells = self.decomposition.start(mesh.rank)[1], self.decomposition.owned(mesh.rank)[1]
        self.columns = np.arange(start - HALO, start + cells + HALO) % grid.nx
        self.state = Field.zeros(mesh, self.decomposition, config.precision, name="state", components=4, device=device)
        self.state.set_from_host(initial_state(config, profile, self.base, self.columns[HALO:-HALO]))
        # On a GPU a sweep is out of place.
        self.spare = self.state.like() if device.is_gpu else self.state
        self.status = new_status(self.state.data)
        self.exchange = HaloExchange(mesh, self.state)
        self.sent = False  # an exchange is under way
        # A block alone in x has no exchange; a GPU does all columns at once.
        split = mesh.topology.sizes[mesh.topology.axis("x")] > 1 and not device.is_gpu
        self.order = edges_first(cells, columns_at_once()) if split else Order(((0, cells),))
        # On CPU cores a sweep in parts takes 10 % longer, more than messages within the node.
        self.in_parts = device.is_gpu or (has_inner(cells) and not self.exchange.within_node)
        self.seams = np.empty((grid.nz, 4, 2, HALO)) if self.in_parts and not device.is_gpu else NO_SEAMS
        calm = np.array([self.base.wind, 0 * self.base.wind, self.base.theta])  # what diffusion leaves alone
        self.calm, self.column, self.height = map(self._table, (calm, self.base.column, self.base.height))
        self.faces, self.ghost = self._table(self.base.faces), self._table(self.base.ghost)
        self.work = np.empty_like(self.state.data) if config.diffusion and not device.is_gpu else None
        self.force = self._table(vertical_force(config, self.base, self.columns))
        self.force_in_x = self.force if config.compat else self._table(NONE)
        self.inflow = self._table(inflow_rows(config, self.base))
        self.at_left, self.at_right = start == 0, start + cells == grid.nx
        self.steps_done = 0

    def _table(self, values: np.ndarray) -> Any:
        """Values that kernels read, on the state's device and in its precision."""
        return self.state.device.to_device(values.astype(self.state.data.dtype, copy=False))

    @property
    def dt(self) -> float:
        """The full time step, s."""
        time = self.config.time
        return min(self.config.grid.dx, self.config.grid.dz) / time.max_speed * time.cfl

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""
        return self.exchange.wait_seconds

    @property
    def first_broken_step(self) -> int | None:
        """The first step with a value that is not finite; waits for the device."""
        return read_status(self.status)[1]

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): both sweeps and diffusion, in the reverse order every other step."""
        parts = ["x", "z", "diffusion"][: 3 if self.config.diffusion else 2]
        parts = parts if self.steps_done % 2 == 0 else parts[::-1]
        for part, after in itertools.zip_longest(parts, parts[1:]):
            if part == "x":
                self._x(dt, timer)
            elif part == "z":
                self._z(after is not None, dt, timer)
            else:
                self._diffuse(dt, timer)
        self.steps_done += 1

    def _x(self, dt: float, timer: PhaseTimer) -> None:
        """Sweep x with its halo; inner cells are swept while it travels, unless it has been sent before."""
        part = WHOLE
        if self.in_parts and not self.sent:
            with timer("halo"):
                self.exchange.start(self.state)
            self.sent = True
            self._sweep_x(INNER, dt, timer)
            part = OUTER
        self._receive(timer)
        self._sweep_x(part, dt, timer)
        self._swap()

    def _sweep_x(self, part: int, dt: float, timer: PhaseTimer) -> None:
        numbers = Sweep(self.config.grid.dx, dt, self.config.beta, self.steps_done + 1)
        with timer("x sweep"):
            sweep_x(
                self.state.data, self.spare.data, self.column, self.force_in_x, self.inflow, self.at_left,
                self.at_right, numbers, self.status, part, self.seams,
            )  # fmt: skip

    def _z(self, send: bool, dt: float, timer: PhaseTimer) -> None:
        """Sweep the edge columns first; with `send`, then send the halo of the next process."""
        order = self.order if send else Order(((0, len(self.columns) - 2 * HALO),))
        for lines in order.first:
            self._sweep_z(lines, dt, timer)
        if order.meanwhile:
            with timer("halo"):
                self.exchange.start(self.state)
            self.sent = True
            self._sweep_z(order.meanwhile, dt, timer)
        self._swap()

    def _sweep_z(self, lines: Lines, dt: float, timer: PhaseTimer) -> None:
        numbers = Sweep(self.config.grid.dz, dt, self.config.beta, self.steps_done + 1)
        with timer("z sweep"):
            sweep_z(
                self.state.data, self.spare.data, self.faces, self.ghost, self.force, numbers, self.status, lines
            )  # fmt: skip

    def _swap(self) -> None:
        """Make the output of a sweep the state (a sweep in place has done so)."""
        self.state.data, self.spare.data = self.spare.data, self.state.data

    def _receive(self, timer: PhaseTimer) -> None:
        """Complete the halo exchange, started before or not."""
        with timer("halo"):
            if self.sent:
                self.exchange.finish(self.state)
            else:
                self.exchange(self.state)
        self.sent = False

    def _diffuse(self, dt: float, timer: PhaseTimer) -> None:
        """Diffuse after a halo exchange; the next sweep detects lost cells."""
        grid, work = self.config.grid, self.spare.data if self.work is None else self.work
        self._receive(timer)
        with timer("diffusion"):
            diffuse(self.state.data, self.column, self.calm, grid.dx, grid.dz, self.config.diffusion * dt, work)

    def watch(self) -> Diagnostics:
        """Collective: mass, energy, extremes. Sums may differ in the last bits between numbers of ranks."""
        grid, base = self.config.grid, self.base
        own = diagnose(self.state.data, self.column, self.height)
        sums = sum_of_ranks(self.mesh.comm, np.append(own[:4], own[9]))
        ends = max_of_ranks(self.mesh.comm, np.array([own[4], own[5], own[6], -own[7], own[8]]))
        cell = grid.dx * grid.dz
        kinetic, internal, potential = sums[1:4] * cell
        energy = 2 * kinetic + internal if self.config.compat else kinetic + internal + potential
        mass = (base.column[0].sum() * grid.nx + sums[0]) * cell
        return Diagnostics(mass, energy, ends[0], ends[1], ends[2], -ends[3], ends[4], round(sums[4]))

    def saved(self, **values: Any) -> State:
        """The content of a checkpoint: the state, the step, and extra `values`."""
        return State([Piece.of_field(self.state)], {"step": self.steps_done, **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        read_into(restored, self.state)
        self.steps_done = restored.values["step"]

    def output(self) -> dict[str, np.ndarray]:
        """The output fields, on the owned cells: theta and rho as deviations, and what `output.fields` asks for."""
        rho, rho_u, rho_w, rho_theta = self.state.to_host().astype(np.float64, copy=False)
        total, warm = rho + self.base.column[0][:, None], rho_theta + self.base.column[1][:, None]
        theta = warm / total - self.base.theta[:, None]
        fields = {"theta": theta, "u": rho_u / total, "w": rho_w / total, "rho": rho}
        fields |= full_fields(self.config.output.fields, total, warm)
        dtype = np.float32 if self.config.output.single else np.float64
        return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}


def warm_up(config: Config, device: Device = HOST) -> None:
    """Compile the kernels of a run (or load them), so that the time loop does not."""
    few = 3 * HALO

    def table(*shape: int) -> Any:
        return device.to_device(np.ones(shape, config.precision))

    state = device.zeros((4, 4, few), config.precision)
    out, status = device.zeros(state.shape, state.dtype) if device.is_gpu else state, new_status(state)
    force, none, column = table(4, few) if config.source.amplitude else table(0, 0), table(0, 0), table(3, 4)
    inflow, numbers = table(2, 4 if config.inflow.speed else 0), Sweep(1.0, 1e-6, 0.0, 0)
    sweep_x(state, out, column, force if config.compat else none, inflow, True, True, numbers, status)
    sweep_z(state, out, table(4, 5), table(4), force, numbers, status)
    diffuse(state, column, table(3, 4), 1.0, 1.0, 0.0, device.zeros(state.shape, state.dtype))
    diagnose(state, column, table(4))
