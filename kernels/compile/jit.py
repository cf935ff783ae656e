"""The one place with Numba's compile options: `jit` for kernels, `inlined` for the pieces they are made of.

Every kernel is compiled with error_model="numpy" (no test for a division by zero), without bounds checks, without the
interpreter's lock, and is kept on disk for the next process. Four things are chosen per kernel:

- `math`, what the compiler may do to the arithmetic. `STRICT` keeps the bits of NumPy, on every processor. `FUSED`,
  the default, lets a product and a sum become one rounding. `FINITE` also assumes that no operand is inf or nan. None
  of them lets sums be reordered: a cell's bits then depend on its operands, not on where a loop starts or on how many
  ranks share the grid. `REORDERED` does, for sums along a row that no rank shares: they vectorize, and their bits
  depend on the row's length.
- `noalias`, the promise that no two arguments overlap in memory. It is what lets LLVM vectorize a kernel with many
  arrays, and it makes some with few arrays slower: measure. Numba has the flag but no option for it, so it is set
  through a private hook; where that is gone (`has_noalias()` is False) the kernel is compiled without it, with the same
  results.
- `borrowed`, for a kernel that allocates nothing and calls others: its arrays are not reference-counted. Counting is
  an atomic operation for each array and each call, as much as a row of arithmetic. Whoever calls it keeps the arrays.
- `key`, for a function made at run time with constants in its closure: a name of all that is special about it. Without
  a key a closure is compiled in every process (Numba's own key holds a random part where compiled functions are in the
  closure).

Numba's cache has two traps that are mended here, by private hooks too: a function kept on disk is used although a
function that it calls from another file has changed (here the key covers the sources of all kernels), and two
processes that compile different variants at the same moment can exchange them (here each variant has a file name of
its own). And of the processes of a machine that need a kernel at once, one compiles it (`compile_lock`). Without the
hooks the cache is Numba's own.
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.compiler import Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.options import DefaultOptions

from hpckit.kernels.compile import linked, shortcuts
from hpckit.kernels.compile.compile_lock import CompileLock

# An interpreter that ends looks for garbage among all that Numba has made, several times: 0.1 s of each rank.
atexit.register(gc.freeze)

STRICT: frozenset[str] = frozenset()
FUSED = frozenset({"contract", "nsz"})
FINITE = FUSED | {"nnan", "ninf"}
REORDERED = FUSED | {"reassoc"}


def jit(
    function: Callable | None = None,
    *,
    noalias: bool = False,
    borrowed: bool = False,
    math: frozenset[str] = FUSED,
    key: tuple | None = None,
    by_address: bool = False,
) -> Any:
    """A compiled kernel, as decorator with or without options.

    noalias: no two arguments overlap. borrowed: it allocates no memory. math: STRICT, FUSED, FINITE or REORDERED. key:
    what is special about a closure, as a tuple of numbers, strings and tuples; equal keys of one function body must
    mean equal constants. by_address: it is called as a C function, too (`addresses.address_of`).
    """
    if function is None:
        return functools.partial(jit, noalias=noalias, borrowed=borrowed, math=math, key=key, by_address=by_address)
    if key is not None:
        # Numba tells symbols apart by the number of a function in its process, and one that is kept on disk may meet
        # another of the same number: kernels of one body and of the same arguments then ran each other's code.
        function.__qualname__ += f"_{_fingerprint(repr(key))}"
    uncounted = {"_nrt": False} if borrowed and hasattr(DefaultOptions, "_nrt") else {}
    no_entry = {} if by_address or not hasattr(DefaultOptions, "no_cfunc_wrapper") else {"no_cfunc_wrapper": True}
    options: dict[str, Any] = {**uncounted, **no_entry}
    kernel: Any = numba.njit(
        function, fastmath=set(math) or False, error_model="numpy", boundscheck=False, nogil=True, **options
    )
    if noalias and has_noalias():
        kernel._compiler._customize_flags = _set_noalias
    if function.__closure__ is None or (key is not None and _has_cache_hooks()):
        _keep_on_disk(kernel, key, (noalias and has_noalias(), bool(uncounted), bool(no_entry), tuple(sorted(math))))
    return kernel


def inlined(function: Callable | None = None, *, math: frozenset[str] = FUSED) -> Any:
    """A function that becomes part of the kernel that calls it: no call is left, and its constants fold.

    Its `math` should be its caller's: LLVM keeps the flags instruction by instruction.
    """
    if function is None:
        return functools.partial(inlined, math=math)
    shortcuts.untyped[function] = None
    return numba.njit(
        function, inline="always", fastmath=set(math) or False, error_model="numpy", boundscheck=False, nogil=True
    )


@functools.cache
def has_noalias() -> bool:
    """Whether this Numba takes the noalias flag of one function (a private hook, so a release may lose it)."""
    return "noalias" in getattr(Flags, "options", {}) and hasattr(
        getattr(numba.njit(_nothing), "_compiler", None), "_customize_flags"
    )


def is_noalias(kernel: Any) -> bool:
    """Whether a kernel made by `jit` is compiled under the promise of `noalias`."""
    return getattr(kernel, "_compiler", None) is not None and kernel._compiler._customize_flags is _set_noalias


def _nothing() -> None:
    pass


def _set_noalias(flags: Any) -> Any:
    flags.noalias = True
    return flags


@functools.cache
def _has_cache_hooks() -> bool:
    from numba.core import caching

    index_file = getattr(caching, "IndexDataCacheFile", None)
    return hasattr(caching.FunctionCache, "_index_key") and all(
        hasattr(index_file, name) for name in ("save", "_load_index", "_save_index", "_save_data")
    )


def _keep_on_disk(kernel: Any, key: tuple | None, options: tuple) -> None:
    """Turn the disk cache on, with a key that covers the options and all sources (see `_sources`)."""
    try:
        kernel.enable_caching()
    except RuntimeError:  # no folder to write to, as in a read-only installation without a home
        return
    if not _has_cache_hooks():
        return
    function = kernel.py_func
    ours = (function.__module__ or "").startswith("hpckit.")
    home = Path(function.__code__.co_filename).parent if ours else None
    cache = kernel._cache
    numbas_key, numbas_index = cache._index_key, cache._cache_file._load_index

    def load_index() -> dict[tuple, str]:
        try:
            return numbas_index()
        except Exception:  # of an earlier version, with classes that have other names today: whatever pickle raises
            return {}

    def index_key(signature: Any, codegen: Any) -> tuple:
        own = (key,) if key is not None else numbas_key(signature, codegen)[2:]
        code = hashlib.sha256(kernel.py_func.__code__.co_code).hexdigest()
        return (signature, codegen.magic_tuple(), code, own, options, _sources(home))

    def save(index_key: tuple, data: Any) -> None:
        file = cache._cache_file
        name = f"{Path(file._index_name).stem}.{_fingerprint(repr(index_key), repr(file._source_stamp))}.nbc"
        file._save_data(name, data)  # before the index that names it
        file._save_index({**file._load_index(), index_key: name})

    cache._index_key = index_key
    cache._cache_file.save, cache._cache_file._load_index = save, load_index
    _compile_once(kernel, CompileLock(Path(cache.cache_path, f"{cache._cache_file._index_name}.lock")))


def _compile_once(kernel: Any, lock: CompileLock) -> None:
    """What is not on disk is compiled under the lock, after a second look: another process may have just kept it."""
    load, compile_kernel, add = kernel._cache.load_overload, kernel.compile, kernel.add_overload
    replaced: list[Any] = []  # what other kernels' machine code knows of them stays

    def load_overload(signature: Any, context: Any) -> Any:
        found = load(signature, context)
        return load(signature, context) if found is None and lock.take() else found

    def compile_or_load(signature: Any) -> Any:
        if linked.is_called():
            return linked.compile_called(kernel, signature)
        arguments, _ = numba.core.sigutils.normalize_signature(signature)
        shortcuts.take()
        linked.take()
        collecting = gc.isenabled()
        gc.disable()  # a compiler's objects are many and live to its end: an eighth of its time went to looking at them
        linked.depth.kernels += 1
        try:
            with global_compiler_lock:
                try:
                    if isinstance(getattr(kernel.overloads.get(arguments), "entry_point", None), linked.Called):
                        replaced.append(kernel.overloads.pop(arguments))
                    return compile_kernel(signature)
                finally:
                    lock.release()  # before another thread may take it
        finally:
            linked.depth.kernels -= 1
            if collecting:
                gc.enable()

    def add_overload(made: Any) -> None:
        if made.metadata is not None:  # it does not come from a file
            linked.give_environments(made)
        add(made)

    kernel._cache.load_overload = load_overload
    kernel.load_without_lock = load
    kernel.compile = compile_or_load
    kernel.add_overload = add_overload


@functools.cache
def _sources(home: Path | None) -> str:
    """A fingerprint of all that a cached function may have compiled into it: the sources of all kernels, and those of
    the folder of a function of hpckit that stands elsewhere. The kernels are read once, whichever folder asks.
    """
    kernels = Path(__file__).parents[1]
    if home is not None and home.is_relative_to(kernels):
        return _sources(None)
    files = kernels.rglob("*.py") if home is None else home.glob("*.py")
    texts = [f"{file.name}\n{file.read_text(encoding='utf-8')}" for file in sorted(files)]
    return _fingerprint(*texts) if home is None else _fingerprint(_sources(None), *texts)


def _fingerprint(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]
