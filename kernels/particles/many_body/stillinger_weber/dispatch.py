"""Chooses the form of Stillinger and Weber's potential: vectors of the CPU, or, where `Form.isa` is "cuda", a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.stillinger_weber import simd
from hpckit.kernels.particles.many_body.stillinger_weber.reference import PARTS, Silicon
from hpckit.kernels.particles.pair.potential import Form

__all__ = ["PARTS", "Silicon", "force_kernel", "forces", "moment_kernel", "moments"]


def _form(form: Form) -> ModuleType:
    if form.isa != "cuda":
        return simd
    from hpckit.kernels.particles.many_body.stillinger_weber import cuda

    return cuda


def moment_kernel(form: Form) -> Any:
    """The kernel that `moments` runs."""
    return _form(form).moment_kernel(form)


def force_kernel(form: Form, p: float, q: float) -> Any:
    """The kernel that `forces` runs."""
    return _form(form).force_kernel(form, p, q)


def moments(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    slots: int,
    lists: Lists,
    given: Silicon,
    near: Any,
    counts: Any,
    found: Any,
) -> None:
    """The moments of a part of the slots, float64[3, all slots, 4], and their neighbors within the cutoff (int32, as
    entries of `lists`; not on a GPU). records: [all slots, 4]; slots: how many, with those that lists are padded with.
    """
    parts = [found[k].reshape(-1) for k in range(PARTS)]
    if form.isa == "cuda":
        _form(form).run_moments(kernel, records, len(part), lists, given, parts)
        return
    pad = np.int32(RECORD * (slots - CLUSTER))
    kernel(part, records.reshape(-1), lists.bounds, lists.entries, pad, given, near, counts, *parts)


def forces(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    lists: Lists,
    given: Silicon,
    near: Any,
    counts: Any,
    found: Any,
    out: Any,
    tallies: Any,
) -> None:
    """The forces of a part of the slots, float64 [slots, 4], and tallies [slots, 8] where the kernel measures.

    found: the moments of all slots, with those of ghosts. See `reference.forces_of_pairs`.
    """
    parts = [found[k].reshape(-1) for k in range(PARTS)]
    if form.isa == "cuda":
        _form(form).run_forces(kernel, records, len(part), lists, given, parts, out, tallies)
        return
    flat = out.reshape(-1), tallies.reshape(-1)
    kernel(part, records.reshape(-1), lists.bounds, near, counts, given, *parts, *flat)
