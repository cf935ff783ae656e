"""What particles do to each other: a pair potential with its table of parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.pair.potential import CUTOFF2, Potential


@dataclass(frozen=True, eq=False)
class Interaction:
    """A potential and its parameters for each pair of types: table [types, types, parameters], symmetric.

    tail_energy, tail_virial: what pairs beyond the cutoff would add, on average, in a uniform system of unit volume for
    each pair of types [types, types] (energy and sum of r . f per pair of particles); zeros for none. rows: what a
    tabulated potential looks up, [n, 4].
    """

    potential: Potential
    table: np.ndarray
    tail_energy: np.ndarray | None = None
    tail_virial: np.ndarray | None = None
    rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        shape = self.table.shape
        if len(shape) != 3 or shape[0] != shape[1] or shape[2] != self.potential.parameters:
            raise InputError(
                f"a table of {self.potential.key[0]} is [types, types, {self.potential.parameters}], not {list(shape)}"
            )
        if not np.isfinite(self.table).all():
            raise InputError(f"the parameters of {self.potential.key[0]} must be finite")

    @property
    def types(self) -> int:
        """Kinds of particles."""
        return len(self.table)

    @property
    def one_cutoff(self) -> bool:
        """Whether all pairs of types have the same cutoff."""
        return bool((self.table[:, :, CUTOFF2] == self.table[0, 0, CUTOFF2]).all())

    @property
    def cutoff(self) -> float:
        """The longest of the cutoffs."""
        return float(np.sqrt(self.table[:, :, CUTOFF2].max()))
