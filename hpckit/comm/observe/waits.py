"""The waits of ranks: for a late peer, or for the transfer of messages; and which rank the others wait for most.

Each rank records when it entered an exchange, a collective or the wait for a message, when its messages had left, and
when those of its peers had arrived. Peers record the same under the same number, so the wait can be split afterwards:
until the last peer had come ("late peer"), and from then on ("transfer": the messages and the work of the library).
`Waits` listens to the observer of the run's communicator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.comm.agree import gather_json
from hpckit.comm.observe.observer import ExchangeReport, Listener, Operation

if TYPE_CHECKING:
    from mpi4py import MPI

SAMPLES = 512  # kept per channel; above it every second one, and so on
NEVER = 1 << 62  # a number of calls that is never reached
COLUMNS = 5  # begun, posted, entered, left (s on this rank's clock), waited (s)
# Collectives in which all ranks wait for the root, or the root waits for all; in the others all wait for all.
FROM_ROOT = ("broadcast", "scatter", "bcast", "scatterv")
TO_ROOT = ("reduce", "gather", "gatherv")
Row = list[float]


class Channel:
    """The calls of one exchange on this rank, or samples of them: calls of the same numbers on all of its ranks.

    `ranks`: the ranks of the exchange, numbered in the whole run. `thin`: above `most` calls keep every second one, and
    so on; else keep the first ones. `together`: a collective, whose last rank holds up all.
    """

    __slots__ = (
        "begun", "calls", "due", "entered", "met", "most", "name", "noted", "peers", "posted", "ranks", "samples",
        "seconds", "stride", "thin", "together",
    )  # fmt: skip

    def __init__(self, name: str, ranks: Sequence[int], most: int, thin: bool, together: bool = False) -> None:
        self.name, self.ranks, self.together = name, ranks, together
        self.peers: list[int] = []
        self.met: object = None  # the argument that `peers` were made from
        self.most, self.thin = most, thin
        self.noted = False  # whether the times of the exchange under way are kept; the times
        self.begun = self.posted = self.entered = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget all calls."""
        self.calls, self.stride, self.seconds = 0, 1, 0.0
        # The next call to keep. Earlier ones are only counted in `calls` and `seconds`.
        self.due = 0
        self.samples: list[Sequence[float]] = []

    def meet(self, peers: Iterable[int]) -> None:
        """From now on this rank waits for these ranks of the exchange."""
        self.met, self.peers = peers, [self.ranks[peer] for peer in peers]

    def add(self, begun: float, posted: float, entered: float, left: float, waited: float) -> None:
        """Add a call: its messages left between `begun` and `posted`; it waited `waited` s from `entered` to `left`."""
        number = self.calls
        self.calls = number + 1
        self.seconds += waited
        if number < self.due:
            return
        if self._has_room(number):
            self.samples.append((begun, posted, entered, left, waited))  # a list would cost the garbage collector time
        if self.thin:
            self.due = number - number % self.stride + self.stride
        else:
            self.due = number + 1 if len(self.samples) < self.most else NEVER

    def open(self, begun: float, posted: float) -> Row:
        """Begin a call that will be waited for, perhaps with others under way; returns the row for `close`."""
        number = self.calls
        self.calls = number + 1
        row = [begun, posted, posted, posted, 0.0]
        if number % self.stride == 0 and self._has_room(number):
            self.samples.append(row)
        return row

    def close(self, row: Row, entered: float, left: float) -> None:
        """End an opened call: this rank waited for it from `entered` to `left`."""
        self.seconds += left - entered
        row[2:] = entered, left, left - entered

    def _has_room(self, number: int) -> bool:
        """Whether to keep a call whose number is a multiple of the stride."""
        if len(self.samples) < self.most:
            return True
        if not self.thin:
            return False
        del self.samples[1::2]
        self.stride *= 2
        return number % self.stride == 0


class Waits(Listener):
    """The channels of this rank in a run on `comm`; `traced`: keep that many of the first calls, not samples of all."""

    order = 0  # reads its clocks before other listeners act

    def __init__(self, comm: MPI.Comm, traced: int = 0) -> None:
        self._comm = comm
        self._most, self._thin = (traced, False) if traced else (SAMPLES, True)
        self._made: dict[str, int] = {}
        self._kept: dict[tuple, Channel] = {}
        self._comms: dict[int, MPI.Comm] = {}
        self.channels: list[Channel] = []
        self.actions: list[tuple[str, float, float]] = []  # of a timeline, within its phases

    def begun(self, operation: Operation) -> Any:
        """The note: the channel of an exchange; for other operations the channel and the row of this call."""
        if isinstance(operation, ExchangeReport):
            return self.channel(operation.kind, operation.comm, operation.peers)
        if operation.comm.size == 1 or (operation.peer is not None and not operation.kind):
            return None
        channel = self._channel_of(operation)
        now = perf_counter()
        return channel, channel.open(now, now)

    def again(self, operation: ExchangeReport, note: Channel) -> bool:
        """An exchange begins: read the clock if its times are kept."""
        if note.met is not operation.peers:
            note.meet(operation.peers)
        if note.calls < note.due:
            note.noted = False
            return False
        note.noted = True
        note.begun = note.posted = perf_counter()
        return True

    def posted(self, operation: Operation, note: Any) -> None:
        """Its messages have left."""
        if operation.is_exchange:
            if note.noted:
                note.posted = perf_counter()
        elif note is not None:
            _, row = note
            row[1:4] = [perf_counter()] * 3

    def waits(self, operation: Operation, note: Any) -> None:
        """The rank blocks from now on."""
        if operation.is_exchange:
            if note.noted:
                note.entered = perf_counter()
        elif note is not None:
            blocks = operation.blocks and operation.peer is None  # all moments before the wait are its beginning
            note[1][0 if blocks else 2 : 3] = [perf_counter()] * (3 if blocks else 1)

    def ended(self, operation: Operation, note: Any, result: Any, waited: float | None) -> None:
        """It is over."""
        if operation.is_exchange:
            if note.noted:
                note.add(note.begun, note.posted, note.entered, perf_counter(), waited or 0.0)
            else:
                note.calls += 1
                note.seconds += waited or 0.0
        elif note is not None and not operation.sends:
            channel, row = note
            entered = row[2] if operation.waiting else perf_counter()  # a timeline shows an end without a wait, too
            channel.close(row, entered, perf_counter())

    def acted(self, name: str, begin: float, end: float) -> None:
        """Keep something that took place within a phase, if there is a timeline."""
        if not self._thin and len(self.actions) < self._most:
            self.actions.append((name, begin, end))

    def channel(self, kind: str, comm: MPI.Comm, peers: Iterable[int] = (), together: bool = False) -> Channel:
        """A channel of an exchange that all ranks of `comm` make together, in which this one waits for `peers`."""
        from mpi4py import MPI

        world, group = self._comm.Get_group(), comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, list(range(comm.size)), world)
        place = "" if comm.size == world.size else f" of ranks {','.join(map(str, ranks))}"
        world.Free()
        group.Free()
        key = kind + place
        number = self._made[key] = self._made.get(key, 0) + 1
        own = Channel(f"{kind} {number}{place}", ranks, self._most, self._thin, together)
        own.meet(peers)
        self.channels.append(own)
        return own

    def _channel_of(self, operation: Operation) -> Channel:
        """The one channel of all operations like this; made for the first of them."""
        name, comm, peer = operation.name, operation.comm, operation.peer
        self._comms[id(comm)] = comm  # kept alive, so that its id is not reused
        key = (id(comm), name if peer is None else operation.kind, operation.root, peer, operation.sends)
        channel = self._kept.get(key)
        if channel is None:
            make = self._collective if peer is None else self._messages
            channel = self._kept[key] = make(operation)
        return channel

    def _messages(self, operation: Operation) -> Channel:
        """The channel of messages of a kind between two ranks, in which the receiver waits."""
        comm, peer = operation.comm, operation.peer or 0
        sender, receiver = (comm.rank, peer) if operation.sends else (peer, comm.rank)
        return self.channel(f"{operation.kind} {sender} to {receiver}", comm, [] if operation.sends else [sender])

    def _collective(self, operation: Operation) -> Channel:
        """The channel of a collective; `peers`, or else its first word, gives which ranks wait for which."""
        comm, root, peers, name = operation.comm, operation.root, operation.peers, operation.name
        text = " ".join(name) if isinstance(name, tuple) else str(name)
        others, word = [rank for rank in range(comm.size) if rank != comm.rank], text.split()[0].lower()
        if word in FROM_ROOT:
            others = [] if comm.rank == root else [root]
        elif word in TO_ROOT and comm.rank != root:
            others = []
        together = peers is None and word not in (*FROM_ROOT, *TO_ROOT)
        return self.channel(text, comm, others if peers is None else peers, together)

    def reset(self) -> None:
        """Forget all calls, as after warm-up steps that compile the kernels."""
        self.actions.clear()
        for channel in self.channels:
            channel.reset()


@dataclass(frozen=True)
class Log:
    """The calls of one channel on one rank, on a clock that all ranks share: `samples` float64[n, COLUMNS]."""

    name: str
    peers: tuple[int, ...]
    calls: int
    stride: int
    seconds: float
    samples: np.ndarray
    together: bool = False


def collect(comm: MPI.Intracomm, channels: Sequence[Channel], offset: float) -> list[list[Log]] | None:
    """Collective: the logs of all ranks on rank 0, None elsewhere. `offset` (s) takes this clock to rank 0's."""
    most = max(16, 2_000_000 // comm.size)
    kept = [np.array(each.samples[:most], dtype=np.float64).reshape(-1, COLUMNS) for each in channels]
    heads = [
        {"name": each.name, "peers": each.peers, "calls": each.calls, "stride": each.stride, "seconds": each.seconds}
        | {"together": each.together, "rows": len(rows)}
        for each, rows in zip(channels, kept, strict=True)
    ]
    every = gather_json(comm, heads)
    flat = np.concatenate([np.empty((0, COLUMNS)), *kept])
    flat[:, :4] += offset
    counts = np.zeros(comm.size, dtype=np.int64)
    comm.Gather(np.array([flat.size], dtype=np.int64), counts, root=0)
    if every is None:
        comm.Gatherv(flat, None, root=0)
        return None
    rows = np.empty(counts.sum())
    comm.Gatherv(flat, (rows, counts), root=0)
    rows = rows.reshape(-1, COLUMNS)
    logs: list[list[Log]] = []
    first = 0
    for heads in every:
        logs.append([])
        for head in heads:
            count = head.pop("rows")
            logs[-1].append(Log(**{**head, "peers": tuple(head["peers"])}, samples=rows[first : first + count]))
            first += count
    return logs


def split(logs: Sequence[Sequence[Log]]) -> dict[str, Any] | None:
    """Split the waits of all ranks; None if no rank waited.

    Returns per rank, in s over the whole run: `seconds` waited, of it `late` and `transfer`, and `waited_for`: the time
    that all others lost by waiting for this rank. If calls were sampled, the split is that of the samples.
    """
    size = len(logs)
    late, total, waited_for = np.zeros(size), np.zeros(size), np.zeros(size)
    by_name = [{log.name: log for log in channels} for channels in logs]
    for rank, channels in enumerate(logs):
        for log in channels:
            total[rank] += log.seconds
            found = _late(log, [(peer, by_name[peer].get(log.name)) for peer in log.peers if peer != rank])
            if found is None:
                continue
            culprits, seconds = found
            sampled = log.samples[: len(seconds), 4].sum()
            scale = log.seconds / sampled if sampled > 0 else 0.0
            late[rank] += scale * seconds.sum()
            np.add.at(waited_for, culprits, scale * seconds)
    if not total.any():
        return None
    return {
        "seconds": total.tolist(),
        "late": late.tolist(),
        "transfer": np.maximum(total - late, 0.0).tolist(),
        "waited_for": waited_for.tolist(),
    }


def _late(log: Log, peers: Sequence[tuple[int, Log | None]]) -> tuple[np.ndarray, np.ndarray] | None:
    """For each sampled call: the peer that came last, and the s that this rank waited for it."""
    known = [(peer, other) for peer, other in peers if other is not None and other.stride == log.stride]
    count = min([len(log.samples), *(len(other.samples) for _, other in known)])
    if not known or not count:
        return None
    posted = np.array([other.samples[:count, 1] for _, other in known])
    last = posted.argmax(axis=0)
    entered, waited = log.samples[:count, 2], log.samples[:count, 4]
    seconds = np.clip(posted.max(axis=0) - entered, 0.0, waited)
    return np.array([peer for peer, _ in known])[last], seconds
