"""How a collective gets its arrays: as NumPy's objects, whose fields are read where they are.

To ask an array for its address in Python takes as long as a small collective. NumPy promises the place of these fields
to programs that were compiled against it (`PyArrayObject_fields` of its ndarraytypes.h).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hpckit.comm.shared.compiled.atomics import OBJECT, address_of_object, entry_of, int64
from hpckit.comm.shared.compiled.constants import (
    ARRAY_FIELDS,
    BLOCK_AT,
    BYTES,
    CALL_FIELDS,
    CLASS,
    DTYPE,
    ELEMENTS,
    FLAGS,
    GOOD,
    GROUP,
    NO_ARRAY,
    OFFSET,
    PLACE_COUNT,
    PLACES,
    RECV,
    SEND,
    SENT,
    SYMMETRIC,
    TAKEN,
    UNFIT,
    WITHIN,
)
from hpckit.comm.shared.compiled.waiting import integers, record_at
from hpckit.kernels.compile.addresses import values_at
from hpckit.kernels.compile.jit import jit

HEADER = object.__basicsize__  # of any object; its class comes last there
CLASS_AT, DATA_AT, DIMS_AT, SHAPE_AT, DTYPE_AT, FLAGS_AT = (HEADER + at for at in (-8, 0, 8, 16, 40, 48))
CONTIGUOUS, WRITEABLE = 0x1, 0x400  # flags

halves = values_at("int32")


@jit
def elements(array):
    """How many elements the array at an address has."""
    shape = integers(integers(array + SHAPE_AT, 1)[0], halves(array + DIMS_AT, 1)[0])
    count = 1
    for n in shape:
        count *= n
    return count


@jit
def _fits(array, wanted):
    """Whether the object at an address is such an array."""
    if integers(array + CLASS_AT, 1)[0] != wanted[CLASS]:
        return False
    if wanted[DTYPE] == NO_ARRAY:
        return True
    flags = halves(array + FLAGS_AT, 1)[0]
    return (
        integers(array + DTYPE_AT, 1)[0] == wanted[DTYPE]
        and flags & wanted[FLAGS] == wanted[FLAGS]
        and elements(array) == wanted[ELEMENTS]
    )


@jit
def _find(call, group, first):
    """Note what is sent in the call; whether it lies in the symmetric buffer that it must lie in, or in none."""
    end = first + call[SENT + BYTES]
    places = integers(group[PLACES], 3 * group[PLACE_COUNT])
    within, begin = 0, 0
    for row in range(0, 3 * group[PLACE_COUNT], 3):
        if places[row] <= first and end <= places[row + 1]:
            begin, within = places[row], places[row + 2]
    call[SEND] = first
    call[OFFSET] = first - begin if call[SYMMETRIC] else first
    return within == call[WITHIN]


@jit
def take(call, sent, taken):
    """Have a call work on two arrays, given by the addresses of their objects; whether they are such as it takes."""
    if not _fits(sent, call[SENT : SENT + ARRAY_FIELDS]) or not _fits(taken, call[TAKEN : TAKEN + ARRAY_FIELDS]):
        return False
    if call[SENT + DTYPE] == NO_ARRAY:
        return True
    first = integers(sent + DATA_AT, 1)[0]
    if not _find(call, record_at(call[GROUP]), first):
        return False
    if call[TAKEN + DTYPE] == NO_ARRAY:
        call[RECV] = first + call[BLOCK_AT]
        return True
    into = integers(taken + DATA_AT, 1)[0]
    call[RECV] = into
    overlap = first < into + call[TAKEN + BYTES] and into < first + call[SENT + BYTES]
    return into - first == call[BLOCK_AT] or not overlap


@jit
def nothing(call):
    """The collective of which only the arrays are looked at."""
    return GOOD


@functools.cache
def entry(kernel: Any) -> Callable[[int, Any, Any], int]:
    """A collective as a function of the address of its call record, the array that is sent, and the one that receives
    or None: a status.
    """

    @jit(key=("shared-memory entry", kernel.py_func.__module__, kernel.py_func.__name__))
    def enter_with(address, sent, taken):
        call = integers(address, CALL_FIELDS)
        if not take(call, address_of_object(sent), address_of_object(taken)):
            return UNFIT
        return kernel(call)

    return entry_of(enter_with, (int64, OBJECT, OBJECT))


def wanted(array: Any, written: bool) -> list[int]:
    """What an array must be that takes the place of this one, or None: ARRAY_FIELDS."""
    if array is None:
        return [id(type(None)), NO_ARRAY, 0, 0, 0]
    flags = CONTIGUOUS | WRITEABLE * written
    return [id(type(array)), id(array.dtype), array.size, array.nbytes, flags]
