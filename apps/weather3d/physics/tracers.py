"""The tracers of a run: their fields, and what moves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import TRACER_HALOS
from hpckit.apps.weather3d.settings.physics import Tracer
from hpckit.apps.weather3d.sides import HORIZONTAL, distance, periodic_axes, scalar_walls
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.device_array import empty, placed
from hpckit.kernels.euler.box.constants import RHO
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.tracers.dispatch import transport
from hpckit.plan.grid.decomposition import Decomposition


class Tracers:
    """Mixing ratios of the air on this rank, [tracers, nz, ny, nx]; each sweep of the air carries them along.

    `before` a sweep and `after` it go in pairs.
    """

    def __init__(self, config: Config, mesh: Mesh, device: Device = HOST) -> None:
        grid = config.grid
        self.names = [tracer.name for tracer in config.tracers]
        self._mesh = mesh
        self._spacing = {"x": grid.dx, "y": grid.dy, "z": grid.dz}
        decomposition = Decomposition((grid.nz, grid.ny, grid.nx), mesh.topology, halo=TRACER_HALOS)
        self.field = Field.zeros(
            mesh, decomposition, config.precision, name="tracers", components=len(self.names), device=device
        )
        self.spare = self.field.like()
        walls = scalar_walls(config)
        self.exchanges = {
            axis: HaloExchange(mesh, self.field, {axis: walls[axis]} if axis in walls else None, axes=axis)
            for axis in HORIZONTAL
        }
        nz, ny, nx = self.field.interior.shape[1:]
        self._old = device.zeros((nz, ny + 2 * HALO, nx + 2 * HALO), config.precision)
        self._ones = device.to_device(np.ones(nz, config.precision))
        z, y, x = self.field.coords((grid.dz, grid.dy, grid.dx))
        start = [start_of(tracer, config, z, y, x) for tracer in config.tracers]
        self.field.set_from_host(np.array(start, self.field.data.dtype))

    @property
    def wait_seconds(self) -> float:
        """Seconds spent in MPI waits so far."""
        return sum(exchange.wait_seconds for exchange in self.exchanges.values())

    def fill_halo(self, axis: str) -> None:
        """Fill the halo along an axis."""
        self.exchanges[axis](self.field)

    def before(self, axis: str, state: Any) -> None:
        """Before the air is swept along an axis, and after its halo was filled: keep its density."""
        if axis in self.exchanges:
            self.fill_halo(axis)
        self._old[...] = state[RHO]

    def after(self, axis: str, state: Any, column: Any, mass_flux: Any, dt: float) -> None:
        """Advect the tracers with the mass flux of the sweep."""
        rates = self._ones * (dt / self._spacing[axis])
        transport(
            self.field.data, self.spare.data, self._old, state[RHO], column, mass_flux, "zyx".index(axis), rates
        )  # fmt: skip
        self.swap()

    def swap(self) -> None:
        """What was written to the spare field is the state now."""
        self.field, self.spare = self.spare, self.field

    def watch(self, state: Any, column: Any, cell_volume: float) -> dict[str, float]:
        """Collective: mass (kg), least and greatest mixing ratio of each tracer, by metric name."""
        if not self.names:
            return {}
        rho = state[RHO, :, HALO:-HALO, HALO:-HALO] + column[0, :, None, None]
        q = self.field.interior
        to_host, cells = self.field.device.to_host, (1, 2, 3)
        mass = to_host((rho * q).sum(axis=cells, dtype=np.float64)) * cell_volume
        ends = np.array([-to_host(q.min(axis=cells)), to_host(q.max(axis=cells))], np.float64)
        return numbers_of(self._mesh, self.names, mass, ends)


def numbers_of(mesh: Mesh, names: Sequence[str], mass: np.ndarray, ends: np.ndarray) -> dict[str, float]:
    """Collective: mass (kg), least and greatest mixing ratio of each, by metric name, from each rank's, which are
    overwritten. ends: the least, negated, and the greatest, [2, names].
    """
    sum_of_ranks(mesh.comm, mass)
    max_of_ranks(mesh.comm, ends)
    return {
        f"{name}_{what}": float(value)
        for i, name in enumerate(names)
        for what, value in (("mass", mass[i]), ("min", -ends[0, i]), ("max", ends[1, i]))
    }


def start_of(tracer: Tracer, config: Config, z: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The mixing ratio at the start in cells with these middles (m)."""
    far_z = (z - tracer.z) / tracer.radius_z
    if tracer.shape == "uniform":
        hill = np.ones(np.broadcast_shapes(z.shape, y.shape, x.shape))
    else:
        squares = far_z**2 + 0.0 * (y + x)
        if tracer.shape == "blob":
            periodic = periodic_axes(config)
            far_x = distance(x - tracer.x, config.grid.width, "x" in periodic) / tracer.radius_x
            far_y = distance(y - tracer.y, config.grid.length, "y" in periodic) / tracer.radius_y
            squares = far_x**2 + far_y**2 + squares
        inside = np.cos(np.pi / 2 * np.sqrt(np.minimum(squares, 1.0))) ** 2
        hill = np.where(squares < 1, 1.0 if tracer.sharp else inside, 0.0)
    return tracer.background + tracer.amount * hill


def warm_up(state: Any, column: Any) -> None:
    """Compile the transport (or load it) on a few cells of a state and their column."""
    nz, ny, nx = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    q = placed(np.zeros((1, nz, ny + 2 * REACH, nx + 2 * REACH), state.dtype), state)
    for dim in range(3):
        faces = [n + (d == dim) for d, n in enumerate((nz, ny, nx))]
        flux = placed(np.zeros(faces, state.dtype), state)
        transport(q, empty(q.shape, q), empty(state.shape[1:], q), state[RHO], column, flux, dim, column[0])
