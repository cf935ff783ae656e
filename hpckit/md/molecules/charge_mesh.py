"""The mesh of charges of a rank, and its way to the field: on the whole mesh, or on blocks of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.particles.mesh.dispatch import SIDE, WIDTH, fold, lay_beside
from hpckit.md.system import System
from hpckit.plan.particles.charge_mesh import DIMS, ChargeMeshPlan
from hpckit.tensors.changes import LayoutChange
from hpckit.tensors.fourier import FFT


class ChargeMesh:
    """Runs a `ChargeMeshPlan` on the ranks of a system.

    start, shape: int64[3] of the box of points that this rank spreads its charges over and gathers fields from;
    charges: its points, flat, with `WIDTH` numbers behind them; beside: the three components of the field at each, side
    by side. fft: of the mesh, whose spectrum each rank has whole, or a part of it; comm: who add up sums over it.
    """

    def __init__(self, system: System, plan: ChargeMeshPlan) -> None:
        mesh, device = system.mesh, system.device
        cells, halo = plan.cells, np.array(plan.halo)
        self.plan, self.mesh = plan, mesh
        self.start = np.array(cells.start(mesh.rank), np.int64) - halo
        self.shape = np.array(cells.owned(mesh.rank), np.int64) + 2 * halo
        local = tuple(self.shape.tolist())
        count = math.prod(local)
        # Vectors touch some numbers behind the last row.
        self.charges, self.beside = device.zeros((count + WIDTH,)), device.zeros((count + WIDTH, SIDE))
        self._box = self.charges[:count].reshape(local)
        self.fft = FFT(mesh, plan.shape, layout=plan.layout)
        self.comm = MPI.COMM_SELF if plan.whole and not plan.sharing else mesh.comm
        if plan.whole:
            self._whole = device.zeros(plan.shape)
            self._total, self._gathering = (
                None if each is None else LayoutChange(mesh, each, np.dtype(np.float64))
                for each in (plan.total, plan.gathering)
            )
            return
        self._inside = cells.interior
        self._charged = Field(mesh, cells, self._box, "charge", device=device)
        self._fields = device.zeros((DIMS, *local))
        self._each = [Field(mesh, cells, field, "field", device=device) for field in self._fields]
        self._back, self._out = HaloExchange(mesh, self._charged), HaloExchange(mesh, self._each)

    def send(self) -> None:
        """Give the other ranks the charges of this one, where each transforms the whole mesh."""
        if self.plan.whole:
            self._whole[...] = 0.0
            fold(self._box, self.start, self._whole)
            if self._total is not None:
                self._total.start(self._whole)

    def spectrum(self) -> Any:
        """Collective, after `send`: the transform of all charges."""
        if self.plan.whole:
            return self.fft.forward(self._whole if self._total is None else self._total.finish())
        self._back.accumulate(self._charged)
        return self.fft.forward(self._box[self._inside])

    def lay(self, spectra: Any) -> None:
        """Collective: set `beside` to the field with these transforms of its components, [3, …]."""
        fields, start = self.fft.backward(spectra), self.start
        if self.plan.whole and self._gathering is not None:
            fields = self._gathering(fields)
        elif not self.plan.whole:
            self._fields[(slice(None), *self._inside)] = fields
            self._out(self._each)
            fields, start = self._fields, np.zeros(DIMS, np.int64)
        lay_beside(fields, start, self.shape, self.beside)
