"""Chooses the form of Tersoff's potential: vectors of the CPU, or, where `Form.isa` is "cuda", a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.tersoff import simd
from hpckit.kernels.particles.many_body.tersoff.reference import PAIR, TRIPLE, Tersoff
from hpckit.kernels.particles.many_body.tersoff.simd import Room
from hpckit.kernels.particles.pair.potential import Form

__all__ = ["PAIR", "TRIPLE", "Room", "Tersoff", "force_kernel", "forces", "room"]


def _form(form: Form) -> ModuleType:
    if form.isa != "cuda":
        return simd
    from hpckit.kernels.particles.many_body.tersoff import cuda

    return cuda


def force_kernel(form: Form, shared: bool, widths: bool) -> Any:
    """The kernel that `forces` runs; shared, widths: of `Tersoff`."""
    return _form(form).force_kernel(form, shared, widths)


def room(form: Form, lists: Lists, own: int, had: Room | None) -> Room | None:
    """Memory that the kernel works in, for the longest of the lists of the `own` slots; none on a GPU."""
    if form.isa == "cuda":
        return None
    longest = int(np.diff(lists.bounds[: own + 1]).max(initial=0))
    return had if had is not None and had.longest >= longest else simd.make_room(form, longest)


def forces(
    kernel: Any, form: Form, part: Any, records: Any, slots: int, lists: Lists, given: Tersoff, room: Room | None,
    pushed: Any, tallies: Any,
) -> None:  # fmt: skip
    """Add the forces of a part of the slots, on themselves and on their neighbors, ghosts too.

    pushed: [slots, 4], or, of an exact form, [slots, 8], the multiples of two scales (`loops.COARSE`, `FINE`) side by
    side; tallies [slots, 8], where the kernel measures, are written. slots: how many, with those that lists are padded
    with. See `reference.forces_of_pairs`.
    """
    what = given.pairs.reshape(-1), given.triples.reshape(-1), given.cutoff
    if form.isa == "cuda":
        _form(form).run_forces(kernel, records, len(part), lists, *what, pushed, tallies)
        return
    assert room is not None
    pad = np.int32(RECORD * (slots - CLUSTER))
    flat = pushed.reshape(-1), tallies.reshape(-1)
    kernel(part, records.reshape(-1), lists.bounds, lists.entries, pad, *what, *room[1:], *flat)
