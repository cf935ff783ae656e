"""The slab model on a mesh: state, time step, what is watched and what is written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather.base import BaseState, base_state
from hpckit.apps.weather.config import Config
from hpckit.apps.weather.profiles import profile_of
from hpckit.apps.weather.setups import inflow_rows, initial_state, vertical_force
from hpckit.apps.weather.stability import stable_cfl
from hpckit.errors import BlowUpError
from hpckit.exchange import HaloExchange
from hpckit.field import Field
from hpckit.kernels.euler2d.constants import GAMMA, HALO, NOT_FINITE, RHO, RHO_THETA, RHO_U, RHO_W
from hpckit.kernels.euler2d.dispatch import diagnose, sweep_x, sweep_z
from hpckit.mesh import Mesh
from hpckit.plan.decomposition import Decomposition
from hpckit.timing import PhaseTimer

FIELDS = ("rho", "rho_u", "rho_w", "rho_theta")
NONE = np.zeros((0, 0))


@dataclass(frozen=True)
class Watch:
    """What a run watches, over all ranks: mass (kg) and energy (J), each per meter of depth; speeds m/s, theta' K."""

    mass: float
    energy: float
    speed_x: float
    speed_z: float
    w_max: float
    theta_min: float
    theta_max: float
    broken_cells: int


class Model:
    """The state of a run on this rank, and what advances it.

    `mesh` splits x only: `Mesh(comm, z=1, x=0, periodic=("x",))`. Raises `DecompositionError` for blocks thinner than
    6 cells and `InputError` for a base state that cannot be, on every rank alike.
    """

    def __init__(self, config: Config, mesh: Mesh) -> None:
        grid = config.grid
        self.config = config
        self.mesh = mesh
        self.decomposition = Decomposition((grid.nz, grid.nx), mesh.topology, halo=(0, HALO))
        profile = profile_of(config.base)
        self.base: BaseState = base_state(profile, grid.nz, grid.dz, config.compat)
        start, cells = self.decomposition.start(mesh.rank)[1], self.decomposition.owned(mesh.rank)[1]
        self.columns = np.arange(start - HALO, start + cells + HALO) % grid.nx
        self.state = Field.zeros(self.decomposition, mesh, name="state", components=4)
        self.state.interior[:] = initial_state(config, profile, self.base, self.columns[HALO:-HALO])
        self.exchange = HaloExchange(mesh, self.state)
        self.force = vertical_force(config, self.base, self.columns)
        self.inflow = inflow_rows(config, self.base)
        self.at_left, self.at_right = start == 0, start + cells == grid.nx
        self.steps_done = 0
        self.first_broken_step: int | None = None

    @property
    def dt(self) -> float:
        """The full time step, s."""
        time = self.config.time
        return min(self.config.grid.dx, self.config.grid.dz) / time.max_speed * time.cfl

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): both sweeps, x first in every other step."""
        for direction in "xz" if self.steps_done % 2 == 0 else "zx":
            status = self._x(dt, timer) if direction == "x" else self._z(dt, timer)
            if status & NOT_FINITE and self.first_broken_step is None:
                self.first_broken_step = self.steps_done + 1
        self.steps_done += 1

    def _x(self, dt: float, timer: PhaseTimer) -> int:
        with timer("halo"):
            self.exchange(self.state)
        force = self.force if self.config.compat else NONE
        with timer("x sweep"):
            return sweep_x(
                self.state.data,
                self.base.column,
                self.config.grid.dx,
                dt,
                self.config.beta,
                force,
                self.inflow,
                self.at_left,
                self.at_right,
            )

    def _z(self, dt: float, timer: PhaseTimer) -> int:
        base, grid = self.base, self.config.grid
        with timer("z sweep"):
            return sweep_z(self.state.data, base.faces, base.ghost, grid.dz, dt, self.config.beta, self.force)

    def watch(self) -> Watch:
        """Collective: mass, energy, extremes. Sums may differ in the last bits between numbers of ranks."""
        grid, base = self.config.grid, self.base
        own = diagnose(self.state.data, base.column, base.height)
        sums = np.append(own[:4], own[9])
        ends = np.array([own[4], own[5], own[6], -own[7], own[8]])
        self.mesh.comm.Allreduce(MPI.IN_PLACE, sums, op=MPI.SUM)
        self.mesh.comm.Allreduce(MPI.IN_PLACE, ends, op=MPI.MAX)
        cell = grid.dx * grid.dz
        kinetic, internal, potential = sums[1:4] * cell
        energy = 2 * kinetic + internal if self.config.compat else kinetic + internal + potential
        mass = (base.column[0].sum() * grid.nx + sums[0]) * cell
        return Watch(mass, energy, ends[0], ends[1], ends[2], -ends[3], ends[4], round(sums[4]))

    def cfl(self, watch: Watch, dt: float) -> float:
        """The Courant number of sound and wind together."""
        return max(watch.speed_x / self.config.grid.dx, watch.speed_z / self.config.grid.dz) * dt

    def require_sound(self, watch: Watch, dt: float) -> None:
        """Collective: raise `BlowUpError` on every rank where a value is not finite or the CFL limit is broken."""
        if watch.broken_cells:
            self._refuse_broken(watch)
        if self.cfl(watch, dt) > stable_cfl(self.config.beta):
            self._refuse_fast(watch, dt)

    def _refuse_broken(self, watch: Watch) -> None:
        """Name the first field and cell of the rank that saw it first."""
        found = np.argwhere(~np.isfinite(self.state.interior))
        field, row, column = found[0] if found.size else (RHO, 0, 0)
        if not found.size:  # the state is finite, what follows from it is not: no air, or no pressure
            rho = self.state.interior[RHO] + self.base.column[0][:, None]
            rho_theta = self.state.interior[RHO_THETA] + self.base.column[1][:, None]
            empty = np.argwhere((rho <= 0) | (rho_theta <= 0))
            row, column = empty[0] if empty.size else (0, 0)
            found = empty
        step = self.first_broken_step if self.first_broken_step is not None else self.steps_done
        never = np.iinfo(np.int64).max
        rank, (step, field, row, column) = self._first([step if found.size else never, field, row, column])
        raise BlowUpError(
            f"{FIELDS[field]} is not finite (or no air is left) in {watch.broken_cells} cells",
            where=self._place(rank, step, row, column),
            likely="a time step too long for this grid, or a start too violent for it",
            do="lower time.cfl, use more cells, or raise beta",
        )

    def _refuse_fast(self, watch: Watch, dt: float) -> None:
        """Name the fastest cell."""
        rho = self.state.interior[RHO] + self.base.column[0][:, None]
        rho_theta = self.state.interior[RHO_THETA] + self.base.column[1][:, None]
        base_rho_theta, base_pressure = self.base.column[1][:, None], self.base.column[2][:, None]
        sound = np.sqrt(GAMMA * base_pressure * (rho_theta / base_rho_theta) ** GAMMA / rho)
        spacing = {RHO_U: self.config.grid.dx, RHO_W: self.config.grid.dz}
        courant = {f: (np.abs(self.state.interior[f] / rho) + sound) * dt / d for f, d in spacing.items()}
        field = max(courant, key=lambda f: courant[f].max())
        row, column = np.unravel_index(courant[field].argmax(), rho.shape)
        order = -round(courant[field].max() * 1e6)
        rank, (_, field, row, column) = self._first([order, field, row, column])
        cfl, limit = self.cfl(watch, dt), stable_cfl(self.config.beta)
        name, axis = ("u", "x") if field == RHO_U else ("w", "z")
        raise BlowUpError(
            f"the Courant number |{name}| + c in {axis} is {cfl:.4f}, above the limit of {limit:.4f}",
            where=self._place(rank, self.steps_done, row, column),
            likely=f"time.cfl = {self.config.time.cfl:g} counts on {self.config.time.max_speed:g} m/s, wind and sound"
            f" are at {max(watch.speed_x, watch.speed_z):.0f} m/s",
            do=f"set time.cfl to at most {np.floor(98 * limit / cfl * self.config.time.cfl) / 100:g}",
        )

    def _first(self, own: list[int]) -> tuple[int, list[int]]:
        """Collective: the rank whose first number is least, and its numbers."""
        every = np.empty((self.mesh.size, len(own)), np.int64)
        self.mesh.comm.Allgather(np.array(own, np.int64), every)
        rank = int(every[:, 0].argmin())
        return rank, [int(value) for value in every[rank]]

    def _place(self, rank: int, step: int, row: int, column: int) -> str:
        return f"rank {rank}, step {step}, cell (z {row}, x {self.decomposition.start(rank)[1] + column})"

    def output(self) -> dict[str, np.ndarray]:
        """The fields that are written, of the owned cells: theta and rho as deviations from the base state."""
        rho, rho_u, rho_w, rho_theta = self.state.interior
        total = rho + self.base.column[0][:, None]
        theta = (rho_theta + self.base.column[1][:, None]) / total - self.base.theta[:, None]
        fields = {"theta": theta, "u": rho_u / total, "w": rho_w / total, "rho": rho}
        dtype = np.float32 if self.config.output.single else np.float64
        return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}


def warm_up() -> None:
    """Compile the kernels (or load them), so that the time loop does not."""
    state, faces = np.zeros((4, 4, 3 * HALO)), np.ones((4, 5))
    column = np.ones((3, 4))
    sweep_x(state, column, 1.0, 1e-6, 0.0, NONE, np.zeros((2, 0)), True, True)
    sweep_z(state, faces, np.ones(4), 1.0, 1e-6, 0.0, NONE)
    diagnose(state, column, np.ones(4))
