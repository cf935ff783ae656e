"""The box model on a mesh: state, time step, what is watched and what is written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.setups import column_of, initial_state
from hpckit.atmosphere.base import BaseState, base_state
from hpckit.exchange import HaloExchange
from hpckit.field import Field
from hpckit.kernels.euler2d.constants import HALO, NOT_FINITE
from hpckit.kernels.euler3d.constants import FIELDS
from hpckit.kernels.euler3d.dispatch import diagnose, diffuse, sweep_x, sweep_y, sweep_z, turn
from hpckit.mesh import Mesh
from hpckit.plan.decomposition import Decomposition
from hpckit.timing import PhaseTimer

AXES = {"z": 1, "y": 0, "x": 0}  # the vertical stays whole
PERIODIC = ("y", "x")
HALOS = (0, HALO, HALO)


@dataclass(frozen=True)
class Watch:
    """What a run watches, over all ranks: mass (kg), energy (J), speeds (m/s; speed_*: wind and sound), theta' (K)."""

    mass: float
    energy: float
    speed_x: float
    speed_y: float
    speed_z: float
    w_max: float
    theta_min: float
    theta_max: float
    broken_cells: int


class Model:
    """The state of a run on this rank, and what advances it.

    `mesh` splits y and x: `Mesh(comm, **AXES, periodic=PERIODIC, shape=(nz, ny, nx), halo=HALOS)`. Raises
    `DecompositionError` for blocks thinner than 6 cells and `InputError` for a base state that cannot be, on every
    rank alike.
    """

    def __init__(self, config: Config, mesh: Mesh) -> None:
        grid = config.grid
        self.config = config
        self.mesh = mesh
        self.spacing = {"x": grid.dx, "y": grid.dy, "z": grid.dz}
        self.cells = grid.nx * grid.ny * grid.nz
        self.decomposition = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=HALOS)
        profile = column_of(config.base)
        self.base: BaseState = base_state(profile, grid.nz, grid.dz)
        self.wind = np.array([self.base.wind, self.base.wind_v])
        self.calm = np.array([*self.wind, np.zeros(grid.nz), self.base.theta])  # what diffusion leaves alone
        _, rows, columns = (
            np.arange(start, start + count)
            for start, count in zip(
                self.decomposition.start(mesh.rank), self.decomposition.owned(mesh.rank), strict=True
            )
        )
        self.state = Field.zeros(self.decomposition, mesh, name="state", components=FIELDS)
        self.state.interior[:] = initial_state(config, profile, self.base, rows, columns)
        self.work = np.empty_like(self.state.data) if config.diffusion else None
        self.exchanges = {axis: HaloExchange(mesh, self.state, axes=axis) for axis in PERIODIC}
        self.steps_done = 0
        self.first_broken_step: int | None = None

    @property
    def dt(self) -> float:
        """The full time step, s."""
        time = self.config.time
        return min(self.spacing.values()) / time.max_speed * time.cfl

    @property
    def wait_seconds(self) -> float:
        """Time spent in MPI waits so far."""
        return sum(exchange.wait_seconds for exchange in self.exchanges.values())

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s): sweeps along x, y, z, Coriolis force, diffusion; in the reverse order every other step."""
        parts = [*"xyz", *(name for name in ("coriolis", "diffusion") if getattr(self.config, name))]
        for part in parts if self.steps_done % 2 == 0 else reversed(parts):
            if part == "coriolis":
                with timer("coriolis"):
                    turn(self.state.data, self.base.column, self.wind, self.config.coriolis * dt)
            elif part == "diffusion":
                self._diffuse(dt, timer)
            elif self._sweep(part, dt, timer) & NOT_FINITE and self.first_broken_step is None:
                self.first_broken_step = self.steps_done + 1
        self.steps_done += 1

    def _sweep(self, direction: str, dt: float, timer: PhaseTimer) -> int:
        """One direction, after its halo; returns the kernel's status."""
        state, base, beta = self.state.data, self.base, self.config.beta
        if direction == "z":
            with timer("z sweep"):
                return sweep_z(state, base.faces_3d, base.ghost, self.spacing["z"], dt, beta)
        with timer("halo"):
            self.exchanges[direction](self.state)
        with timer(f"{direction} sweep"):
            sweep = sweep_x if direction == "x" else sweep_y
            return sweep(state, base.column, self.spacing[direction], dt, beta)

    def _diffuse(self, dt: float, timer: PhaseTimer) -> None:
        with timer("halo"):
            for exchange in self.exchanges.values():
                exchange(self.state)
        dx, dy, dz = self.spacing.values()
        with timer("diffusion"):
            diffuse(self.state.data, self.base.column, self.calm, (dx, dy, dz), self.config.diffusion * dt, self.work)

    def watch(self) -> Watch:
        """Collective: mass, energy, extremes. Sums may differ in the last bits between numbers of ranks."""
        grid, base = self.config.grid, self.base
        own = diagnose(self.state.data, base.column, base.height)
        sums = np.append(own[:4], own[10])
        ends = own[4:10].copy()
        ends[4] *= -1  # the least theta as a maximum
        self.mesh.comm.Allreduce(MPI.IN_PLACE, sums, op=MPI.SUM)
        self.mesh.comm.Allreduce(MPI.IN_PLACE, ends, op=MPI.MAX)
        cell = grid.dx * grid.dy * grid.dz
        mass = (base.column[0].sum() * grid.nx * grid.ny + sums[0]) * cell
        return Watch(
            mass, sums[1:4].sum() * cell, ends[0], ends[1], ends[2], ends[3], -ends[4], ends[5], round(sums[4])
        )

    def output(self) -> dict[str, np.ndarray]:
        """The fields that are written, of the owned cells: theta and rho as deviations from the base state."""
        rho, *momentum, rho_theta = self.state.interior
        base_rho, base_rho_theta, _ = self.base.column[:, :, None, None]
        total = rho + base_rho
        theta = (rho_theta + base_rho_theta) / total - self.base.theta[:, None, None]
        winds = dict(zip("uvw", (each / total for each in momentum), strict=True))
        dtype = np.float32 if self.config.output.single else np.float64
        fields = {"theta": theta, **winds, "rho": rho}
        return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}


def warm_up() -> None:
    """Compile the kernels (or load them), so that the time loop does not."""
    state, column = np.zeros((FIELDS, 4, 3 * HALO, 3 * HALO)), np.ones((3, 4))
    sweep_x(state, column, 1.0, 1e-6, 0.0)
    sweep_y(state, column, 1.0, 1e-6, 0.0)
    sweep_z(state, np.ones((5, 5)), np.ones(4), 1.0, 1e-6, 0.0)
    turn(state, column, np.zeros((2, 4)), 0.0)
    diffuse(state, column, np.zeros((4, 4)), (1.0, 1.0, 1.0), 0.0, state.copy())
    diagnose(state, column, np.ones(4))
