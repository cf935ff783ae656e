"""Fourier transforms of arrays that the ranks of a mesh share: lines by pocketfft, changes of layout by plans."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.kernels.device_array import as_host, contiguous, is_device_array, placed
from hpckit.plan.inputs.numbers import counts
from hpckit.plan.tensors.fourier import FourierPlan
from hpckit.plan.tensors.layout import Layout, Shard
from hpckit.tensors.changes import LayoutChange

__communicates__ = True  # its frames are not call sites
KINDS = {"float32": "complex64", "float64": "complex128", "complex64": "complex64", "complex128": "complex128"}


@functools.cache
def lines(module: str = "") -> Any:
    """The transforms of lines, SciPy's several at a time; of arrays of CuPy those of cuFFT. Imported when needed: SciPy
    takes 0.3 s of a rank's start.
    """
    if module == "cupy":
        return importlib.import_module("cupy.fft")
    return importlib.import_module("scipy.fft" if importlib.util.find_spec("scipy") else "numpy.fft")


def _along(name: str, array: Any, over: bool, **options: Any) -> Any:
    """A transform of lines, where the array is; over: the array is not needed any more, and SciPy may write over it,
    which halves the time of a grid beyond the caches.
    """
    module = lines(type(array).__module__)
    if over and module.__name__ == "scipy.fft":
        options["overwrite_x"] = True
    return placed(getattr(module, name)(as_host(array), **options), array)


@functools.cache
def _keep_freed_memory() -> None:
    """Have the C library keep memory that is freed, once: else each transform asks the system for its arrays anew, and
    the pages of a grid of 54^3 take longer than its lines. glibc does so after it has freed a block of this size.
    """
    np.empty(31 << 20, np.uint8)


class FFT:
    """The discrete Fourier transform of a grid on a mesh, as `numpy.fft.rfftn` (real values) or `fftn` of the whole.

    mesh: axis d cuts dim d of the grid, as it cuts a `Field`; or give a `layout` that says what each axis cuts. dtype:
    of the values: float64, float32 (halved along the last dim, as rfftn), complex128 or complex64. Results are where
    the arrays are: in host memory, with the same bits on any number of ranks, or on a GPU.

        fft = hp.FFT(mesh, shape)
        spectrum = fft.forward(field.interior)      # complex, this rank's part by fft.spectrum
        ky, kx = fft.frequencies((dy, dx))          # of this part, to broadcast against it
        field.interior[...] = fft.backward(spectrum)

    Several fields in one array, in a dim in front of the others, go through it together, in as many messages as one.
    `layout` and `spectrum` are the layouts before and after, `plan` is the plan of the messages. With a layout that
    copies along all axes each rank transforms the whole by itself. Raises `InputError` for what does not fit.
    """

    def __init__(
        self, mesh: Mesh, shape: Sequence[int], dtype: npt.DTypeLike = np.float64, layout: Layout | None = None
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise InputError(f"a Fourier transform runs on a mesh, not on {mesh!r}", do="give the Mesh first")
        size, self.dtype = counts(shape, "the shape of a grid"), np.dtype(dtype)
        if self.dtype.name not in KINDS:
            raise InputError(f"a Fourier transform of {self.dtype}", do=f"give {', '.join(KINDS)}")
        names = mesh.topology.names
        if layout is None:
            if len(names) != len(size):
                raise InputError(
                    f"the mesh has the axes {', '.join(names)}, the grid {len(size)} dims",
                    do="give a layout that says which dim each axis cuts, or a mesh with an axis for each dim",
                )
            layout = Layout(size, mesh.topology, {name: Shard(dim) for dim, name in enumerate(names)})
        elif layout.shape != size:
            raise InputError(f"the layout is of {layout.shape}, the grid of {size}", do="give both one shape")
        _keep_freed_memory()
        self.mesh, self.real = mesh, self.dtype.kind == "f"
        self.complex = np.dtype(KINDS[self.dtype.name])
        self.plan = FourierPlan(layout, self.real, float(self.complex.itemsize))
        self.layout, self.spectrum, self._dims = layout, self.plan.target, len(size)
        self._changes = functools.cache(self._made)

    def _made(self, fields: int, back: bool) -> list[LayoutChange | None]:
        """Collective: the change of layout of each stage; see `FourierPlan.each_change`."""
        found: list[LayoutChange | None] = []
        for plan in self.plan.each_change(fields, back):
            if plan is None:
                found.append(None)
                continue
            # Real values are changed before they are transformed first, and after they are back.
            real = self.real and plan.hops[0].itemsize < self.complex.itemsize
            found.append(LayoutChange(self.mesh, plan, self.dtype if real else self.complex))
        return found

    def forward(self, values: Any) -> Any:
        """Collective: the spectrum of values of this rank's part; a new array."""
        found, fields = self._checked(values, self.layout, self.dtype, "values")
        given = found
        for stage, change in zip(self.plan.stages, self._changes(fields, False), strict=True):
            if change is not None:
                found = change(found)
            for dim in stage.dims:
                name = "rfft" if self._halves(dim) else "fft"
                found = _along(name, found, found is not given, axis=dim - self._dims)
            found = contiguous(found, self.complex)
        return found

    def backward(self, spectrum: Any) -> Any:
        """Collective: the values whose spectrum has this part; a new array. As `irfftn`, or `ifftn`."""
        found, fields = self._checked(spectrum, self.spectrum, self.complex, "spectrum")
        given = found
        for stage, change in zip(reversed(self.plan.stages), self._changes(fields, True), strict=True):
            for dim in reversed(stage.dims):
                name, size = ("irfft", self.layout.shape[dim]) if self._halves(dim) else ("ifft", None)
                found = _along(name, found, found is not given, n=size, axis=dim - self._dims)
            found = contiguous(found, self.dtype if found.dtype.kind == "f" else self.complex)
            if change is not None:
                found = change(found)
        return contiguous(found, self.dtype)

    def _halves(self, dim: int) -> bool:
        """Whether the spectrum holds half of a dim."""
        return self.real and dim == len(self.layout.shape) - 1

    def frequencies(self, spacing: float | Sequence[float] = 1.0) -> tuple[np.ndarray, ...]:
        """Frequencies (cycles per unit of `spacing`) of this rank's part along each dim, shaped to broadcast."""
        dims = len(self.layout.shape)
        steps = np.broadcast_to(np.asarray(spacing, float), (dims,))
        found = []
        for dim, (n, part) in enumerate(zip(self.layout.shape, self.spectrum.slices(self.mesh.rank), strict=True)):
            every = np.fft.rfftfreq if self._halves(dim) else np.fft.fftfreq
            found.append(every(n, steps[dim])[part].reshape([-1 if d == dim else 1 for d in range(dims)]))
        return tuple(found)

    def weights(self) -> Any:
        """How often each value of this rank's part stands in the whole spectrum: 2 where its conjugate is left out."""
        dims, n = len(self.layout.shape), self.layout.shape[-1]
        if not self.real:
            return np.ones((1,) * dims)
        twice = np.full(n // 2 + 1, 2.0)
        twice[0] = 1.0
        if n % 2 == 0:
            twice[-1] = 1.0
        return twice[self.spectrum.slices(self.mesh.rank)[-1]].reshape(
            [-1 if d == dims - 1 else 1 for d in range(dims)]
        )

    def _checked(self, values: Any, layout: Layout, dtype: np.dtype, what: str) -> tuple[Any, int]:
        """What was given, and how many fields it has in a dim in front, 0 without one."""
        given = values if is_device_array(values) else np.asarray(values)
        wanted, fields = layout.local_shape(self.mesh.rank), len(given) if given.ndim > self._dims else 0
        fits = given.shape[-self._dims :] == wanted and given.ndim == self._dims + (fields > 0)
        if not fits or (dtype.kind == "f" and given.dtype.kind == "c"):
            raise InputError(
                f"rank {self.mesh.rank} holds {wanted} {dtype} of the {what}, the array is {given.shape} {given.dtype}",
                do="give this rank's part: see fft.layout and fft.spectrum",
            )
        return contiguous(given, dtype), fields
