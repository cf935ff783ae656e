"""What every operation reports to: `mesh.observer`. The watch, the waits of a run and checksums listen to it.

A rank's operation begins, has posted its messages, waits, and ends:

    operation = mesh.observer.begin(mesh.comm, ("all_reduce", "sum"), np.dtype("f8"), 1000)
    ...                   # its first messages leave
    operation.posted()
    ...                   # what the rank does beside it
    operation.wait()      # from here on the rank stands still until the others have come
    ...
    operation.end(result)

An object that exchanges again and again keeps its report, and looks first whether anybody listens:

    self._observer = mesh.observer   # when it is made
    self._report = self._observer.exchange(mesh.comm, "ghosts", "ghost exchange", dtype, peers)
    ...
    if self._observer.on:
        self._report.begin()

A communicator knows its observer (`observer_of`): those of a mesh have the mesh's, all others that of the world.
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
    """Hears of operations; a subclass overrides what it wants to know. `order`: of two the lesser hears first.

    `begun` is asked once for an `Operation` and once for each `Exchange` that it hears of; what it returns is its note,
    which the other calls get.
    """

    order = 10
    checks_messages = False  # whether each message is to be followed by its checksum

    def begun(self, operation: Operation) -> Any:
        """An operation begins; an exchange has been made."""

    def again(self, operation: Exchange, note: Any) -> None:
        """An exchange begins."""

    def posted(self, operation: Operation, note: Any) -> None:
        """Its messages have left, as far as the rank can send them without waiting."""

    def waits(self, operation: Operation, note: Any) -> None:
        """From now on the rank stands still for the others."""

    def ended(self, operation: Operation, note: Any, result: Any, waited: float | None) -> None:
        """It is over; `operation.waiting` where the rank stood still for it. waited: s of an exchange. The result is
        None where the operation failed or has none.
        """

    def acted(self, name: str, begin: float, end: float) -> None:
        """Something took place within a phase, for a timeline; s of `time.perf_counter`."""


class Operation:
    """An operation of this rank on `comm`, between its beginning and its end; made by `Observer`.

    `name` (a text, or a tuple of texts), the elements `count` of `dtype` and `root` are the same on all ranks of
    `comm`; a count of -1 may differ. `peers`: the ranks of `comm` that this rank waits for; None where `name` says it.
    `peer`: of a message, the rank at its other end; None for all other operations. `sends`: whether that message
    leaves. `blocks`: it waits as it begins. `kind`: of an exchange or a message, what its waits are summed up as.
    `waiting`: the rank stands still for it now.
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

    def wait(self, name: Hashable = None) -> None:
        """The rank stands still from now on. name: of a message for which it is known only now. Raises what a listener
        finds wrong: see `hpckit.Watch`.
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
        """It is over. Raises what a listener finds wrong with the result. waited: s, given by an exchange."""
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


class Exchange(Operation):
    """The report of an object that exchanges with neighbors again and again, from `begin` to `end` each time."""

    __slots__ = ("_listeners", "_notes")
    is_exchange = True

    def __init__(
        self, observer: Observer, comm: MPI.Comm, kind: str, name: str, dtype: Hashable, peers: Iterable[int]
    ) -> None:
        super().__init__(observer, comm, name, dtype, -1, peers=list(peers), blocks=True, kind=kind)
        self._notes, self._listeners = dict(self._heard), observer.listeners

    def begin(self) -> None:
        """The exchange begins."""
        if self._listeners is not self._observer.listeners:
            self._listen_anew()
        for listener, note in self._heard:
            listener.again(self, note)

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
    """An operation that nobody listens to."""

    __slots__ = ()

    def posted(self) -> None:
        """Nobody hears it."""

    def wait(self, name: Hashable = None) -> None:
        """Nobody hears it."""

    def end(self, result: Any = None, waited: float | None = None) -> None:
        """Nobody hears it."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


UNHEARD = Unheard()


class Observer:
    """Tells listeners what the operations of a mesh do. Made by a mesh, or given to it: `Mesh(comm, Observer(), x=0)`.

    `on`: whether anybody listens; where a report must cost nothing, look at it first. `inside`: whether this rank waits
    in an operation, whose own calls of MPI are not reported. `checks_messages`: whether messages are followed by their
    checksums, which an object asks when it is made.
    """

    __slots__ = ("checks_messages", "inside", "listeners", "on")

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
        """An operation begins that all ranks of `comm` make together. Arguments as of `Operation`. Never waits."""
        return Operation(self, comm, name, dtype, count, root, peers, blocks=blocks) if self.on else UNHEARD

    def operation(
        self, comm: MPI.Comm, name: Hashable, dtype: Hashable = "", count: int = -1, root: int = -1
    ) -> Operation | Unheard:
        """The same around calls that block: `with mesh.observer.operation(comm, "sum of mine"): …`."""
        return self.begin(comm, name, dtype, count, root, blocks=True)

    def exchange(
        self, comm: MPI.Comm, kind: str, name: str, dtype: Hashable = "", peers: Iterable[int] = ()
    ) -> Exchange:
        """The report of an object that is made on all ranks of `comm` and exchanges with `peers`: see `Exchange`."""
        return Exchange(self, comm, kind, name, dtype, peers)

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
        """A message begins: its receive is posted, or (`sends`) it leaves. Its waits are summed up where it has a
        `kind`. peer: a rank of `comm`, ANYBODY or NOBODY.
        """
        if not self.on:
            return UNHEARD
        return Operation(self, comm, name, dtype, count, peer=peer, sends=sends, blocks=True, kind=kind)

    def act(self, name: str, begin: float, end: float) -> None:
        """Something took place within a phase, for a timeline; s of `time.perf_counter`."""
        for listener in self.listeners:
            listener.acted(name, begin, end)

    def listen(self, listener: Listener) -> None:
        """From now on `listener` hears of all operations. All ranks do it alike, between operations."""
        self._set((*self.listeners, listener))

    def forget(self, listener: Listener) -> None:
        """It hears no more."""
        self._set(tuple(each for each in self.listeners if each is not listener))

    def listening(self, kind: type[Kind]) -> Kind | None:
        """The listener of a kind, None where there is none."""
        return next((each for each in self.listeners if isinstance(each, kind)), None)

    def _set(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners: tuple[Listener, ...] = tuple(sorted(listeners, key=lambda listener: listener.order))
        self.on = bool(listeners)
        self.checks_messages = any(listener.checks_messages for listener in listeners)


@cache
def _attribute() -> int:
    """The attribute of a communicator that holds its observer; a duplicate of the communicator has it too."""
    from mpi4py import MPI

    return MPI.Comm.Create_keyval(copy_fn=lambda comm, key, observer: observer)


def observer_of(comm: MPI.Comm) -> Observer:
    """The observer of a communicator: of the mesh that it belongs to, else of the world. Ask once and keep it."""
    found: Any = comm.Get_attr(_attribute())
    return found or _observer_of_the_world()


def set_observer(comm: MPI.Comm, observer: Observer) -> None:
    """Let a communicator belong to an observer, with those that are duplicated from it afterwards."""
    comm.Set_attr(_attribute(), observer)


def _observer_of_the_world() -> Observer:
    from mpi4py import MPI

    observer: Any = MPI.COMM_WORLD.Get_attr(_attribute())
    if observer is None:
        observer = Observer()
        set_observer(MPI.COMM_WORLD, observer)
    return observer
