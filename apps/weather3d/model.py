"""The box model on a mesh: state, time step, diagnostics and output."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, base_state
from hpckit.apps.atmosphere.output import full_fields, in_precision
from hpckit.apps.atmosphere.overlap import Lines, Order, edges_first
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import AXES, halos_of
from hpckit.apps.weather3d.physics.mixing import Mixing
from hpckit.apps.weather3d.physics.mixing import warm_up as warm_up_mixing
from hpckit.apps.weather3d.physics.tracers import Tracers
from hpckit.apps.weather3d.physics.tracers import warm_up as warm_up_tracers
from hpckit.apps.weather3d.setups import column_of, initial_state
from hpckit.apps.weather3d.sides import HORIZONTAL, open_axes, periodic_axes, relaxation_rates, state_walls
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.device_array import is_simulated
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.box.dispatch import NO_FLUX, NO_SEAMS, diagnose, sweep_x, sweep_y, sweep_z, turn
from hpckit.kernels.euler.constants import CLOSED, HALO, Sweep
from hpckit.kernels.euler.relaxation.dispatch import relax
from hpckit.kernels.euler.slab.dispatch import columns_at_once, has_inner
from hpckit.kernels.euler.status import new_status, read_status
from hpckit.kernels.euler.turbulence.dispatch import drag
from hpckit.kernels.parts import INNER, OUTER, WHOLE
from hpckit.plan.grid.decomposition import Decomposition

if TYPE_CHECKING:
    from mpi4py import MPI


def mesh_for(config: Config, comm: MPI.Comm, **sizes: int) -> Mesh:
    """The mesh of a run; `sizes` fixes the ranks along x or y. Raises `DecompositionError` on every rank alike."""
    grid = config.grid
    shape = (grid.nz, grid.ny, grid.nx)
    return Mesh(comm, periodic=periodic_axes(config), shape=shape, halo=halos_of(config), **{**AXES, **sizes})


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics over all ranks: mass (kg), energy (J), speeds (m/s; speed_*: wind and sound), theta' (K).

    more: metrics of this run alone, by name.
    """

    mass: float
    energy: float
    speed_x: float
    speed_y: float
    speed_z: float
    w_max: float
    theta_min: float
    theta_max: float
    broken_cells: int
    more: dict[str, float] = field(default_factory=dict)


class Model:
    """The state of a run on this rank, and its time step.

    `mesh` splits y and x: `mesh_for(config, comm)`. Raises `InputError` for an invalid base state, on every rank
    alike.
    """

    sent: str | None  # the axis whose halo is under way
    seams: np.ndarray
    closed: bool  # whether rows along x are their own halo

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        grid = config.grid
        self.config = config
        self.mesh = mesh
        self.spacing = {"x": grid.dx, "y": grid.dy, "z": grid.dz}
        self.cells = grid.nx * grid.ny * grid.nz
        self.decomposition = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=halos_of(config))
        profile = column_of(config.base)
        self.base: BaseState = base_state(profile, grid.nz, grid.dz)
        # What diffusion leaves alone.
        calm = np.array([self.base.wind, self.base.wind_v, np.zeros(grid.nz), self.base.theta])
        _, rows, columns = (
            np.arange(start, start + count)
            for start, count in zip(
                self.decomposition.start(mesh.rank), self.decomposition.owned(mesh.rank), strict=True
            )
        )
        self.state = Field.zeros(
            mesh, self.decomposition, config.precision, name="state", components=FIELDS, device=device
        )
        self.state.set_from_host(initial_state(config, profile, self.base, rows, columns))
        walls = state_walls(config)
        self.exchanges = {
            axis: HaloExchange(mesh, self.state, {axis: walls[axis]} if axis in walls else None, axes=axis)
            for axis in HORIZONTAL
        }
        # On a GPU a sweep is out of place.
        self.spare = self.state.like() if device.is_gpu else self.state
        self.status = new_status(self.state.data)
        self.column, self.height, self.rest = map(self._table, (self.base.column, self.base.height, calm))
        self.faces, self.ghost, self.wind = map(
            self._table, (self.base.faces_3d, self.base.ghost, np.array([self.base.wind, self.base.wind_v]))
        )
        rates = relaxation_rates(config, self.decomposition, mesh.rank)
        self.relaxes = any(rate.any() for rate in rates.values())
        self.rates = {axis: self._table(rate) for axis, rate in rates.items()}
        self.open_axes = open_axes(config)
        self.tracers = Tracers(config, mesh, device) if config.tracers else None
        mixes = config.diffusion or config.smagorinsky.coefficient
        self.mixing = Mixing(config, mesh, self.state, self.column, self.rest) if mixes else None
        told = "xyz" if self.tracers else self.open_axes
        self.mass_flux = {axis: self._faces(axis) if axis in told else self._table(NO_FLUX) for axis in "xyz"}
        self._plan_overlap(device)
        # kg through the open sides and by relaxation, on this rank, since the start; on a GPU numbers there
        self.entered: list[Any] = [0.0, 0.0]
        self.steps_done = 0

    def _table(self, values: np.ndarray) -> Any:
        """Values that kernels read, on the state's device and in its precision."""
        return self.state.device.to_device(values.astype(self.state.data.dtype, copy=False))

    @property
    def dt(self) -> float:
        """The full time step, s."""
        return self.config.full_step

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""
        waited = sum(exchange.wait_seconds for exchange in self.exchanges.values())
        return waited + sum(each.wait_seconds for each in (self.tracers, self.mixing) if each)

    @property
    def first_broken_step(self) -> int | None:
        """The first step with a value that is not finite; waits for the device."""
        return read_status(self.status)[1]

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): the dynamics, then the physics."""
        self._dynamics(dt, timer)
        self._physics(dt, timer)
        self.steps_done += 1

    def _dynamics(self, dt: float, timer: PhaseTimer) -> None:
        """Sweeps along x, y, z and the Coriolis force; in the reverse order every other step."""
        parts = [*"xyz", *(["coriolis"] if self.config.coriolis else [])]
        parts = parts if self.steps_done % 2 == 0 else parts[::-1]
        for part, after in itertools.zip_longest(parts, parts[1:]):
            if part == "coriolis":
                with timer("coriolis"):
                    turn(self.state.data, self.column, self.wind, self.config.coriolis * dt)
            else:
                self._sweep(part, after, dt, timer)

    def _physics(self, dt: float, timer: PhaseTimer) -> None:
        """All physics, one process after the other, each in place on the state after the last.

        Source terms of columns belong here: the vertical is whole on each rank, column (j, i) of a field is
        `state.interior[field, :, j, i]`, from the ground up.
        """
        if self.mixing:
            self.mixing.apply(self.state, self.tracers, dt, timer)
        if self.config.drag:
            with timer("drag"):
                drag(self.state.data, self.column, self.config.drag, self.spacing["z"], dt)
        if self.relaxes:
            with timer("relaxation"):
                rates = self.rates
                tables = (self.column, self.rest, rates["x"], rates["y"], rates["z"])
                self.entered[1] += relax(self.state.data, *tables, dt, 0) * self.cell_volume

    def _sweep(self, direction: str, after: str | None, dt: float, timer: PhaseTimer) -> None:
        """Sweep one direction, after its halo, and advect the tracers.

        The halo of direction `after` is sent once the edge lines are swept. Tracers have their own halos, and need
        the density of all cells before and after a sweep: with tracers no halo is sent ahead.
        """
        part, order = WHOLE, self.orders.get((direction, after)) or self.orders[direction, None]
        if direction in self.in_parts and self.sent != direction:
            with timer("halo"):
                self.exchanges[direction].start(self.state)
            self.sent, part = direction, OUTER
            self._sweep_lines(direction, self.orders[direction, None].first[0], dt, timer, INNER)
        with timer("halo"):
            self._receive(direction)
            if self.tracers:
                self.tracers.before(direction, self.state.data)
        for lines in order.first:
            self._sweep_lines(direction, lines, dt, timer, part)
        if order.meanwhile:
            with timer("halo"):
                self.exchanges[after].start(self.state)
            self.sent = after
            self._sweep_lines(direction, order.meanwhile, dt, timer, part)
        self.state.data, self.spare.data = self.spare.data, self.state.data  # in place nothing changes
        if self.tracers:
            with timer("tracers"):
                self.tracers.after(direction, self.state.data, self.column, self.mass_flux[direction], dt)
        if direction in self.open_axes:
            self.entered[0] = self.entered[0] + self._mass_through(direction) * dt

    def _receive(self, direction: str) -> None:
        """Complete the halo exchange along a direction, started before or not."""
        if self.sent == direction:
            self.exchanges[direction].finish(self.state)
        elif direction in self.exchanges and not (direction == "x" and self.closed):
            self.exchanges[direction](self.state)
        self.sent = None if self.sent == direction else self.sent

    def _sweep_lines(self, direction: str, lines: Lines, dt: float, timer: PhaseTimer, part: int) -> None:
        """Some lines of a sweep: rows of y along x and z, columns of x along y."""
        states, flux = (self.state.data, self.spare.data), self.mass_flux[direction]
        numbers = Sweep(self.spacing[direction], dt, self.config.beta, self.steps_done + 1)
        with timer(f"{direction} sweep"):
            if direction == "z":
                sweep_z(*states, self.faces, self.ghost, flux, numbers, self.status, lines)
            elif direction == "y":
                sweep_y(*states, self.column, flux, numbers, self.status, lines, part)
            else:
                part = CLOSED if self.closed else part
                sweep_x(*states, self.column, flux, numbers, self.status, lines, part, self.seams)

    def _plan_overlap(self, device: Device) -> None:
        """The order of lines by direction and the one after it, and the directions that begin without their halo.

        An axis that is not split has no exchange. A GPU sweeps all lines of a direction at once.
        """
        _, ny, nx = self.decomposition.owned(self.mesh.rank)
        topology = self.mesh.topology
        shared = {axis: topology.sizes[topology.axis(axis)] > 1 for axis in HORIZONTAL}
        split = {axis: shared[axis] and not self.tracers and not device.is_gpu for axis in HORIZONTAL}
        self.sent = None
        # Tracers look at the density of the halo too.
        self.closed = topology.is_periodic("x") and not shared["x"] and not self.tracers and not device.is_gpu
        # On CPU cores a sweep in parts takes 10 % longer, more than messages within the node.
        in_parts = split["x"] and has_inner(nx) and not self.exchanges["x"].within_node
        self.in_parts = HORIZONTAL if device.is_gpu else ("x",) if in_parts else ()
        self.seams = np.empty((self.config.grid.nz, ny, FIELDS, 2, HALO)) if in_parts else NO_SEAMS
        rows, columns = Order(((0, ny),)), Order(((0, nx),))
        self.orders: dict[tuple[str, str | None], Order] = {("x", None): rows, ("y", None): columns, ("z", None): rows}
        if split["y"]:
            self.orders["x", "y"] = self.orders["z", "y"] = edges_first(ny, HALO)
        if split["x"]:
            self.orders["y", "x"] = edges_first(nx, columns_at_once())

    def _faces(self, axis: str) -> Any:
        """An array for a value at each face of the owned cells across an axis."""
        shape = list(self.state.interior.shape[1:])
        shape["zyx".index(axis)] += 1
        return self.state.device.zeros(tuple(shape), self.state.data.dtype)

    def _mass_through(self, axis: str) -> Any:
        """Air that entered through this rank's part of the open sides of an axis in the last sweep, kg/s."""
        topology, rank, dim = self.mesh.topology, self.mesh.rank, "zyx".index(axis)
        flux = np.moveaxis(self.mass_flux[axis], dim, 0)
        low = flux[0].sum(dtype=np.float64) if topology.shift(rank, axis, -1) is None else 0.0
        high = flux[-1].sum(dtype=np.float64) if topology.shift(rank, axis, +1) is None else 0.0
        return (low - high) * self.cell_volume / self.spacing[axis]

    @property
    def cell_volume(self) -> float:
        """The volume of a cell, m3."""
        return self.spacing["x"] * self.spacing["y"] * self.spacing["z"]

    def watch(self) -> Diagnostics:
        """Collective: mass, energy, extremes. Sums may differ in the last bits between numbers of ranks."""
        grid, base = self.config.grid, self.base
        own = diagnose(self.state.data, self.column, self.height)
        sums = np.concatenate([own[:4], own[10:], [float(mass) for mass in self.entered]])
        ends = own[4:10].copy()
        ends[4] *= -1  # the least theta as a maximum
        sum_of_ranks(self.mesh.comm, sums)
        max_of_ranks(self.mesh.comm, ends)
        cell = self.cell_volume
        mass = (base.column[0].sum() * grid.nx * grid.ny + sums[0]) * cell
        more = dict(zip(("mass_through_sides", "mass_relaxed"), sums[5:], strict=True)) if self.open_axes else {}
        if self.mixing:
            more |= self.mixing.watch()
        if self.tracers:
            more |= self.tracers.watch(self.state.data, self.column, cell)
        return Diagnostics(
            mass, sums[1:4].sum() * cell, ends[0], ends[1], ends[2], ends[3], -ends[4], ends[5], round(sums[4]), more
        )

    def budgets(self, first: Diagnostics, last: Diagnostics) -> dict[str, dict[str, float]]:
        """With open sides: the budget of the mass (kg) between two watches; `unexplained` is rounding."""
        if not self.open_axes:
            return {}
        more = {name: last.more[f"mass_{name}"] - first.more[f"mass_{name}"] for name in ("through_sides", "relaxed")}
        change = last.mass - first.mass
        return {"mass_budget": {"change": change, **more, "unexplained": change - sum(more.values())}}

    def saved(self, **values: Any) -> State:
        """Collective: the content of a checkpoint: state, tracers, step, the mass that entered, and extra `values`."""
        fields = [self.state, *([self.tracers.field] if self.tracers else [])]
        entered = sum_of_ranks(self.mesh.comm, np.array([float(mass) for mass in self.entered]))
        own = {"step": self.steps_done, "entered": entered.tolist()}
        return State([Piece.of_field(each) for each in fields], {**own, **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        for each in [self.state, *([self.tracers.field] if self.tracers else [])]:
            read_into(restored, each)
        self.steps_done = restored.values["step"]
        self.entered = list(restored.values["entered"]) if self.mesh.rank == 0 else [0.0, 0.0]

    def shown(self) -> dict[str, np.ndarray]:
        """The output fields, float64: theta and rho as deviations, and what `output.fields` asks for."""
        rho, *momentum, rho_theta = self.state.to_host().astype(np.float64, copy=False)
        base_rho, base_rho_theta, _ = self.base.column[:, :, None, None]
        total, warm = rho + base_rho, rho_theta + base_rho_theta
        theta = warm / total - self.base.theta[:, None, None]
        winds = dict(zip("uvw", (each / total for each in momentum), strict=True))
        fields = {"theta": theta, **winds, "rho": rho} | full_fields(self.config.output.fields, total, warm)
        if self.tracers:
            mixed = self.tracers.field.to_host().astype(np.float64, copy=False)
            fields |= dict(zip(self.tracers.names, mixed, strict=True))
        return fields

    def output(self) -> dict[str, np.ndarray]:
        """The output fields, on the owned cells, in the precision of the files."""
        return in_precision(self.shown(), self.config.output.single)


def warm_up(config: Config, device: Device = HOST) -> None:
    """Compile the kernels of a run (or load them), so that the time loop does not; nothing to do in the simulator."""
    if is_simulated(device.zeros(())):
        return

    def table(*shape: int) -> Any:
        return device.to_device(np.ones(shape, config.precision))

    state = device.zeros((FIELDS, 4, 3 * HALO, 3 * HALO), config.precision)
    out, status = device.zeros(state.shape, state.dtype) if device.is_gpu else state, new_status(state)
    numbers, column = Sweep(1.0, 1e-6, 0.0, 0), table(3, 4)
    told = "xyz" if config.tracers else open_axes(config)
    flux = {
        axis: table(*(n + (axis == name) for name, n in zip("zyx", (4, HALO, HALO), strict=True)))
        if axis in told
        else table(0, 0, 0)
        for axis in "xyz"
    }
    sweep_x(state, out, column, flux["x"], numbers, status)
    sweep_y(state, out, column, flux["y"], numbers, status)
    sweep_z(state, out, table(5, 5), table(4), flux["z"], numbers, status)
    turn(state, column, table(2, 4), 0.0)
    drag(state, column, 0.0, 1.0, 1.0)
    diagnose(state, column, table(4))
    relax(state, column, table(4, 4), table(2, HALO), table(2, HALO), table(4), 1.0, 0)
    warm_up_tracers(state, column)
    warm_up_mixing(state, column)
