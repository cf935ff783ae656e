"""A rank's part of a tensor on a mesh."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.kernels.nn.tile import dispatch as tile
from hpckit.plan.tensors.layout import Layout, Partial, matmul_layout
from hpckit.plan.tensors.redistribution import redistribution
from hpckit.plan.topology import Topology
from hpckit.tensors.exchange import redistribute

__communicates__ = True  # its frames are not call sites


class Tensor:
    """A local array, a mesh, and the layout that says which part of the whole the array is.

    `local` is the part of this rank: a view of what was given where that was possible. Arrays are in host memory, of
    any number type. Raises `InputError` where layout, mesh and array do not fit.
    """

    def __init__(self, mesh: Mesh, layout: Layout, local: np.ndarray) -> None:
        _check_mesh(mesh, layout)
        if not isinstance(local, np.ndarray) or local.dtype.kind not in "biufc":
            given = getattr(local, "dtype", type(local).__name__)
            raise InputError(f"a tensor holds a NumPy array of numbers, not {given}", do="give a host array")
        wanted = layout.local_shape(mesh.rank)
        if local.shape != wanted:
            raise InputError(
                f"rank {mesh.rank} holds {wanted} of {layout}, the array is {local.shape}",
                do="make the tensor with Tensor.from_global, or the array with layout.local_shape(rank)",
            )
        self.mesh, self.layout, self.local = mesh, layout, local

    @classmethod
    def from_global(cls, mesh: Mesh, layout: Layout, array: Any) -> Self:
        """A tensor from the whole array, the same on all ranks: each keeps a copy of its part.

        Of a sum (`Partial`) the ranks at coordinate 0 hold the values and the others zeros. No messages.
        """
        _check_mesh(mesh, layout)
        whole = np.asarray(array)
        if whole.shape != layout.shape:
            raise InputError(f"an array {whole.shape} for a tensor {layout}", do=f"give an array {layout.shape}")
        local = np.array(whole[layout.slices(mesh.rank)])
        coords = zip(layout.placements, mesh.coords, strict=True)
        if any(isinstance(placement, Partial) and at > 0 for placement, at in coords):
            local[...] = 0
        return cls(mesh, layout, local)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""
        return self.local.dtype

    def redistribute(self, layout: Layout) -> Tensor:
        """Collective: the same tensor in another layout of this mesh; itself if it has it.

        It runs `hp.plan.redistribution(self.layout, layout, itemsize)`. Sums have the same bits on any way there.
        """
        if layout == self.layout:
            return self
        plan = redistribution(self.layout, layout, self.dtype.itemsize)
        return Tensor(self.mesh, layout, redistribute(self.mesh, plan, self.local))

    def full(self) -> np.ndarray:
        """Collective: the whole array, on every rank; a copy."""
        whole = self.redistribute(Layout(self.shape, self.layout.axes)).local
        return whole.copy() if whole is self.local else whole

    def __matmul__(self, other: Tensor) -> Tensor:
        """[..., K] @ [K, N] of one type, from what each rank holds, without messages: see `matmul_layout`.

        float32 and float64 are multiplied by the tile: rows and columns have the bits of the serial product however
        they are cut.
        """
        layout = matmul_layout(self.layout, other.layout)
        if self.dtype != other.dtype:
            raise InputError(f"a product of {self.dtype} and {other.dtype}", do="give both one type")
        rows, inner = math.prod(self.local.shape[:-1]), self.local.shape[-1]
        a, out = self.local.reshape(rows, inner), np.empty((rows, other.local.shape[1]), self.dtype)
        if self.dtype.name in ("float32", "float64"):
            tile.multiply(a, tile.pack(other.local), out)
        else:
            np.matmul(a, other.local, out=out)
        out = out.reshape(layout.local_shape(self.mesh.rank))
        return Tensor(self.mesh, layout, out)

    def __repr__(self) -> str:
        held = ", ".join(f"{each.start}:{each.stop}" for each in self.layout.slices(self.mesh.rank))
        return f"Tensor {self.layout} ({self.dtype}); rank {self.mesh.rank} holds [{held}]"


def _check_mesh(mesh: Mesh, layout: Layout) -> None:
    if not isinstance(mesh, Mesh):
        raise InputError(f"a tensor lives on a mesh, not on {mesh!r}", do="give the Mesh first, then the layout")
    if not isinstance(layout, Layout):
        raise InputError(f"a tensor has a Layout, not {layout!r}", do="give Layout(shape, mesh.topology, placements)")
    axes = Topology(mesh.topology.names, mesh.topology.sizes)
    if layout.axes != axes:
        own, theirs = (
            ", ".join(f"{n}={s}" for n, s in zip(t.names, t.sizes, strict=True)) for t in (axes, layout.axes)
        )
        raise InputError(f"the layout is for a mesh {theirs}, this mesh is {own}", do="make it with mesh.topology")
