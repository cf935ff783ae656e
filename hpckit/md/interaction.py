"""Interactions of particles: a pair potential with its table of parameters, or tables of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpckit.errors import InputError
from hpckit.io.particles.lammps_table import PairTable
from hpckit.kernels.particles.pair.curves import rows
from hpckit.kernels.particles.pair.potential import CUTOFF2, Potential
from hpckit.kernels.particles.pair.tabulated import POTENTIAL

MOST_ROWS = 1 << 24  # float32 counts exactly up to it


@dataclass(frozen=True, eq=False)
class Interaction:
    """A potential and its parameters for each pair of types: table [types, types, parameters], symmetric.

    tail_energy, tail_virial: the mean contribution of pairs beyond the cutoff in a uniform system of unit volume, for
    each pair of types [types, types] (energy and sum of r . f per pair of particles); zeros for none. rows: the lookup
    table of a tabulated potential, [n, 4].
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
        """The number of types."""
        return len(self.table)

    @property
    def one_cutoff(self) -> bool:
        """Whether all pairs of types have the same cutoff."""
        return bool((self.table[:, :, CUTOFF2] == self.table[0, 0, CUTOFF2]).all())

    @property
    def cutoff(self) -> float:
        """The longest of the cutoffs."""
        return float(np.sqrt(self.table[:, :, CUTOFF2].max()))


def tabulated(
    tables: PairTable | Sequence[Sequence[PairTable]],
    cutoffs: float | np.ndarray,
    *,
    points: int = 1000,
    interpolation: str = "spline",
    shift: bool = False,
) -> Interaction:
    """A tabulated interaction: tables [types][types] with their cutoffs [types, types]; a single table serves one type.

    points: grid points in equal steps of r^2 from the first distance of a table to the cutoff, interpolated by cubic
    splines ("spline") or straight lines ("linear"): `pair_style table spline N` and `linear N` of LAMMPS. A table takes
    64 bytes per point. Raises `InputError` for a cutoff outside its table. Forces are nan for particles closer than the
    first distance.
    """
    every = [[tables]] if isinstance(tables, PairTable) else tables
    types = len(every)
    cutoffs = np.broadcast_to(np.asarray(cutoffs, np.float64), (types, types))
    if interpolation not in ("spline", "linear"):
        raise InputError(f"interpolation is spline or linear, not {interpolation!r}")
    if points < 2:
        raise InputError(f"a table needs at least 2 points, not {points}")
    if 2 * points * types * types > MOST_ROWS:
        raise InputError(f"{types * types} tables of {points} points are too many", do="give fewer points")
    parameters = np.zeros((types, types, POTENTIAL.parameters))
    found: list[np.ndarray] = []
    made: dict[tuple[int, float], int] = {}  # tables that pairs share are kept once
    for a, b in np.ndindex(types, types):
        table, cutoff = every[a][b], float(cutoffs[a, b])
        inner = float(table.r[0])
        if not inner < cutoff <= table.r[-1]:
            raise InputError(
                f"the cutoff {cutoff:g} is not within the table {table.name}, which goes from {inner:g} to"
                f" {table.r[-1]:g}",
                do=f"give a cutoff of at most {table.r[-1]:g}",
            )
        if (id(table), cutoff) not in made:
            made[id(table), cutoff] = 2 * points * len(found)
            curve = table.r, table.energy, table.force
            found.append(rows(*curve, inner, cutoff, points, interpolation == "spline", table.slopes))
        first = made[id(table), cutoff]
        edge = found[first // (2 * points)][2 * points - 1, 0] if shift else 0.0
        scale = (points - 1) / (cutoff**2 - inner**2)
        parameters[a, b] = cutoff**2, edge, inner**2, scale, points - 1, first
    return Interaction(POTENTIAL, parameters, rows=np.concatenate(found))
