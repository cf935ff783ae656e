"""Shallow water on a cubed sphere: state, time step, diagnostics and output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.apps.common.lost import first_lost
from hpckit.apps.sphere import setups
from hpckit.apps.sphere.config import STABLE_CFL, Config
from hpckit.apps.sphere.layout import AXES, PARTS, WIDTHS, decompose, smallest
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.grid.cubed_sphere import CubedSphere
from hpckit.grid.field import Field
from hpckit.grid.panels import PanelExchange
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.kernels.sphere.constants import DEPTH, HALO, Physics, X
from hpckit.kernels.sphere.dispatch import fill, seam_flux, stage
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import PANELS
from hpckit.plan.topology import Topology


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics over all ranks: volume (m3), energy over density (m5/s2), potential enstrophy (m/s2), maximum speed
    and speed plus sqrt(g h) (m/s), least depth (m), cells that are not finite or dry. error: of a steady state, the
    norm of the change of depth over that of depth; None where the exact solution is not known.
    """

    mass: float
    energy: float
    enstrophy: float
    speed_max: float
    courant_speed: float
    depth_min: float
    broken_cells: int
    error: float | None = None


class Model:
    """The state of a run on this rank, and its time step (SSP-RK3).

    `state` has four components: depth (m) and velocity in space (m/s). `mesh` has the axes panel, y and x: any number
    of ranks whose blocks have at least 3 cells on a side.
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        self.config, self.mesh, self.device = config, mesh, device
        self.decomposition = decompose(config, mesh.topology)
        self.sphere = CubedSphere(config.grid.n, config.physics.radius)
        self._own = self.decomposition.global_slices(mesh.rank)
        centers = self.sphere.centers[(slice(None), *self._own)]
        self.area = self.sphere.area[self._own[1:]]
        self.state = Field.zeros(mesh, self.decomposition, name="state", components=len(PARTS), device=device)
        self.bottom = Field.zeros(mesh, self.decomposition, name="bottom", units="m", components=1, device=device)
        heights = setups.bottom(config, centers)
        level, velocity = setups.start(config, centers)
        self.bottom.set_from_host(heights)
        self.state.set_from_host(np.concatenate([(level - heights)[None], velocity]))
        self.first_depth = level - heights if setups.is_steady(config) else None
        self.between = [self.state.like() for _ in range(2)]
        self.exchange = PanelExchange(mesh, self.state)
        tables = self.sphere.tables(self.decomposition, mesh.rank)
        self.tables = type(tables)(*(device.to_device(each) for each in tables))
        self.bottom_ghosts = PanelExchange(mesh, self.bottom)(self.bottom)
        fill(self.bottom.data, self.bottom_ghosts, self.tables)
        shape = (len(centers[0]), 4, max(self.area.shape))
        self.seams = device.zeros(shape)
        self.physics = physics_of(config)
        self.turn = 2 * config.physics.rotation * np.einsum("c,c...->...", setups.axis(config), centers)
        self.steps_done = 0

    def step(self, dt: float, timer: PhaseTimer) -> None:
        """Advance by dt (s); afterwards the halo is stale."""
        first, second = self.between
        for now, share, out in ((self.state, 1.0, first), (first, 0.25, second), (second, 2.0 / 3.0, self.state)):
            with timer("halo"):
                ghosts = self.exchange(now)
            with timer("step"):
                fill(now.data, ghosts, self.tables)
                seam_flux(ghosts, self.bottom_ghosts, self.tables, self.physics, self.seams)
                bottom = self.bottom.data[0]
                stage(now.data, self.state.data, bottom, self.seams, self.tables, self.physics, dt, share, out.data)
        self.steps_done += 1

    def watch(self) -> Diagnostics:
        """Collective: fill the halo and watch; sums may differ in the last bits between numbers of ranks."""
        fill(self.state.data, self.exchange(self.state), self.tables)
        state, bottom, gravity = self.state.to_host(), self.bottom.to_host()[0], self.config.physics.gravity
        depth, velocity = state[DEPTH], state[X:]
        square = (velocity**2).sum(axis=0)
        energy = 0.5 * depth * square + 0.5 * gravity * ((depth + bottom) ** 2 - bottom**2)
        enstrophy = (self.vorticity() + self.turn) ** 2 / (2 * depth)
        broken = np.count_nonzero(~np.isfinite(state).all(axis=0) | ~(depth > 0))
        off = np.zeros_like(depth) if self.first_depth is None else depth - self.first_depth
        known = depth if self.first_depth is None else self.first_depth
        sums = sum_of_ranks(
            self.mesh.comm,
            np.array(
                [*((self.area * each).sum() for each in (depth, energy, enstrophy, off**2, known**2)), float(broken)]
            ),
        )
        speed = np.sqrt(square)
        waves = speed + np.sqrt(gravity * np.maximum(depth, 0.0))
        ends = max_of_ranks(self.mesh.comm, np.array([speed.max(), waves.max(), -depth.min()]))
        error = None if self.first_depth is None else math.sqrt(sums[3] / sums[4])
        mass, total, potential = map(float, sums[:3])
        fastest, courant = map(float, ends[:2])
        return Diagnostics(mass, total, potential, fastest, courant, -float(ends[2]), round(float(sums[5])), error)

    def vorticity(self) -> np.ndarray:
        """Relative vorticity (1/s) of the owned cells, by differences of fourth order; the halo must be filled."""
        _, rows, columns = self._own
        state = self.device.to_host(self.state.data)
        frames = self.device.to_host(self.tables.frames)
        x, y = (self._angles(part) for part in (columns, rows))
        stretch = np.sqrt(1.0 + np.tan(x) ** 2 + np.tan(y)[:, None] ** 2)
        # Covariant velocities: v . R dr/dx = R (1 + tan(x)**2) / stretch (v . right).
        right, up = (np.einsum("pc,cpyx->pyx", frames[:, dim], state[X:]) for dim in (1, 2))
        along_x, along_y = right / np.cos(x) ** 2 / stretch, up / (np.cos(y) ** 2)[:, None] / stretch
        own = slice(HALO, -HALO)
        turns = _difference(along_y[:, own]) - _difference(along_x[:, :, own].swapaxes(1, 2)).swapaxes(1, 2)
        root = 1.0 / (np.cos(x[own]) ** 2 * np.cos(y[own])[:, None] ** 2) / stretch[own, own] ** 3
        return turns / (np.pi / 2 / self.config.grid.n * self.config.physics.radius * root)

    def _angles(self, part: slice) -> np.ndarray:
        """The angles of a rank's cells along a panel, its halo included."""
        places = np.arange(part.start - HALO, part.stop + HALO)
        return np.pi / 2 * ((places + 0.5) / self.config.grid.n - 0.5)

    def cfl(self, watch: Diagnostics, dt: float) -> float:
        """The Courant number of waves and flow together."""
        return watch.courant_speed * dt / smallest(self.config)

    def require_sound(self, watch: Diagnostics, dt: float) -> None:
        """Collective: raise `BlowUpError` on every rank if a cell is lost or dry, or the CFL limit is exceeded."""
        if watch.broken_cells:
            masks = [~np.isfinite(each) for each in self.state.to_host()]
            masks.append(~(self.state.to_host()[DEPTH] > 0))
            lost = first_lost(self.mesh, self.decomposition, masks, self.steps_done)
            dry = lost.mask == len(PARTS)
            name = PARTS[0 if dry else lost.mask]
            raise BlowUpError(
                f"{name} is {'not above 0 (the layer is dry)' if dry else 'not finite'}; {watch.broken_cells} cells are"
                " lost",
                where=f"{lost.where}, field {name}",
                likely="a layer too thin for its waves or its mountain" if dry else "a time step too long",
                do="raise start.depth" if dry else "lower time.cfl, or use more cells (grid.n)",
            )
        if self.cfl(watch, dt) > STABLE_CFL:
            time = self.config.time
            raise BlowUpError(
                f"the Courant number of speed + sqrt(g h) is {self.cfl(watch, dt):.4f}, the limit {STABLE_CFL}",
                where=f"step {self.steps_done}",
                likely=f"time.max_speed = {time.max_speed:g} m/s, the flow has {watch.speed_max:.3g} m/s",
                do=f"set time.max_speed to {watch.speed_max * 1.5:.3g}, or lower time.cfl",
            )

    def saved(self, **values: Any) -> State:
        """The content of a checkpoint: the state, the step, and extra `values`."""
        return State([Piece.of_field(self.state)], {"step": self.steps_done, **values})

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        read_into(restored, self.state)
        self.steps_done = restored.values["step"]

    def output(self) -> dict[str, np.ndarray]:
        """The output fields, on the owned points: the halo must be filled (`watch` does it)."""
        state, bottom = self.state.to_host(), self.bottom.to_host()[0]
        east, north = (each[(slice(None), *self._own)] for each in self.sphere.east_north)
        fields = {
            "height": state[DEPTH] + bottom,
            "vorticity": self.vorticity(),
            "u": (state[X:] * east).sum(axis=0),
            "v": (state[X:] * north).sum(axis=0),
        }
        dtype = np.float32 if self.config.output.single else np.float64
        return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}


def _difference(values: np.ndarray) -> np.ndarray:
    """Central differences of fourth order along the last axis, in cells; the halo goes."""
    at = HALO
    far = values[..., at + 2 : values.shape[-1] - at + 2] - values[..., at - 2 : -at - 2]
    near = values[..., at + 1 : values.shape[-1] - at + 1] - values[..., at - 1 : -at - 1]
    return (8.0 * near - far) / 12.0


def physics_of(config: Config) -> Physics:
    """The physical parameters of the kernels."""
    turns = config.physics.rotation * setups.axis(config)
    return Physics(config.physics.gravity, *map(float, turns))


def warm_up(config: Config, device: Device = HOST) -> None:
    """Compile the kernels of a run (or load them), so that the time loop does not."""
    n = 6
    topology = Topology(AXES, (1, 1, 1))
    decomposition = Decomposition((PANELS, n, n), topology, halo=WIDTHS)
    given = CubedSphere(n, 1.0).tables(decomposition, 0)
    tables = type(given)(*(device.to_device(each) for each in given))
    state = device.to_device(np.ones((4, PANELS, n + 2 * HALO, n + 2 * HALO)))
    out, bottom = device.zeros(state.shape), device.zeros(state.shape[1:])
    last = int(given.sides[-1, -1, 1]) + 2 * HALO * n
    ghosts, seams = device.zeros((4, last)), device.zeros((PANELS, 4, n))
    fill(state, ghosts, tables)
    fill(bottom[None], device.zeros((1, last)), tables)
    seam_flux(ghosts, device.zeros((1, last)), tables, physics_of(config), seams)
    stage(state, state, bottom, seams, tables, physics_of(config), 1e-6, 1.0, out)
