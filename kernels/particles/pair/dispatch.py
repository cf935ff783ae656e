"""Chooses the form of the pair forces: vectors of the CPU, or, where `Form.isa` is "cuda", a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from hpckit.kernels.particles.pair import simd
from hpckit.kernels.particles.pair.potential import CUTOFF2, OWN, SHIFT, Form, Potential
from hpckit.kernels.particles.pair.reference import TALLY

__all__ = ["CUTOFF2", "OWN", "SHIFT", "TALLY", "Form", "Potential", "force_kernel", "forces", "stored_table"]


def _form(form: Form) -> ModuleType:
    if form.isa != "cuda":
        return simd
    from hpckit.kernels.particles.pair import cuda

    return cuda


def force_kernel(potential: Potential, form: Form) -> Any:
    """The kernel of a potential in a form, which `forces` runs.

    Raises `TypeError` for a potential whose force cannot be derived for a GPU.
    """
    return _form(form).force_kernel(potential, form)


def stored_table(
    table: np.ndarray, form: Form, rows: np.ndarray | None = None, rows_at: int | None = None
) -> np.ndarray:
    """A table [types, types, parameters] as kernels of this form read it, flat; a NumPy array.

    rows, rows_at: as of `potential.with_rows`.
    """
    return _form(form).stored_table(table, form, rows, rows_at)


def forces(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    bounds: Any,
    ends: Any,
    entries: Any,
    table: Any,
    out: Any,
    tallies: Any,
) -> None:
    """The forces of a part of the slots, float64 [slots, 4], and tallies [slots, 8] where the kernel measures.

    part, bounds, entries: of a neighbor list (`kernels.particles.cells.reference.Lists`); ends: where the lists of
    slots end, which a GPU has in `bounds`; records: [all slots, 4] of the form's precision. See
    `reference.forces_of_pairs`.
    """
    if form.isa == "cuda":
        _form(form).run(kernel, records, len(part), entries, bounds, table, form.types, out, tallies)
    else:
        kernel(part, records.reshape(-1), bounds, ends, entries, table, out.reshape(-1), tallies.reshape(-1))
