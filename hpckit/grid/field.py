"""A rank's part of a grid field."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpckit.collectives.whole import gather_blocks, scatter_blocks
from hpckit.comm.agree import share_json
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError, SetupError
from hpckit.grid import sums
from hpckit.kernels.device_array import is_device_array
from hpckit.plan.grid.decomposition import Decomposition, Slices
from hpckit.plan.inputs.numbers import checked_root

__communicates__ = True  # its frames are not call sites


class Field:
    """Values of one quantity on the cells (or faces) of a decomposition that a rank owns, and on their halo.

    `data` is the local array, `components` + local_shape, C-contiguous; `interior` is the view of its owned part.
    Vectors and other stacks of fields have leading dims, `components`; all of them travel in one message. On a GPU
    (`device`) `data` is a CuPy array; only `to_host` and `set_from_host` copy between host and GPU.
    """

    def __init__(
        self,
        mesh: Mesh,
        decomposition: Decomposition,
        data: Any,
        name: str = "",
        units: str = "1",
        device: Device = HOST,
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise InputError(
                f"a field lives on a mesh, and {mesh!r} is not a mesh", do="give the Mesh, not its topology"
            )
        if not isinstance(data, np.ndarray) and not is_device_array(data):
            raise InputError(f"the data of a field is an array, not a {type(data).__name__}", do="use Field.zeros")
        local = decomposition.local_shape(mesh.rank)
        if mesh.topology != decomposition.topology:
            raise InputError(f"the decomposition is for {decomposition.topology}, the mesh has {mesh.topology}")
        if data.ndim < len(local) or data.shape[data.ndim - len(local) :] != local:
            raise InputError(
                f"rank {mesh.rank} holds {local} cells with halo, the array is {data.shape}",
                do="make the field with Field.zeros, or the array with decomposition.local_shape(rank)",
            )
        if is_device_array(data) != device.is_gpu:
            place = "on a GPU" if is_device_array(data) else "in host memory"
            raise InputError(f"the array is {place}, the device of the field is {device.name}", do="give its device=")
        self.data: Any = data
        self.device = device
        self.decomposition = decomposition
        self.mesh = mesh
        self.name = name
        self.units = units

    @classmethod
    def zeros(
        cls,
        mesh: Mesh,
        decomposition: Decomposition,
        dtype: npt.DTypeLike = np.float64,
        *,
        name: str = "",
        units: str = "1",
        components: int | Sequence[int] = (),
        device: Device = HOST,
    ) -> Self:
        """A field of zeros, 64-byte aligned, in host memory or on `device`.

        components: the shape of a cell's values, such as 3 or (2, 3); these are the first dims of the array. Raises
        `InputError` if they are not counts, or if `dtype` is not a dtype of plain values.
        """
        if not isinstance(mesh, Mesh):
            raise InputError(
                f"a field lives on a mesh, and {mesh!r} is not a mesh", do="give the Mesh, not its topology"
            )
        if not isinstance(decomposition, Decomposition):
            raise InputError(
                f"the cells of a field are a decomposition, and {decomposition!r} is not one",
                do="give hp.Decomposition(shape, mesh.topology, halo=1)",
            )
        shape = (*_counts(components), *decomposition.local_shape(mesh.rank))
        return cls(mesh, decomposition, device.zeros(shape, _dtype(dtype)), name, units, device)

    @classmethod
    def from_global(
        cls,
        mesh: Mesh,
        decomposition: Decomposition,
        values: np.ndarray | None,
        root: int = 0,
        *,
        name: str = "",
        units: str = "1",
        device: Device = HOST,
    ) -> Self:
        """Scatter a global NumPy array, components + global_shape, from `root`; the other ranks pass None.

        Collective; the halo stays 0. Raises `InputError` on every rank when the array does not fit.
        """
        whole = decomposition.global_shape
        root = checked_root(root, mesh.size)
        facts = {}
        if mesh.rank == root:
            values = None if values is None else np.asarray(values)
            facts = _facts_of(values, whole)
        facts = share_json(mesh.comm, facts, root)
        if "problem" in facts:
            raise InputError(f"the global array on rank {root} {facts['problem']}")
        shape = tuple(facts["shape"])
        components = shape[: len(shape) - len(whole)]
        field = cls.zeros(
            mesh, decomposition, facts["dtype"], name=name, units=units, components=components, device=device
        )
        own = np.empty(field.interior.shape, field.data.dtype)
        scatter_blocks(values if mesh.rank == root else None, own, decomposition, mesh, root)
        field.set_from_host(own)
        return field

    def like(self, name: str = "", units: str = "") -> Self:
        """A field of zeros with the same cells, dtype and components."""
        return type(self).zeros(
            self.mesh,
            self.decomposition,
            self.data.dtype,
            name=name or self.name,
            units=units or self.units,
            components=self.components,
            device=self.device,
        )

    @property
    def components(self) -> tuple[int, ...]:
        """The leading dims: () for a scalar field."""
        return self.data.shape[: self.data.ndim - self.decomposition.ndim]

    @property
    def interior(self) -> Any:
        """A view of the owned cells."""
        return self.data[_all_components(self.decomposition.interior)]

    def to_host(self) -> np.ndarray:
        """The owned cells as a NumPy array: the view `interior` for a field in host memory, else a copy."""
        return self.device.to_host(self.interior)

    def set_from_host(self, values: npt.ArrayLike) -> None:
        """Set the owned cells, on any device, to NumPy values (or numbers) that broadcast to them.

        Raises `InputError` if they do not broadcast.
        """
        given, shape = np.asarray(values, self.data.dtype), self.interior.shape
        try:
            owned = np.broadcast_to(given, shape)
        except ValueError:
            raise InputError(
                f"the values are {given.shape}, the owned cells of the field {shape}",
                do="give this rank's part: see decomposition.start(rank) and decomposition.owned(rank)",
            ) from None
        self.interior[...] = self.device.to_device(owned) if self.device.is_gpu else owned

    @property
    def core(self) -> Slices:
        """The owned cells that a stencil updates without any halo value, as slices of `data`'s dims."""
        return self.decomposition.core(self.mesh.rank)

    @property
    def rim(self) -> tuple[Slices, ...]:
        """The other owned cells, as disjoint boxes."""
        return self.decomposition.rim(self.mesh.rank)

    def coords(
        self, spacing: float | Sequence[float], origin: float | Sequence[float] = 0.0, halo: bool = False
    ) -> tuple[np.ndarray, ...]:
        """The coordinates of this rank's points, one array per dim, shaped to broadcast against `interior` (or `data`).

        Cell i has its center at origin + (i + 1/2) spacing, its low face at origin + i spacing. The bits do not depend
        on the decomposition. With `halo` the points beyond the ends are included (not wrapped).
        """
        dec = self.decomposition
        steps, origins = _lengths(spacing, "spacing", dec.ndim), _lengths(origin, "origin", dec.ndim)
        offsets = [0.5 if location == "center" else 0.0 for location in dec.location]
        every = zip(self.indices(halo), offsets, steps, origins, strict=True)
        return tuple(origin + (index + offset) * step for index, offset, step, origin in every)

    def indices(self, halo: bool = False) -> tuple[np.ndarray, ...]:
        """The global indices of this rank's points, int64, one array per dim, shaped to broadcast as `coords` are.

        As `np.ogrid` of the global shape, cut to this rank's part; with `halo` those beyond the ends are -1, -2, … and
        n, n + 1, … .
        """
        dec = self.decomposition
        places = []
        for d, (start, n) in enumerate(zip(dec.start(self.mesh.rank), dec.owned(self.mesh.rank), strict=True)):
            width = dec.halo[d] if halo else 0
            shape = [1] * dec.ndim
            shape[d] = -1
            places.append(np.arange(start - width, start + n + width).reshape(shape))
        return tuple(places)

    def gather(self, root: int = 0) -> np.ndarray | None:
        """The global array, components + global_shape, on `root`; None on the other ranks. Collective."""
        return gather_blocks(self.to_host(), self.decomposition, self.mesh, checked_root(root, self.mesh.size))

    def sum(self, repro: bool = False) -> float | complex:
        """The sum over all owned points of all ranks, and all components. Collective.

        With `repro` the result has the same bits for any number of ranks: values are added as binned integers
        (`hpckit.kernels.sums`), correct to far below the rounding of a plain sum. Integers are added exactly, modulo
        2**64. Raises `InputError` for fields that do not hold numbers.
        """
        return sums.total(self.interior, self.mesh.comm, self._cells, repro)

    def mean(self, repro: bool = False) -> float | complex:
        """The sum divided by the number of points and components; `repro` and errors as for `sum`. Collective."""
        return self.sum(repro) / (math.prod(self.components) * math.prod(self.decomposition.global_shape))

    def dot(self, other: Field, repro: bool = False) -> float | complex:
        """The sum of the products with another field, conj(self) * other; `repro` as for `sum`. Collective.

        Halos may differ. Raises `InputError` if cells or components of the two differ.
        """
        mine, theirs = self.decomposition, other.decomposition
        same = (mine.shape, mine.topology, mine.location) == (theirs.shape, theirs.topology, theirs.location)
        if self.interior.shape != other.interior.shape or not same:
            raise InputError(f"{self} and {other} have no product", do="give fields of the same cells and components")
        return sums.dot(self.interior, other.interior, self.mesh.comm, self._cells, repro)

    def norm(self, order: float = 2, repro: bool = False) -> float:
        """A norm of all owned values: the sum of magnitudes (order 1), Euclidean (2) or the largest (inf). Collective.

        `repro` and errors as for `sum`.
        """
        return sums.norm(self.interior, self.mesh.comm, self._cells, order, repro)

    def max(self) -> float:
        """The largest value of all ranks, nan if any value is nan; an int for integers. Collective."""
        return sums.extreme(self.interior, self.mesh.comm, lowest=False)

    def min(self) -> float:
        """The smallest value of all ranks, nan if any value is nan; an int for integers. Collective."""
        return sums.extreme(self.interior, self.mesh.comm, lowest=True)

    def argmax(self) -> tuple[int, ...]:
        """The index of the largest value in the global array, leading components first. Collective.

        The first one in NumPy's order if there are several; the first nan if there is one. It does not depend on the
        number of ranks.
        """
        return self._place_of_extreme(lowest=False)

    def argmin(self) -> tuple[int, ...]:
        """The index of the smallest value in the global array, chosen like `argmax`. Collective."""
        return self._place_of_extreme(lowest=True)

    @property
    def _cells(self) -> tuple[int, int]:
        """The number of cells of this rank, and of all ranks."""
        dec = self.decomposition
        return math.prod(dec.owned(self.mesh.rank)), math.prod(dec.global_shape)

    def _place_of_extreme(self, lowest: bool) -> tuple[int, ...]:
        start = (0,) * len(self.components) + self.decomposition.start(self.mesh.rank)
        shape = (*self.components, *self.decomposition.global_shape)
        return sums.place_of_extreme(self.interior, self.mesh.comm, start, shape, lowest)

    def to_xarray(
        self, spacing: float | Sequence[float] = 1.0, origin: float | Sequence[float] = 0.0, root: int = 0
    ) -> Any:
        """The global field on `root` as an xarray.DataArray with coordinates, None elsewhere. Collective.

        Dims are named as the axes; leading dims are component_0, component_1, … Needs the extra `analysis`.
        """
        whole = self.gather(root)
        if whole is None:
            return None
        try:
            import xarray
        except ImportError:
            raise SetupError("to_xarray needs xarray", do="pip install 'hpckit[analysis]'") from None
        dec, names = self.decomposition, self.mesh.topology.names
        steps, origins = _lengths(spacing, "spacing", dec.ndim), _lengths(origin, "origin", dec.ndim)
        places = {
            name: origins[d] + (np.arange(dec.global_shape[d]) + 0.5 * (dec.location[d] == "center")) * steps[d]
            for d, name in enumerate(names)
        }
        leading = [f"component_{i}" for i in range(len(self.components))]
        return xarray.DataArray(
            whole, places, dims=(*leading, *names), name=self.name or None, attrs={"units": self.units}
        )

    def __repr__(self) -> str:
        dec = self.decomposition
        shape = (*self.components, *dec.global_shape)
        return f"Field({self.name or 'unnamed'}, {self.data.dtype}{list(shape)}, halo {dec.halo})"


def _facts_of(values: np.ndarray | None, whole: tuple[int, ...]) -> dict[str, Any]:
    """Shape and dtype of a global array to scatter, or the problem with it."""
    if values is None or values.shape[max(0, values.ndim - len(whole)) :] != whole:
        given = "is missing" if values is None else f"is {values.shape}"
        return {"problem": f"{given}, the grid has {whole} points"}
    if values.dtype.kind not in "biufc":
        return {"problem": f"holds {values.dtype}; only numbers and booleans can be scattered"}
    return {"shape": values.shape, "dtype": values.dtype.str}


def _counts(components: Any) -> tuple[int, ...]:
    """3 or (2, 3) as counts of components."""
    try:
        counts = tuple(map(operator.index, components if np.iterable(components) else (components,)))
    except TypeError:
        counts = (-1,)
    if min(counts, default=0) < 0:
        raise InputError(f"components = {components!r} are not counts", do="3 for a vector, (2, 3) for a matrix a cell")
    return counts


def _dtype(given: Any) -> np.dtype:
    """A dtype whose values can move between ranks as bytes."""
    try:
        dtype = np.dtype(given)
    except TypeError:
        raise InputError(f"{given!r} is not a dtype", do="give one of NumPy's, as np.float32 or 'f8'") from None
    if dtype.hasobject:
        raise InputError("fields hold numbers; Python objects cannot move between ranks", do="give a dtype")
    return dtype


def _lengths(given: Any, what: str, dims: int) -> np.ndarray:
    """One number for all dims or one for each, as float64[dims]."""
    try:
        return np.broadcast_to(np.asarray(given, np.float64), dims)
    except (TypeError, ValueError):
        message = f"the {what} must be one number for all dims or one for each of {dims}, not {given!r}"
        raise InputError(message) from None


def _all_components(box: Slices) -> Any:
    """An index that selects a box of cells in every component."""
    return (..., *box)
