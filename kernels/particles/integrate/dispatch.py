"""Chooses the form of the motion kernels by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.forms import form_for

__all__ = [
    "dilate",
    "drift",
    "find_leavers",
    "hold_off",
    "kick",
    "kick_drift",
    "kinetic",
    "langevin",
    "largest_move",
    "powers",
    "push",
    "sort_leavers",
    "steer",
    "wrap",
]

ORIGIN = np.zeros(3)


def _form(array: Any) -> Any:
    return form_for(__package__, array)


def kick(velocities: Any, forces: Any, inverse_mass: Any, slots: int, half: float) -> None:
    """See `reference.kick`."""
    _form(velocities).kick(velocities, forces, inverse_mass, slots, half)


def drift(positions: Any, velocities: Any, slots: int, dt: float) -> None:
    """See `reference.drift`."""
    _form(positions).drift(positions, velocities, slots, dt)


def kick_drift(
    positions: Any, velocities: Any, forces: Any, inverse_mass: Any, slots: int, half: float, dt: float
) -> None:
    """See `reference.kick_drift`."""
    _form(positions).kick_drift(positions, velocities, forces, inverse_mass, slots, half, dt)


def largest_move(positions: Any, built: Any, slots: int) -> float:
    """See `reference.largest_move`; waits for the GPU."""
    return _form(positions).largest_move(positions, built, slots)


def wrap(positions: Any, images: Any, slots: int, lower: Any, upper: Any, periodic: Any) -> int:
    """See `reference.wrap`, which a GPU does not count for; the box comes as NumPy arrays."""
    return _form(positions).wrap(positions, images, slots, lower, upper, periodic)


def find_leavers(positions: Any, slots: int, lower: Any, upper: Any, leavers: Any) -> int:
    """See `reference.find_leavers`; waits for the GPU. The corners come as NumPy arrays."""
    return _form(positions).find_leavers(positions, slots, lower, upper, leavers)


def sort_leavers(
    positions: np.ndarray,
    leavers: np.ndarray,
    x_cuts: np.ndarray,
    y_cuts: np.ndarray,
    z_cuts: np.ndarray,
    counts: np.ndarray,
    order: np.ndarray,
) -> None:
    """See `reference.sort_leavers`; for arrays on the host."""
    _form(positions).sort_leavers(positions, leavers, x_cuts, y_cuts, z_cuts, counts, order)


def kinetic(velocities: Any, masses: Any, ids: Any, slots: int, sums: Any) -> None:
    """See `reference.kinetic`."""
    _form(velocities).kinetic(velocities, masses, ids, slots, sums)


def dilate(records: Any, slots: int, factors: Any, center: Any = ORIGIN) -> None:
    """See `reference.dilate`; factors and center come as NumPy arrays."""
    _form(records).dilate(records, slots, factors, center)


def langevin(
    positions: Any,
    velocities: Any,
    forces: Any,
    inverse_mass: Any,
    widths: Any,
    ids: Any,
    slots: int,
    half: float,
    way: float,
    keep: float,
    strength: float,
    noise: tuple[int, int, int],
) -> None:
    """See `reference.langevin`."""
    given = forces, inverse_mass, widths, ids, slots, half, way, keep, strength, noise
    _form(positions).langevin(positions, velocities, *given)


def powers(velocities: Any, forces: Any, ids: Any, slots: int, sums: Any) -> None:
    """See `reference.powers`."""
    _form(velocities).powers(velocities, forces, ids, slots, sums)


def steer(velocities: Any, forces: Any, slots: int, keep: float, toward: float) -> None:
    """See `reference.steer`."""
    _form(velocities).steer(velocities, forces, slots, keep, toward)


def push(
    forces: Any, tallies: Any, positions: Any, masses: Any, ids: Any, slots: int, field: Any, measure: bool
) -> None:
    """See `reference.push`; the field comes as a NumPy array."""
    _form(forces).push(forces, tallies, positions, masses, ids, slots, field, measure)


def hold_off(forces: Any, tallies: Any, positions: Any, ids: Any, slots: int, dim: int, side: float, *wall: Any) -> int:
    """See `reference.hold_off`; a GPU counts the particles behind the wall only where it measures."""
    return _form(forces).hold_off(forces, tallies, positions, ids, slots, dim, side, *wall)
