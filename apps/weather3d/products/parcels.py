"""Trajectories: parcels that the wind of the split dynamics carries, a swarm on the grid.

A parcel moves by the second-order scheme of Heun once a large step: with the mean of the wind where it was and of the
new wind where that would take it. Winds are linear between the faces where they stand, constant below the middle of the
lowest level. A parcel's path is the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.weather3d.products.statistics import base_theta
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.agree import share_json
from hpckit.io.fields.profiles import ProfileWriter
from hpckit.kernels.euler.box.constants import RHO, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.particles.swarm import Swarm

PARCELS = "parcels.h5"
OWN = {
    "x": ("m", "place along x"),
    "y": ("m", "place along y"),
    "height": ("m", "height"),
    "u": ("m s-1", "wind along x"),
    "v": ("m s-1", "wind along y"),
    "w": ("m s-1", "vertical wind"),
    "theta": ("K", "potential temperature of its cell"),
}


class Parcels:
    """The parcels of a run, and their file below `folder`; resume: the `kept` of an earlier writer."""

    def __init__(self, model: SplitModel, folder: Path, attributes: Mapping[str, Any], resume: Any) -> None:
        self.model, mesh, grid = model, model.mesh, model.config.grid
        spacing = (grid.dz, grid.dy, grid.dx)
        self.swarm = Swarm.on_grid(
            model.decomposition, mesh, spacing, velocity=("f8", 3), theta="f8", water=("f8", len(self._water))
        )
        lattice = [np.linspace(*getattr(model.config.parcels, axis)) for axis in "zyx"]
        points = np.stack(np.meshgrid(*lattice, indexing="ij"), axis=-1).reshape(-1, 3)
        self.swarm.add(points if mesh.rank == 0 else None)
        told = {name: {"units": unit, "long_name": said} for name, (unit, said) in OWN.items()}
        told |= {name: {"units": "1", "long_name": f"mixing ratio of {name} of its cell"} for name in self._water}
        numbers = np.arange(len(points), dtype=np.float64)
        self.writer = ProfileWriter(mesh.comm, folder / PARCELS, "parcel", numbers, "1", told, attributes, resume)

    @property
    def _water(self) -> tuple[str, ...]:
        return self.model.carried.water if self.model.carried else ()

    def begin(self) -> None:
        """Collective: take up the wind of the start."""
        self.swarm["velocity"] = self._winds(self.swarm["position"])

    def move(self, dt: float) -> None:
        """Collective: move with the wind of a large step of dt (s) that the model has done."""
        swarm = self.swarm
        before, old = swarm["position"].copy(), swarm["velocity"].copy()
        new = self._winds(before + dt * old)
        swarm["position"] = before + 0.5 * dt * (old + new)
        swarm["position"][:, 0] = np.clip(swarm["position"][:, 0], 0.0, self.model.config.grid.height)
        swarm["velocity"] = self._winds(swarm["position"])
        swarm.migrate()

    def sample(self, time: float) -> None:
        """Collective: add places, winds and what is in the cells at a time (s)."""
        shown, swarm = self.model.shown(), self.swarm
        cells = self._cells(swarm["position"])
        swarm["theta"] = (shown["theta"] + base_theta(self.model)[:, None, None])[cells]
        for n, name in enumerate(self._water):
            swarm["water"][:, n] = shown[name][cells]
        every = swarm.gather()
        if every is None:
            self.writer.add(time, {})
            return
        rows = {name: every["position"][:, dim] for name, dim in (("height", 0), ("y", 1), ("x", 2))}
        rows |= {name: every["velocity"][:, dim] for name, dim in (("w", 0), ("v", 1), ("u", 2))}
        rows |= {name: every["water"][:, n] for n, name in enumerate(self._water)}
        self.writer.add(time, {**rows, "theta": every["theta"]})

    def values(self) -> dict[str, Any]:
        """Collective: what a checkpoint holds of the parcels."""
        every = self.swarm.gather()
        found = None if every is None else {name: every[name].tolist() for name in ("position", "velocity")}
        return share_json(self.model.mesh.comm, found)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Collective: continue from a checkpoint."""
        self.swarm.keep(np.zeros(len(self.swarm), bool))
        first = self.model.mesh.rank == 0
        velocity = np.array(values["velocity"], np.float64).reshape(-1, 3)
        self.swarm.add(
            np.array(values["position"], np.float64).reshape(-1, 3) if first else None,
            **({"velocity": velocity, "id": np.arange(len(velocity))} if first else {}),
        )

    def _cells(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Level, row and column of the owned cells that hold the positions."""
        it = self.model
        (nz, ny, nx), grid = it.state.interior.shape[1:], it.config.grid
        _, first_y, first_x = it.decomposition.start(it.mesh.rank)
        level = np.searchsorted(it.edges, position[:, 0], side="right") - 1
        row = np.floor(position[:, 1] / grid.dy).astype(int) - first_y
        column = np.floor(position[:, 2] / grid.dx).astype(int) - first_x
        return np.clip(level, 0, nz - 1), np.clip(row, 0, ny - 1), np.clip(column, 0, nx - 1)

    def _winds(self, position: np.ndarray) -> np.ndarray:
        """Collective: w, v and u (m/s) at positions within a cell of this rank's block, float64[n, 3]."""
        it = self.model
        it.exchange(it.state)
        data = it.state.device.to_host(it.state.data)
        rho = data[RHO] + it.base.column[0][:, None, None]
        # Places in cells of the whole grid, so that their fractions do not depend on the cuts between ranks.
        z, y, x = position[:, 0], position[:, 1] / it.config.grid.dy, position[:, 2] / it.config.grid.dx
        _, first_y, first_x = it.decomposition.start(it.mesh.rank)
        middle, edges = it.base.height, it.edges
        center_y, center_x = y - 0.5, x - 0.5
        level = np.interp(z, middle, np.arange(len(middle)))  # constant beyond
        face = np.interp(z, edges, np.arange(len(edges)))

        def between(places: tuple[np.ndarray, ...], value: Any, sizes: tuple[int, ...]) -> np.ndarray:
            low = [np.floor(at).astype(int) for at in places]
            low[0] = np.clip(low[0], 0, sizes[0] - 2)
            share = [at - first for at, first in zip(places, low, strict=True)]
            shifts = (0, HALO - first_y, HALO - first_x)
            low = [np.clip(at + by, 0, n - 2) for at, by, n in zip(low, shifts, sizes, strict=True)]
            total = np.zeros(len(z))
            for corner in np.ndindex(2, 2, 2):
                weight = np.prod([s if up else 1 - s for s, up in zip(share, corner, strict=True)], axis=0)
                total += weight * value(*(first + up for first, up in zip(low, corner, strict=True)))
            return total

        nz, ny, nx = rho.shape

        def u(k: np.ndarray, j: np.ndarray, i: np.ndarray) -> np.ndarray:
            return data[RHO_U, k, j, i] / (0.5 * (rho[k, j, i] + rho[k, j, np.maximum(i - 1, 0)]))

        def v(k: np.ndarray, j: np.ndarray, i: np.ndarray) -> np.ndarray:
            return data[RHO_V, k, j, i] / (0.5 * (rho[k, j, i] + rho[k, np.maximum(j - 1, 0), i]))

        def w(k: np.ndarray, j: np.ndarray, i: np.ndarray) -> np.ndarray:
            inside = np.minimum(k, nz - 1)
            mean = 0.5 * (rho[inside, j, i] + rho[np.maximum(inside - 1, 0), j, i])
            return np.where((k == 0) | (k == nz), 0.0, data[RHO_W, inside, j, i] / mean)

        return np.stack(
            [
                between((face, center_y, center_x), w, (nz + 1, ny, nx)),
                between((level, y, center_x), v, (nz, ny, nx)),
                between((level, center_y, x), u, (nz, ny, nx)),
            ],
            axis=1,
        )
