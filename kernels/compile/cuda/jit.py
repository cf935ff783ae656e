"""CUDA kernels: compiled by Numba-CUDA, launched on CuPy's current stream, or run by Numba's simulator.

A file `cuda.py` of an operation is written with two names of this module:

    from hpckit.kernels.compile.cuda.jit import cuda, kernel

    @kernel
    def scale(array, factor): …             # what one thread does, in terms of cuda.grid, cuda.threadIdx, …

    scale[blocks, threads](array, factor)   # CuPy arrays, C-contiguous; returns before the GPU has done it

- Functions compiled for the CPU (`jit.inlined`) are called from kernels as they are: Numba-CUDA compiles their source
  for the GPU. So the numerics are written once. Two rules: `math.sqrt` and not `numpy.sqrt`, and no arrays made inside.
- The simulator (NUMBA_ENABLE_CUDASIM=1) runs threads as Python. There the functions for the CPU are replaced by their
  Python source, and arrays are `SimulatedArray`s. Some hundred threads a second: tiny grids.
- `compile_only` compiles what would be launched for a GPU that is not there, and launches nothing.

Products and sums may become one rounding (nvcc's default, too), so that the GPU agrees with the CPU to rounding; a cell
has the same bits wherever it is computed by the same kernel. Division and square root are rounded correctly in both
precisions.

Importing this starts no GPU, but it takes a second: `dispatch.py` imports a `cuda.py` only for an array of a GPU.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np

if not hasattr(np, "row_stack"):  # gone in NumPy 2.5; numba-cuda 0.30 asks for it when it is imported
    setattr(np, "row_stack", np.vstack)  # noqa: B010

from numba import cuda

try:
    from numba.cuda.core import config as _cuda_config
except ImportError:  # Numba's own CUDA target
    from numba import config as _cuda_config

from hpckit.kernels.compile.cuda.launch import Launcher
from hpckit.kernels.compile.cuda.simulated_stream import current_stream
from hpckit.kernels.device_array import SimulatedArray, as_host

__all__ = ["Kernel", "blocks", "compile_only", "compiling", "cuda", "kernel", "kernels", "simulating", "threads"]

MOST_VIEWS = 1024
_cuda_config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a rim is small
Dispatcher = numba.core.dispatcher.Dispatcher


def simulating() -> bool:
    """Whether kernels run in Numba's simulator."""
    return bool(numba.config.ENABLE_CUDASIM)


def compiling() -> bool:
    """Whether kernels are only compiled, so their results are meaningless."""
    return _compiled is not None


def threads(count: int) -> int:
    """`count` threads of a block; a few in the simulator, which runs those beyond the end of an array as slowly."""
    return min(count, 8) if simulating() else count


def blocks(size: int, threads: int) -> int:
    """How many blocks of `threads` cover `size` items."""
    return -(-size // threads)


class Kernel:
    """A CUDA kernel; see the module. `kernel[blocks, threads]` and `kernel[blocks, threads, shared_bytes]` launch it.

    blocks, threads: a number or up to three (x, y, z).
    """

    def __init__(self, function: Callable, options: dict[str, Any]) -> None:
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)
        self.function = function
        self._options = options
        _all.add(self)

    def __getitem__(self, shape: tuple) -> Callable[..., None]:
        """The launch of that shape."""
        return functools.partial(self._launch, shape)

    def _launch(self, shape: tuple, *arguments: Any) -> None:
        if _compiled is not None:
            _compile(self, arguments)
            return
        grid, block, *shared = shape
        if 0 in (grid if isinstance(grid, tuple) else (grid,)):  # nothing to do, and the driver refuses it
            return
        if simulating():
            values = [_simulated(argument) for argument in arguments]
            current_stream().give(lambda: self._dispatcher[grid, block, 0, *shared](*values))
            return
        self._launcher(shape, _current_stream(), arguments)

    @functools.cached_property
    def _launcher(self) -> Launcher:
        def by_numba(shape: tuple, stream: int, arguments: tuple) -> tuple[Any, list[Any]]:
            grid, block, *shared = shape
            values, dispatcher = [_view(argument) for argument in arguments], self._dispatcher
            dispatcher[grid, block, _stream(stream), *shared](*values)
            return dispatcher.overloads.get(tuple(dispatcher.typeof_pyval(value) for value in values)), values

        return Launcher(by_numba)

    @property
    def direct(self) -> int:
        """For how many combinations of types the driver launches this kernel, and not Numba."""
        return self._launcher.count

    @functools.cached_property
    def _dispatcher(self) -> Any:
        if not simulating():
            return cuda.jit(self.function, **self._options)
        _share_once()
        return cuda.jit(_Plain().function(self.function), **self._options)


def kernel(function: Callable | None = None, **options: Any) -> Any:
    """A CUDA kernel, as decorator with or without options (those of `numba.cuda.jit`, as `max_registers`)."""
    if function is None:
        return functools.partial(kernel, **options)
    return Kernel(function, options)


_all: weakref.WeakSet[Kernel] = weakref.WeakSet()


def kernels() -> list[Kernel]:
    """All kernels made so far."""
    return sorted(_all, key=lambda each: (each.function.__module__, each.function.__qualname__))


# An array object of Numba for each piece of memory that was given to a kernel. It owns nothing, so one that outlives
# its array is harmless. Without it each launch would read CuPy's interface, which makes Numba wait for the stream.
_views: dict[tuple, Any] = {}


def _view(argument: Any) -> Any:
    """A kernel argument as Numba takes it: device arrays without their stream."""
    if type(argument).__module__ != "cupy":
        return argument
    if not argument.flags.c_contiguous:
        raise TypeError("a kernel takes C-contiguous arrays")
    key = (argument.data.ptr, argument.shape, argument.dtype.str, argument.data.device_id)
    view = _views.get(key)
    if view is None:
        if len(_views) >= MOST_VIEWS:
            _views.clear()
        interface = {"shape": key[1], "typestr": key[2], "data": (key[0], False), "version": 2, "strides": None}
        view = _views[key] = cuda.from_cuda_array_interface(interface, sync=False)
    return view


_streams: dict[int, Any] = {0: 0}


def _current_stream() -> int:
    """The address of CuPy's current stream."""
    from cupy.cuda import get_current_stream

    return get_current_stream().ptr


def _stream(pointer: int) -> Any:
    """Numba's object for a stream."""
    if pointer not in _streams:
        _streams[pointer] = cuda.external_stream(pointer)
    return _streams[pointer]


def _simulated(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray) or argument.ndim == 0:
        return argument
    if not isinstance(argument, SimulatedArray):
        raise TypeError("a kernel takes arrays of the device, not of NumPy")
    if not argument.flags.c_contiguous:
        raise TypeError("a kernel takes C-contiguous arrays")
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    return FakeCUDAArray(as_host(argument))


class _SharedArrays(dict):
    """The shared arrays of a simulated block: a thread that finds none makes it while others wait."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def get(self, key: Any, default: Any = None) -> Any:
        """The array, or None: then its maker sets it."""
        if key not in self:
            self._lock.acquire()
            if key not in self:
                return None
            self._lock.release()
        return self[key]

    def __setitem__(self, key: Any, array: Any) -> None:
        """Set it, and let others have it."""
        super().__setitem__(key, array)
        self._lock.release()


@functools.cache
def _share_once() -> None:
    """Numba's simulator looks for a shared array and then makes it: two threads at once made one each."""
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    begin = FakeCUDAShared.__init__

    def with_lock(it: Any, size: int) -> None:
        begin(it, size)
        it._allocations = _SharedArrays()

    FakeCUDAShared.__init__ = with_lock


class _Plain:
    """Functions with everything they call that is compiled for the CPU replaced by its Python source, recursively."""

    _globals: dict[int, dict] = {}  # noqa: RUF012 - one copy of each module's names, shared by all functions of it
    _made: dict[Any, Any] = {}  # noqa: RUF012

    def function(self, function: types.FunctionType | Callable) -> Any:
        """The twin of a function."""
        assert isinstance(function, types.FunctionType)
        if function in self._made:
            return self._made[function]
        names = self._globals.get(id(function.__globals__))
        if names is None:
            names = self._globals[id(function.__globals__)] = dict(function.__globals__)
            for name, value in names.items():
                names[name] = self._value(value)
        cells = tuple(types.CellType(self._value(cell.cell_contents)) for cell in function.__closure__ or ())
        twin = types.FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells if function.__closure__ else None
        )
        self._made[function] = twin
        return twin

    def _value(self, value: Any) -> Any:
        if isinstance(value, Dispatcher):
            return self._later(value.py_func)
        if isinstance(value, tuple) and any(isinstance(each, Dispatcher) for each in value):
            return tuple(self._value(each) for each in value)
        return value

    def _later(self, function: types.FunctionType) -> Callable:
        """The twin, made when it is first called: modules may import each other's functions."""

        def call(*arguments: Any) -> Any:
            return self.function(function)(*arguments)

        return call


class _Compiled(dict):
    """What `compile_only` has compiled, and for which compute capability."""

    def __init__(self, capability: tuple[int, int]) -> None:
        super().__init__()
        self.capability = capability


_compiled: _Compiled | None = None


@contextmanager
def compile_only(capability: tuple[int, int] = (9, 0)) -> Iterator[dict[tuple, str]]:
    """Within it kernels are compiled for the given compute capability and not launched.

    Yields a dict that fills: (kernel, argument types) -> PTX. Needs numba-cuda and NVVM, and no GPU; arrays are
    `SimulatedArray`s.
    """
    global _compiled
    if simulating():
        raise RuntimeError("the simulator compiles nothing")
    from numba.cuda import dispatcher

    _compiled = _Compiled(capability)
    asked = dispatcher.get_current_device  # by the functions that kernels call
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=capability)
    try:
        yield _compiled
    finally:
        _compiled = None
        dispatcher.get_current_device = asked


def _compile(kernel: Kernel, arguments: tuple) -> None:
    assert _compiled is not None
    signature = tuple(numba.typeof(as_host(argument)) for argument in arguments)
    key = (kernel, signature)
    if key not in _compiled:
        options = {name: value for name, value in kernel._options.items() if name in ("fastmath", "launch_bounds")}
        text, _ = cuda.compile(
            kernel.function, signature, cc=_compiled.capability, device=False, abi="numba", **options
        )
        _compiled[key] = text
