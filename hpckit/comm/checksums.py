"""Checksums of messages, `[checks] messages = true`: the receiver must get the bits that the sender sent.

A message of 16 bytes accompanies each message, with its number and a checksum of its values. The sender computes it
from the source array (a field, say), the receiver from the target array: copies, buffers and shared memory in between
are checked, as is the network. Collectives with the same result on all ranks compare the checksums of their results.

    mesh.observer.listen(Checksums())  # before exchanges are made, alike on all ranks
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from mpi4py import MPI

from hpckit.comm.device import HOST, Device
from hpckit.comm.observe.observer import Listener, Operation
from hpckit.errors import SilentCorruptionError

__communicates__ = True  # its frames are not call sites
SAME_RESULT = ("all_reduce", "broadcast")  # of hpckit.collectives
SAME_RESULT_OF_MPI = {"Allreduce": 1, "Bcast": 0, "Allgather": 1, "Allgatherv": 1}  # name -> place of the result


def checksum(arrays: Iterable[Any]) -> int:
    """A 64-bit checksum of the values of some arrays in order, word by word (`kernels.checksum`)."""
    from hpckit.kernels.checksum.simd import checksum as words_checksum  # a rank that checks nothing loads no Numba

    total = done = 0
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = data.size // 8 * 8
        total += int(words_checksum(data[:whole].view(np.uint64), done))
        done += whole // 8
        if whole < data.size:
            last = np.zeros(8, np.uint8)
            last[: data.size - whole] = data[whole:]
            total += int(words_checksum(last.view(np.uint64), done))
            done += 1
    return total % 2**64


@dataclass(frozen=True)
class End:
    """One end of a message: the peer, the tag of its checksum, its name in errors, and the arrays with its values."""

    peer: int
    tag: int
    name: str
    arrays: Sequence[Any]


class Seals:
    """The checksums of the messages of one exchange: call `start` when the data to send is ready, `finish` when all
    messages have arrived. Values on a GPU are copied to the host in its current stream.
    """

    def __init__(self, comm: MPI.Comm, device: Device = HOST) -> None:
        self._comm, self._device = comm, device
        self._number = 0  # of the exchange
        self._requests: list[MPI.Request] = []
        self._kept: list[np.ndarray] = []

    def start(self, sent: Sequence[End], due: Sequence[tuple[int, int]]) -> None:
        """Send the checksums of `sent`; due: peer and tag of each checksum to receive, in the order of `finish`."""
        self._number += 1
        self._came = np.zeros((len(due), 2), np.uint64)
        self._kept = [np.array([self._number, self._checksum(end)], np.uint64) for end in sent]
        self._requests = [
            self._comm.Irecv(seal, peer, tag) for seal, (peer, tag) in zip(self._came, due, strict=True)
        ] + [self._comm.Isend(seal, end.peer, end.tag) for seal, end in zip(self._kept, sent, strict=True)]

    def finish(self, received: Sequence[End]) -> None:
        """Raise `SilentCorruptionError` on a rank that received other data than its peer sent."""
        MPI.Request.Waitall(self._requests)
        for seal, end in zip(self._came, received, strict=True):
            number, sent = map(int, seal)
            compare((number, sent), (self._number, self._checksum(end)), end, self._comm.rank)

    def _checksum(self, end: End) -> int:
        return checksum(map(self._device.to_host, end.arrays))


def compare(sent: tuple[int, int], came: tuple[int, int], end: End, rank: int) -> None:
    """Raise `SilentCorruptionError` unless the number and the checksum received equal those sent."""
    if sent == came:
        return
    if sent[0] != came[0]:
        told = f"message {sent[0]} of rank {end.peer} arrived where message {came[0]} was due"
    else:
        told = f"rank {end.peer} sent {sent[1]:#018x}, rank {rank} has {came[1]:#018x}"
    host = socket.gethostname()
    raise SilentCorruptionError(
        f"the {end.name} from rank {end.peer} to rank {rank} is not what was sent: {told}",
        where=f"rank {rank} on {host}, {end.name}, message {came[0]} of rank {end.peer}",
        likely=f"a fault of memory or of the network between the hosts of rank {end.peer} and rank {rank}",
        do="exclude the host that these errors name repeatedly, and continue: hpckit resume DIR",
    )


class ExpectedChecksum(NamedTuple):
    """A checksum to receive: its request, its buffer, and the number of the message among those of its sender."""

    request: MPI.Request
    seal: np.ndarray
    number: int


class SingleSeals:
    """The checksums of single messages: each pair of ranks receives in the order of the sends.

    `tag` is the tag of the checksums; `name` names the messages in errors.
    """

    def __init__(self, comm: MPI.Comm, tag: int, name: str) -> None:
        self._comm, self._tag, self._name = comm, tag, name
        self._sent: Counter[int] = Counter()  # to each rank
        self._posted: Counter[int] = Counter()  # of each rank
        self._leaving: list[tuple[MPI.Request, np.ndarray]] = []

    def send(self, peer: int, array: np.ndarray) -> None:
        """Send the checksum of a message that leaves now."""
        self._sent[peer] += 1
        seal = np.array([self._sent[peer], checksum([array])], np.uint64)
        self._leaving = [each for each in self._leaving if not each[0].Test()]
        self._leaving.append((self._comm.Isend(seal, peer, self._tag), seal))

    def post(self, peer: int) -> ExpectedChecksum:
        """Expect the checksum of a message whose receive is posted now; goes to `check`."""
        self._posted[peer] += 1
        seal = np.zeros(2, np.uint64)
        return ExpectedChecksum(self._comm.Irecv(seal, peer, self._tag), seal, self._posted[peer])

    def check(self, due: ExpectedChecksum, peer: int, array: np.ndarray) -> None:
        """Raise `SilentCorruptionError` when the message received differs from the one sent."""
        due.request.Wait()
        number, sent = map(int, due.seal)
        end = End(peer, self._tag, self._name, [array])
        compare((number, sent), (due.number, checksum([array])), end, self._comm.rank)

    def finish(self) -> None:
        """Wait until all checksums have been sent."""
        MPI.Request.Waitall([request for request, _ in self._leaving])
        self._leaving.clear()


class Checksums(Listener):
    """Checks the messages of all operations, and compares the results of collectives that are equal on all ranks."""

    order = 1
    checks_messages = True

    def __init__(self) -> None:
        self._collectives: Counter[str] = Counter()  # how many of each communicator

    def ended(self, operation: Operation, note: Any, result: Any, waited: float | None) -> None:
        """Compare the result. Raises `SilentCorruptionError`."""
        name = operation.name[0] if isinstance(operation.name, tuple) else str(operation.name)
        if result is not None and (name in SAME_RESULT or name in SAME_RESULT_OF_MPI):
            axis = operation.comm.Get_name() or "a communicator"
            self._collectives[axis] += 1
            check_result(operation.comm, f"{name} number {self._collectives[axis]} on {axis}", result)


def check_result(comm: MPI.Comm, operation: str, result: Any) -> None:
    """Collective, after an operation with the same result on all ranks: compare the checksums of the result.

    Raises `SilentCorruptionError` on every rank; it names the ranks whose result differs from that of the majority.
    """
    own = np.array([checksum([result])], np.uint64)
    every = np.empty(comm.size, np.uint64)
    MPI.Intracomm.Allgather(comm, own, every)
    if (every != every[0]).any():
        _refuse_result(operation, [int(each) for each in every], comm.rank)


def _refuse_result(what: str, every: list[int], rank: int) -> NoReturn:
    """Raise the error that names the ranks in the minority."""
    common, _ = Counter(every).most_common(1)[0]
    others = [number for number, each in enumerate(every) if each != common]
    told = f"rank{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
    raise SilentCorruptionError(
        f"{what}: the result of {told} differs from that of the other ranks, which have checksum {common:#018x}",
        where=f"rank {rank} on {socket.gethostname()}, {what}",
        likely=f"a fault of memory or of the network at {told}, or at the others where there are only two",
        do="exclude the host that these errors name repeatedly, and continue: hpckit resume DIR",
    )
