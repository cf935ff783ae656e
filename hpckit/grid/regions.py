"""The memory layout of a field on a rank, and the slabs of it in the messages of a halo exchange."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.comm.shared.transport import ALIGNMENT
from hpckit.errors import InputError
from hpckit.grid.boundary_conditions import Fill
from hpckit.kernels.device_array import address, is_device_array
from hpckit.kernels.pack import slab_kernels
from hpckit.plan.grid.decomposition import Decomposition, Slices

WallFills = Mapping[int, tuple[Fill | None, Fill | None]]
OwnWalls = tuple[tuple[tuple[int, ...], tuple[int, int], tuple[int, int], bool, Fill | None, Fill | None], ...]
"""Of each dim with a wall that a rank's array reaches: the order of an array's dims with this one first, the first
layer inside and the one past the last, how many layers to fill beyond either wall, whether values sit on the wall, and
the fills of both sides (None for no wall or nothing to fill).
"""


@dataclass(frozen=True)
class FieldType:
    """The type of a field in an exchange: its decomposition, dtype, and the components that lead its dims."""

    decomposition: Decomposition
    dtype: np.dtype
    components: tuple[int, ...] = ()
    device: Device = HOST

    @cached_property
    def kernels(self) -> ModuleType:
        """The slab kernels for this dtype and device."""
        return slab_kernels(self.dtype, self.device.is_gpu)

    def check_dtype(self) -> None:
        """Raise `InputError` if the device has no slab kernels for the dtype."""
        try:
            _ = self.kernels
        except TypeError as problem:
            raise InputError(str(problem)) from None

    def __repr__(self) -> str:
        dec = self.decomposition
        place = " on a GPU" if self.device.is_gpu else ""
        return (
            f"{self.dtype} {self.components or ''}{dec.shape} at {'/'.join(dec.location)} with halo {dec.halo}{place}"
        )

    def shape(self, rank: int) -> tuple[int, ...]:
        """The shape of the rank's array."""
        return (*self.components, *self.decomposition.local_shape(rank))

    def slabs(self, array: Any, dim: int) -> Any:
        """A view [outer, n, inner] with the dim in the middle; it does not keep the array alive."""
        at = len(self.components) + dim
        outer, n = math.prod(array.shape[:at]), array.shape[at]
        return self.device.borrowed(array).reshape(outer, n, array.size // max(1, outer * n))

    def layer_values(self, rank: int, dim: int) -> tuple[int, int]:
        """The number of contiguous pieces of a layer of the dim, and of the values in each."""
        shape, at = self.shape(rank), len(self.components) + dim
        return math.prod(shape[:at]), math.prod(shape[at + 1 :])

    def check(self, array: Any, rank: int, name: str) -> None:
        """Raise `InputError` unless the array is of this type."""
        on_device = is_device_array(array)
        if not isinstance(array, np.ndarray) and not on_device:
            raise InputError(f"{name} is a {type(array).__name__}, not a NumPy or CuPy array or a Field")
        if on_device != self.device.is_gpu:
            here, there = ("a GPU", "the host") if on_device else ("the host", "a GPU")
            raise InputError(f"{name} is on {here}, the exchange was made for fields on {there}")
        if array.shape != self.shape(rank) or array.dtype != self.dtype:
            raise InputError(
                f"{name} is {array.dtype}{list(array.shape)} on rank {rank}, "
                f"the exchange was made for {self.dtype}{list(self.shape(rank))}",
                do="make an exchange from fields like these",
            )
        if not array.flags.c_contiguous or not getattr(array.flags, "writeable", True):
            raise InputError(
                f"{name} must be C-contiguous and writable", do="exchange the whole array, not a slice of it"
            )

    def check_walls(self, fills: WallFills) -> None:
        """Raise `InputError` if a fill does not fit the dtype or needs more layers than a block has."""
        dec = self.decomposition
        for dim, pair in fills.items():
            unfit = [fill for fill in pair if fill is not None and not fill.fits(self.dtype)]
            if unfit:
                raise InputError(
                    f"the wall fill {unfit[0]} of axis {dec.topology.names[dim]} does not fit fields of {self.dtype}"
                )
            extra = max((fill.layers_inside for fill in pair if fill is not None), default=0)
            needed = dec.halo[dim] + (extra if dec.location[dim] == "face" else 0)
            thinnest = dec.thinnest()[dim]
            if thinnest < needed and not dec.deep:
                name = dec.topology.names[dim]
                raise InputError(
                    f"the walls of axis {name} need blocks of {needed} points, the thinnest has {thinnest}",
                    do="use fewer ranks along that axis",
                )

    def own_walls(self, fills: WallFills, rank: int) -> OwnWalls:
        """The walls that a rank's array reaches, in the order of the dims, for `fill_walls`."""
        dec, found = self.decomposition, []
        every = range(len(self.components) + len(dec.shape))
        for dim in sorted(fills):
            at, width = len(self.components) + dim, dec.halo[dim]
            start, owned, on_face = dec.start(rank)[dim], dec.owned(rank)[dim], dec.location[dim] == "face"
            away = start, dec.global_shape[dim] - start - owned  # points of others before the wall
            reach = width + on_face if dec.deep else 1  # deep halos hold points of others, and what is beyond the walls
            low, high = (fill if far < reach else None for fill, far in zip(fills[dim], away, strict=True))
            if not width:  # no halo, but the wall itself, also in the halos of the dims before
                low, high = (fill if fill is not None and on_face and fill.sets_wall else None for fill in (low, high))
            if low is not None or high is not None:
                order = (at, *(each for each in every if each != at))
                beyond = tuple(width - min(width, far) if dec.deep else width for far in away)
                inside = beyond[0], owned + 2 * width - beyond[1]
                most = inside[1] - inside[0] - on_face  # that can be mirrored
                below, above = (
                    min(n, most) if fill is not None and fill.layers_inside else n
                    for n, fill in zip(beyond, (low, high), strict=True)
                )
                found.append((order, inside, (below, above), on_face, low, high))
        return tuple(found)

    def fill_walls(self, array: Any, walls: OwnWalls) -> None:
        """Fill the halo beyond the walls that this rank's array reaches, dim by dim."""
        for order, (first, stop), (below, above), on_face, low, high in walls:
            layers = array.transpose(order)
            inside = layers[first:stop]
            if low is not None:
                low.apply(layers[first - below : first][::-1], inside, on_face)
            if high is not None:
                high.apply(layers[stop : stop + above], inside[::-1], on_face)


@dataclass(frozen=True)
class Slab:
    """Some layers of a field along the dim of a phase."""

    field: int
    type: FieldType
    dim: int
    first: int
    layers: int
    pieces: int  # separate stretches of memory
    values: int  # in one layer of a piece

    @property
    def nbytes(self) -> int:
        """Bytes of all its layers."""
        return self.pieces * self.layers * self.values * self.type.dtype.itemsize

    def arguments(self, arrays: Sequence[Any]) -> tuple[Any, int, int]:
        """The arguments of the slab kernels: the array with the dim in the middle, the first layer, how many layers."""
        return self.type.slabs(arrays[self.field], self.dim), self.first, self.layers

    def part(self, arrays: Sequence[Any]) -> Any:
        """A view of its values that does not keep the array alive."""
        whole, first, layers = self.arguments(arrays)
        return whole[:, first : first + layers]

    def address(self, arrays: Sequence[Any]) -> int:
        """The address of its first piece."""
        return address(arrays[self.field]) + self.first * self.values * self.type.dtype.itemsize

    def step(self, arrays: Sequence[Any]) -> int:
        """Bytes from a piece to the next one."""
        return arrays[self.field].nbytes // max(1, self.pieces)


def slab_of(types: Sequence[FieldType], field: int, dim: int, box: Slices, rank: int) -> Slab:
    """The layers of a box of a field along a dim; the box has the full extent of all other dims."""
    pieces, values = types[field].layer_values(rank, dim)
    return Slab(field, types[field], dim, box[dim].start, box[dim].stop - box[dim].start, pieces, values)


def slab_starts(slabs: Sequence[Slab]) -> list[int]:
    """The aligned offset of each slab in a common buffer, and last the size of the buffer; bytes."""
    return [0, *accumulate(-(-slab.nbytes // ALIGNMENT) * ALIGNMENT for slab in slabs)]
