"""Particles with user-defined fields on the ranks of a mesh: they migrate with their positions, and have ghosts."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpckit.collectives.whole import rows_of_ranks
from hpckit.comm.agree import all_of_ranks, min_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.particles.migration import exchange, send_to
from hpckit.plan.blocks import block
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.inputs.numbers import checked_root
from hpckit.plan.particles.domain import DIMS, DomainDecomposition
from hpckit.plan.particles.ghosts import ghosts_of
from hpckit.plan.topology import Topology

__communicates__ = True  # its frames are not call sites

NO_ID = np.iinfo(np.int64).max


class Swarm:
    """Particles in the box lower <= x < upper, cut into equal domains along the axes of `mesh` (one to three dims), or
    into those of a grid's cells (`on_grid`).

    Dims are periodic where the axes of the mesh are; along the others the outer domains extend to infinity. `fields`
    are the values of a particle besides `position` (float64, one number per dim) and `id` (int64): a dtype each, or
    (dtype, shape), as in `Swarm(mesh, 0.0, 10.0, heading="f8", spin=("f4", 3))`. `swarm["heading"]` is a writable view
    of the values of this rank's particles; `add`, `migrate` and `keep` make new arrays. Raises `InputError` for a box
    without volume and for fields that cannot move between ranks.
    """

    def __init__(self, mesh: Mesh, lower: npt.ArrayLike, upper: npt.ArrayLike, **fields: Any) -> None:
        if not isinstance(mesh, Mesh):
            raise InputError(f"a swarm lives on a mesh, and {mesh!r} is not one", do="give the Mesh, not its topology")
        names = mesh.topology.names
        if len(names) > DIMS:
            raise InputError(f"particles move in one to {DIMS} dims, and the mesh has the axes {', '.join(names)}")
        self.mesh, self.dims = mesh, len(names)
        low, high = _corner(lower, self.dims), _corner(upper, self.dims)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise InputError(f"the box from {low.tolist()} to {high.tolist()} has no volume")
        # Missing dims have one unbounded domain.
        more = DIMS - self.dims
        spare = tuple("_" * (i + 1) for i in range(more))
        topology = Topology(names + spare, (*mesh.topology.sizes, *(1,) * more), mesh.topology.periodic)
        self.domains = DomainDecomposition.even(
            topology, np.append(low, np.zeros(more)), np.append(high, np.ones(more))
        )
        self.lower, self.upper = low, high
        self.data: npt.NDArray[Any] = np.zeros(0, _record(self.dims, fields))

    @classmethod
    def on_grid(
        cls, grid: Decomposition, mesh: Mesh, spacing: npt.ArrayLike, origin: npt.ArrayLike = 0.0, **fields: Any
    ) -> Self:
        """A swarm in the box of a grid of cells: each particle is on the rank that owns its cell.

        For particles that deposit on fields or are moved by them. The box begins at `origin`, cells are `spacing` wide.
        Rounding may assign a particle on the face between two ranks to either cell. Raises `InputError` for a grid that
        is not on `mesh`, or not of cells.
        """
        if not isinstance(mesh, Mesh) or grid.topology != mesh.topology:
            raise InputError("the grid of a swarm is on another mesh", do="make both of the same mesh")
        if set(grid.location) != {"center"}:
            raise InputError("the grid of a swarm is one of cells", do='give the decomposition of location="center"')
        step, low = _corner(spacing, grid.ndim), _corner(origin, grid.ndim)
        swarm = cls(mesh, low, low + step * grid.global_shape, **fields)
        starts = [
            [block(n, parts, i)[0] for i in range(parts)] + [n]
            for n, parts in zip(grid.global_shape, mesh.topology.sizes, strict=True)
        ]
        cuts = (tuple(float(x) for x in low[d] + step[d] * np.array(each)) for d, each in enumerate(starts))
        swarm.domains = DomainDecomposition(swarm.domains.topology, (*cuts, *swarm.domains.cuts[grid.ndim :]))
        return swarm

    def __len__(self) -> int:
        """The number of particles of this rank."""
        return len(self.data)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The values of a field of this rank's particles: a view."""
        if name not in (self.data.dtype.names or ()):
            raise InputError(f"there is no field {name!r}", do=f"choose {', '.join(self.data.dtype.names or ())}")
        return self.data[name]

    def __setitem__(self, name: str, values: npt.ArrayLike) -> None:
        try:
            self[name][...] = values
        except (ValueError, TypeError) as error:
            raise InputError(f"{name} of {len(self)} particles: {error}") from None

    def count(self) -> int:
        """The number of particles of all ranks. Collective."""
        return int(self.counts().sum())

    def counts(self) -> npt.NDArray[np.int64]:
        """The number of particles of each rank. Collective."""
        return all_of_ranks(self.mesh.comm, np.array(len(self), np.int64))

    def add(self, position: npt.ArrayLike | None = None, **values: npt.ArrayLike) -> None:
        """Collective: add particles, each given by any one rank, and send them to their owners.

        position: [n, dims], or None on ranks that add none. values: of their fields, 0 if left out; new ids continue
        from the largest one, in the order of the ranks. Raises `InputError` for unknown fields, shapes that do not fit,
        positions that are not finite, and ids used twice (on all ranks).
        """
        try:
            given = np.empty((0, self.dims)) if position is None else np.asarray(position, np.float64)
        except (ValueError, TypeError) as error:
            raise InputError(f"positions are [n, {self.dims}] numbers: {error}") from None
        if given.ndim != 2 or given.shape[1] != self.dims:
            raise InputError(f"positions are [n, {self.dims}], not {list(given.shape)}")
        if not np.isfinite(given).all():
            raise InputError("positions that are not finite have no owner")
        new = np.zeros(len(given), self.data.dtype)
        new["position"] = given
        for name, each in values.items():
            if name not in (new.dtype.names or ()):
                raise InputError(f"there is no field {name!r}", do=f"choose {', '.join(new.dtype.names or ())}")
            try:
                new[name] = each
            except (ValueError, TypeError) as error:
                raise InputError(f"{name} of {len(new)} particles: {error}") from None
        largest = np.array([self.data["id"].max(initial=-1), len(new), "id" in values], np.int64)
        everyone = all_of_ranks(self.mesh.comm, largest)
        if "id" not in values:
            first = int(everyone[:, 0].max()) + 1 + int(everyone[: self.mesh.rank, 1].sum())
            new["id"] = np.arange(first, first + len(new))
        if everyone[:, 2].any():
            self._require_new(new["id"])
        self.data = np.concatenate([self.data, new])
        self.migrate()

    def _require_new(self, ids: np.ndarray) -> None:
        """Raise on all ranks if one of the new `ids` is given twice or exists already."""
        every = np.concatenate(rows_of_ranks(ids, self.mesh))
        kinds, times = np.unique(every, return_counts=True)
        twice = kinds[(times > 1) | np.isin(kinds, self.data["id"])]
        least = int(min_of_ranks(self.mesh.comm, np.array(twice.min(initial=NO_ID))))
        if least != NO_ID:
            raise InputError(f"two particles would have the id {least}", do="leave id out, or give others")

    def migrate(self) -> int:
        """Collective, after particles moved: wrap them into the box along periodic dims and send each to the rank that
        owns its position, however far it went; returns how many left this rank.

        Particles that stay keep their order; those that arrive follow them, in the order of their source ranks. Raises
        `InputError` for a position that is not finite.
        """
        places = self._wrap()
        homes = self.domains.owners(places)
        leaves = homes != self.mesh.rank
        arrived = send_to(self.mesh, self.data[leaves], homes[leaves])
        self.data = np.concatenate([self.data[~leaves], arrived])
        return int(leaves.sum())

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Remove this rank's particles where `mask` is False. Raises `InputError` unless `mask` is bool[particles]."""
        chosen = np.asarray(mask)
        if chosen.dtype != bool or chosen.shape != self.data.shape:
            what = f"{chosen.dtype}{list(chosen.shape)}"
            raise InputError(f"a mask is bool[{len(self)}], one per particle of this rank, not {what}")
        self.data = self.data[chosen]

    def ghosts(self, reach: float) -> npt.NDArray[Any]:
        """Collective: copies of all particles and their images across the box within `reach` of this rank's domain.

        A structured array like `data`. It includes own particles only as periodic images. "Within" applies to each dim
        separately, so all neighbors of own particles up to that distance are included. Positions are shifted by whole
        box lengths, so that distances need no wrapping. Call `migrate` first if particles moved. Raises `InputError`
        for a reach that is not a length.
        """
        if not isinstance(reach, Real) or not (math.isfinite(reach) and reach >= 0):
            raise InputError(f"the reach of ghosts is a length, not {reach!r}")
        sent = ghosts_of(self.domains, self.mesh.rank, float(reach), self._padded())
        part = self.data[sent.particle]
        part["position"] += sent.image[:, : self.dims] * (self.upper - self.lower)
        return exchange(self.mesh, part, np.bincount(sent.receiver, minlength=self.mesh.size))

    def gather(self, root: int = 0) -> npt.NDArray[Any] | None:
        """Collective: all particles in the order of their ids on `root`, a structured array; None on other ranks."""
        counts = np.zeros(self.mesh.size, np.int64)
        counts[checked_root(root, self.mesh.size)] = len(self)
        everyone = exchange(self.mesh, np.ascontiguousarray(self.data), counts)
        return everyone[np.argsort(everyone["id"], kind="stable")] if self.mesh.rank == root else None

    def _padded(self) -> npt.NDArray[np.float64]:
        """Positions padded to three dims, [n, 3]."""
        places = np.zeros((len(self), DIMS))
        places[:, : self.dims] = self.data["position"]
        return places

    def _wrap(self) -> npt.NDArray[np.float64]:
        """Wrap positions into the box along periodic dims; returns all, padded to [n, 3]."""
        position = self.data["position"]
        if not np.isfinite(position).all():
            lost = self.data["id"][~np.isfinite(position).all(axis=1)][0]
            raise InputError(f"the position of particle {lost} is not finite", likely="a step that is too long")
        length = self.upper - self.lower
        for d in np.flatnonzero(self.domains.periodic[: self.dims]):
            x = position[:, d]
            outside = (x < self.lower[d]) | (x >= self.upper[d])
            wrapped = self.lower[d] + np.mod(x[outside] - self.lower[d], length[d])
            # Rounding may give the upper side, which is the same place as the lower side.
            x[outside] = np.where(wrapped >= self.upper[d], self.lower[d], wrapped)
        return self._padded()


def _corner(given: npt.ArrayLike, dims: int) -> npt.NDArray[np.float64]:
    try:
        return np.array(np.broadcast_to(np.asarray(given, np.float64), dims))
    except (TypeError, ValueError):
        raise InputError(f"a corner of the box has {dims} numbers, or one for all, not {given!r}") from None


def _record(dims: int, fields: dict[str, Any]) -> np.dtype[Any]:
    """The record dtype of a particle."""
    parts: list[Any] = [("position", np.float64, (dims,)), ("id", np.int64)]
    for name, kind in fields.items():
        try:
            dtype = np.dtype(kind).newbyteorder("=")
        except (TypeError, ValueError):
            raise InputError(f"the field {name} is {kind!r}", do="give a dtype, or (dtype, shape)") from None
        if name in ("position", "id") or dtype.hasobject:
            what = "every particle has it" if name in ("position", "id") else "objects cannot move between ranks"
            raise InputError(f"a field {name} of {kind!r} cannot be: {what}")
        parts.append((name, dtype.base, dtype.shape))
    return np.dtype(parts)
