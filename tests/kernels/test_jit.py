"""The compile options arrive, and a kernel on disk is used by the next process, by its own variant only."""

from __future__ import annotations

import importlib.util
import operator
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import ValueRef, newpassmanagers
from numba import types
from numba.core import analysis, codegen
from numba.core.compiler import run_frontend
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from hpckit.kernels.compile import jit as options
from hpckit.kernels.compile import shortcuts
from hpckit.kernels.compile.jit import FINITE, STRICT, has_noalias, inlined, is_noalias, jit
from hpckit.kernels.compile.vectors import Vec

PROGRAM = """
import gc
import importlib.util
import sys
from pathlib import Path
import numpy as np
from hpckit.kernels.compile import jit as options
from hpckit.kernels.compile.jit import inlined, jit

if len(sys.argv) > 1:
    options._sources = lambda home: sys.argv[1]

def twice(weight, noalias):
    @inlined
    def piece(x):
        return weight * x
    @jit(key=(weight,), noalias=noalias)
    def kernel(a):
        for i in range(a.size):
            a[i] = piece(a[i])
    return kernel

@jit
def plain(a):
    for i in range(a.size):
        a[i] += 1.0

twos = (twice(2.0, True), 2.0), (twice(3.0, True), 3.0), (twice(3.0, False), 3.0)
for kernel, expected in (*twos, (plain, 2.0)):
    a = np.ones(7)
    kernel(a)
    assert (a == expected).all(), (a, expected)
    print(sum(kernel.stats.cache_hits.values()), end=" ")

@jit
def product(a, b):
    return np.dot(a, b)

assert gc.isenabled(), "a compile pauses the garbage collector, and no longer"
assert "scipy.linalg" not in sys.modules, "0.3 s of each rank's start"
if importlib.util.find_spec("scipy"):
    assert product(np.ones(3), np.arange(3.0)) == 3.0
"""


def branches(n, other):
    total = kept = 0
    for i in range(n):
        if i % 3 == other:
            kept = i
        while kept > 2:
            kept -= total
            if kept == 7:
                break
        total += kept
    return total if total > other else kept


@inlined
def larger(x, y):
    both = x * y
    if both > 5.0:
        both -= x
    return both


@inlined
def twice_larger(x, y):
    both = larger(x, y) + y
    return larger(both, x)


def scale(a, b, c):
    for i in range(np.uint64(a.size)):
        c[i] += a[i] * b[i]


def llvm_head(kernel) -> str:
    """The line of the LLVM function with its arguments, of a kernel compiled in this process."""
    text = next(iter(kernel.inspect_llvm().values()))
    return next(line for line in text.splitlines() if line.startswith("define"))


@pytest.fixture
def uncached(monkeypatch):
    """Kernels made in the test are compiled in it: one from disk has no LLVM text to look at."""
    monkeypatch.setattr(options, "_keep_on_disk", lambda *_: None)


def arrays() -> list[np.ndarray]:
    return [np.arange(1.0, 12.0), np.arange(11.0), np.ones(11)]


@pytest.mark.usefixtures("uncached")
def test_the_variables_of_inlined_calls_are_their_own():
    """Bytecode is translated once; calls in calls and calls side by side do not meet in a name."""
    shortcuts.take()

    def both(x, y):
        both = twice_larger(x, y)
        for _ in range(3):
            both = twice_larger(y, larger(x, both)) - both
        return both + larger(y, x)

    expected = both.__code__
    plain = {"larger": larger.py_func, "range": range}
    plain["twice_larger"] = type(both)(twice_larger.py_func.__code__, plain)
    in_python = type(both)(expected, plain)
    kernel = jit(math=STRICT)(both)
    for x, y in ((1.5, 0.5), (2.0, 3.0), (-1.0, 7.0)):
        assert kernel(x, y) == in_python(x, y)
    assert shortcuts.untyped[larger.py_func] is not None


@pytest.mark.usefixtures("uncached")
def test_noalias_reaches_llvm_for_its_own_kernel_only():
    if not has_noalias():
        pytest.skip("this Numba has no hook for noalias")
    promised, plain = jit(scale, noalias=True), jit(scale)
    promised(*arrays())
    plain(*arrays())
    assert is_noalias(promised)
    assert not is_noalias(plain)
    assert llvm_head(promised).count("noalias") > llvm_head(plain).count("noalias")


@pytest.mark.usefixtures("uncached")
def test_without_the_hook_the_results_are_the_same(monkeypatch):
    with_hook, expected = jit(scale, noalias=True, math=STRICT), arrays()
    with_hook(*expected)
    monkeypatch.setattr(options, "has_noalias", lambda: False)
    without, got = jit(scale, noalias=True, math=STRICT), arrays()
    without(*got)
    assert not is_noalias(without)
    np.testing.assert_array_equal(got[2], expected[2])
    np.testing.assert_array_equal(got[2], 1 + np.arange(1.0, 12.0) * np.arange(11.0))


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize(("math", "flag"), [(STRICT, None), (options.FUSED, "contract"), (FINITE, "nnan")])
def test_math_flags_reach_llvm(math, flag):
    kernel = jit(scale, math=math)
    kernel(*arrays())
    products = [line for line in next(iter(kernel.inspect_llvm().values())).splitlines() if " fmul " in line]
    assert products
    if flag is None:
        assert not any(word in line for line in products for word in ("contract", "nsz", "fast", "reassoc"))
    else:
        assert all(flag in line for line in products)
        assert not any("reassoc" in line or " fast " in line for line in products)


def test_division_by_zero_gives_inf_and_the_interpreter_is_released():
    @jit(math=STRICT)
    def divide(a, b):
        return a / b

    assert divide(1.0, 0.0) == np.inf
    assert divide.targetoptions["nogil"]


CALLED = """
import sys
import numpy as np
from hpckit.kernels.compile.jit import jit

@jit
def root(a, i):
    if a[i] < 0:
        raise ValueError("no root of a negative number")
    if a[i] == 1764:
        print(42)  # asks for the constants of this kernel
    return np.sqrt(a[i])

@jit
def roots(a):
    total = 0.0
    for i in range(a.size):
        total += root(a, i)
    return total

def told(kernel, *arguments):
    try:
        return kernel(*arguments)
    except ValueError as error:
        return error

squares, bad = np.array([1.0, 4.0, 9.0]), np.array([4.0, -1.0])
first = roots(squares), told(roots, bad)
own = root(squares, 2), told(root, bad, 1)  # compiled for `roots`, and now called from Python
again = roots(squares), told(roots, bad)
third = jit(lambda a: 2 * root(a, 1))(squares)
assert (first[0], own[0], again[0], third, roots(np.array([1764.0]))) == (6.0, 3.0, 6.0, 4.0, 42.0)
assert [str(each[1]) for each in (first, own, again)] == ["no root of a negative number"] * 3
print(sum(roots.stats.cache_hits.values()), sum(root.stats.cache_hits.values()))
"""


def test_only_the_kernel_itself_gets_machine_code(monkeypatch, tmp_path):
    """Numba's own functions for arrays are linked into it, with short errors; `by_address` adds an entry from C."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    finished, finish = [], codegen.JITCodeLibrary._finalize_specific
    monkeypatch.setattr(codegen.JITCodeLibrary, "_finalize_specific", lambda it: (finished.append(it.name), finish(it)))

    def body(a, n):
        more = np.zeros((n, 3))
        more[:, 1] = a
        return more.sum() + min(a[0], np.sqrt(a[1]))

    for by_address in (False, True):
        kernel = jit(body, math=STRICT, by_address=by_address)
        assert kernel(np.array([1.0, 4.0]), 2) == 6.0
        made = kernel.overloads[kernel.signatures[0]]
        assert ("@cfunc." in made.library.get_llvm_str()) is by_address
    with pytest.raises(ValueError, match="different size"):
        kernel(np.ones(2), 3)
    assert set(finished) <= {"nrt", "_call_allocator", body.__qualname__}  # the first two of Numba's runtime


def test_functions_without_a_body_are_not_optimized(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    bodies, run = [], newpassmanagers.NewPassManager.run

    def seen(self, what, made):
        if isinstance(what, ValueRef):
            bodies.append(not what.is_declaration)
        return run(self, what, made)

    monkeypatch.setattr(newpassmanagers.NewPassManager, "run", seen)
    assert jit(lambda x: np.sin(x))(0.0) == 0.0
    assert bodies
    assert all(bodies)


def test_a_kernel_that_others_call_is_complete_when_python_calls_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CALLED, encoding="utf-8")
    assert run(program) == [42, 0, 0]
    assert run(program) == [42, 1, 1]


def run(program: Path, *arguments: str, target: dict[str, str] | None = None) -> list[int]:
    """Cache hits of each kernel of the program, in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}  # its cache is beside it
    command, environment = [sys.executable, str(program), *arguments], kept | (target or {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=360, check=False)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_the_second_process_finds_every_variant_on_disk(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    assert run(program) == [0, 0, 0, 0]
    assert run(program) == [1, 1, 1, 1]
    assert run(program, "other sources") == [0, 0, 0, 0], "a change in any kernel's source must compile anew"


@pytest.mark.nightly
def test_variants_of_other_processors_and_earlier_versions_are_not_taken(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    assert run(program) == [0, 0, 0, 0]
    other = {"NUMBA_CPU_FEATURES": ""}  # nodes with and without AVX-512 may share a home
    assert run(program, target=other) == [0, 0, 0, 0], "what one processor runs may end a program on another"
    assert run(program, target=other) == [1, 1, 1, 1]
    assert run(program) == [1, 1, 1, 1], "each finds its own"
    for index in tmp_path.rglob("*.nbi"):  # as an earlier version leaves it, whose classes have other names today
        with index.open("rb+") as file:
            pickle.load(file)
            file.truncate()
            file.write(b"chpckit.errors\nGone\n.")
    assert run(program) == [0, 0, 0, 0], "an index that cannot be read counts as none"
    assert run(program) == [1, 1, 1, 1]


def test_without_the_cache_hooks_closures_are_compiled_and_the_rest_is_cached(monkeypatch):
    monkeypatch.setattr(options, "_has_cache_hooks", lambda: False)
    weight = 3.0

    @inlined
    def piece(x):
        return weight * x

    def body(a):
        for i in range(a.size):
            a[i] = piece(a[i])

    kernel = jit(body, key=(weight,))
    a = np.ones(3)
    kernel(a)
    assert (a == 3).all()
    assert type(kernel._cache).__name__ == "NullCache"
    assert type(jit(scale)._cache).__name__ == "FunctionCache"


def test_without_a_folder_to_write_to_a_kernel_is_compiled(monkeypatch):
    def refuse(_):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("numba.core.dispatcher.Dispatcher.enable_caching", refuse)
    kernel, got = jit(scale), arrays()
    kernel(*got)
    assert got[2][1] == 3


@pytest.mark.usefixtures("uncached")
def test_kernels_of_one_body_have_symbols_of_their_own():
    def made(weight):
        @jit(key=(weight,))
        def kernel(x):
            return weight * x

        return kernel

    names = {weight: made(weight) for weight in (2.0, 3.0)}
    assert [kernel(1.0) for kernel in names.values()] == [2.0, 3.0]
    assert len({next(iter(kernel.overloads.values())).fndesc.qualname for kernel in names.values()}) == 2


@pytest.mark.nightly
def test_remembered_signatures_are_those_of_a_function_that_remembers_nothing():
    shortcuts.take()
    context = cpu_target.typing_context
    context.refresh()
    row = types.Array(types.float64, 1, "C")
    values = (
        types.int64,
        types.uint64,
        types.boolean,
        types.float32,
        types.float64,
        types.literal(2),
        Vec("d", 4),
        row,
        types.Array(types.float64, 2, "C"),
        types.UniTuple(types.uint64, 2),
        types.Tuple((types.int64, types.slice2_type)),
        types.Tuple((types.literal(1), types.int64)),
    )
    remembered = 0
    for operation in (operator.add, operator.truediv, operator.pow, operator.lt, operator.getitem, max):
        function = context.resolve_value_type(operation)
        for arguments in [(a, b) for a in values for b in values]:
            try:
                fresh = type(function)(function.templates)
                expected = fresh.get_call_type(context, arguments, {})
            except NumbaError:
                continue
            for _ in range(2):
                found = function.get_call_type(context, arguments, {})
                assert found == expected, (operation, arguments)
                assert function.get_impl_key(found) == fresh.get_impl_key(expected)
            assert function.get_call_type(context, list(arguments), {}) == expected  # as Numba's parallel loops ask
            remembered += (context, arguments) in function._known_signatures
    assert remembered > 300, "with none Numba looks for each anew, and compiles a third longer"


def test_variables_live_where_numba_says():
    shortcuts.take()
    spec = importlib.util.find_spec("numba.core.analysis")
    original = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(original)  # as it is without the shortcut
    assert analysis.compute_live_map.__module__ == shortcuts.__name__
    for function in (larger.py_func, branches):
        code = run_frontend(function)
        graph, found = analysis.compute_cfg_from_blocks(code.blocks), analysis.compute_use_defs(code.blocks)
        given = graph, code.blocks, found.usemap, found.defmap
        assert analysis.compute_live_map(*given) == original.compute_live_map(*given)
        assert found == original.compute_use_defs(code.blocks)
    assert len(code.blocks) > 5
