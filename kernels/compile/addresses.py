"""Memory and kernels by their addresses (int64): numbers that lie somewhere, and compiled functions to be called."""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpckit.kernels.compile.jit import STRICT, jit

I64, F64 = ir.IntType(64), ir.DoubleType()
ARRAY, GEOMETRY = types.Array(types.float64, 1, "C"), types.Array(types.int64, 1, "C")
ENTRY = "void(int64, int64, int64, int64)"


@functools.cache
def values_at(kind: str) -> Any:
    """The function `(address, count)`: the array of `count` numbers of NumPy's dtype `kind` at an address."""
    number = numba.from_dtype(np.dtype(kind))

    @intrinsic
    def pointer(context, address):
        def generate(c, b, signature, values):
            return b.inttoptr(values[0], c.get_value_type(signature.return_type))

        return types.CPointer(number)(types.int64), generate

    @numba.njit(inline="always")
    def values_at(address, count):
        return numba.carray(pointer(address), (count,))

    return values_at


def address_of(kernel: Any, signature: Any) -> int:
    """The address of a kernel that is compiled for the signature, to be called as a C function.

    It is made by `jit(by_address=True)`, must not raise, and must be kept as long as the address.
    """
    kernel.compile(signature)
    arguments, _ = numba.core.sigutils.normalize_signature(signature)
    compiled = kernel.overloads[arguments]._asdict()
    address = int(compiled["library"].get_pointer_to_function(compiled["fndesc"].llvm_cfunc_wrapper_name))
    if not address:
        raise AssertionError(f"{kernel.__name__} has no entry from C: make it by jit(by_address=True)")
    return address


def signature(arrays: int, numbers: int) -> Any:
    """Of a kernel that takes so many flat arrays of float64, then so many float64, then an array of int64."""
    return types.void(*[ARRAY] * arrays, *[types.float64] * numbers, GEOMETRY)


@functools.cache
def _entry(arrays: int, numbers: int) -> Any:
    @intrinsic
    def call(context, kernel, places, values, geometry):
        def generate(c, b, _, given):
            def array(kind, at):
                made = cgutils.create_struct_proxy(kind)(c, b)
                made.data, made.itemsize = b.inttoptr(at, made.data.type), I64(8)
                return made._getvalue()

            function, places, values, geometry = given
            places = b.inttoptr(places, I64.as_pointer())
            values = b.inttoptr(values, F64.as_pointer())
            args = [array(ARRAY, b.load(b.gep(places, [I64(k)]))) for k in range(arrays)]
            args += [b.load(b.gep(values, [I64(k)])) for k in range(numbers)]
            args.append(array(GEOMETRY, geometry))
            kind = ir.FunctionType(c.get_value_type(types.none), [each.type for each in args])
            b.call(b.inttoptr(function, kind.as_pointer()), args)
            return c.get_dummy_value()

        return types.void(*[types.int64] * 4), generate

    def entry(kernel, places, values, geometry):
        call(kernel, places, values, geometry)

    # A name of its own: functions of one name and types that come from the disk are one function to the linker.
    entry.__name__ = entry.__qualname__ = f"entry_{arrays}_{numbers}"
    return jit(entry, math=STRICT, borrowed=True, key=("entry", arrays, numbers), by_address=True)


def entry_address(arrays: int, numbers: int) -> int:
    """The address of the function that calls a kernel of such a `signature`: see `call_entry`."""
    return address_of(_entry(arrays, numbers), ENTRY)


@intrinsic
def call_entry(context, entry, kernel, places, values, geometry):
    """Call a kernel by addresses: of its entry, its own, of its arrays' addresses, its numbers, and its geometry."""

    def generate(c, b, signature, given):
        kind = ir.FunctionType(c.get_value_type(types.none), [I64] * 4)
        b.call(b.inttoptr(given[0], kind.as_pointer()), given[1:])
        return c.get_dummy_value()

    return types.void(*[types.int64] * 5), generate
