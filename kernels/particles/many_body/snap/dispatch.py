"""Chooses the form of SNAP: that of the CPU, or of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.forms import form_for
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.snap import simd
from hpckit.kernels.particles.many_body.snap.reference import Snap, tables

__all__ = ["Snap", "force_kernel", "forces", "room", "tables"]


def force_kernel(exact: bool, measure: bool, like: Any) -> Any:
    """The kernel that `forces` runs, for arrays as `like`."""
    return form_for(__package__, like).force_kernel(exact, measure)


def room(given: Snap, lists: Lists, own: int, had: Any) -> Any:
    """Memory that the kernel works in, for the longest of the lists of the `own` slots; on a GPU for these slots."""
    if is_device_array(lists.entries):
        return form_for(__package__, lists.entries).workspace(given, lists, own, had)
    longest = int(np.diff(lists.bounds[: own + 1]).max(initial=0)) + 1
    if had is not None and len(had[0]) >= longest:
        return had
    it = tables(given.twice_j, given.densities)
    return simd.make_room(longest, int(it.blocks[-1]), it.width(given.densities))


def forces(
    kernel: Any, part: Any, records: Any, lists: Lists, given: Snap, room: Any, pushed: Any, tallies: Any
) -> None:
    """Add the forces of a part of the slots, on themselves and on their neighbors, ghosts too, to `pushed`, [slots, 4],
    or, of an exact kernel, [slots, 8]; tallies [slots, 8] are written where it measures. See `tersoff.dispatch`.
    """
    if is_device_array(records):
        form_for(__package__, records).run_forces(kernel, records, len(part), lists, room, pushed, tallies)
        return
    it = tuple(tables(given.twice_j, given.densities))
    kernel(part, records, lists.bounds, lists.entries, tuple(given), it, *room[:5], tuple(room[5]), pushed, tallies)
