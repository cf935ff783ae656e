"""Maps of a storm beside the frames of its fields: rain at the ground, updraft helicity and updraft since the last.

Updraft helicity is the integral of w times the vertical vorticity from 2 to 5 km over the ground where w is upward
(Kain et al. 2008, Weather Forecast. 23, 931-952). Its extremes and that of w are taken over all steps of the split
dynamics since the frame before; rain is the sum since the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, read_into
from hpckit.io.fields.writer import FieldWriter
from hpckit.kernels.euler.box.constants import RHO, RHO_U, RHO_V
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition

MAPS = "maps"  # folder of the output
LOWEST, HIGHEST = 2000.0, 5000.0  # m over the ground: of updraft helicity
VARIABLES = {
    "updraft_helicity": {"units": "m2 s-2", "long_name": "greatest updraft helicity from 2 to 5 km since the last map"},
    "updraft_helicity_min": {
        "units": "m2 s-2",
        "long_name": "least updraft helicity from 2 to 5 km since the last map",
    },
    "updraft": {"units": "m s-1", "long_name": "greatest vertical wind of the column since the last map"},
    "rain_at_ground": {"units": "mm", "long_name": "rain at the ground since the start"},
    "snow_at_ground": {"units": "mm", "long_name": "water of snow and ice at the ground since the start"},
    "graupel_at_ground": {"units": "mm", "long_name": "water of graupel at the ground since the start"},
    "water_path": {"units": "kg m-2", "long_name": "cloud and precipitation over an area"},
}
INNER = slice(HALO, -HALO)


class Maps:
    """The maps of a run, written below `folder`; resume: what an earlier writer kept."""

    def __init__(
        self,
        model: SplitModel,
        folder: Path,
        coords: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        resume: Any,
    ) -> None:
        self.model = model
        grid, mesh = model.config.grid, model.mesh
        ground = Decomposition((1, grid.ny, grid.nx), mesh.topology, halo=(0, 0, 0))
        self.most = Field.zeros(mesh, ground, name="maps", components=3)  # helicity, less its least, updraft
        edges = model.edges[:, None, None]
        if model.terrain:
            edges = model.terrain.faces - model.terrain.faces[0]
        self.thick = np.diff(edges, axis=0)
        self.share = np.clip(np.minimum(edges[1:], HIGHEST) - np.maximum(edges[:-1], LOWEST), 0.0, None)
        falls = model.config.moisture.falls
        shown = {f"{kind}_at_ground" for kind in falls} | ({"water_path"} if model.is_moist else set())
        variables = {name: told for name, told in VARIABLES.items() if name in shown or name.startswith("updraft")}
        config = model.config.output
        self.writer = FieldWriter(
            mesh,
            folder / MAPS,
            ground,
            coords={**coords, "z": np.zeros(1)},
            units=dict.fromkeys("zyx", "m"),
            variables=variables,
            attributes=attributes,
            driver=config.driver,
            compression=config.compression,
            resume=resume,
            one_file=1e9 * config.one_file,
        )

    def sample(self) -> None:
        """Collective: take in the state; fills its halo."""
        helicity, updraft = self._of_the_state()
        most = self.most.interior[:, 0]
        np.maximum(most, np.array([helicity, -helicity, updraft]), out=most)

    def write(self, time: float) -> None:
        """Collective: write a map at a time (s), and begin the next."""
        helicity, least, updraft = self.most.interior.copy()
        fields = {"updraft_helicity": helicity, "updraft_helicity_min": -least, "updraft": updraft}
        if self.model.is_moist:
            device = self.model.state.device
            fallen = 1000.0 * device.to_host(self.model.rained.data).astype(np.float64)
            falls = self.model.config.moisture.falls
            fields |= {f"{kind}_at_ground": fallen[row : row + 1] for row, kind in enumerate(falls)}
            fields["water_path"] = self._water_path()[None]
        dtype = np.float32 if self.model.config.output.single else np.float64
        self.writer.write(time, {name: np.ascontiguousarray(each, dtype) for name, each in fields.items()})
        self.most.interior[...] = 0.0

    def piece(self) -> Piece:
        """What a checkpoint holds of the maps."""
        return Piece.of_field(self.most)

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint."""
        read_into(restored, self.most)

    def _of_the_state(self) -> tuple[np.ndarray, np.ndarray]:
        """Updraft helicity (m2/s2) and the greatest w (m/s) of the owned columns, float64[ny, nx]."""
        it = self.model
        it.exchange(it.state)
        data = it.state.device.to_host(it.state.data).astype(np.float64, copy=False)
        _, _, _, w, _ = winds = it.middles(data)
        base = it.terrain.base_density if it.terrain else it.base.column[0][:, None, None]
        tilted = it.terrain.turned(*winds[1:3]) if it.terrain else np.zeros((len(w), 1, 1))
        helicity = np.zeros(w.shape[1:])
        for k in np.flatnonzero(self.share.any(axis=(1, 2))):
            near = slice(HALO - 1, 1 - HALO)
            total = data[RHO, k] + base[k]
            u = data[RHO_U, k, near, HALO : 1 - HALO] / (
                0.5 * (total[near, HALO : 1 - HALO] + total[near, HALO - 1 : -HALO])
            )
            v = data[RHO_V, k, HALO : 1 - HALO, near] / (
                0.5 * (total[HALO : 1 - HALO, near] + total[HALO - 1 : -HALO, near])
            )
            turning = np.diff(v, axis=1) / it.spacing["x"] - np.diff(u, axis=0) / it.spacing["y"]  # at corners
            turning = 0.25 * (turning[1:, 1:] + turning[1:, :-1] + turning[:-1, 1:] + turning[:-1, :-1])
            helicity += self.share[k] * np.maximum(w[k], 0.0) * (turning + tilted[k])
        return helicity, w.max(axis=0)

    def _water_path(self) -> np.ndarray:
        it = self.model
        assert it.carried
        size = it.terrain.size if it.terrain else 1.0
        rho = it.state.device.to_host(it.state.data)[RHO, :, INNER, INNER] / size + it.rest_of.rho
        water = it.carried.field.to_host()[1 : len(it.carried.water)].astype(np.float64).sum(axis=0)
        return (water * rho * self.thick).sum(axis=0)
