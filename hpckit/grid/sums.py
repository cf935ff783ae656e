"""Numbers of whole fields: sums, products, norms and extremes over all ranks. Collective, the same on every rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from hpckit.errors import InputError
from hpckit.kernels import sums

if TYPE_CHECKING:
    from hpckit.grid.field import Field

__communicates__ = True  # its frames are not call sites


def total(field: Field, repro: bool) -> float | complex:
    """The sum of all owned values; integers exactly, modulo 2^64."""
    values, comm = field.interior, field.mesh.comm
    if (wide := wide_integer(field)) is not None:
        return _integer_sum(comm, values.sum(dtype=wide).item(), wide)
    if values.dtype.kind == "c":
        return complex(*(_sum(field, part, repro) for part in (values.real, values.imag)))
    return _sum(field, values, repro)


def dot(one: Field, other: Field, repro: bool) -> float | complex:
    """The sum of conj(one) * other; integers exactly, modulo 2^64. Raises `InputError` for fields that do not match."""
    if one.interior.shape != other.interior.shape or one.decomposition != other.decomposition:
        raise InputError(f"{one} and {other} have no product", do="give fields of the same cells and components")
    a, b, kinds = one.interior, other.interior, (wide_integer(one), wide_integer(other))
    if None not in kinds:
        wide = np.result_type(*kinds)
        wide = wide if wide.kind in "iu" else np.dtype(np.int64)
        product = (a.astype(wide) * b.astype(wide)).sum().item()
        return _integer_sum(one.mesh.comm, product, wide)
    if "c" not in a.dtype.kind + b.dtype.kind:
        return _sum(one, a.astype(np.float64) * b, repro)
    # Products of parts, each rounded by itself: those of complex numbers may be fused, as their places in memory suit.
    real = _sum(one, np.stack([a.real * b.real, a.imag * b.imag]), repro)
    return complex(real, _sum(one, np.stack([a.real * b.imag, -(a.imag * b.real)]), repro))


def norm(field: Field, order: float, repro: bool) -> float:
    """The sum of magnitudes (order 1), the Euclidean norm (2) or the largest magnitude (inf) of all owned values."""
    if isinstance(order, bool) or order not in (1, 2, math.inf):
        raise InputError(f"there is no norm of order {order!r}", do="give 1, 2 or inf")
    wide_integer(field)
    values = field.interior
    if values.dtype.kind == "c":
        parts = np.stack([values.real, values.imag])
        values = parts if order == 2 else np.hypot(*parts)
    if order == 2:
        return math.sqrt(_sum(field, values, repro, squared=True))
    sizes = abs(values if values.dtype.kind == "f" else values.astype(np.float64))
    if order == 1:
        return _sum(field, sizes, repro)
    return _largest(field.mesh.comm, float(sizes.max()) if sizes.size else 0.0)


def extreme(field: Field, lowest: bool) -> float:
    """The largest owned value of all ranks or the least; nan where there is one."""
    wide, comm = _ordered(field), field.mesh.comm
    own = field.interior.min() if lowest else field.interior.max()
    if wide is not None:
        whole = np.array(own.item(), wide)
        comm.Allreduce(MPI.IN_PLACE, whole, MPI.MIN if lowest else MPI.MAX)
        return int(whole)
    return -_largest(comm, -float(own)) if lowest else _largest(comm, float(own))


def place_of_extreme(field: Field, lowest: bool) -> tuple[int, ...]:
    """Where the largest or the least value stands in the global array: the first such place, of nan if there is one."""
    wide, comm, where = _ordered(field), field.mesh.comm, field.decomposition
    values = field.interior
    flat = int(values.argmin() if lowest else values.argmax())
    local = np.unravel_index(flat, values.shape)
    start = (0,) * len(field.components) + tuple(where.start(field.mesh.rank))
    shape = (*field.components, *where.global_shape)
    number = np.ravel_multi_index(tuple(int(i) + first for i, first in zip(local, start, strict=True)), shape)
    found = np.array(values[local].item(), wide or np.float64)
    places, all_found = np.empty(comm.size, np.int64), np.empty(comm.size, found.dtype)
    comm.Allgather(np.array(number, np.int64), places)
    comm.Allgather(found, all_found)
    best = all_found.min() if lowest else all_found.max()  # nan if there is one
    hits = all_found == best if best == best else all_found != all_found
    return tuple(int(i) for i in np.unravel_index(int(places[hits].min()), shape))


def wide_integer(field: Field) -> np.dtype | None:
    """The 64-bit type that holds the integers of this field, None where they are none; `InputError` for no numbers."""
    kind = field.data.dtype.kind
    if kind not in "biufc":
        raise InputError(f"sums, norms and extremes are those of numbers, not of {field.data.dtype}")
    return None if kind in "fc" else np.dtype(np.uint64 if kind == "u" else np.int64)


def _ordered(field: Field) -> np.dtype | None:
    """The same where values can be compared; `InputError` for others."""
    if field.data.dtype.kind == "c":
        raise InputError("complex numbers have no order, so no extremes", do="take norm(inf) for the largest magnitude")
    if not field.interior.size:
        raise InputError(f"{field} has no values, so no extremes")
    return wide_integer(field)


def _integer_sum(comm: MPI.Comm, own: int, wide: np.dtype) -> int:
    whole = np.array(own, wide)
    comm.Allreduce(MPI.IN_PLACE, whole, MPI.SUM)
    return int(whole)


def _sum(field: Field, values: Any, repro: bool, squared: bool = False) -> float:
    """The sum over all ranks of real `values`, as many for each cell on every rank, or of their squares."""
    comm = field.mesh.comm
    if repro:
        values = values if values.dtype == np.float32 else values.astype(np.float64, copy=False)
        largest = _largest(comm, float(abs(values).max()) if values.size else 0.0)
        if math.isfinite(largest):
            each = values.size // max(math.prod(field.decomposition.owned(field.mesh.rank)), 1)
            count = each * math.prod(field.decomposition.global_shape)
            exponent = sums.exponent_above(largest)
            bins = sums.bin_sums(values, exponent, count, squared)
            comm.Allreduce(MPI.IN_PLACE, bins, MPI.SUM)
            return sums.combine(bins, exponent, count, squared)
    wide = values.astype(np.float64, copy=False)
    whole = np.array(float((wide * wide).sum() if squared else wide.sum()))
    comm.Allreduce(MPI.IN_PLACE, whole, MPI.SUM)
    return float(whole)


def _largest(comm: MPI.Comm, own: float) -> float:
    """The largest of the ranks' numbers, nan if there is one."""
    # MPI leaves the maximum of nan open, so it travels beside the number.
    pair = np.array([-math.inf if math.isnan(own) else own, math.isnan(own)])
    comm.Allreduce(MPI.IN_PLACE, pair, MPI.MAX)
    return math.nan if pair[1] else float(pair[0])
