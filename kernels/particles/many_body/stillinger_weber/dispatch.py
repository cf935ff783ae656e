"""Chooses the form of Stillinger and Weber's potential: vectors of the CPU, or, where `Form.isa` is "cuda", a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.stillinger_weber import simd
from hpckit.kernels.particles.many_body.stillinger_weber.reference import PAIR, PARTS, TRIPLE, Tetrahedra
from hpckit.kernels.particles.pair.potential import Form

__all__ = ["PAIR", "PARTS", "TRIPLE", "Tetrahedra", "force_kernel", "forces", "moment_kernel", "moments", "near_room"]


def _form(form: Form) -> ModuleType:
    if form.isa != "cuda":
        return simd
    from hpckit.kernels.particles.many_body.stillinger_weber import cuda

    return cuda


def moment_kernel(form: Form) -> Any:
    """The kernel that `moments` runs."""
    return _form(form).moment_kernel(form)


def force_kernel(form: Form, powers: tuple[float, float] | None) -> Any:
    """The kernel that `forces` runs; powers: of `Tetrahedra`."""
    return _form(form).force_kernel(form, powers)


def near_room(form: Form) -> int:
    """Entries that `near` has for each slot beyond those of the list; none on a GPU."""
    return 0 if form.isa == "cuda" else simd.room_of(form)


def moments(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    slots: int,
    lists: Lists,
    given: Tetrahedra,
    near: Any,
    counts: Any,
    found: Any,
) -> None:
    """The moments of a part of the slots, float64[3 kinds, all slots, 4], and their neighbors within the cutoff, not on
    a GPU: near, int32, as entries of `lists` and `near_room` for each slot; counts, int32[all slots x kinds].

    records: [all slots, 4]; slots: how many, with those that lists are padded with.
    """
    parts = _parts(found)
    if form.isa == "cuda":
        _form(form).run_moments(kernel, records, len(part), lists, given, parts)
        return
    pad = np.int32(RECORD * (slots - CLUSTER))
    tables = given.pairs.reshape(-1), given.triples.reshape(-1), np.empty(simd.RAW * given.kinds)
    kernel(part, records.reshape(-1), lists.bounds, lists.entries, pad, *tables, near, counts, *parts)


def forces(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    lists: Lists,
    given: Tetrahedra,
    near: Any,
    counts: Any,
    found: Any,
    out: Any,
    tallies: Any,
) -> None:
    """The forces of a part of the slots, float64 [slots, 4], and tallies [slots, 8] where the kernel measures.

    found: the moments of all slots, with those of ghosts. See `reference.forces_of_pairs`.
    """
    parts = _parts(found)
    if form.isa == "cuda":
        _form(form).run_forces(kernel, records, len(part), lists, given, parts, out, tallies)
        return
    flat = out.reshape(-1), tallies.reshape(-1)
    kernel(part, records.reshape(-1), lists.bounds, near, counts, given.pairs.reshape(-1), *parts, *flat)


def _parts(found: Any) -> list[Any]:
    """The first parts of all kinds, the second, and the third, each flat."""
    return [part.reshape(-1) for part in found.reshape(PARTS, -1, *found.shape[1:])]
