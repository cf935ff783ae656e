"""Fully sharded data parallelism for a module of PyTorch, in the manner of FSDP2: each parameter along dim 0.

Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel", arXiv:2304.11277; Rajbhandari et
al. 2020, "ZeRO", arXiv:1910.02054, stage 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

from hpckit.collectives import Request, all_reduce, reduce_scatter
from hpckit.collectives.axis import axis_of
from hpckit.comm.mesh import Mesh
from hpckit.comm.shared import calls
from hpckit.comm.shared.group import node_group
from hpckit.errors import InputError, MismatchError
from hpckit.torch.states import States
from hpckit.torch.tensors import KINDS, as_tensor, bound_threads, broadcast_tensors, kind_of, require_model
from hpckit.torch.units import ModuleUnit, Sharded, blocks_of, cast, tensors_in, units_of
from hpckit.training.replicas import Replicas

DIGEST = 4  # bytes
ROOMS = 2  # of a dtype: gradients of one unit are averaged while those of the next are made


class FullyShardedDataParallel(States, nn.Module):
    """A module whose parameters, gradients and optimizer states lie in shards on the ranks of `mesh_axis`.

        model = FullyShardedDataParallel(model, mesh["dp"], blocks=Block)
        optimizer = torch.optim.AdamW(model.parameters())  # of this rank's rows of each parameter
        for x, y in share:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()

    blocks: classes of modules, or modules, that are gathered and reduced at once, one ahead of its use; left out, what
    the outermost `ModuleList`s hold. What belongs to no block stays gathered from forward to backward. Where the ranks
    share a node its memory holds the parameters once, and gathering is a pointer; by_pointer=False has them gathered by
    messages all the same. Losses, gradients and parameters have the bits of `DistributedDataParallel` with any
    optimizer that treats elements one by one.

    param_dtype: the dtype in which the module computes and values are gathered (bfloat16 halves both), and to which
    forward casts floating-point arguments; shards, optimizer and states stay in the dtype of the parameters. Gradients
    then arrive in param_dtype, and are averaged in it unless reduce_dtype says otherwise. What the module returns is in
    param_dtype, or in output_dtype, to which its floating-point tensors are cast: float32 for most loss functions.

    `samples`, `skip`, `no_sync` and reduce_dtype: as there; without synchronization each rank keeps whole gradients.
    Forward is collective, in evaluation too; each rank runs the same blocks in the same order. Collective; raises
    `InputError` on every rank if the models differ.
    """

    def __init__(
        self,
        module: nn.Module,
        mesh_axis: Any,
        *,
        blocks: type | Iterable[Any] | None = None,
        by_pointer: bool | None = None,
        broadcast_buffers: bool = True,
        deterministic: bool = True,
        reduce_dtype: torch.dtype | None = None,
        param_dtype: torch.dtype | None = None,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.replicas = replicas = Replicas(mesh_axis, deterministic)
        require_model(replicas.comm, module, reduce_dtype, param_dtype, output_dtype)
        bound_threads(replicas.comm)
        scalars = [name for name, parameter in module.named_parameters() if not parameter.dim()]
        if scalars:
            raise InputError(f"{scalars[0]} has no dim that could be cut", do="give it the shape [1]")
        self.by_pointer = replicas.share_node if by_pointer is None else by_pointer and replicas.share_node
        self.module, self.broadcast_buffers = module, broadcast_buffers
        self.param_dtype, self.output_dtype = param_dtype, output_dtype
        self.samples_held: float | None = None
        self._sync = True
        broadcast_tensors(replicas, [*module.parameters(), *module.buffers()])
        homes = units_of(replicas, module, blocks_of(module, blocks), self.by_pointer, reduce_dtype, param_dtype)
        self._root = homes[-1][1]
        self.units: list[ModuleUnit] = [unit for _, units in homes for unit in units]
        self._wait_for_values()  # all have written theirs
        self._turn = [unit for unit in reversed(self.units) if unit not in self._root and unit.trained]
        self._turn += [unit for unit in self._root if unit.trained]
        # By messages, values and gradients have calls of their own: which comes first may differ with what is unused.
        self._sums = replicas.comm if self.by_pointer or replicas.size == 1 else Mesh(replicas.comm, sums=0)["sums"]
        axis_of(self._sums)  # made here: during backward ranks come to their first sum at different times
        self._rooms = self._make_rooms()
        self._room: dict[int, int] = {}  # of each unit: the same on all ranks, whatever is under way there
        for dtype in self._rooms:
            same = [unit for unit in self._turn if unit.reduced == dtype]
            self._room.update({id(unit): number % ROOMS for number, unit in enumerate(same)})
        self._under_way: list[tuple[ModuleUnit, np.ndarray, np.ndarray, Request]] = []
        self._started = 0
        self._trained = [each for unit in self._turn for each in unit.trained]
        # Which parameters have a gradient; and behind them what has been gathered (`_agree`).
        self._has = np.zeros(len(self._trained) + 2 * DIGEST, np.uint8)
        self._had: list[bool] = []  # before this backward pass
        self._number = {id(each.whole): number for number, each in enumerate(self._trained)}
        self._running = False
        for owner, units in homes[:-1]:
            self._watch_block(owner, units)
        for unit in self._turn:
            for each in unit.trained:
                each.whole.register_post_accumulate_grad_hook(self._hook(unit, each))
        for unit in self.units:
            unit.use_shards()

    def _make_rooms(self) -> dict[torch.dtype, list[np.ndarray]]:
        longest: dict[torch.dtype, int] = {}
        for unit in self._turn:
            longest[unit.reduced] = max(longest.get(unit.reduced, 0), unit.size)
        if self.replicas.size == 1:
            return {}
        return {
            dtype: [self.replicas.allocate(size, KINDS[dtype][0]) for _ in range(ROOMS)]
            for dtype, size in longest.items()
        }

    # Values.

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns. Collective."""
        self._running = False
        self._free()  # what an earlier pass has left may be old
        self._wait_for_values()
        self._broadcast_buffers()
        if self.param_dtype:
            arguments, named = cast((arguments, named), self.param_dtype)
        for unit in self._root:
            unit.need()
            unit.use_whole()
        try:
            output = self.module(*arguments, **named)
        finally:
            for unit in self._root:
                unit.use_shards()
        if torch.is_grad_enabled():
            self._watch_output(output, self._root)
        else:
            self._free()
        return cast(output, self.output_dtype) if self.output_dtype else output

    def _broadcast_buffers(self) -> None:
        if self.training and self.broadcast_buffers and self._sync:
            broadcast_tensors(self.replicas, list(self.module.buffers()))

    def _wait_for_values(self) -> None:
        """In the memory of a node: until all ranks have updated what is theirs."""
        for unit in self.units:
            unit.round()
        if self.by_pointer and self.replicas.size > 1:
            group = node_group(self.replicas.comm)
            assert group is not None
            calls.barrier(group)

    def _watch_block(self, block: nn.Module, units: list[ModuleUnit]) -> None:
        """Let a block have its values while it computes, forward and backward, and the next one's come meanwhile."""

        def before(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
            self._need(units, 1)
            for unit in units:
                unit.use_whole()
            return cast((arguments, named), self.param_dtype) if self.param_dtype else None

        def behind(_: nn.Module, __: Any, output: Any) -> None:
            for unit in units:
                unit.use_shards()
                if not self._running:
                    unit.free()
            if torch.is_grad_enabled() and not self._running:
                self._watch_output(output, units)

        block.register_forward_pre_hook(before, with_kwargs=True)
        block.register_forward_hook(behind)

    def _watch_output(self, output: Any, units: list[ModuleUnit]) -> None:
        """Have the values again when the gradient of an output comes."""
        if not self.by_pointer:
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: self._backward(units))

    def _backward(self, units: list[ModuleUnit]) -> None:
        """The gradient of an output is there: those behind it have been used, where their gradients are complete."""
        self._begin()
        first = self.units.index(units[0]) if units else len(self.units)
        for unit in self.units[first + len(units) :]:
            if not unit.waits and len(unit.trained) == len(unit.parameters):
                unit.free()
        self._need(units, -1)

    def _need(self, units: list[ModuleUnit], ahead: int) -> None:
        if self.by_pointer:
            return
        for unit in units:
            unit.need()
        following = self.units.index(units[-1 if ahead > 0 else 0]) + ahead if units else -1
        if 0 <= following < len(self.units) and self.units[following] not in self._root:
            self.units[following].begin()

    def _free(self) -> None:
        for unit in self.units:
            unit.free()

    # Gradients.

    @property
    def samples(self) -> float | None:
        """The samples of this rank's part of the batch, its weight in the mean; None: all ranks count alike."""
        return self.samples_held

    @samples.setter
    def samples(self, count: float | None) -> None:
        if count is not None and not count >= 0:
            raise InputError(f"samples is {count}", do="give the samples of this rank's part, 0 or more, or None")
        self.samples_held = None if count is None else float(count)

    def skip(self) -> None:
        """Replace forward and backward on a rank without samples: it gathers with the others, and adds nothing."""
        if self.samples != 0:
            raise InputError(
                f"skip() with samples={self.samples}",
                do="set samples on every rank before backward: 0 on this one, which has none",
            )
        self._wait_for_values()
        self._broadcast_buffers()
        for unit in self._root:
            unit.need()
        blocks = [unit for unit in self.units if unit not in self._root]
        for unit in blocks:
            self._need([unit], 1)
            unit.free()
        self._open()
        for unit in reversed(blocks):
            self._need([unit], -1)
            unit.free()
        self._end()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within it accumulate whole gradients on each rank; the next one outside averages all."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def _hook(self, unit: ModuleUnit, parameter: Sharded) -> Any:
        number = self._number[id(parameter.whole)]

        def arrived(_: torch.Tensor) -> None:
            self._begin()
            self._has[number] = 1
            unit.waits -= 1
            if not self._sync and unit.keeps:
                parameter.keep_gradient(unit.reduced)
            if self._sync:
                self._start_complete()
                self._advance()

        return arrived

    def _begin(self) -> None:
        if not self._running:
            self._running = True
            self._open()
            Variable._execution_engine.queue_callback(self._end)

    def _open(self) -> None:
        self._has[:] = 0
        self._had = [each.shard.grad is not None for each in self._trained]
        self._started = 0
        for unit in self._turn:
            unit.waits = len(unit.trained)

    def _start_complete(self) -> None:
        """Start to average the units whose turn it is, while there is room: nobody waits for it here, since other
        ranks may wait for values that this one has yet to give.
        """
        while self._started < len(self._turn) and not self._turn[self._started].waits:
            if self._is_taken(self._turn[self._started]):
                return
            self._start_next()

    def _is_taken(self, unit: ModuleUnit) -> bool:
        room = self._room.get(id(unit))
        return any(other.reduced == unit.reduced and self._room[id(other)] == room for other, *_ in self._under_way)

    def _start_next(self) -> None:
        """Copy the gradients of a unit into a room, the rows of each rank together, and let each rank have its own."""
        unit = self._turn[self._started]
        self._started += 1
        replicas, rank = self.replicas, self.replicas.rank
        grads = []
        for each in unit.parameters:
            if each.kept is not None:
                each.keep_gradient(unit.reduced)
            grad = each.whole.grad if each.kept is None else each.kept
            grads.append(None if grad is None else grad.contiguous())
            if grad is not None and each.whole.requires_grad:
                self._has[self._number[id(each.whole)]] = 1
            each.whole.grad = each.kept = None
        fresh = unit.grads is None or all(each.shard.grad is None for each in unit.trained)
        into = np.empty(int(unit.counts[rank]), KINDS[unit.dtype][0]) if unit.grads is None or not fresh else unit.grads
        if fresh:
            unit.grads = into
        held, dtype = into, unit.dtype
        if replicas.size > 1:
            while self._is_taken(unit):
                self._finish_first()
            held, dtype = self._rooms[unit.reduced][self._room[id(unit)]][: unit.size], unit.reduced
        message = as_tensor(held, dtype)
        for number, elements, at in unit.pieces():
            grad = grads[number]
            message[at] = 0 if grad is None else grad.detach().reshape(-1)[elements]
        if replicas.size == 1:
            self._hand(unit, into)
            return
        came = into if dtype == unit.dtype else np.empty(into.size, held.dtype)
        op, kind = "mean" if self.samples is None else "average", kind_of(dtype)
        how: dict[str, Any] = {"deterministic": replicas.deterministic, "weight": self.samples, "kind": kind}
        request = reduce_scatter(held, self._sums, op, came, counts=unit.counts, **how)
        self._under_way.append((unit, into, came, request))

    def _advance(self) -> None:
        """Let the sums go on."""
        while self._under_way and self._under_way[0][-1].test():
            self._finish_first()

    def _finish_first(self) -> None:
        unit, into, came, request = self._under_way.pop(0)
        request.wait()
        if came is not into:
            as_tensor(into, unit.dtype).copy_(as_tensor(came, unit.reduced))
        self._hand(unit, into)

    def _hand(self, unit: ModuleUnit, into: np.ndarray) -> None:
        """Let the shards have what was averaged, beside what they had."""
        for each, view in zip(unit.parameters, unit.views(into), strict=True):
            if each.shard.requires_grad:
                if each.shard.grad is not None:
                    each.shard.grad += view
                else:
                    each.shard.grad = view

    def _end(self) -> None:
        """At the end of a backward pass: what is left is averaged, and what nobody has a gradient of has none."""
        self._running = False
        for unit in self.units:
            unit.use_shards()  # a checkpoint of activations stops in the middle of a block that it computes again
        self._free()
        if not self._sync:
            return
        while self._started < len(self._turn):
            self._start_next()
        while self._under_way:
            self._finish_first()
        if self.replicas.size > 1:  # no rank goes on to change values before all have come here
            said = self.units[0].order.view(np.uint8) if self.units else np.zeros(DIGEST, np.uint8)
            self._has[-2 * DIGEST : -DIGEST], self._has[-DIGEST:] = said, 255 - said
            all_reduce(self._has, self._sums, "max").wait()
            if (self._has[-2 * DIGEST : -DIGEST] != 255 - self._has[-DIGEST:]).any():
                raise MismatchError(
                    "ranks ran the blocks of a sharded model in different orders: one took the values of another block",
                    likely="a branch or a number of passes that depends on the rank",
                    do="let every rank run the same blocks in the same order; model.skip() for one without samples",
                )
        for number, each in enumerate(self._trained):
            if not self._has[number] and not self._had[number]:
                each.shard.grad = None
