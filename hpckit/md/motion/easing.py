"""Weak coupling of the box to a pressure: Berendsen et al. (1984), J. Chem. Phys. 81, 3684; fix press/berendsen."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.md.motion.barostats import Barostat
from hpckit.md.motion.dynamics import Dynamics
from hpckit.md.system import System
from hpckit.md.thermo import totals


class WeakBox(Barostat):
    """A dynamics after whose steps the edges of the box grow such that the pressure goes to another one in a time
    `period`, for a bulk modulus `modulus` (a pressure); about the middle of the box, where it is periodic. The
    distribution of volumes is not canonical. dims, coupled: as of `Barostat`.
    """

    def __init__(
        self, inner: Dynamics, pressure: float, period: float, modulus: float, dims: str = "xyz", coupled: str = "xyz"
    ) -> None:
        super().__init__(pressure, period, dims, coupled)
        self.inner, self.modulus = inner, modulus

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of the dynamics, then the change of the box; see `Dynamics.step`."""
        self.begin(system)
        self.inner.step(system, dt, measure or VIRIAL)
        over = self.excess(system, totals(system)) * system.units.pressure
        growth = np.where(self.dims, np.cbrt(1 + dt / self.period * over / self.modulus), 1.0)
        self._require_small(growth)
        cell = system.domains.cell
        system.reshape(cell.grown(growth, cell.tilt * growth[[1, 2, 2]]))

    def saved(self) -> dict[str, Any]:
        """The state of the dynamics."""
        return {**super().saved(), "inner": self.inner.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        super().restore(values)
        self.inner.restore(values["inner"])
