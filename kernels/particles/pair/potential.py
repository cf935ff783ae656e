"""What a pair potential is to the force kernels: compiled functions of the squared distance, and parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ROW = 4  # numbers in a row of a tabulated potential
CUTOFF2, SHIFT, OWN = 0, 1, 2  # parameters of every pair of types: squared cutoff, energy shift; then the potential's


@dataclass(frozen=True)
class Potential:
    """A radial potential E(r2, p): `force(r2, p)` is -dE/dr / r, `energy_and_force(r2, p)` both, without the shift.

    The functions are compiled (`compile.jit.inlined`) and take numbers or vectors; p holds `parameters` numbers, first
    `CUTOFF2` and `SHIFT`, which is taken off the energy. clamp: whether r2 is held to the cutoff before the call, as
    functions need that are slow far out, where the numbers of an exponential no longer have all their bits. `key` names
    the potential and all that is compiled into it. sources: the two functions as Python where they were traced: a GPU
    compiles them from there. rows_at: for functions that take the kernel's whole
    table as third argument (`tabulated`), the parameter that is the number of a row of four behind the parameters, else
    None; `reference` is then their form for NumPy, energy_and_force(r2, p, rows). by_inverse: both functions as
    (1/r2, r2, p), for loops that have the inverse at hand.
    """

    key: tuple
    parameters: int
    force: Callable[..., Any] = field(compare=False)
    energy_and_force: Callable[..., Any] = field(compare=False)
    clamp: bool = True
    sources: tuple[str, str] | None = field(default=None, compare=False)
    rows_at: int | None = None
    reference: Callable[..., Any] | None = field(default=None, compare=False)
    by_inverse: tuple[Callable[..., Any], Callable[..., Any]] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Form:
    """What a force kernel is made for.

    isa: an entry of `simd.available()`, or "cuda"; kind: "d", or "f" for arithmetic in float32 with sums in float64;
    types: kinds of particles; measure: whether it also writes energies and virials; exact: whether forces are added
    without rounding, so that their bits depend neither on the order of the neighbors nor on how they are grouped;
    one_cutoff: whether all pairs of types have the same, which then needs no looking up.
    """

    isa: str
    kind: str = "d"
    types: int = 1
    measure: bool = False
    exact: bool = False
    one_cutoff: bool = False

    @property
    def lanes(self) -> int:
        """Neighbors that are taken at a time: what lists are padded to."""
        if self.isa in ("scalar", "cuda"):
            return 1
        return (16 if self.kind == "f" else 8) // (1 if self.isa == "avx512" else 2)

    @property
    def near_types(self) -> int:
        """Types that fit 16 bytes: these are looked up by a quicker instruction."""
        return 0 if self.isa == "scalar" else 4 if self.kind == "f" else 2

    @property
    def stored_types(self) -> int:
        """Types in a row of the table: whole registers, but for one type and for plain loops."""
        return self.types if self.types == 1 or self.isa == "scalar" else -(-self.types // self.lanes) * self.lanes

    @property
    def dtype(self) -> np.dtype:
        """Of the records and the table."""
        return np.dtype(np.float32 if self.kind == "f" else np.float64)


def with_rows(store: Callable, table: np.ndarray, rows: np.ndarray | None, at: int | None) -> np.ndarray:
    """`store(table)`, flat, with `rows` [n, 4] behind it at a multiple of four.

    Parameter `at` of each pair of types counts from the first of `rows`; in the result it counts from the first number.
    """
    flat = store(table)
    if rows is None or at is None:
        return flat
    first = -(-flat.size // ROW)
    moved = table.copy()
    moved[..., at] += first
    gap = np.zeros(ROW * first - flat.size)
    return np.concatenate([store(moved), gap, rows.ravel()]).astype(flat.dtype)
