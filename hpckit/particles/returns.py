"""What ghosts have gathered goes back to the particles that they are images of, and is added: the ghost exchange
transposed. Forces of potentials whose energy at a particle depends on all that is near it, and gradients of features
that ghosts were given, come home by it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.buffer import MessageBuffer
from hpckit.comm.checksums import End, Seals
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.progress import Begun, Unfinished
from hpckit.comm.shared.transport import open_rows
from hpckit.kernels.particles.records.dispatch import add_copies, add_values, take_values
from hpckit.particles.ghosts import GhostExchange

__communicates__ = True  # its frames are not call sites


class GhostReturn(Begun):
    """Sends `values` numbers of each ghost of `ghosts` to its owner, which adds them to its own: the same messages as
    those of ghosts, backward. Made by all ranks; call `rebuild` after each of `GhostExchange.rebuild` and `settle`.

    Sums are added in the order of the peers, so that bits depend on the number of ranks, unless all sums are exact, as
    those of `kernels.particles.loops` are.
    """

    def __init__(self, ghosts: GhostExchange, values: int) -> None:
        self._ghosts, self._values = ghosts, values
        self.mesh: Mesh = ghosts.mesh
        self.device: Device = ghosts.device
        self._tag = self.mesh.lasting_tags(2)
        near = ghosts.within_node
        node = None if isinstance(near, bool) else near
        self._mail = open_rows(self.mesh.comm, values, node) if near and not self.device.is_gpu else None
        self._requests: list[MPI.Request] = []
        self._observer = self.mesh.observer
        self._report = self.mesh.observer.exchange(self.mesh.comm, "ghosts back", "return of ghosts", "float64")
        self._seals = Seals(self.mesh.comm) if self.mesh.observer.checks_messages else None
        self.wait_seconds = 0.0
        self._outlive()

    def unfinished(self) -> Unfinished | None:
        """The messages that were started and not finished."""
        return Unfinished("a return of ghosts", None, self._requests) if self._requests else None

    def rebuild(self) -> None:
        """Collective: take up the ghosts of the last rebuild."""
        near, far, sent, received, chosen, slots = self._ghosts.routes
        if self._mail is None:
            near, far = [], [*near, *far]
        self._near, self._far = near, far
        self._images, count = sent[0], len(near)
        self._chosen, self._slots = chosen, slots
        self._given, self._gone = sum(received[:count]), sum(received[count:])
        self._back = sum(sent[1 : 1 + count]), sum(sent[1 + count :])
        self._leaving, self._coming = received[count:], sent[1 + count :]
        self._received, self._sent = received, sent[1:]
        if self._mail is not None:
            self._mail.prepare(near, received[:count])
        self._out = MessageBuffer(self.device, self._gone, self._values)
        self._in = MessageBuffer(self.device, self._back[1], self._values)
        self._report.meet([*near, *far])

    def start(self, values: Any) -> None:
        """Send the values of ghosts, float64[parts, slots, width], of which a ghost has parts x width."""
        reporting = self._observer.on and bool(self._near or self._far)
        if reporting:
            self._report.begin()
        first = self._images
        given = np.empty((0, self._values))
        if self._mail is not None:
            if self._given:
                given = self._mail.out(self._values)
                take_values(values, self._slots[first : first + self._given], self._given, given)
                if self._seals is not None:
                    given = given.copy()  # as in `GhostExchange._give`
            self._mail.post()
        if self._far:
            take_values(values, self._slots[first + self._given :], self._gone, self._out.values)
            self._out.leave()
            self._requests = self._communicate()
        if self._seals is not None:
            rows = np.concatenate([given, self._out.on_host()])
            parts = np.split(rows, np.cumsum(self._received)[:-1]) if self._received else []
            self._seals.start(self._ends(parts), [(peer, self._tag + 1) for peer in (*self._near, *self._far)])
        if reporting:
            self._report.posted()

    def finish(self, values: Any) -> None:
        """Wait for what ghosts elsewhere have, and add it, and what own images have, to the particles."""
        add_copies(values, self._chosen, self._images, self._slots)
        if not (self._near or self._far):
            return
        if self._observer.on:
            self._report.wait()
        begin = time.perf_counter()
        if self._mail is not None:
            self._mail.wait()
        if self._requests:
            MPI.Request.Waitall(self._requests)
            self._requests = []
        waited = time.perf_counter() - begin
        self.wait_seconds += waited
        if self._observer.on:
            self._report.end(waited=waited)
        near = [] if self._mail is None else self._mail.received(self._values)
        if self._seals is not None:
            far = np.split(self._in.on_host(), np.cumsum(self._coming)[:-1]) if self._far else []
            self._seals.finish(self._ends([*near, *far]))
        self._in.arrive()
        first = self._images
        for came in (*near, self._in.values):
            if len(came):
                add_values(came, values, self._chosen, first, first + len(came))
                first += len(came)

    def advance(self) -> None:
        """Let MPI progress the messages under way."""
        if self._requests:
            MPI.Request.Testall(self._requests)

    def _communicate(self) -> list[MPI.Request]:
        comm, requests = self.mesh.comm, []
        for buffer, counts, start in (
            (self._in, self._coming, comm.Irecv),
            (self._out, self._leaving, comm.Isend),
        ):
            end = 0
            for peer, count in zip(self._far, counts, strict=True):
                end += count
                if count:
                    requests.append(start(buffer.message(end - count, end), peer, self._tag))
        return requests

    def _ends(self, parts: list[np.ndarray]) -> list[End]:
        """The rows of each peer."""
        ends = zip((*self._near, *self._far), parts, strict=False)
        return [End(peer, self._tag + 1, "values of ghosts", [rows]) for peer, rows in ends]
