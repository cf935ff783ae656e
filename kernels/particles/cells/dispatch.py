"""Chooses the form of the cells and lists by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.particles.cells import columns
from hpckit.kernels.particles.cells.reference import Lists

__all__ = ["Lists", "ghost_slots", "grid_over", "list_neighbors", "place", "sort"]


def _form(array: Any) -> ModuleType:
    if not is_device_array(array):
        return columns
    from hpckit.kernels.particles.cells import cuda

    return cuda


def grid_over(
    positions: Any,
    count: int,
    low: np.ndarray,
    high: np.ndarray,
    reach: float,
    clear: tuple[np.ndarray, np.ndarray] | None = None,
) -> Any:
    """What `count` particles of a domain, and the ghosts within `reach` around it, are sorted into. clear: corners
    between which no ghost lies; None: those of the domain.
    """
    return _form(positions).grid_over(positions, count, low, high, reach, clear)


def sort(records: Any, count: int, grid: Any, ghosts: bool) -> tuple[Any, Any]:
    """The order of own particles, or of ghosts, in the grid: order[slot] is a particle, -1 for none (on the host); and
    where the parts of the grid start. Slots that hold no particle are left out.
    """
    return _form(records).sort(records, count, grid, ghosts)


def place(source: Any, order: Any, slots: int, first: int, target: Any) -> None:
    """See `reference.place`."""
    _form(target).place(source, order, slots, first, target)


def ghost_slots(order: Any, slots: int, first: int, where: Any) -> None:
    """See `reference.ghost_slots`."""
    _form(where).ghost_slots(order, slots, first, where)


def list_neighbors(
    positions: Any,
    own: int,
    ghosts: int,
    grid: Any,
    starts: tuple[Any, Any],
    inside: tuple[np.ndarray, np.ndarray],
    isa: str,
    padding: int,
    nearer: Any,
    excluded: tuple[Any, Any] | None,
    held: Lists | None,
) -> Lists:
    """The neighbors of own slots; see `columns.list_neighbors`. A GPU leaves none out, and waits."""
    how = inside, isa, padding, nearer, excluded, held
    return _form(positions).list_neighbors(positions, own, ghosts, grid, starts, *how)
