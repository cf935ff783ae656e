"""Chooses the form of the embedded-atom kernels: vectors of the CPU, or, where `Form.isa` is "cuda", a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.many_body.eam import simd
from hpckit.kernels.particles.many_body.eam.curves import EamTables
from hpckit.kernels.particles.pair.potential import Form

__all__ = ["densities", "density_kernel", "force_kernel", "forces"]


def _form(form: Form) -> ModuleType:
    if form.isa != "cuda":
        return simd
    from hpckit.kernels.particles.many_body.eam import cuda

    return cuda


def density_kernel(form: Form) -> Any:
    """The kernel that `densities` runs."""
    return _form(form).density_kernel(form)


def force_kernel(form: Form) -> Any:
    """The kernel that `forces` runs."""
    return _form(form).force_kernel(form)


def densities(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    slots: int,
    lists: Lists,
    given: EamTables,
    near: Any,
    counts: Any,
    slopes: Any,
    energies: Any,
) -> None:
    """F' and F of a part of the slots, float64[all slots], and their neighbors within the cutoff (int32, as entries of
    `lists`; not on a GPU). records: [all slots, 4]; slots: how many, with those that lists are padded with.
    """
    if form.isa == "cuda":
        _form(form).run_densities(kernel, records, len(part), lists, given, slopes, energies)
        return
    pad = np.int32(RECORD * (slots - CLUSTER))
    table = given.cutoff2, given.scale, given.points, given.pairs, given.embedding, given.density_scale
    out = near, counts, slopes, energies
    kernel(part, records.reshape(-1), lists.bounds, lists.entries, pad, *table, *out)


def forces(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    lists: Lists,
    given: EamTables,
    near: Any,
    counts: Any,
    slopes: Any,
    energies: Any,
    out: Any,
    tallies: Any,
) -> None:
    """The forces of a part of the slots, float64 [slots, 4], and tallies [slots, 8] where the kernel measures.

    slopes: of all slots, with those of ghosts. See `reference.forces_of_pairs`.
    """
    if form.isa == "cuda":
        _form(form).run_forces(kernel, records, len(part), lists, given, slopes, energies, out, tallies)
        return
    what = records.reshape(-1), lists.bounds, near, counts, given.cutoff2, given.scale, given.points, given.pairs
    kernel(part, *what, slopes, energies, out.reshape(-1), tallies.reshape(-1))
