"""Ensembles: many runs of one model side by side, in vector lanes, with one message for all of them.

A field of an ensemble has one dim more than the grid, the last: the members of a cell are neighbors in memory, so a
kernel computes them in vectors whatever the model does along x. A halo of all members is one slab, and one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.adjoint.program.place import MEMBER
from hpckit.comm.agree import ClosedTogether, sum_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.inputs.numbers import count

__communicates__ = True  # its frames are not call sites


class Ensemble(ClosedTogether):
    """`members` runs on the ranks of a mesh. Making and closing it is collective; use it as a context manager.

    Models take its fields as they take others: `step(ensemble.stack(starts))`. Every member has the bits of a run
    alone. A number may be given as float64[members], to each its own. A sum over all cells is one of each member,
    float64[members], and so are a cost, the cost of a `Window` and their slopes in numbers: gradients of all members
    are one call.
    """

    def __init__(self, mesh: Mesh, members: int) -> None:
        self.members = count(members, "the number of members")
        if self.members < 1 or MEMBER in mesh.topology.names:
            raise InputError(f"an ensemble has 1 member or more, on a mesh without an axis {MEMBER!r}")
        topology = mesh.topology
        axes: dict[str, Any] = dict(zip(topology.names, topology.sizes, strict=True))
        self.base = mesh
        axes[MEMBER] = 1
        self.mesh = Mesh(mesh.comm, mesh.observer, periodic=topology.periodic, **axes)

    def zeros(self, like: Field) -> Field:
        """A field of zeros for all members, with the cells and the halo of a field of the mesh."""
        dec = like.decomposition
        wide = Decomposition((*dec.shape, self.members), self.mesh.topology, (*dec.halo, 0), (*dec.location, "center"))
        return Field.zeros(self.mesh, wide, name=like.name, units=like.units, device=like.device)

    def stack(self, fields: Sequence[Field]) -> Field:
        """The fields of all members as one. Raises `InputError` if there are not as many."""
        if len(fields) != self.members:
            raise InputError(f"{len(fields)} fields are not {self.members} members", do="give a field for each member")
        found = self.zeros(fields[0])
        for m, each in enumerate(fields):
            found.interior[..., m] = each.interior
        return found

    def member(self, field: Field, m: int) -> Field:
        """The field of one member, a copy on the mesh of the grid."""
        found = self._alone(field)
        found.interior[...] = field.interior[..., m]
        return found

    def mean(self, field: Field) -> Field:
        """The mean over the members in each cell; members are added in their order."""
        found = self._alone(field)
        for m in range(self.members):
            found.interior[...] += field.interior[..., m]
        found.interior[...] /= self.members
        return found

    def spread(self, field: Field) -> Field:
        """The standard deviation of the members in each cell, with n - 1 in the denominator; 0 for one member."""
        found, mean = self._alone(field), self.mean(field)
        for m in range(self.members):
            found.interior[...] += (field.interior[..., m] - mean.interior) ** 2
        found.interior[...] = np.sqrt(found.interior / max(1, self.members - 1))
        return found

    def covariance(self, field: Field, other: Field, at: Sequence[int] | None = None) -> Field:
        """The covariance over the members, with n - 1 in the denominator: of `field` in each cell with `other` in the
        same cell, or with `other` in one cell of the grid, `at`, that some rank owns. Members are added in their order.
        Collective. Raises `InputError` for fewer than 2 members, and for a cell beyond the grid.
        """
        if self.members < 2:
            raise InputError("a covariance needs 2 members or more")
        there = other.interior
        if at is not None:
            place = tuple(int(k) for k in at)
            where = other.decomposition
            shape, rank = where.global_shape[:-1], other.mesh.rank
            if len(place) != len(shape) or not all(0 <= k < n for k, n in zip(place, shape, strict=False)):
                raise InputError(f"cell {place} is not one of the grid's, {shape}")
            local = tuple(k - a for k, a in zip(place, where.start(rank), strict=False))
            there = np.zeros(self.members)
            if all(0 <= k < n for k, n in zip(local, where.owned(rank), strict=False)):
                there[:] = other.device.to_host(other.interior[local])
            there = other.device.to_device(sum_of_ranks(self.base.comm, there))  # one rank has the cell, others add 0
        found, mean = self._alone(field), self.mean(field)
        average = there[..., 0].copy()
        for m in range(1, self.members):
            average += there[..., m]
        average /= self.members
        for m in range(self.members):
            found.interior[...] += (field.interior[..., m] - mean.interior) * (there[..., m] - average)
        found.interior[...] /= self.members - 1
        return found

    def close(self) -> None:
        """Free the mesh of the members."""
        self.mesh.close()

    def _alone(self, field: Field) -> Field:
        dec = field.decomposition
        alone = Decomposition(dec.shape[:-1], self.base.topology, dec.halo[:-1], dec.location[:-1])
        return Field.zeros(self.base, alone, name=field.name, units=field.units, device=field.device)
