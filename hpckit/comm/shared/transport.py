"""Messages between ranks of one node: through memory that both see, without MPI on the way.

The sender packs its data into its own memory and sets a flag there; the receiver unpacks it once it sees the flag. That
is two copies, where MPI's messages within a node take four for packed data, and it needs no acknowledgment. Two buffers
per message suffice: every exchange is two-way, so receiving message n proves that the peer has consumed message n - 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import max_of_ranks
from hpckit.comm.progress import give_way
from hpckit.comm.shared.compiled import mail
from hpckit.comm.shared.compiled.flags import arrived, largest, post
from hpckit.comm.shared.group import node_comm
from hpckit.comm.shared.memory import PAGE, make_segment, whole_pages
from hpckit.errors import SetupError

__communicates__ = True  # its frames are not call sites

ALIGNMENT = 64  # bytes: of messages in a buffer, and of an entry of the table, which no other writer touches
ENTRY = ALIGNMENT // 8
FLAG, FIRST, COUNT = range(3)  # of an entry, int64: its flag, the first item of its message, how many there are
ROOM = 1.25  # reserved over needed memory, for messages that may grow
LOOKS = 10_000  # polls of the flags before the core is yielded: some ten microseconds


class Transport:
    """Memory for the messages of the ranks of a node. Made by all ranks of `comm`.

    A rank's part holds a table with an entry for each of its messages, and two buffers for all of them. `ranks`: the
    ranks of `comm` that it reaches; empty if this rank is alone on its node. node: the communicator of the ranks of
    `comm` that share memory with this one, by default those of its node.
    """

    def __init__(self, comm: MPI.Comm, node: MPI.Comm | None = None) -> None:
        self.comm = comm
        self.node: MPI.Comm = node or node_comm(comm)
        places = np.empty(self.node.size, np.int64)
        self.node.Allgather(np.array(comm.rank, np.int64), places)
        self.place = {int(rank): place for place, rank in enumerate(places)}
        self.ranks = frozenset(self.place) - {comm.rank}
        self._bytes = -1  # of a buffer
        self._parts, self._addresses = np.empty((0, 0), np.uint8), np.empty(0, np.int64)
        self._tables: dict[int, np.ndarray] = {}  # of the ranks of the node

    def prepare(
        self, counts: Sequence[int], itemsize: int = 1, room: float = 1.0, largest: Largest | None = None
    ) -> None:
        """Collective over the node, between exchanges: message k of this rank has counts[k] items from now on, of at
        most `itemsize` bytes. All ranks give the same number of counts. room: reserved over needed memory. largest: by
        which the ranks of the node agree, for messages that change often. The sizes of a peer's messages are valid once
        one of them has arrived.

        Raises `SetupError` on all ranks of the node if there is not enough memory.
        """
        self._total = sum(counts)
        needed = self._total * itemsize
        needed = max_of_ranks(self.node, np.array(needed)).item() if largest is None else int(largest.of(needed))
        if needed > self._bytes:
            self._head = whole_pages(8 * ENTRY * len(counts))
            self._bytes = whole_pages(int(room * needed))
            segment = make_segment(self.node, self._head + 2 * self._bytes)
            self._parts = segment.memory.reshape(self.node.size, -1)
            self._addresses = segment.address + self._parts.shape[1] * np.arange(self.node.size)
            self._tables = {rank: self._table(rank) for rank in self.place}
        first, table = 0, self._tables[self.comm.rank]
        for k, count in enumerate(counts):
            table[k, FIRST], table[k, COUNT] = first, count
            first += count

    def buffer(self, turn: int, itemsize: int = 1) -> np.ndarray:
        """All messages of this rank, one after the other, with items of `itemsize` bytes: uint8, flat."""
        return self._items(self.comm.rank, turn, 0, self._total, itemsize)

    def message(self, rank: int, k: int, turn: int, itemsize: int = 1) -> np.ndarray:
        """Message k of a rank of the node: uint8, flat."""
        entry = self._tables[rank][k]
        return self._items(rank, turn, int(entry[FIRST]), int(entry[COUNT]), itemsize)

    def flag(self, rank: int, k: int) -> int:
        """The address of the flag of message k of a rank."""
        return int(self._addresses[self.place[rank]]) + 8 * ENTRY * k

    def _table(self, rank: int) -> np.ndarray:
        return self._parts[self.place[rank]][: self._head].view(np.int64).reshape(-1, ENTRY)

    def _items(self, rank: int, turn: int, first: int, count: int, itemsize: int) -> np.ndarray:
        start = self._head + turn * self._bytes
        return self._parts[self.place[rank]][start + first * itemsize : start + (first + count) * itemsize]


class Largest:
    """The largest of the numbers of all ranks of `comm`, which share a node: they look at each other's, in a third of
    the time of MPI's reduction. Made by all of them; raises `SetupError` if there is not enough memory.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self._turn = comm, 0
        self._memory = make_segment(comm, PAGE)
        self._lines = self._memory.address + PAGE * np.arange(comm.size)

    def of(self, number: float) -> float:
        """Collective: the largest, the same on all ranks; nan if one is."""
        self._turn += 1
        looks, given = 0, (self._lines, self._comm.rank, self._turn, float(number), LOOKS)
        found = largest(*given)
        while not found[0]:
            looks += 1
            give_way(looks)
            self._comm.Iprobe()  # MPI progress: a rank may wait for a message of ours
            found = largest(*given)
        return found[1]


class Flags:
    """The flags of a repeated exchange: of this rank's messages, and of the messages it waits for."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.number = 0  # of the exchange that was started last
        self._sent = self._taken = np.empty(0, np.int64)

    def meet(self, sent: Sequence[int], taken: Sequence[int]) -> None:
        """Use these addresses of flags from now on."""
        self._sent, self._taken = np.array(sent, np.int64), np.array(taken, np.int64)

    @property
    def addresses(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the flags of this rank's messages, and of those that it waits for."""
        return self._sent, self._taken

    def post(self) -> None:
        """Publish the messages of this rank: an exchange begins. All ranks call it, even without messages."""
        self.number += 1
        if len(self._sent):
            post(self._sent, self.number)

    def send(self, tables: Sequence[np.ndarray]) -> None:
        """Copy messages into the buffer of the next exchange, and publish them. tables: of what is copied, for the
        first and for the second buffer (`hpckit.comm.shared.compiled.mail`).
        """
        self.number += 1
        mail.send(tables[self.number & 1], self._sent, self.number)

    def take(self, tables: Sequence[np.ndarray]) -> float:
        """Copy the messages of all peers once they have arrived; the seconds that this rank waited for them."""
        table = tables[self.number & 1]
        if mail.take(table, self._taken, self.number):
            return 0.0
        begin = time.perf_counter()
        self.wait()
        waited = time.perf_counter() - begin
        mail.copy(table)
        return waited

    def wait(self) -> None:
        """Return when the messages of all peers have arrived."""
        if len(self._taken):
            looks = 0
            while not arrived(self._taken, self.number, LOOKS):
                looks += 1
                give_way(looks)
                self._comm.Iprobe()  # MPI progress: a peer may wait for a message of ours


class RowExchange:
    """Rows of float64 that the ranks of a node exchange, in varying numbers: message k goes to rank k of the node.
    All ranks of `comm` make it and call `prepare`; most: values of the longest row.
    """

    def __init__(self, transport: Transport, most: int) -> None:
        self.ranks = transport.ranks
        self._transport, self._most = transport, most
        self._flags = Flags(transport.comm)
        self.largest = Largest(transport.node)
        self._peers: list[int] = []
        self._outs: dict[tuple[int, int], np.ndarray] = {}  # by buffer and width, until the next `prepare`
        self._ins: dict[tuple[int, int], list[np.ndarray]] = {}
        self._froms: dict[tuple[int, int], np.ndarray] = {}

    def prepare(self, peers: list[int], counts: list[int]) -> None:
        """Collective over the node: set the peers, in rising order, and the rows to send to each.

        Call it while no message is under way. Raises `SetupError` if there is not enough memory.
        """
        given = dict(zip(peers, counts, strict=True))
        own, place = self._transport.comm.rank, self._transport.place
        self._transport.prepare([given.get(rank, 0) for rank in place], 8 * self._most, ROOM, self.largest)
        self._peers = peers
        sent = [self._transport.flag(own, place[peer]) for peer in peers]
        self._flags.meet(sent, [self._transport.flag(peer, place[own]) for peer in peers])
        self._outs.clear()
        self._ins.clear()
        self._froms.clear()

    def next(self, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int]:
        """Begin an exchange that one compiled call makes: the send buffer, the addresses of the flags that it sets and
        waits for, where the rows of each peer begin and how many there are (int64[peers, 2]), the number of the
        exchange, and how often to look before `wait` is called.
        """
        key = (self._flags.number + 1) & 1, width
        out = self.out(width)
        self._flags.number += 1
        if key not in self._froms:
            self._froms[key] = np.array([[rows.ctypes.data, len(rows)] for rows in self.received(width)]).reshape(-1, 2)
        return out, *self._flags.addresses, self._froms[key], self._flags.number, LOOKS

    def out(self, width: int) -> np.ndarray:
        """The send buffer of the next exchange, float64[n, width]: the rows for each peer, one peer after the other."""
        key = (self._flags.number + 1) & 1, width
        if key not in self._outs:
            self._outs[key] = self._transport.buffer(key[0], 8 * width).view(np.float64).reshape(-1, width)
        return self._outs[key]

    def post(self) -> None:
        """Publish the rows: an exchange begins. Every rank of the node calls it, even without peers."""
        self._flags.post()

    def wait(self) -> None:
        """Return when the rows of all peers have arrived."""
        self._flags.wait()

    def received(self, width: int) -> list[np.ndarray]:
        """The rows received, float64[n, width] from each peer; valid until the exchange after the next one."""
        key = self._flags.number & 1, width
        if key not in self._ins:
            transport = self._transport
            own = transport.place[transport.comm.rank]
            came = [transport.message(peer, own, key[0], 8 * width) for peer in self._peers]
            self._ins[key] = [rows.view(np.float64).reshape(-1, width) for rows in came]
        return self._ins[key]


def open_rows(comm: MPI.Comm, most: int, node: MPI.Comm | None = None) -> RowExchange | None:
    """Collective: rows between the ranks of `comm`; None if this rank is alone on its node or cannot share memory.

    node: as in `Transport`.
    """
    transport = Transport(comm, node)
    if not transport.ranks:
        return None
    try:
        rows = RowExchange(transport, most)
        rows.prepare([], [])
    except SetupError:  # on all ranks of the node alike
        return None
    return rows
