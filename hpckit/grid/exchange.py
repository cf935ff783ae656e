"""Runs halo plans: persistent requests, no copy if a slab is contiguous, direct copies within a rank.

One class serves fields on the host and on GPUs: the plan (`hpckit.plan.grid.halo`) determines order, joining of fields,
tags and the way of each message; `hpckit.grid.phases` executes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import all_of_ranks, min_of_ranks, require_same
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.observer import UNHEARD, ExchangeReport
from hpckit.comm.progress import Begun, Site, Unfinished, call_site
from hpckit.comm.shared.transport import Transport
from hpckit.errors import InputError, SetupError
from hpckit.grid.bindings import Arrays, Binding, Bindings
from hpckit.grid.boundary_conditions import Fill, as_fill
from hpckit.grid.field import Field
from hpckit.grid.phases import ExchangeStream, Phase, PhaseContext, prepare_mail
from hpckit.grid.regions import FieldType
from hpckit.kernels.device_array import is_device_array
from hpckit.plan.grid.halo import LARGE, HaloField, halo_plan

__communicates__ = True  # its frames are not call sites

# Bindings of persistent requests to arrays that are kept: a leapfrog scheme of three fields needs three.
KEPT_BINDINGS = 8


class HaloExchange(Begun):
    """Fills the halos of one field or of a list of fields in one exchange; corners included.

    `prototypes` are fields (`hpckit.Field`) that give the decompositions, dtypes and components of the fields to
    exchange. The exchange does not keep them, so swapping two fields is free. All must live on `mesh`; shapes, dtypes,
    halo widths and locations may differ from field to field.

    `walls` gives the boundary conditions of dims that are not periodic: a mapping from an axis name to a fill, or to a
    pair (low, high); see `hpckit.grid.boundary_conditions`. One mapping serves all fields, a list has one for each.
    Walls are filled after the messages, in the order of the dims, so that corners do not depend on the decomposition.

    `axes` names the axes to exchange along, all by default: a scheme that sweeps one direction after the other needs
    only the halo of the next direction. Halos along the other axes, and corners, are then left unchanged.

    within_node: whether neighbors on one node exchange through shared memory (`hpckit.comm.shared.transport`) instead
    of MPI; or the communicator of the ranks that do. large: bytes above which a contiguous slab travels as a message of
    its own. bindings: the number of sets of arrays whose requests it keeps; a program with many states needs as many.

    `halo(T)` exchanges. Between `halo.start(T)` and `halo.finish(T)` the program may update the core, but must not
    write to the rim or the halo. `halo.accumulate(T)` is the reverse, for deposits. Making an exchange is collective
    and raises `InputError` when the ranks do not agree; fields unlike the prototypes raise it, too.

    Fields on a GPU are exchanged there: `finish` returns before the GPU has finished; later work on the same stream
    runs after the exchange.
    """

    def __init__(
        self,
        mesh: Mesh,
        prototypes: Field | Sequence[Field],
        walls: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        axes: str | Sequence[str] | None = None,
        within_node: bool | MPI.Comm = True,
        large: int = LARGE,
        bindings: int = KEPT_BINDINGS,
    ) -> None:
        fields = (prototypes,) if isinstance(prototypes, Field) else tuple(prototypes)
        if not fields or not all(isinstance(field, Field) for field in fields):
            raise InputError("a halo exchange is made from a Field or a list of Fields")
        if any(field.mesh is not mesh for field in fields):
            raise InputError("a field lives on another mesh than the exchange", do="make it with this mesh")
        self.mesh = mesh
        self.types = tuple(FieldType(f.decomposition, f.data.dtype, f.components, f.device) for f in fields)
        device = fields[0].device
        if any(field.device.is_gpu != device.is_gpu for field in fields):
            raise InputError("some of the fields are on a GPU and some on the host", do="make an exchange for each")
        self._lane = ExchangeStream(device) if device.is_gpu else None
        self._bindings = Bindings(bindings)
        for kind in self.types:
            kind.check_dtype()
        self._walls = self._read_walls(walls)
        self._own_walls = [
            kind.own_walls(walls, mesh.rank) for kind, walls in zip(self.types, self._walls, strict=True)
        ]
        self._has_walls = any(self._own_walls)
        chosen = mesh.topology.names if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
        require_same(
            mesh.comm,
            {
                "topology": repr(mesh.topology),
                **{f"field {i}": repr(each) for i, each in enumerate(self.types)},
                "walls": repr(self._walls),
                "axes": repr(chosen),
                "within_node": repr(bool(within_node)),
                "large": repr(large),
                "checks of messages": repr(mesh.observer.checks_messages),
            },
            "a halo exchange needs the same fields on every rank",
        )
        self._place = self._planned(chosen, within_node, large)
        self.plan = self._place.plan
        self._phases = [Phase(self._place, messages) for messages in self.plan.messages(mesh.rank)]
        self._phases_back: list[Phase] = []  # made on first use
        # Dims held whole come first; start goes as far as the first messages.
        self._first_remote = sum(mesh.topology.sizes[steps[0].dim] == 1 for steps in self.plan.phases())
        self._flying: tuple[Binding, Arrays] | None = None
        self._site: Site | None = None  # of the last start
        self._closed = False
        self.wait_seconds = 0.0
        self._observer, self._neighbors = mesh.observer, self._peers(chosen)
        self._report = self._reported("halo", "halo exchange")
        self._back_report: ExchangeReport | None = None
        mesh.adopt(self)
        self._outlive()

    @property
    def nbytes(self) -> int:
        """Bytes that this rank sends to other ranks in one exchange."""
        return sum(phase.nbytes for phase in self._phases)

    @property
    def within_node(self) -> bool:
        """Whether all messages of this rank go through the shared memory of its node."""
        return not any(phase.uses_mpi for phase in self._phases)

    @property
    def wraps(self) -> list[tuple[int, int]] | None:
        """The fields (by number) and dims whose ends are copied to each other, in order, if an exchange does nothing
        else before it fills walls: no other rank takes part, and no listener is attached. Otherwise None.
        """
        if self._lane is not None or self._observer.on or not all(phase.is_alone for phase in self._phases):
            return None
        if len(self._phases) > len(self.plan.order):  # in rounds
            return None
        return [each for phase in self._phases for each in phase.wraps]

    def __call__(self, fields: Any) -> None:
        """Fill the halos: `start` and `finish`."""
        self._start(fields)
        self._finish()

    def start(self, fields: Any) -> None:
        """Make the copies within the rank and send the first messages."""
        self._start(fields)
        self._site = call_site()

    def unfinished(self) -> Unfinished | None:
        """The exchange that was started and not finished."""
        if self._flying is None:
            return None
        binding, _ = self._flying
        return Unfinished("a halo exchange", self._site, [each for phase in binding.there for each in phase.requests])

    def _start(self, fields: Any) -> None:
        if self._flying is not None:
            raise InputError("the exchange has been started already", do="call finish before the next start")
        heard = self._observer.on
        if heard:
            self._report.begin()
        arrays = _arrays(fields)
        binding = self._bind(arrays)
        self._flying = (binding, arrays)
        if self._lane is not None:
            self._lane.begin()
        for phase in binding.there[: self._first_remote + 1]:
            phase.begin()
        if heard:
            self._report.posted()

    def finish(self, fields: Any) -> None:
        """Receive, run the later phases, and fill the walls."""
        self._require_started(fields)
        self._finish()

    def _require_started(self, fields: Any) -> None:
        if self._flying is None:
            raise InputError("the exchange has not been started", do="call start before finish, with the same fields")
        if list(map(id, _arrays(fields))) != list(map(id, self._flying[1])):
            raise InputError("finish and start were given different fields")

    def _finish(self) -> None:
        assert self._flying is not None
        binding, arrays = self._flying
        report, waited = self._report if self._observer.on else UNHEARD, 0.0
        report.wait()
        for number, phase in enumerate(binding.there[self._first_remote :]):
            if number:
                phase.begin()
            waited += phase.complete()
        self.wait_seconds += waited
        self._flying = None
        report.end(waited=waited)
        if self._lane is not None:
            with self._lane:
                self._fill_walls(arrays)
        elif self._has_walls:
            self._fill_walls(arrays)

    def _fill_walls(self, arrays: Arrays) -> None:
        for array, kind, walls in zip(arrays, self.types, self._own_walls, strict=True):
            if walls:
                kind.fill_walls(array, walls)

    def accumulate(self, fields: Any) -> None:
        """The reverse of an exchange: add each halo value to the cell it copies, on its owner; clear the halo.

        For particles that deposit on a grid, or the adjoint of a stencil. The halo beyond walls stays unchanged.
        """
        if self._flying is not None:
            raise InputError("accumulate was called between start and finish")
        arrays = _arrays(fields)
        binding = self._bind(arrays)
        if binding.back is None:
            if not self._phases_back:
                place = dataclasses.replace(self._place, transport=None)
                back = self.plan.messages_back(self.mesh.rank)
                self._phases_back = [Phase(place, messages, adds=True) for messages in back]
            binding.back = [phase.bind(arrays) for phase in self._phases_back]
        if self._lane is not None:
            self._lane.begin()
        if self._back_report is None:
            self._back_report = self._reported("halo accumulation", "halo accumulation")
        report, waited = self._back_report, 0.0
        report.begin()
        report.wait()
        with self._lane or nullcontext():
            for phase in binding.back:
                phase.begin()
                waited += phase.complete()
        self.wait_seconds += waited
        report.end(waited=waited)

    def close(self) -> None:
        """Free the persistent requests; closing the mesh does this too. Raises `InputError` before `finish`."""
        if self._closed:
            return
        if self._flying is not None:
            raise InputError("the exchange is under way", do="call finish before close")
        self._closed = True
        self._bindings.free()
        for phase in (*self._phases, *self._phases_back):
            phase.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_walls(self, walls: Any) -> tuple[dict[int, tuple[Fill | None, Fill | None]], ...]:
        """For each field: the fills of each dim that is not periodic, by its number."""
        given = [walls or {}] * len(self.types) if walls is None or isinstance(walls, Mapping) else walls
        if not isinstance(given, list | tuple) or not all(isinstance(each, Mapping) for each in given):
            raise InputError(
                f"walls map axis names to fills, as in {{'y': hpckit.bc.mirror}}, or list such mappings, not {walls!r}"
            )
        if len(given) != len(self.types):
            raise InputError(f"{len(given)} sets of walls do not fit {len(self.types)} fields")
        read = []
        for kind, named in zip(self.types, given, strict=True):
            fills = {}
            for name in named:
                dim = self.mesh.topology.axis(name)
                if self.mesh.topology.is_periodic(name):
                    raise InputError(f"axis {name} is periodic and has no walls")
                pair = named[name] if isinstance(named[name], tuple | list) else (named[name], named[name])
                if len(pair) != 2:
                    raise InputError(f"the walls of axis {name} must be one fill or a pair (low, high), not {pair!r}")
                fills[dim] = (as_fill(pair[0]), as_fill(pair[1]))
            kind.check_walls(fills)
            read.append(fills)
        return tuple(read)

    def _peers(self, axes: Sequence[str]) -> set[int]:
        """The neighbors of this rank along some axes."""
        topology, rank = self.mesh.topology, self.mesh.rank
        beside = {topology.shift(rank, name, step) for name in axes for step in (-1, 1)}
        return {peer for peer in beside if peer is not None and peer != rank}

    def _reported(self, kind: str, name: str) -> ExchangeReport:
        return self._observer.exchange(self.mesh.comm, kind, name, self.types[0].dtype, self._neighbors)

    def _planned(self, axes: Sequence[str], within_node: bool | MPI.Comm, large: int) -> PhaseContext:
        """Collective: the plan, and the transport of its messages. On a GPU each direction is one packed message."""
        mesh, lane = self.mesh, self._lane
        packed = lane is not None
        fields = [HaloField(t.decomposition, t.components, 0 if packed else t.dtype.itemsize) for t in self.types]
        plan = halo_plan(fields, axes, large=large)
        place = PhaseContext(
            comm=mesh.comm,
            types=self.types,
            plan=plan,
            first_tag=mesh.lasting_tags(plan.tags),
            sealed=mesh.observer.checks_messages,
            lane=lane,
        )
        if packed or not within_node or not any(mesh.topology.sizes[dim] > 1 for dim in plan.order):
            return place
        transport = Transport(mesh.comm, None if isinstance(within_node, bool) else within_node)
        leaders = all_of_ranks(mesh.comm, np.array(min(transport.place), np.int64))
        shared = dataclasses.replace(place, plan=halo_plan(fields, axes, leaders.tolist(), large), transport=transport)
        there = np.array(1, np.int64)
        try:
            prepare_mail(shared, shared.plan.messages(mesh.rank))
        except SetupError:  # on all ranks of a node alike
            there[...] = 0
        return shared if min_of_ranks(mesh.comm, there) else place

    def _bind(self, arrays: Arrays) -> Binding:
        """The persistent requests for these arrays; those that are not known are checked first."""
        key = tuple(map(id, arrays))
        if self._lane is None:
            for array in arrays:
                # It may have changed since the requests were made. Arrays of a GPU have no such flag.
                if not getattr(array.flags, "writeable", True):
                    raise InputError("a field cannot be written to", do="exchange a copy of it")
        known = self._bindings.known.get(key)
        if known is not None:
            return known.binding
        if self._closed:
            raise InputError("the exchange is closed", do="make a new one on an open mesh")
        if len(arrays) != len(self.types):
            raise InputError(f"the exchange was made for {len(self.types)} fields, not {len(arrays)}")
        for number, (array, kind) in enumerate(zip(arrays, self.types, strict=True)):
            kind.check(array, self.mesh.rank, f"field {number}")
        return self._bindings.add(key, arrays, self._phases)


def _arrays(fields: Any) -> Arrays:
    """The arrays of the user's argument: a field or an array, or a sequence of them."""
    if isinstance(fields, Field):
        return (fields.data,)
    if isinstance(fields, np.ndarray) or is_device_array(fields):
        return (fields,)
    if not isinstance(fields, list | tuple):
        raise InputError(f"an exchange takes a Field, an array, or a list of them, not {type(fields).__name__}")
    return tuple([field.data if isinstance(field, Field) else field for field in fields])
