"""Pieces of CUDA kernels for particles: records loaded at once, types in them, functions in single precision.

Records [slots, 4] start at multiples of 16 bytes (float32) or 32 (float64), so one load of 16 bytes, or two, takes the
place of four: neighbors are gathered from everywhere, and it is the number of loads that counts. Numba-CUDA knows only
the alignment of one number, so these loads are written in LLVM.
"""

from __future__ import annotations

import functools
import types as python_types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from hpckit.kernels.compile.cuda.jit import simulating
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.pair.reference import TALLY

u8 = np.uint64
Dispatcher = numba.core.dispatcher.Dispatcher
LOAD_BYTES = 16  # of the widest load

if simulating():

    def load_record(records: Any, at: Any) -> tuple:
        """The numbers records[at] to records[at + 3] of a flat array; at is uint64 and a multiple of 4."""
        return tuple(records[int(at) + k] for k in range(4))

    def loader(count: int) -> Any:
        """The piece `(array, at)`: the `count` numbers array[at], array[at + 1], … as a tuple."""
        return lambda array, at: tuple(array[int(at) + k] for k in range(count))

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    @intrinsic
    def load_record(typing, records, at):  # type: ignore[no-untyped-def]
        """The numbers records[at] to records[at + 3] of a flat array; at is uint64 and a multiple of 4."""
        lanes = LOAD_BYTES // (records.dtype.bitwidth // 8)

        def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
            base = context.make_array(signature.args[0])(context, builder, values[0]).data
            vector = ir.VectorType(context.get_data_type(records.dtype), lanes)
            first = builder.bitcast(builder.gep(base, [values[1]]), vector.as_pointer())
            found = []
            for k in range(4 // lanes):
                part = builder.load(builder.gep(first, [context.get_constant(types.uint64, k)]))
                found += [builder.extract_element(part, context.get_constant(types.int32, i)) for i in range(lanes)]
            return context.make_tuple(builder, signature.return_type, found)

        return types.UniTuple(records.dtype, 4)(records, types.uint64), generate

    @functools.cache
    def loader(count: int) -> Any:
        """The piece `(array, at)`: the `count` numbers array[at], array[at + 1], … as a tuple."""

        @intrinsic
        def load(typing, array, at):  # type: ignore[no-untyped-def]
            def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
                base = builder.gep(context.make_array(signature.args[0])(context, builder, values[0]).data, [values[1]])
                places = [builder.gep(base, [context.get_constant(types.uint64, k)]) for k in range(count)]
                return context.make_tuple(builder, signature.return_type, [builder.load(place) for place in places])

            return types.UniTuple(array.dtype, count)(array, types.uint64), generate

        return load


@inlined
def type_of_double(w):  # type: ignore[no-untyped-def]
    """The type in the fourth number of a record (`records.reference`)."""
    return (np.float64(w).view(np.int64) & 0xFFFFFFFF) >> 1


@inlined
def type_of_single(w):  # type: ignore[no-untyped-def]
    """The type in the fourth number of a float32 record, below 65536."""
    return np.int64(np.float32(w).view(np.int32) & 0xFFFF)


@inlined
def put(forces, i, fx, fy, fz):  # type: ignore[no-untyped-def]
    """forces[i] = the force on particle i, of a flat array [slots, 4]."""
    at = i * u8(4)
    forces[at], forces[at + u8(1)], forces[at + u8(2)] = fx, fy, fz


@inlined
def put_tallies(tallies, i, energy, xx, yy, zz, xy, xz, yz):  # type: ignore[no-untyped-def]
    """tallies[i] = energy, virial, and no energy of bonds, of a flat array [slots, TALLY]."""
    at = i * u8(TALLY)
    tallies[at], tallies[at + u8(1)], tallies[at + u8(2)], tallies[at + u8(3)] = energy, xx, yy, zz
    tallies[at + u8(4)], tallies[at + u8(5)], tallies[at + u8(6)], tallies[at + u8(7)] = xy, xz, yz, 0.0


@inlined
def add_force(forces, i, fx, fy, fz):  # type: ignore[no-untyped-def]
    """forces[i] += a force, of a flat array [slots, 4]."""
    at = i * u8(4)
    forces[at] += fx
    forces[at + u8(1)] += fy
    forces[at + u8(2)] += fz


@inlined
def add_tallies(tallies, i, energy, xx, yy, zz, xy, xz, yz, bonded):  # type: ignore[no-untyped-def]
    """tallies[i] += energy, virial and energy of bonds, of a flat array [slots, TALLY]."""
    at = i * u8(TALLY)
    tallies[at] += energy
    tallies[at + u8(1)] += xx
    tallies[at + u8(2)] += yy
    tallies[at + u8(3)] += zz
    tallies[at + u8(4)] += xy
    tallies[at + u8(5)] += xz
    tallies[at + u8(6)] += yz
    tallies[at + u8(7)] += bonded


@functools.cache
def single(function: Any) -> Callable:
    """A function for float32 arguments, as Python source for kernels: all its float constants are float32.

    Without that `1.0 / x` would be computed in float64. Goes through the functions that it calls, by global names and
    by closures.
    """
    plain = function.py_func if isinstance(function, Dispatcher) else function
    constants = tuple(np.float32(c) if type(c) is float else c for c in plain.__code__.co_consts)
    names = {**plain.__globals__, **{k: _single(plain.__globals__[k]) for k in _used(plain)}}
    cells = tuple(python_types.CellType(_single(cell.cell_contents)) for cell in plain.__closure__ or ())
    code = plain.__code__.replace(co_consts=constants)
    return inlined(python_types.FunctionType(code, names, plain.__name__, plain.__defaults__, cells or None))


def _single(value: Any) -> Any:
    if type(value) is float:
        return np.float32(value)
    return single(value) if isinstance(value, Dispatcher) else value


def _used(function: Any) -> list[str]:
    return [name for name in function.__code__.co_names if name in function.__globals__]
