"""Chooses the form of the charged pairs: the vectors of the CPU, or, where `Form.isa` is "cuda", a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hpckit.kernels.forms import form_for
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.charged import simd
from hpckit.kernels.particles.charged.simd import choose_partners
from hpckit.kernels.particles.pair.potential import Form, Potential

__all__ = ["add_partners", "choose_partners", "force_kernel", "forces", "leave_out"]


def _form(form: Form) -> ModuleType:
    if form.isa != "cuda":
        return simd
    from hpckit.kernels.particles.charged import cuda

    return cuda


def force_kernel(potential: Potential, form: Form, kind: tuple) -> Any:
    """The kernel of a potential and a screening (`Screening.key`) in a form, which `forces` runs."""
    return _form(form).force_kernel(potential, form, kind)


def forces(
    kernel: Any,
    form: Form,
    part: Any,
    records: Any,
    lists: Lists,
    table: Any,
    charges: Any,
    constants: Any,
    out: Any,
    tallies: Any,
    energies: Any,
) -> None:
    """The forces of a part of the slots, float64 [slots, 4], and where the kernel measures tallies [slots, 8] and the
    energies of charges [slots]. table: `pair.dispatch.stored_table`; charges (of all slots) and constants in the form's
    precision. See `reference.forces_of_pairs`.
    """
    given = table, charges, constants
    if form.isa == "cuda":
        _form(form).run(kernel, records, len(part), lists, *given, form.types, out, tallies, energies)
        return
    flat = out.reshape(-1), tallies.reshape(-1), energies
    kernel(part, records.reshape(-1), lists.bounds, lists.entries, *given, *flat)


def leave_out(bounds: Any, *given: Any) -> None:
    """See `cuda.leave_out`; lists of the host are made without partners."""
    form_for(__package__, bounds).leave_out(bounds, *given)


def add_partners(potential: Potential, kind: tuple, slots: int, positions: Any, *given: Any) -> None:
    """See `reference.add_partners`."""
    form_for(__package__, positions).add_partners(potential, kind, slots, positions, *given)
