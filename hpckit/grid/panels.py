"""Runs the exchange of a cubed sphere: the messages of its `PanelPlan`, one to each rank that needs cells."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.buffer import MessageBuffer
from hpckit.comm.checksums import End, Seals
from hpckit.comm.mesh import Mesh
from hpckit.comm.progress import Begun, Unfinished
from hpckit.grid.field import Field
from hpckit.kernels.particles.records.dispatch import put_values, take_values
from hpckit.kernels.sphere.dispatch import copy
from hpckit.plan.grid.panels import PanelPlan
from hpckit.plan.protocol import Ends, Ints

__communicates__ = True  # its frames are not call sites


class PanelExchange(Begun):
    """The rows beyond the sides of a rank's panels, for fields like `field`, whose components go together.

    `exchange(field)` returns them, float64[components, cells] on the field's device, in the order of `plan.strips`; the
    next call overwrites them. Collective, in double precision. Raises `InputError` for other grids than six square
    panels.
    """

    def __init__(self, mesh: Mesh, field: Field) -> None:
        self.mesh, self.device = mesh, field.device
        self.plan = PanelPlan(field.decomposition, itemsize=8.0 * int(np.prod(field.components, dtype=int)))
        self._width = int(np.prod(field.components, dtype=int))
        (step,) = self.plan.steps()
        own = field.decomposition.local_shape(mesh.rank)
        inside = np.arange(np.prod(own)).reshape(own)[field.decomposition.interior].reshape(-1)
        count = len(self.plan.needed(mesh.rank))
        sends = dict(self._part(step.sends, inside))
        receives = dict(self._part(step.receives, np.arange(count), self.plan.most_owned))
        own_cells = sends.pop(mesh.rank, None), receives.pop(mesh.rank, None)
        self._own = None if own_cells[0] is None else tuple(map(self.device.to_device, own_cells))
        self._sends, self._receives = list(sends.items()), list(receives.items())
        self.ghosts = self.device.zeros((self._width, count))
        self._from = [self.device.to_device(cells) for _, cells in self._sends]
        self._to = [self.device.to_device(cells) for _, cells in self._receives]
        self._out = [MessageBuffer(self.device, len(cells), self._width) for _, cells in self._sends]
        self._in = [MessageBuffer(self.device, len(cells), self._width) for _, cells in self._receives]
        self._tag = mesh.lasting_tags(2)
        self._requests: list[MPI.Request] = []
        peers = [peer for peer, _ in self._receives]
        self._report = mesh.observer.exchange(mesh.comm, "panels", "panel exchange", "float64", peers)
        self._seals = Seals(mesh.comm) if mesh.observer.checks_messages else None
        self.wait_seconds = 0.0
        self._outlive()

    def unfinished(self) -> Unfinished | None:
        """The messages that were started and not finished."""
        return Unfinished("a panel exchange", None, self._requests) if self._requests else None

    def _part(self, ends: Ends, cells: Ints, first: int = 0) -> list[tuple[int, Ints]]:
        """The rank's messages of one end: peer, and the place of each cell in memory."""
        assert ends.cells is not None
        return [
            (int(ends.peer[m]), cells[ends.cells[ends.first[m] : ends.last[m]] - first])
            for m in ends.of(self.mesh.rank)
        ]

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to others in an exchange."""
        return sum(8 * self._width * len(cells) for _, cells in self._sends)

    def __call__(self, field: Field) -> Any:
        """The rows beyond the sides, float64[components, cells]; see above."""
        comm = self.mesh.comm
        values, ghosts = field.data.reshape(self._width, -1, 1), self.ghosts.reshape(self._width, -1, 1)
        reporting = self.mesh.observer.on and bool(self._in)
        if reporting:
            self._report.begin()
        for (_, cells), places, buffer in zip(self._sends, self._from, self._out, strict=True):
            take_values(values, places, len(cells), buffer.values)
        self._requests = []
        for ends, buffers, start in ((self._receives, self._in, comm.Irecv), (self._sends, self._out, comm.Isend)):
            for (peer, cells), buffer in zip(ends, buffers, strict=True):
                if buffers is self._out:
                    buffer.leave()
                self._requests.append(start(buffer.message(0, len(cells)), peer, self._tag))
        self._seal()
        if reporting:
            self._report.posted()
        if self._own is not None:
            copy(values[..., 0], self._own[0], self.ghosts, self._own[1])
        if reporting:
            self._report.wait()
        begin = time.perf_counter()
        MPI.Request.Waitall(self._requests)
        self._requests = []
        waited = time.perf_counter() - begin
        self.wait_seconds += waited
        if reporting:
            self._report.end(waited=waited)
        if self._seals is not None:
            self._seals.finish(self._ends(self._receives, self._in))
        for (_, cells), places, buffer in zip(self._receives, self._to, self._in, strict=True):
            buffer.arrive()
            put_values(buffer.values, ghosts, places, 0, len(cells))
        return self.ghosts

    def _seal(self) -> None:
        """Send the checksums of what others need."""
        if self._seals is not None:
            expected = [(peer, self._tag + 1) for peer, _ in self._receives]
            self._seals.start(self._ends(self._sends, self._out), expected)

    def _ends(self, ends: list[tuple[int, Ints]], buffers: list[MessageBuffer]) -> list[End]:
        """The rows of each peer."""
        return [
            End(peer, self._tag + 1, "rows of panels", [buffer.on_host()])
            for (peer, _), buffer in zip(ends, buffers, strict=True)
        ]
