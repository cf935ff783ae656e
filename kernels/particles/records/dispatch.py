"""Chooses the form of the record kernels by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.forms import form_for
from hpckit.kernels.particles.records.reference import PIECE, type_words, types_of

__all__ = [
    "PIECE",
    "add_copies",
    "add_values",
    "choose_ghosts",
    "copy_all",
    "copy_values",
    "pack",
    "permute",
    "put",
    "put_values",
    "take_all",
    "take_values",
    "to_single",
    "type_words",
    "types_of",
    "unpack",
    "weigh",
]


def _form(array: Any) -> Any:
    return form_for(__package__, array)


def take_all(positions: Any, chosen: Any, segments: Any, shifts: Any, count: int, out: Any) -> None:
    """See `reference.take_all`."""
    _form(positions).take_all(positions, chosen, segments, shifts, count, out)


def copy_all(positions: Any, chosen: Any, segments: Any, shifts: Any, count: int, target: Any) -> None:
    """See `reference.copy_all`."""
    _form(positions).copy_all(positions, chosen, segments, shifts, count, target)


def put(values: Any, positions: Any, slots: Any, first: int, stop: int) -> None:
    """See `reference.put`."""
    _form(positions).put(values, positions, slots, first, stop)


def take_values(values: Any, chosen: Any, count: int, out: Any) -> None:
    """See `reference.take_values`."""
    _form(values).take_values(values, chosen, count, out)


def put_values(given: Any, values: Any, slots: Any, first: int, stop: int) -> None:
    """See `reference.put_values`."""
    _form(values).put_values(given, values, slots, first, stop)


def copy_values(values: Any, chosen: Any, count: int, target: Any) -> None:
    """See `reference.copy_values`."""
    _form(values).copy_values(values, chosen, count, target)


def add_values(given: Any, values: Any, slots: Any, first: int, stop: int) -> None:
    """See `reference.add_values`."""
    _form(values).add_values(given, values, slots, first, stop)


def add_copies(values: Any, chosen: Any, count: int, target: Any) -> None:
    """See `reference.add_copies`."""
    _form(values).add_copies(values, chosen, count, target)


def to_single(positions: Any, first: int, stop: int, center: np.ndarray, out: Any) -> None:
    """See `reference.to_single`; the center comes as a NumPy array."""
    _form(positions).to_single(positions, first, stop, center, out)


def weigh(
    positions: Any, ids: Any, slots: int, masses: Any, factor: float, slot_masses: Any, inverse_masses: Any
) -> None:
    """See `reference.weigh`."""
    _form(positions).weigh(positions, ids, slots, masses, factor, slot_masses, inverse_masses)


def pack(chosen: Any, count: int, leave: bool, positions: Any, *arrays: Any) -> None:
    """See `reference.pack`."""
    _form(positions).pack(chosen, count, leave, positions, *arrays)


def unpack(rows: Any, first: int, positions: Any, *arrays: Any) -> None:
    """See `reference.unpack`."""
    _form(positions).unpack(rows, first, positions, *arrays)


def permute(order: Any, slots: int, *arrays: Any) -> None:
    """See `simd.permute`: four arrays of particles, and the four that they go to."""
    _form(order).permute(order, slots, *arrays)


def choose_ghosts(
    positions: Any, slots: int, limits: tuple[np.ndarray, ...], taker: np.ndarray, takers: int
) -> tuple[Any, Any, np.ndarray]:
    """See `reference.choose_ghosts`; waits for the GPU. Limits and takers come as NumPy arrays."""
    return _form(positions).choose_ghosts(positions, slots, limits, taker, takers)
