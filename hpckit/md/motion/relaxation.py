"""A cell that goes down to a pressure along with its particles: what a minimization does with the box.

The strain of the cell is one more set of places. In lengths it is d sqrt(N) times the strain, d the mean distance
(V / N)^(1/3), with the mean mass of a particle: so the cell swings about as fast as neighbor particles do, and one
time step serves both.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.md.motion.barostats import MOST_STRETCH, Barostat
from hpckit.md.system import System
from hpckit.md.thermo import totals, volume
from hpckit.plan.particles.cell import SPANS, TILTS


class Relaxation(Barostat):
    """The forces that strain the cell, and its motion; all numbers are the same on every rank.

    pressure, dims, coupled: as of `Barostat`; tilts: which of xy, xz, yz change, too. The virial counts, and not the
    motion: a minimum is at rest. rates: float64[6], of the strains xx, yy, zz, xy, xz, yz.
    """

    def __init__(self, pressure: float, dims: str = "xyz", coupled: str = "xyz", tilts: tuple[str, ...] = ()) -> None:
        super().__init__(pressure, 1.0, dims, coupled)
        if not set(tilts) <= set(TILTS):
            raise InputError(f"a box changes tilts of {', '.join(TILTS)}, not {', '.join(tilts)}")
        self.tilts = np.array([name in tilts for name in TILTS])
        self.rates, self._forces = np.zeros(6), np.zeros(6)
        self.count, self._length, self._per_force = 0, 1.0, 1.0  # particles; 0: no forces are known yet

    @property
    def largest_force(self) -> float:
        """The largest force on the cell, of a particle's share: the excess of the pressure times d^2."""
        return float(np.abs(self._forces).max()) / math.sqrt(self.count)

    def push(self, system: System) -> None:
        """Collective: the forces of the present virial."""
        self.begin(system)
        now, room = totals(system), volume(system)
        virial = now.virial.copy()
        virial[:3] -= self.pressure / system.units.pressure * room
        if self.together.any():
            virial[:3][self.together] = virial[:3][self.together].mean()
        virial *= [*self.dims, *self.tilts]
        self.count = system.count
        self._length = (room / system.count) ** (1 / 3) * math.sqrt(system.count)
        self._forces = virial / self._length
        mass = float(system.masses @ system.type_counts) / system.count
        self._per_force = system.units.acceleration / mass / self._length  # rates per force and time
        for name, changes, (_, edge) in zip(TILTS, self.tilts, SPANS, strict=True):
            if changes and not system.domains.periodic[edge]:
                axis = "xyz"[edge]
                raise InputError(f"the box would tilt by {name}, and is open along {axis}", do=f"make {axis} periodic")

    def powers(self) -> np.ndarray:
        """Of the strains as lengths v . f, f . f and v . v: float64[3]."""
        speeds = self._length * self.rates
        return np.array([speeds @ self._forces, self._forces @ self._forces, speeds @ speeds])

    def steer(self, keep: float, toward: float) -> None:
        """Turn the rates toward the forces, as particles turn."""
        self.rates = keep * self.rates + toward / self._length * self._forces

    def kick(self, dt: float) -> None:
        """Change the rates by the forces."""
        self.rates = self.rates + dt * self._per_force * self._forces

    def limit(self, fastest: float) -> None:
        """Slow the rates down until no neighbors part faster than `fastest`."""
        speed = self._length / math.sqrt(self.count) * float(np.abs(self.rates).max())
        self.rates = self.rates * min(1.0, fastest / speed) if speed > 0 else self.rates

    def grow(self, system: System, dt: float) -> None:
        """Strain the cell, and take the particles along. Raises `BlowUpError` for a large strain in a step."""
        strain = dt * self.rates
        if not np.abs(strain).max() < MOST_STRETCH - 1:
            raise BlowUpError(
                f"a minimization would strain the box by {np.round(strain, 3).tolist()} in a step",
                where="all ranks",
                likely="a box that is far from its pressure, or potentials without a minimum",
                do="lower time.dt, or start from a box nearer to its pressure",
            )
        cell = system.domains.cell
        (xx, yy, zz, e_xy, e_xz, e_yz), (_, ly, lz) = strain, cell.lengths
        factors = 1.0 + np.array([xx, yy, zz])
        if not (cell.tilted or self.tilts.any()):
            system.stretch(factors)
            return
        xy, xz, yz = cell.tilt
        tilt = factors[0] * xy + e_xy * ly, factors[0] * xz + e_xy * yz + e_xz * lz, factors[1] * yz + e_yz * lz
        system.reshape(cell.grown(factors, tilt))
