"""A unit of a sharded model: parameters of one dtype that are gathered and whose gradients are averaged at once.

Each parameter is cut along dim 0: a replica's shard is some of its rows. The values of a unit come in one of two ways.
Where the replicas share a node they stand in its memory once, and to gather them is a pointer. Else they are gathered
by messages into memory that exists only while it is needed, as autograd keeps the tensors, but not what they hold.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import nn

from hpckit.collectives import Request, all_gather
from hpckit.comm.shared.symmetric import shared_once
from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.torch.tensors import KINDS, as_array, as_tensor, room_of
from hpckit.training.replicas import Replicas


@dataclass(eq=False)
class Sharded:
    """A parameter. name: the first of its names; places: modules that hold it, and what they call it.

    rows: where the shard of each replica begins and the last one ends. whole, shard: what stands in the modules while
    they compute, and otherwise. kept: gradients of former passes in the dtype in which they are averaged, where that is
    not the one of `whole`.
    """

    name: str
    places: list[tuple[nn.Module, str]]
    rows: np.ndarray
    whole: nn.Parameter
    shard: nn.Parameter
    kept: torch.Tensor | None = None

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.whole.numel() // max(1, self.whole.shape[0])

    def keep_gradient(self, dtype: torch.dtype) -> None:
        """Add the gradient of a pass to what is kept."""
        if self.whole.grad is not None:
            grad = self.whole.grad.to(dtype)
            self.whole.grad, self.kept = None, grad if self.kept is None else self.kept.add_(grad)

    def put(self, parameter: nn.Parameter) -> None:
        """Let the modules have it."""
        for module, name in self.places:
            module._parameters[name] = parameter


@dataclass(eq=False)
class ModuleUnit:
    """Parameters of a module, of one dtype; made by `PointerUnit` or `MessageUnit`.

    computed: the dtype in which modules compute with them, to which the shards are rounded. reduced: the dtype in which
    their gradients go to other replicas. waits: for how many gradients of this backward pass it waits.
    """

    replicas: Replicas
    parameters: list[Sharded]
    dtype: torch.dtype
    computed: torch.dtype
    reduced: torch.dtype
    order: np.ndarray  # a digest of the gathers of all units, one number
    counts: np.ndarray = field(init=False)
    waits: int = 0

    def __post_init__(self) -> None:
        widths = np.array([each.width for each in self.parameters])
        rows = np.array([np.diff(each.rows) for each in self.parameters])
        self.counts = (rows * widths[:, None]).sum(axis=0)
        self.grads: np.ndarray | None = None

    @property
    def trained(self) -> list[Sharded]:
        """The parameters that are not frozen."""
        return [each for each in self.parameters if each.whole.requires_grad]

    @property
    def keeps(self) -> bool:
        """Whether gradients of several passes are added in the dtype in which they are averaged, as it has more bits
        than the one in which they come.
        """
        return self.computed != self.dtype and self.reduced.itemsize > self.computed.itemsize

    @property
    def size(self) -> int:
        """Elements of all its parameters."""
        return int(self.counts.sum())

    def pieces(self) -> list[tuple[int, slice, slice]]:
        """The vector in which the shard of each replica stands behind that of the one before: which parameter, its
        elements as a flat tensor, and where they stand.
        """
        found, at = [], 0
        for rank in range(self.replicas.size):
            for number, each in enumerate(self.parameters):
                first, end = (int(row) * each.width for row in each.rows[rank : rank + 2])
                if end > first:
                    found.append((number, slice(first, end), slice(at, at + end - first)))
                at += end - first
        return found

    def views(self, vector: np.ndarray) -> list[torch.Tensor]:
        """A vector of this replica's elements as tensors in the shapes of its shards."""
        found, at = [], 0
        for each in self.parameters:
            end = at + each.shard.numel()
            found.append(as_tensor(vector[at:end].reshape(each.shard.shape), self.dtype))
            at = end
        return found

    def use_whole(self) -> None:
        """Let the modules compute with it."""
        for each in self.parameters:
            each.put(each.whole)

    def use_shards(self) -> None:
        """Let the modules show this replica's shards."""
        for each in self.parameters:
            each.put(each.shard)

    def round(self) -> None:
        """Let the others have this replica's values as they are now, where all look at the same memory."""

    def begin(self) -> None:
        """Begin to gather the values, where they come by messages."""

    def need(self) -> None:
        """Have the values here."""

    def free(self) -> None:
        """Give back the memory of values that came by messages."""


class PointerUnit(ModuleUnit):
    """Values once in the memory of the node. Rows of the very same memory are the shards, unless these are rounded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rank, kind = self.replicas.rank, KINDS[self.computed][0]
        rooms = [room_of(each.whole, self.computed) for each in self.parameters]
        vector, at = shared_once(self.replicas.comm, sum(rooms), kind), 0
        self._rounded: list[tuple[torch.Tensor, torch.Tensor]] = []
        for each, room in zip(self.parameters, rooms, strict=True):
            first, end = (int(row) for row in each.rows[rank : rank + 2])
            place, values = vector[at : at + each.whole.numel()].reshape(each.whole.shape), each.whole.detach()
            own = as_tensor(place[first:end], self.computed)
            own.copy_(values[first:end])
            at += room
            # Two tensors on one memory: autograd does not take the optimizer's writing for a mistake.
            each.whole = nn.Parameter(as_tensor(place, self.computed), each.whole.requires_grad)
            shard = own if self.computed == self.dtype else values[first:end].clone()
            each.shard = nn.Parameter(shard, each.whole.requires_grad)
            if shard is not own:
                self._rounded.append((own, shard))

    def round(self) -> None:
        """Round the shards to where all replicas look."""
        for own, shard in self._rounded:
            own.copy_(shard)


class MessageUnit(ModuleUnit):
    """Values in shards, gathered ahead of their use and freed behind it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rank = self.replicas.rank
        self._shards = np.zeros(int(self.counts[rank]), KINDS[self.dtype][0])
        at = 0
        for each in self.parameters:
            first, end = (int(row) for row in each.rows[rank : rank + 2])
            rows = each.whole.detach()[first:end].contiguous()
            place = self._shards[at : at + rows.numel()].reshape(rows.shape)
            place[...] = as_array(rows)
            at += rows.numel()
            each.shard = nn.Parameter(as_tensor(place, self.dtype), each.whole.requires_grad)
            each.whole = nn.Parameter(torch.empty(each.whole.shape, dtype=self.computed), each.whole.requires_grad)
            each.whole.untyped_storage().resize_(0)
        self._pieces = self.pieces()
        self._coming: tuple[np.ndarray, Request] | None = None
        self._here = False

    def begin(self) -> None:
        """Begin to gather."""
        if self._here or self._coming is not None:
            return
        self.order[0] = crc32(self.parameters[0].name.encode(), int(self.order[0]))
        own = as_array(as_tensor(self._shards, self.dtype).to(self.computed))
        every = np.empty(self.size, own.dtype)
        self._coming = every, all_gather(own, self.replicas.comm, every, counts=self.counts)

    def need(self) -> None:
        """Gather, and let the tensors have memory for it."""
        if self._here:
            return
        self.begin()
        assert self._coming is not None
        every, request = self._coming
        request.wait()
        self._coming, self._here = None, True
        places, values = [], as_tensor(every, self.computed)
        for each in self.parameters:
            each.whole.untyped_storage().resize_(each.whole.numel() * each.whole.element_size())
            places.append(each.whole.data.view(-1))  # autograd does not count what is written to `data` as a change
        for number, elements, at in self._pieces:
            places[number][elements] = values[at]

    def free(self) -> None:
        """Free the values."""
        if self._coming is not None:
            self._coming[1].wait()
            self._coming = None
        if self._here:
            self._here = False
            for each in self.parameters:
                each.whole.untyped_storage().resize_(0)


def units_of(
    replicas: Replicas,
    module: nn.Module,
    blocks: Sequence[nn.Module],
    by_pointer: bool,
    reduced: torch.dtype | None = None,
    computed: torch.dtype | None = None,
) -> list[tuple[nn.Module, list[ModuleUnit]]]:
    """The units of each block; and last those of the module itself: what belongs to no block, or to several."""
    held: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    names: dict[nn.Parameter, str] = {}
    for path, inner in module.named_modules():
        for name, parameter in inner._parameters.items():
            if parameter is not None:
                held.setdefault(parameter, []).append((inner, name))
                names.setdefault(parameter, f"{path}.{name}".lstrip("."))
    home: dict[nn.Parameter, nn.Module] = {}
    for block in blocks:
        for parameter in block.parameters():
            home[parameter] = block if home.get(parameter, block) is block else module
    for parameter, places in held.items():
        inside = {id(inner) for inner in home.get(parameter, module).modules()}
        if any(id(inner) not in inside for inner, _ in places):
            home[parameter] = module
    kind: Any = PointerUnit if by_pointer else MessageUnit
    order = np.zeros(1, np.uint32)
    found = []
    for owner in (*blocks, module):
        own = [parameter for parameter in held if home.get(parameter, module) is owner]
        units = []
        for dtype in dict.fromkeys(parameter.dtype for parameter in own):
            parameters = [
                Sharded(names[each], held[each], block_starts(each.shape[0], replicas.size), each, each)
                for each in own
                if each.dtype == dtype
            ]
            within = computed if computed and dtype.is_floating_point else dtype
            units.append(kind(replicas, parameters, dtype, within, reduced or within, order))
        found.append((owner, units))
    return found


def tensors_in(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in what a module returns: in tuples, dicts (transformers' outputs are some) and data classes."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        for each in output.values():
            yield from tensors_in(each)
    elif isinstance(output, (list, tuple)):
        for each in output:
            yield from tensors_in(each)
    elif is_dataclass(output) and not isinstance(output, type):
        for place in fields(output):
            yield from tensors_in(getattr(output, place.name))


def cast(value: Any, dtype: torch.dtype) -> Any:
    """What a module is given or returns, with its floating-point tensors in this dtype: all that `tensors_in` finds."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        parts = [cast(each, dtype) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping):
        made = copy.copy(value)
        made.update({key: cast(each, dtype) for key, each in value.items()})
        return made
    if is_dataclass(value) and not isinstance(value, type):
        held = copy.copy(value)
        for place in fields(value):
            object.__setattr__(held, place.name, cast(getattr(value, place.name), dtype))
        return held
    return value


def blocks_of(module: nn.Module, given: type | Iterable[Any] | None) -> list[nn.Module]:
    """The modules that are meant, none within another. Raises `InputError`."""
    kinds: tuple[type, ...] = ()
    chosen: list[nn.Module] = []
    if given is None:
        lists = [each for each in module.modules() if isinstance(each, nn.ModuleList)]
        chosen = [block for each in lists for block in each]
    elif isinstance(given, type):
        kinds = (given,)
    else:
        every = list(given)
        kinds = tuple(each for each in every if isinstance(each, type))
        chosen = [each for each in every if not isinstance(each, type)]
    known = {id(each) for each in module.modules()}
    for each in chosen:
        if not isinstance(each, nn.Module) or id(each) not in known:
            raise InputError(
                f"blocks are modules of the model, or their classes, not {each!r}", do="give blocks=Block, a class"
            )
    inside = {id(each) for each in chosen}
    found: list[nn.Module] = []

    def visit(each: nn.Module) -> None:
        if each is not module and (isinstance(each, kinds) or id(each) in inside):
            found.append(each)
        else:
            for child in each.children():
                visit(child)

    visit(module)
    if given is not None and not found:
        named = ", ".join(kind.__name__ for kind in kinds) or "nothing"
        raise InputError(f"the model has no blocks: {named} is not in it", do="give the class of its repeated part")
    return found
