"""Motion at a given pressure in a box that changes its shape: edges and tilts, under all six parts of the pressure."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.integrate.cell.dispatch import deform
from hpckit.md.motion.barostats import MOST_STRETCH, MTK
from hpckit.md.motion.thermostats import NoseHoover, slowed
from hpckit.md.system import System
from hpckit.md.thermo import Totals
from hpckit.plan.particles.cell import SPANS, TILTS

XY, XZ, YZ = range(3)


class FullMTK(MTK):
    """`MTK` with tilts that change too: six strain rates of an upper triangular cell, each by an equation of motion.

    tilts: which of xy, xz, yz change; shear stresses are held at 0. The others lean along with their edges. more: the
    other arguments of `MTK`. The steps come in the order of LAMMPS's `fix npt … tri`: with the same input both give the
    same digits. Raises `InputError` for unknown tilts, and at the first step for one that leans where the box is open.
    """

    def __init__(
        self,
        thermostat: NoseHoover | None,
        pressure: float,
        period: float,
        *,
        tilts: tuple[str, ...] = TILTS,
        dims: str = "xyz",
        coupled: str = "",
        **more: Any,
    ) -> None:
        super().__init__(thermostat, pressure, period, dims=dims, coupled=coupled, **more)
        if not tilts or not set(tilts) <= set(TILTS):
            raise InputError(f"a barostat changes tilts of {', '.join(TILTS)}, not {', '.join(tilts) or 'none'}")
        self.tilts = np.array([name in tilts for name in TILTS])
        self.shears = np.zeros(3)  # strain rates xy, xz, yz

    def begin(self, system: System) -> Totals:
        """Collective: sums at the start of a step."""
        for name, changes, (_, edge) in zip(TILTS, self.tilts, SPANS, strict=True):
            if changes and not system.domains.periodic[edge]:
                axis = "xyz"[edge]
                raise InputError(f"a barostat would tilt {name}, but {axis} is open", do=f"make {axis} periodic")
        return super().begin(system)

    def conserved(self, system: System, total: float) -> float:
        """The conserved quantity, with the energy of the tilts."""
        mass = self._masses(system, self._kt(system, self._now)).max()
        return super().conserved(system, total) + 0.5 * float(mass * (self.shears**2).sum())

    def saved(self) -> dict[str, Any]:
        """Barostat and chains."""
        return {**super().saved(), "shears": self.shears.tolist()}

    def restore(self, values: dict[str, Any]) -> None:
        """Set what was saved."""
        super().restore(values)
        self.shears = np.array(values["shears"])

    @property
    def _freedom(self) -> int:
        return int(self.dims.sum() + self.tilts.sum())

    def _push(self, system: System, now: Totals, dt: float) -> None:
        """Half a step of the strain rates under the pressure."""
        super()._push(system, now, dt)
        mass = self._masses(system, self._kt(system, now)).max()
        push = 0.5 * dt * (now.motion + now.virial)[3:] / mass
        self.shears = slowed(self.drag, self.period, dt) * (self.shears + np.where(self.tilts, push, 0.0))

    def _slow(self, system: System, dt: float) -> None:
        """Half a step of the velocities: half of what goes along the edges, what shears, and the other half."""
        drag = np.diag(np.sqrt(self._drag(system, dt)))
        shear = np.eye(3)
        shear[0, 1], shear[0, 2], shear[1, 2] = -0.5 * dt * self.shears
        with system.timer("integrate"):
            deform(system.particles.velocities, system.particles.slots, drag @ shear @ drag)

    def _grow(self, system: System, dt: float) -> None:
        """Change the box for a time dt: tilts for half of it, edges, and tilts again."""
        cell = system.domains.cell
        growth = np.where(self.dims, np.exp(dt * self.speeds), 1.0)
        tilt, lengths = self._lean(cell.lengths, np.array(cell.tilt), dt), cell.lengths * growth
        tilt = np.where(self.tilts, tilt, tilt * growth[[1, 2, 2]])
        tilt = self._lean(cell.lengths, tilt, dt)  # as LAMMPS has it: with the edges before
        leans = np.abs(tilt - cell.tilt) / lengths[[0, 0, 1]]
        if not ((growth > 1 / MOST_STRETCH) & (growth < MOST_STRETCH)).all() or not (leans < MOST_STRETCH - 1).all():
            raise BlowUpError(
                f"a barostat would change the edges of the box by factors of {np.round(growth, 3).tolist()} and its"
                f" tilts by {np.round(leans, 3).tolist()} of an edge in a step",
                where="all ranks",
                likely="a box that is far from its pressure, a barostat that is too fast, or a liquid, which resists no"
                " shear",
                do="raise barostat.damping, lower time.dt, hold the tilts of a liquid",
            )
        system.reshape(cell.grown(growth, tilt))

    def _lean(self, lengths: np.ndarray, tilt: np.ndarray, dt: float) -> np.ndarray:
        """Half of the change of the tilts in a time dt, with the edges as they are: h' = e h, exact along the edges."""
        (x, y, _), (xy, xz, yz), (_, ly, lz) = self.speeds, self.shears, lengths
        tilt = tilt.copy()

        def far() -> None:
            if self.tilts[XZ]:
                half = np.exp(0.125 * dt * x)
                tilt[XZ] = half * (half * tilt[XZ] + 0.25 * dt * (xy * tilt[YZ] + xz * lz))

        far()
        if self.tilts[YZ]:
            half = np.exp(0.25 * dt * y)
            tilt[YZ] = half * (half * tilt[YZ] + 0.5 * dt * yz * lz)
        if self.tilts[XY]:
            half = np.exp(0.25 * dt * x)
            tilt[XY] = half * (half * tilt[XY] + 0.5 * dt * xy * ly)
        far()
        return tilt

    def _hold_barostat(self, system: System, dt: float, now: Totals) -> None:
        """Half a step of the chain that holds the barostat."""
        kt = self._kt(system, now)
        masses = self._masses(system, kt)
        doubled = float((masses * self.speeds**2)[self.dims].sum() + masses.max() * (self.shears**2).sum())
        factor = self.chain.half(dt, doubled, self._freedom, self._held_at(system, kt), kt)
        self.speeds, self.shears = self.speeds * factor, self.shears * factor
