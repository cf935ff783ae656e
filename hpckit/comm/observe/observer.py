"""Every operation reports to `mesh.observer`. The watch, the waits of a run and checksums listen to it.

A rank's operation begins, has posted its messages, waits, and ends:

    operation = mesh.observer.begin(mesh.comm, ("all_reduce", "sum"), np.dtype("f8"), 1000)
    ...                   # its first messages leave
    operation.posted()
    ...                   # other work of the rank
    operation.wait()      # from here on the rank blocks until the others have come
    ...
    operation.end(result)

An object that exchanges repeatedly keeps its report, and first checks for listeners:

    self._observer = mesh.observer   # when it is made
    self._report = self._observer.exchange(mesh.comm, "ghosts", "ghost exchange", dtype, peers)
    ...
    if self._observer.on:
        self._report.begin()

`observer_of` gives the observer of a communicator: of the mesh that it belongs to, else of the world.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites: see `hpckit.comm.observe.sites`

ANYBODY, NOBODY = -1, -2  # in place of the peer of a message


Kind = TypeVar("Kind", bound="Listener")


class Listener:
    """Receives the reports of operations; a subclass overrides the calls it needs. The lowest `order` is called first.

    `begun` is called once for each `Operation` and each `ExchangeReport`; the other calls get the note it returns.
    """

    order = 10
    checks_messages = False  # whether each message is to be followed by its checksum
    compares = False  # whether operations are compared over their ranks before they run

    def begun(self, operation: Operation) -> Any:
        """An operation begins; an exchange has been made."""

    def again(self, operation: ExchangeReport, note: Any) -> bool:
        """An exchange begins; whether to report its moments before the end (`posted`, `waits`) this time."""
        return True

    def posted(self, operation: Operation, note: Any) -> None:
        """All messages that the rank can send without waiting have left."""

    def agreed(self, operation: Operation, note: Any) -> bool:
        """Whether the ranks make the same call, as far as is known; never waits. Raises where they do not."""
        return True

    def waits(self, operation: Operation, note: Any) -> None:
        """From now on the rank blocks until the others have come."""

    def ended(self, operation: Operation, note: Any, result: Any, waited: float | None) -> None:
        """The operation has ended; `operation.waiting` is True if the rank blocked in it. waited: s of an exchange. The
        result is None if the operation failed or has none.
        """

    def acted(self, name: str, begin: float, end: float) -> None:
        """Something took place within a phase, for a timeline; s of `time.perf_counter`."""


class Operation:
    """An operation of this rank on `comm`, between its beginning and its end; made by `Observer`.

    `name` (a text, or a tuple of texts), the elements `count` of `dtype` and `root` are the same on all ranks of
    `comm`; a count of -1 may differ. `peers`: the ranks of `comm` that this rank waits for; None if `name` implies
    them. `peer`: the rank at the other end of a message; None for other operations. `sends`: whether the message
    leaves. `blocks`: it waits from its beginning. `kind`: the name under which the waits of an exchange or a message
    are summed. `waiting`: the rank blocks in it now.
    """

    __slots__ = (
        "_heard", "_observer", "blocks", "comm", "count", "dtype", "kind", "name", "peer", "peers", "root", "sends",
        "waiting",
    )  # fmt: skip
    is_exchange = False

    def __init__(
        self,
        observer: Observer,
        comm: MPI.Comm,
        name: Hashable,
        dtype: Hashable,
        count: int,
        root: int = -1,
        peers: Sequence[int] | None = None,
        peer: int | None = None,
        sends: bool = False,
        blocks: bool = False,
        kind: str = "",
    ) -> None:
        self._observer, self.kind = observer, kind
        self.comm, self.name, self.dtype, self.count, self.root = comm, name, dtype, count, root
        self.peers, self.peer, self.sends, self.blocks, self.waiting = peers, peer, sends, blocks, False
        self._heard = [(listener, listener.begun(self)) for listener in observer.listeners]

    def posted(self) -> None:
        """Its messages have left."""
        for listener, note in self._heard:
            listener.posted(self, note)

    def agreed(self) -> bool:
        """Whether all listeners have found that the ranks make the same call. Raises where they do not."""
        return all([listener.agreed(self, note) for listener, note in self._heard])

    def wait(self, name: Hashable = None) -> None:
        """The rank blocks from now on. name: of a message whose name is known only now. Raises the errors of listeners:
        see `hpckit.Watch`.
        """
        if name is not None:
            self.name = name
        self._observer.inside = self.waiting = True
        try:
            for listener, note in self._heard:
                listener.waits(self, note)
        except BaseException:
            self._observer.inside = self.waiting = False
            raise

    def end(self, result: Any = None, waited: float | None = None) -> None:
        """The operation has ended. waited: s, given by an exchange. Raises the errors that listeners find."""
        if self.waiting:
            self._observer.inside = False
        try:
            for listener, note in self._heard:
                listener.ended(self, note, result, waited)
        finally:
            self.waiting = False

    def __enter__(self) -> None:
        self.wait()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


class ExchangeReport(Operation):
    """The report of an object that exchanges repeatedly with its neighbors, from `begin` to `end` each time."""

    __slots__ = ("_followed", "_listeners", "_notes")
    is_exchange = True
    peers: list[int]

    def __init__(
        self, observer: Observer, comm: MPI.Comm, kind: str, name: str, dtype: Hashable, peers: Iterable[int]
    ) -> None:
        super().__init__(observer, comm, name, dtype, -1, peers=list(peers), blocks=True, kind=kind)
        self._notes, self._listeners = dict(self._heard), observer.listeners
        self._followed: Sequence[tuple[Listener, Any]] = ()  # as `_heard`, if one of them follows this exchange

    def begin(self) -> None:
        """The exchange begins."""
        if self._listeners is not self._observer.listeners:
            self._listen_anew()
        followed = False
        for listener, note in self._heard:
            if listener.again(self, note):
                followed = True
        self._followed = self._heard if followed else ()

    def posted(self) -> None:
        """Its messages have left."""
        for listener, note in self._followed:
            listener.posted(self, note)

    def wait(self, name: Hashable = None) -> None:
        """The rank blocks from now on. Raises the errors of listeners."""
        self._observer.inside = self.waiting = True
        try:
            for listener, note in self._followed:
                listener.waits(self, note)
        except BaseException:
            self._observer.inside = self.waiting = False
            raise

    def meet(self, peers: Iterable[int]) -> None:
        """From now on the rank waits for these ranks."""
        self.peers = list(peers)

    def _listen_anew(self) -> None:
        self._listeners = self._observer.listeners
        for listener in self._listeners:
            if listener not in self._notes:
                self._notes[listener] = listener.begun(self)
        self._heard = [(listener, self._notes[listener]) for listener in self._listeners]


class Unheard:
    """An operation without listeners: its reports do nothing."""

    __slots__ = ()

    def posted(self) -> None:
        """Do nothing."""

    def wait(self, name: Hashable = None) -> None:
        """Do nothing."""

    def end(self, result: Any = None, waited: float | None = None) -> None:
        """Do nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


UNHEARD = Unheard()


class Observer:
    """Reports the operations of a mesh to listeners. Made by a mesh, or given to it: `Mesh(comm, Observer(), x=0)`.

    `on`: whether there are listeners; check it first where a report must cost nothing. `inside`: whether this rank
    waits in an operation, whose own MPI calls are not reported. `checks_messages`: whether a checksum follows each
    message; an object reads it when it is made. `compares`: whether operations are compared before they run.
    """

    __slots__ = ("checks_messages", "compares", "inside", "listeners", "on")

    def __init__(self, *listeners: Listener) -> None:
        self.inside = False
        self._set(listeners)

    def begin(
        self,
        comm: MPI.Comm,
        name: Hashable,
        dtype: Hashable = "",
        count: int = -1,
        root: int = -1,
        peers: Sequence[int] | None = None,
        blocks: bool = False,
    ) -> Operation | Unheard:
        """Begin an operation that all ranks of `comm` make together. Arguments as in `Operation`. Never waits."""
        return Operation(self, comm, name, dtype, count, root, peers, blocks=blocks) if self.on else UNHEARD

    def operation(
        self, comm: MPI.Comm, name: Hashable, dtype: Hashable = "", count: int = -1, root: int = -1
    ) -> Operation | Unheard:
        """Report a block of blocking calls: `with mesh.observer.operation(comm, "sum of mine"): …`."""
        return self.begin(comm, name, dtype, count, root, blocks=True)

    def exchange(
        self, comm: MPI.Comm, kind: str, name: str, dtype: Hashable = "", peers: Iterable[int] = ()
    ) -> ExchangeReport:
        """The report of an object that is made on all ranks of `comm` and exchanges with `peers`."""
        return ExchangeReport(self, comm, kind, name, dtype, peers)

    def message(
        self,
        comm: MPI.Comm,
        name: str,
        dtype: Hashable,
        count: int,
        peer: int,
        sends: bool = False,
        kind: str = "",
    ) -> Operation | Unheard:
        """Begin a message: its receive is posted, or (`sends`) it leaves. Its waits are summed if it has a `kind`.
        peer: a rank of `comm`, ANYBODY or NOBODY.
        """
        if not self.on:
            return UNHEARD
        return Operation(self, comm, name, dtype, count, peer=peer, sends=sends, blocks=True, kind=kind)

    def act(self, name: str, begin: float, end: float) -> None:
        """Something took place within a phase, for a timeline; s of `time.perf_counter`."""
        for listener in self.listeners:
            listener.acted(name, begin, end)

    def listen(self, listener: Listener) -> None:
        """Add a listener for all operations from now on. Call it on all ranks, between operations."""
        self._set((*self.listeners, listener))

    def forget(self, listener: Listener) -> None:
        """Remove a listener."""
        self._set(tuple(each for each in self.listeners if each is not listener))

    def listening(self, kind: type[Kind]) -> Kind | None:
        """The listener of a class, or None."""
        return next((each for each in self.listeners if isinstance(each, kind)), None)

    def _set(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners: tuple[Listener, ...] = tuple(sorted(listeners, key=lambda listener: listener.order))
        self.on = bool(listeners)
        self.checks_messages = any(listener.checks_messages for listener in listeners)
        self.compares = any(listener.compares for listener in listeners)


@cache
def _attribute() -> int:
    """The attribute of a communicator that holds its observer; a duplicate of the communicator has it too."""
    from mpi4py import MPI

    return MPI.Comm.Create_keyval(copy_fn=lambda comm, key, observer: observer)


def observer_of(comm: MPI.Comm) -> Observer:
    """The observer of a communicator: that of its mesh, else of the world. Look it up once and keep it."""
    found: Any = comm.Get_attr(_attribute())
    return found or _observer_of_the_world()


def set_observer(comm: MPI.Comm, observer: Observer) -> None:
    """Attach an observer to a communicator, and so to its later duplicates."""
    comm.Set_attr(_attribute(), observer)


def _observer_of_the_world() -> Observer:
    from mpi4py import MPI

    observer: Any = MPI.COMM_WORLD.Get_attr(_attribute())
    if observer is None:
        observer = Observer()
        set_observer(MPI.COMM_WORLD, observer)
    return observer
