"""The ranks of a communicator that share a node: their flags and slots in shared memory."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.shared.compiled import constants as c
from hpckit.comm.shared.compiled import direct, waiting
from hpckit.comm.shared.memory import PAGE, Segment, make_segment, whole_pages
from hpckit.errors import InputError
from hpckit.jobs.process import cores

__communicates__ = True  # its frames are not call sites

FLAT_BYTES = 64 * 1024
LEAST_STAGE, MOST_STAGE, ALL_STAGES = 2**18, 2**21, 2**23  # bytes of a piece, and of those of all ranks
LEAST_READ, ALL_READS = 2**14, 2**18  # bytes that are read at a time from a rank, and from all ranks
DEADLINE = 600.0  # s that a rank waits for another
SPINS = 4000  # polls of a flag before the core is yielded; only a few if ranks outnumber cores
ABORT_AT, PROCESSES_AT = 0, 64  # in the head of the segment


@dataclass(frozen=True)
class SymmetricBuffer:
    """A symmetric buffer: this rank's part of a segment, and the local addresses of the parts of all ranks.

    number: its index among the buffers of its group, from 1.
    """

    number: int
    address: int
    nbytes: int
    bases: np.ndarray  # int64[ranks]


class SymmetricBuffers:
    """The symmetric buffers of a group that are still alive; compiled calls look them up too."""

    def __init__(self, record: np.ndarray) -> None:
        self._record, self._places = record, dict[int, SymmetricBuffer]()
        self._made = 0
        self._note()

    def make(self, segment: Segment, address: int, nbytes: int, bases: np.ndarray) -> None:
        """Register a buffer for the lifetime of its memory."""
        self._made += 1
        self._places[address] = SymmetricBuffer(self._made, address, nbytes, bases)
        self._note()
        weakref.finalize(segment.mapping, self._forget, address)

    def of(self, array: Any) -> SymmetricBuffer | None:
        """The symmetric buffer that holds all elements of an array; None for other arrays."""
        if self._places and isinstance(array, np.ndarray):
            start = array.ctypes.data
            for place in self._places.values():
                if place.address <= start and start + array.nbytes <= place.address + place.nbytes:
                    return place
        return None

    def _forget(self, address: int) -> None:
        del self._places[address]
        self._note()

    def _note(self) -> None:
        rows = [(place.address, place.address + place.nbytes, place.number) for place in self._places.values()]
        self._table = np.array(rows, np.int64).reshape(-1)
        self._record[c.PLACES], self._record[c.PLACE_COUNT] = self._table.ctypes.data, len(rows)


class NodeGroup:
    """The ranks of `comm`, which share a node, with their flags and slots in one shared segment.

    Made by `node_group`; collective. All its ranks call its collectives (`hpckit.comm.shared.calls`) in the same order,
    from one thread at a time. `deadline` is how long a rank waits for another, in seconds. Raises `SetupError` if the
    ranks cannot share memory.
    """

    def __init__(self, comm: MPI.Comm, deadline: float = DEADLINE) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        stage_bytes = max(LEAST_STAGE, min(MOST_STAGE, ALL_STAGES // comm.size // PAGE * PAGE))
        stride = stage_bytes + -(-stage_bytes // (64 * comm.size)) * 64 + 64
        lines, counters = whole_pages(8 * comm.size + PROCESSES_AT), 2 * comm.size * c.LINE
        head = whole_pages(lines + counters + c.COUNTERS_OF_RANK * comm.size * c.LINE)
        flat, stage = 2 * FLAT_BYTES, whole_pages(c.SLOTS * stride)
        # Each rank's part holds its flat slots, then its staging slots.
        self._segment = make_segment(comm, flat + stage, head)
        self.record = np.zeros(c.GROUP_FIELDS, np.int64)
        self._work = np.zeros(3 * comm.size + 5 + c.SCRATCH_BYTES // 8, np.int64)
        at, work = self._segment.address, self._work.ctypes.data
        record = self.record
        record[c.SELF] = record.ctypes.data
        record[c.RANK], record[c.SIZE] = comm.rank, comm.size
        record[c.ABORT], record[c.LINES], record[c.COUNTERS] = at + ABORT_AT, at + lines, at + lines + counters
        record[c.FLAT], record[c.FLAT_BYTES] = at + head, FLAT_BYTES
        record[c.STAGE], record[c.STAGE_BYTES], record[c.STAGE_STRIDE] = at + head + flat, stage_bytes, stride
        record[c.PART_BYTES] = flat + stage
        record[c.SPINS] = SPINS if comm.size <= cores() else 20
        record[c.SOURCES], record[c.TARGETS] = work, work + 8 * comm.size
        record[c.FACTORS], record[c.SCRATCH] = work + 16 * comm.size + 8, work + 24 * comm.size + 40
        record[c.VECTORS] = work + 24 * comm.size + 8
        self.deadline = deadline
        processes = self._segment.memory[PROCESSES_AT : PROCESSES_AT + 8 * comm.size].view(np.int64)
        processes[comm.rank] = os.getpid()
        if self._segment.same_processes:
            record[c.PROCESSES] = processes.ctypes.data
        self.reads = self._reads_others()
        self.places = SymmetricBuffers(record)
        self.calls: dict[str, Any] = {}  # that are kept for it: see `hpckit.comm.shared.calls`
        comm.Barrier()

    def gone(self) -> int:
        """The first rank whose process has ended, -1 where all are there, or where they cannot be seen."""
        return int(waiting.gone(self.record)) if self.record[c.PROCESSES] else -1

    def _reads_others(self) -> bool:
        """Whether the ranks may read each other's private memory: each tries the next one; the same answer on all."""
        read_bytes = max(LEAST_READ, ALL_READS // self.size)
        self._reads = np.zeros(self.size * read_bytes, np.uint8)
        self.record[c.READS], self.record[c.READ_BYTES] = self._reads.ctypes.data, read_bytes
        addresses = np.zeros(self.size, np.int64)
        self.comm.Allgather(self.record[c.SELF : c.SELF + 1], addresses)
        allowed = bool(self.record[c.PROCESSES]) and sys.platform == "linux"
        if allowed:
            following = (self.rank + 1) % self.size
            allowed = direct.read_from(self.record, following, addresses[following], self._reads.ctypes.data, 8)
            allowed = allowed and self._reads[:8].view(np.int64)[0] == addresses[following]
        everywhere = np.array([allowed], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, everywhere, MPI.MIN)
        return bool(everywhere[0])

    @property
    def deadline(self) -> float:
        """Seconds that this rank waits for another before it raises `StallError`."""
        return float(self.record[c.DEADLINE]) / 1e9

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        if not seconds > 0:
            raise InputError(f"a deadline is a number of seconds above 0, not {seconds}")
        self.record[c.DEADLINE] = int(min(seconds * 1e9, 2**62))

    def lines(self, sequence: int) -> np.ndarray:
        """The entry line of each rank in collective number `sequence`: int64[ranks, words], see `waiting.enter`."""
        start = int(self.record[c.LINES]) - self._segment.address
        lines = self._segment.memory[start : start + 2 * self.size * c.LINE].view(np.int64)
        return lines.reshape(self.size, 2, -1)[:, sequence & 1, : c.INLINE // 8]

    def step_back(self) -> None:
        """Take back that this rank has come to a collective to which some never come."""
        if self.record[c.SHOWN]:
            self.lines(int(self.record[c.SEQUENCE]) + 1)[self.rank, 0] = 0
            self.record[c.SHOWN] = 0

    @property
    def gave_up(self) -> int:
        """The rank that gave up first; -1 if none did."""
        return int(self._segment.memory[ABORT_AT : ABORT_AT + 8].view(np.int64)[0]) - 1


def node_comm(comm: MPI.Comm) -> MPI.Comm:
    """The communicator of the ranks of `comm` on this rank's node: `comm` itself if all are on one node.

    Collective at the first call for a communicator; kept on it, and freed with it.
    """
    return _kept(comm, _node_key(), _split_by_node)


def node_group(comm: MPI.Comm) -> NodeGroup | None:
    """The group of the ranks of `comm`; None if they do not share a node.

    Collective at the first call for a communicator; kept on it, and freed with it.
    """
    if node_comm(comm) is not comm:
        return None
    return _kept(comm, _group_key(), NodeGroup)


def _split_by_node(comm: MPI.Comm) -> MPI.Comm:
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    smallest = np.array([node.size], np.int64)
    comm.Allreduce(MPI.IN_PLACE, smallest, MPI.MIN)
    if smallest[0] < comm.size:
        return node
    node.Free()
    return comm


def _kept(comm: MPI.Comm, key: int, make: Any) -> Any:
    """The value of an MPI attribute of a communicator, made at the first call."""
    if comm == MPI.COMM_NULL:
        raise InputError("shared memory needs a communicator, and this is COMM_NULL")
    found = comm.Get_attr(key)
    if found is None:
        found = make(comm)
        comm.Set_attr(key, found)
    return found


@functools.cache
def _node_key() -> int:
    return MPI.Comm.Create_keyval(delete_fn=_let_go)


@functools.cache
def _group_key() -> int:
    return MPI.Comm.Create_keyval()


def _let_go(comm: MPI.Comm, key: int, node: MPI.Comm) -> None:
    """Free the communicator of the node with the communicator that it belongs to."""
    if node != comm:
        node.Free()
