"""Ranks on named axes, with their communicators."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

from mpi4py import MPI

from hpckit.comm.agree import ClosedTogether
from hpckit.comm.observe.observer import Observer, observer_of, set_observer
from hpckit.errors import InputError, SetupError
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.inputs.numbers import count, counts
from hpckit.plan.topology import Topology

__communicates__ = True  # its frames are not call sites


class Closable(Protocol):
    """An object that the mesh closes before it closes itself, such as an exchange with its requests."""

    def close(self) -> None:
        """Free its resources."""


class AxisComm(MPI.Intracomm):
    """A communicator that accepts Python attributes: collectives cache their axis on it."""


def axis_comm(comm: Any) -> MPI.Intracomm:
    """The same communicator as one that accepts Python attributes; unchanged if it has a class of its own."""
    return AxisComm(comm) if type(comm) is MPI.Intracomm else comm


class Mesh(ClosedTogether):
    """The ranks of `comm` laid out on named axes: `Mesh(comm, z=2, y=0, x=0, periodic=("x",))`.

    hpckit replaces a size of 0 by the one with the smallest halo surface (`best_factorization`): give `shape`, the
    cells of the grid, to choose it for that grid, and `halo`, to keep blocks at least that thick. `mesh["x"]` is the
    communicator of the line of ranks along x through this rank, numbered by the x coordinate.

    Making and closing a mesh is collective. The mesh owns a duplicate of `comm` and its sub-communicators and frees
    them: use it as a context manager, or call `close`. An exception that leaves the `with` block frees nothing, since
    other ranks may never reach the close. Its operations report to `observer`, by default that of `comm`
    (`hpckit.comm.observe.observer`). Raises `InputError` (`DecompositionError` if sizes do not fit) on every rank.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        observer: Observer | None = None,
        /,
        *,
        periodic: str | Sequence[str] = (),
        shape: Sequence[int] | None = None,
        halo: int | Sequence[int] = 1,
        **axes: int,
    ) -> None:
        if not isinstance(comm, MPI.Comm):
            raise InputError(f"a mesh is made of a communicator, not of {comm!r}", do="give hpckit.world()")
        if comm == MPI.COMM_NULL:
            raise InputError(
                "a mesh needs a communicator, and this is COMM_NULL", do="make it on the ranks that have one"
            )
        if not axes:
            raise InputError("a mesh needs at least one axis, as in Mesh(comm, y=0, x=0)")
        wanted = {name: count(size, f"the size of axis {name}") for name, size in axes.items()}
        for name, size in wanted.items():
            if size < 0:
                raise InputError(f"the size of axis {name} is {size}; give a number of ranks, or 0 to have it chosen")
        named = _names(periodic)
        cells = None if shape is None else counts(shape, "the shape of a grid")
        if cells is not None and len(cells) != len(wanted):
            raise InputError(f"the shape {cells} needs one axis per dim, not {', '.join(wanted)}")
        sizes = best_factorization(
            comm.size,
            cells,
            tuple(wanted.values()),
            [name in named for name in wanted],
            counts(halo, "the width of a halo", len(wanted)),
        )
        self.topology = Topology(tuple(wanted), sizes, named)
        self.observer: Observer = observer or observer_of(comm)
        self._comm: MPI.Comm = axis_comm(comm.Dup())
        set_observer(self._comm, self.observer)
        self.rank: int = self._comm.rank
        self._closed = False
        self._lines = {name: self._line(name) for name in self.topology.names}
        self._owned: weakref.WeakSet[Any] = weakref.WeakSet()
        self._folded: list[Mesh] = []
        self._most_tags = ((self._comm.Get_attr(MPI.TAG_UB) or 32767) + 1) // 2  # of each of the two ranges
        self._lasting_tags = self._passing_tags = 0  # handed out of each
        _open_meshes.add(self)

    @property
    def comm(self) -> MPI.Comm:
        """The communicator of all its ranks, numbered as in the topology; `InputError` once the mesh is closed."""
        if self._closed:
            raise InputError("the mesh is closed", do="use it, and the fields on it, before close or within `with`")
        return self._comm

    @property
    def size(self) -> int:
        """How many ranks the mesh has."""
        return self.topology.size

    @property
    def coords(self) -> tuple[int, ...]:
        """The coordinates of this rank, one per axis."""
        return self.topology.coords(self.rank)

    def __getitem__(self, name: str) -> MPI.Comm:
        """The communicator of the line of ranks along the axis `name` through this rank."""
        self.topology.axis(name)
        if self._closed:
            raise InputError("the mesh is closed", do="use its communicators before close or within `with`")
        return self._lines[name]

    def fold(self, names: Sequence[str], /, **axes: int) -> Mesh:
        """Another mesh over the ranks that differ from this one in the axes `names` only, in the order of this mesh.

        mesh.fold(("dp", "tp"), edp=2, ep=4) rearranges the dp x tp ranks of each stage of a pipeline, for instance for
        experts. Names that are not axes of this mesh are ignored. Collective; it closes with this mesh. Raises
        `InputError` unless the sizes of `axes` multiply to the number of these ranks.
        """
        topology = self.topology
        free = [topology.axis(name) for name in names if name in topology.names]
        fixed = tuple(0 if axis in free else at for axis, at in enumerate(self.coords))
        ranks = self.comm.Split(color=topology.rank(fixed), key=self.rank)
        try:
            found = Mesh(ranks, self.observer, periodic=(), shape=None, halo=1, **axes)
        finally:
            ranks.Free()
        self._folded.append(found)
        return found

    def tags(self, count: int) -> int:
        """The first of `count` message tags for short-lived messages: the tags are reused after some millions. Call it
        in the same order on every rank, as for any collective.
        """
        if self._passing_tags + count > self._most_tags:
            self._passing_tags = 0
        first = self._most_tags + self._passing_tags
        self._passing_tags += count
        return first

    def lasting_tags(self, count: int) -> int:
        """The first of `count` message tags for an object that keeps them, such as a halo exchange: they are never
        reused on this mesh. Call it in the same order on every rank. Raises `SetupError` when the tags are used up.
        """
        first = self._lasting_tags
        if first + count > self._most_tags:
            raise SetupError(
                f"the mesh has no tags left for messages: its exchanges have taken {first}",
                likely="exchanges that are made anew in a loop",
                do="make them once and keep them, or make a new mesh",
            )
        self._lasting_tags += count
        return first

    def adopt(self, owned: Closable) -> None:
        """Close `owned` when this mesh closes, if it is still there."""
        self._owned.add(owned)

    def close(self) -> None:
        """Free the exchanges made on this mesh and its communicators. Collective; a second call does nothing."""
        if self._closed:
            return
        self.release_requests()
        for folded in self._folded:
            folded.close()
        self._closed = True
        _open_meshes.discard(self)
        for line in self._lines.values():
            line.Free()
        self._comm.Free()

    def release_requests(self) -> None:
        """Close all exchanges on this mesh; not collective."""
        for owned in list(self._owned):
            owned.close()
        self._owned.clear()

    def __enter__(self) -> Self:
        if self._closed:
            raise InputError("the mesh is closed", do="make a new one")
        return self

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in zip(self.topology.names, self.topology.sizes, strict=True))
        return f"Mesh({axes}, periodic={self.topology.periodic})"

    def _line(self, name: str) -> MPI.Comm:
        axis = self.topology.axis(name)
        coords = self.coords
        first = self.topology.rank((*coords[:axis], 0, *coords[axis + 1 :]))
        line = axis_comm(self._comm.Split(color=first, key=coords[axis]))
        line.Set_name(name)  # shown by the watch and in errors
        set_observer(line, self.observer)
        return line


_open_meshes: weakref.WeakSet[Mesh] = weakref.WeakSet()


@atexit.register
def _release_open_meshes() -> None:
    """MPI_Finalize complains about persistent requests that are not freed; it frees communicators itself."""
    if MPI.Is_initialized() and not MPI.Is_finalized():
        for owned in [each for mesh in _open_meshes for each in mesh._owned]:
            with suppress(InputError):  # an exchange under way when the program ended
                owned.close()


def _names(periodic: Any) -> tuple[str, ...]:
    """Axis names from the user's argument: one name or several."""
    if isinstance(periodic, str):
        return (periodic,)
    if not isinstance(periodic, Iterable):
        raise InputError(f'periodic takes axis names, as in periodic=("x",), not {periodic!r}')
    return tuple(periodic)


def world() -> MPI.Intracomm:
    """All ranks of the job: MPI's COMM_WORLD."""
    return axis_comm(MPI.COMM_WORLD)


def print_root(*values: object, comm: MPI.Comm | None = None) -> None:
    """Print on rank 0 only, and flush."""
    if (comm or MPI.COMM_WORLD).rank == 0:
        print(*values, flush=True)
