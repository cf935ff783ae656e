"""Profiles over time on disk: one small file beside the fields, as a whole at any instant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpckit.comm.agree import together
from hpckit.errors import CorruptDataError
from hpckit.io.fields.hdf5 import memory_file, store
from hpckit.io.fields.layout import make_layout
from hpckit.io.fields.master import (
    put_constants,
    put_coordinates,
    put_global_attributes,
    put_variable_attributes,
    with_history,
)
from hpckit.io.files import replace_file
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

if TYPE_CHECKING:
    from mpi4py import MPI


class ProfileWriter:
    """Writes values over one dim and time, float64, into `path`, an HDF5 file that xarray opens.

    dim, points, units: name, coordinates and unit of the dim. `variables` maps names to attributes, `attributes` are
    those of the file, `constants` have values over the dim alone. Rank 0 holds all of it and replaces the file.
    `resume`: the `kept` of an earlier writer, whose first profiles stay; None or {}: none.

    Collective. Raises `CorruptDataError` if what is to stay is not there, on all ranks.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        path: Path,
        dim: str,
        points: np.ndarray,
        units: str,
        variables: Mapping[str, Mapping[str, Any]],
        attributes: Mapping[str, Any],
        resume: Mapping[str, Any] | None = None,
        constants: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.comm, self.path = comm, path
        whole = Decomposition((len(points),), Topology((dim,), (1,)), halo=0)
        self._layout = make_layout(whole, {dim: points}, {dim: units}, variables, with_history(attributes), constants)
        self._times: list[float] = []
        self._rows: dict[str, list[np.ndarray]] = {name: [] for name in variables}
        self._written = -1
        together(comm, path, lambda: self._take_over(int((resume or {}).get("count", 0))))

    def add(self, time: float, rows: Mapping[str, np.ndarray]) -> None:
        """Add a profile of each variable at a time (s); in the file after the next `write`."""
        if self.comm.rank == 0:
            self._times.append(time)
            for name, kept in self._rows.items():
                kept.append(np.asarray(rows[name], np.float64))

    def write(self) -> None:
        """Collective: bring the file up to date. Raises `SetupError` if the disk does not allow it, on all ranks."""
        together(self.comm, self.path, self._replace)

    def kept(self) -> dict[str, Any]:
        """On rank 0 the record that a resumed run needs to go on."""
        return {"count": len(self._times)}

    def _replace(self) -> int:
        if self.comm.rank or self._written == len(self._times):
            return 0
        with memory_file() as made:
            put_global_attributes(made.file, self._layout)
            put_coordinates(made.file, self._layout, self._times)
            blank = (len(self._times), *next(iter(self._layout.variables.values())).shape)
            store(made.file, {name: np.array(rows).reshape(blank) for name, rows in self._rows.items()}, 1)
            put_constants(made.file, self._layout)
            put_variable_attributes(made.file, self._layout)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, made.image)
        self._written = len(self._times)
        return len(made.image)

    def _take_over(self, count: int) -> int:
        if self.comm.rank or not count:
            return 0
        do = "put it back, or start the run again: hpckit run DIR/run.toml"
        try:
            with h5py.File(self.path) as file:
                self._times = file["time"][:count].tolist()
                self._rows = {name: list(file[name][:count]) for name in self._rows}
        except (OSError, KeyError) as error:
            raise CorruptDataError(f"profiles of the run are gone: {error}", where=str(self.path), do=do) from error
        if len(self._times) < count:
            raise CorruptDataError(
                f"the file has {len(self._times)} times, the checkpoint {count}", where=str(self.path), do=do
            )
        return 0
