"""Reductions of fields: sums, products, norms and extremes over all ranks. Collective, the same on every rank.

`values` are this rank's owned values, on any device; `cells`: the number of cells it owns, and of all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.comm.agree import all_of_ranks, max_of_ranks, min_of_ranks, sum_of_ranks
from hpckit.errors import InputError
from hpckit.kernels import sums

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites


Cells = tuple[int, int]


def total(values: Any, comm: MPI.Comm, cells: Cells, repro: bool) -> float | complex:
    """The sum of all values; integers exactly, modulo 2^64."""
    if (wide := wide_integer(values.dtype)) is not None:
        return _integer_sum(comm, values.sum(dtype=wide).item(), wide)
    if values.dtype.kind == "c":
        return complex(*(_sum(part, comm, cells, repro) for part in (values.real, values.imag)))
    return _sum(values, comm, cells, repro)


def totals(rows: np.ndarray, comm: MPI.Comm, count: int) -> np.ndarray:
    """The sum of each row over all ranks, float64[n]; the same bits on any number of ranks, nan of rows not finite.

    rows: real, [n, …] with this rank's values of each; count: the values of a row on all ranks.
    """
    flat = rows.astype(np.float64, copy=False).reshape(len(rows), -1)
    largest = np.abs(flat).max(axis=1, initial=0.0)
    largest[~np.isfinite(largest)] = math.inf
    max_of_ranks(comm, largest)
    good = np.flatnonzero(np.isfinite(largest))
    exponents = {row: sums.exponent_above(float(largest[row])) for row in good}
    bins = np.array([sums.bin_sums(flat[row], exponents[row], count) for row in good], np.int64)
    sum_of_ranks(comm, bins)
    found = np.full(len(rows), math.nan)
    for row, own in zip(good, bins, strict=True):
        found[row] = sums.combine(own, exponents[row], count)
    return found


def dot(a: Any, b: Any, comm: MPI.Comm, cells: Cells, repro: bool) -> float | complex:
    """The sum of conj(a) * b; integers exactly, modulo 2^64."""
    kinds = wide_integer(a.dtype), wide_integer(b.dtype)
    if None not in kinds:
        wide = np.result_type(*kinds)
        wide = wide if wide.kind in "iu" else np.dtype(np.int64)
        product = (a.astype(wide) * b.astype(wide)).sum().item()
        return _integer_sum(comm, product, wide)
    if "c" not in a.dtype.kind + b.dtype.kind:
        return _sum(a.astype(np.float64) * b, comm, cells, repro)
    # Products of parts, each rounded by itself: complex products may be fused, depending on alignment.
    real = _sum(np.stack([a.real * b.real, a.imag * b.imag]), comm, cells, repro)
    return complex(real, _sum(np.stack([a.real * b.imag, -(a.imag * b.real)]), comm, cells, repro))


def norm(values: Any, comm: MPI.Comm, cells: Cells, order: float, repro: bool) -> float:
    """The sum of magnitudes (order 1), the Euclidean norm (2) or the largest magnitude (inf) of all values."""
    if isinstance(order, bool) or order not in (1, 2, math.inf):
        raise InputError(f"there is no norm of order {order!r}", do="give 1, 2 or inf")
    wide_integer(values.dtype)
    if values.dtype.kind == "c":
        parts = np.stack([values.real, values.imag])
        values = parts if order == 2 else np.hypot(*parts)
    if order == 2:
        return math.sqrt(_sum(values, comm, cells, repro, squared=True))
    sizes = abs(values if values.dtype.kind == "f" else values.astype(np.float64))
    if order == 1:
        return _sum(sizes, comm, cells, repro)
    return _largest(comm, float(sizes.max()) if sizes.size else 0.0)


def extreme(values: Any, comm: MPI.Comm, lowest: bool) -> float:
    """The largest or the smallest value of all ranks; nan if any value is nan."""
    wide = _ordered(values)
    own = values.min() if lowest else values.max()
    if wide is not None:
        whole = np.array(own.item(), wide)
        return int(min_of_ranks(comm, whole) if lowest else max_of_ranks(comm, whole))
    return -_largest(comm, -float(own)) if lowest else _largest(comm, float(own))


def place_of_extreme(
    values: Any, comm: MPI.Comm, start: Sequence[int], shape: Sequence[int], lowest: bool
) -> tuple[int, ...]:
    """The index of the largest or the smallest value in the global array of this shape, in which this rank's values
    begin at `start`: the first such index, or that of the first nan if there is one.
    """
    wide = _ordered(values)
    flat = int(values.argmin() if lowest else values.argmax())
    local = np.unravel_index(flat, values.shape)
    shape = tuple(shape)
    number = np.ravel_multi_index(tuple(int(i) + first for i, first in zip(local, start, strict=True)), shape)
    places = all_of_ranks(comm, np.array(number, np.int64))
    all_found = all_of_ranks(comm, np.array(values[local].item(), wide or np.float64))
    best = all_found.min() if lowest else all_found.max()  # nan if there is one
    hits = all_found == best if best == best else all_found != all_found
    return tuple(int(i) for i in np.unravel_index(int(places[hits].min()), shape))


def wide_integer(dtype: np.dtype) -> np.dtype | None:
    """The 64-bit type for integers of this dtype, None for other numbers; `InputError` if it is not a number type."""
    kind = dtype.kind
    if kind not in "biufc":
        raise InputError(f"sums, norms and extremes need numbers, not {dtype}")
    return None if kind in "fc" else np.dtype(np.uint64 if kind == "u" else np.int64)


def _ordered(values: Any) -> np.dtype | None:
    """`wide_integer` of values that have an order; `InputError` for others."""
    if values.dtype.kind == "c":
        raise InputError("complex numbers have no order, so no extremes", do="take norm(inf) for the largest magnitude")
    if not values.size:
        raise InputError("a field without values has no extremes")
    return wide_integer(values.dtype)


def _integer_sum(comm: MPI.Comm, own: int, wide: np.dtype) -> int:
    return int(sum_of_ranks(comm, np.array(own, wide)))


def _sum(values: Any, comm: MPI.Comm, cells: Cells, repro: bool, squared: bool = False) -> float:
    """The sum over all ranks of real `values` (or of their squares), with equally many per cell on every rank."""
    if repro:
        values = values if values.dtype == np.float32 else values.astype(np.float64, copy=False)
        largest = _largest(comm, float(abs(values).max()) if values.size else 0.0)
        if math.isfinite(largest):
            count = values.size // max(cells[0], 1) * cells[1]
            exponent = sums.exponent_above(largest)
            bins = sum_of_ranks(comm, sums.bin_sums(values, exponent, count, squared))
            return sums.combine(bins, exponent, count, squared)
    wide = values.astype(np.float64, copy=False)
    return float(sum_of_ranks(comm, np.array(float((wide * wide).sum() if squared else wide.sum()))))


def _largest(comm: MPI.Comm, own: float) -> float:
    """The largest of the ranks' numbers, nan if there is one."""
    # MPI leaves the maximum of nan open, so it travels beside the number.
    pair = np.array([-math.inf if math.isnan(own) else own, math.isnan(own)])
    max_of_ranks(comm, pair)
    return math.nan if pair[1] else float(pair[0])
