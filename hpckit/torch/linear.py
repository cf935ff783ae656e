"""Linear layers of PyTorch whose weights are cut over the ranks of a mesh axis.

Shoeybi et al. 2019, "Megatron-LM: training multi-billion parameter language models using model parallelism",
arXiv:1909.08053; sequence parallel: Korthikanti et al. 2022, arXiv:2205.05198.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hpckit.collectives import all_gather, all_reduce, reduce_scatter
from hpckit.comm.agree import all_of_ranks, require_same
from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.torch.tensors import as_array, bound_threads, broadcast_tensors, kind_of
from hpckit.training.replicas import Replicas

Move = Callable[[torch.Tensor], torch.Tensor]


class Moved(torch.autograd.Function):
    """A tensor moved between ranks in forward, and its gradient in backward."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, forward: Move, backward: Move) -> torch.Tensor:
        """The moved tensor; backward: what moves the gradient."""
        context.move = backward
        return forward(tensor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The moved gradient."""
        return context.move(gradient), None, None


class ActivationMoves:
    """What tensor parallel layers do with activations on the ranks of an axis. Each is collective, also backward."""

    def __init__(self, mesh_axis: Any) -> None:
        self.replicas = Replicas(mesh_axis)
        self.rank, self.size = self.replicas.rank, self.replicas.size

    def copied(self, x: torch.Tensor) -> torch.Tensor:
        """x, the same on all ranks; its gradient is the sum of theirs."""
        return self._moved(x, _same, self._sum)

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of the ranks' x."""
        return self._moved(x, self._sum, _same)

    def gathered(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """The ranks' x one after the other along a dim, for a use that is the same on all ranks."""
        sizes = self._sizes(x, dim)
        return self._moved(x, lambda x: self._gather(x, dim, sizes), lambda g: self._part(g, dim, sizes))

    def part(self, x: torch.Tensor, dim: int, sizes: np.ndarray) -> torch.Tensor:
        """The own part of x, which is the same on all ranks."""
        return self._moved(x, lambda x: self._part(x, dim, sizes), lambda g: self._gather(g, dim, sizes))

    def gathered_for_parts(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """The ranks' x one after the other, for a use that differs: its gradient is summed, and each gets its part."""
        sizes = self._sizes(x, dim)
        return self._moved(x, lambda x: self._gather(x, dim, sizes), lambda g: self._sum_of_part(g, dim, sizes))

    def summed_part(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """The own part of the sum of the ranks' x."""
        sizes = np.diff(block_starts(x.shape[dim], self.size))
        return self._moved(x, lambda x: self._sum_of_part(x, dim, sizes), lambda g: self._gather(g, dim, sizes))

    def sum_gradients(self, module: nn.Module) -> None:
        """From now on the gradients of a module's parameters are summed over the ranks, as those of a norm must be that
        each rank applies to its part of a sequence. Collective in backward.
        """
        if self.size > 1:
            for parameter in module.parameters():
                parameter.register_hook(self._sum)

    def _moved(self, x: torch.Tensor, forward: Move, backward: Move) -> torch.Tensor:
        return x if self.size == 1 else Moved.apply(x, forward, backward)

    def _sizes(self, x: torch.Tensor, dim: int) -> np.ndarray:
        return all_of_ranks(self.replicas.comm, np.array(x.shape[dim], np.int64))

    def _sum(self, x: torch.Tensor) -> torch.Tensor:
        held = x.detach().clone(memory_format=torch.contiguous_format)
        all_reduce(as_array(held), self.replicas.comm, "sum", deterministic=True, kind=kind_of(x.dtype)).wait()
        return held

    def _gather(self, x: torch.Tensor, dim: int, sizes: np.ndarray) -> torch.Tensor:
        first = x.detach().movedim(dim, 0).contiguous()
        every = torch.empty((int(sizes.sum()), *first.shape[1:]), dtype=x.dtype)
        width = every[:1].numel()
        all_gather(as_array(first), self.replicas.comm, as_array(every), counts=sizes * width).wait()
        return every.movedim(0, dim).contiguous()

    def _part(self, x: torch.Tensor, dim: int, sizes: np.ndarray) -> torch.Tensor:
        return x.narrow(dim, int(sizes[: self.rank].sum()), int(sizes[self.rank])).contiguous()

    def _sum_of_part(self, x: torch.Tensor, dim: int, sizes: np.ndarray) -> torch.Tensor:
        first = x.detach().movedim(dim, 0).contiguous()
        own = torch.empty((int(sizes[self.rank]), *first.shape[1:]), dtype=x.dtype)
        counts, kind = sizes * first[:1].numel(), kind_of(x.dtype)
        reduce_scatter(
            as_array(first), self.replicas.comm, "sum", as_array(own), deterministic=True, counts=counts, kind=kind
        ).wait()
        return own.movedim(0, dim).contiguous()


def _same(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x)


class ParallelLinear(nn.Module):
    """What both kinds have: a linear layer cut along one dim of its weight.

    whole: a layer that is the same on all ranks; rank 0's values count. parts, unit: the cut dim consists of so many
    equal parts (3 for queries, keys and values in one), each cut over the ranks in multiples of `unit` (the width of a
    head). Collective; raises `InputError` where that does not fit.
    """

    dim: int  # of the weight, that is cut

    def __init__(self, whole: nn.Linear, mesh_axis: Any, parts: int, unit: int, sequence_dim: int | None) -> None:
        super().__init__()
        if not isinstance(whole, nn.Linear):
            raise InputError(f"a linear layer is cut, not {whole!r}", do="give a torch.nn.Linear")
        self.moves, self.sequence_dim = ActivationMoves(mesh_axis), sequence_dim
        replicas = self.moves.replicas
        facts = {"weight": str(list(whole.weight.shape)), "bias": str(whole.bias is not None), "unit": str(unit)}
        require_same(replicas.comm, facts, "a linear layer is the same on every rank")
        bound_threads(replicas.comm)
        count = whole.weight.shape[self.dim]
        if parts < 1 or unit < 1 or count % (parts * unit) or count // (parts * unit) < replicas.size:
            fits = count // (parts * unit) if parts > 0 and unit > 0 and not count % (parts * unit) else 0
            raise InputError(
                f"{count} {('outputs', 'inputs')[self.dim]} in {parts} parts, cut at multiples of {unit}, do not give "
                f"{replicas.size} ranks something each",
                do=f"take at most {fits} ranks" if fits else "let parts times unit divide them",
            )
        self.inputs, self.outputs = whole.in_features, whole.out_features
        starts = unit * block_starts(count // (parts * unit), replicas.size)
        self._rows = [
            np.concatenate([part * (count // parts) + np.arange(first, end) for part in range(parts)])
            for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        broadcast_tensors(replicas, list(whole.parameters()))
        own = torch.from_numpy(self._rows[replicas.rank])
        self.weight = nn.Parameter(whole.weight.detach().index_select(self.dim, own).contiguous())
        self.bias: nn.Parameter | None = None
        if whole.bias is not None:
            bias = whole.bias.detach()
            self.bias = nn.Parameter(bias[own].contiguous() if self.dim == 0 else bias.clone())

    @property
    def own(self) -> np.ndarray:
        """The rows (columns) of the whole weight that this rank has."""
        return self._rows[self.moves.rank]

    def whole(self) -> nn.Linear:
        """The layer of one process, on every rank. Collective."""
        found = nn.Linear(self.inputs, self.outputs, self.bias is not None, dtype=self.weight.dtype)
        found.weight = nn.Parameter(self._whole(self.weight.detach(), self.dim))
        if self.bias is not None:
            own = self.bias.detach()
            found.bias = nn.Parameter(self._whole(own, 0) if self.dim == 0 else own.clone())
        return found

    def _whole(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        sizes = np.array([len(rows) for rows in self._rows])
        every = tensor if self.moves.size == 1 else self.moves._gather(tensor, dim, sizes)
        found = torch.empty_like(every)
        return found.index_copy_(dim, torch.from_numpy(np.concatenate(self._rows)), every)


class ColumnParallelLinear(ParallelLinear):
    """A linear layer of which each rank computes some outputs: x [..., inputs] -> [..., own outputs].

        up = ColumnParallelLinear(nn.Linear(64, 256), mesh["tp"])
        down = RowParallelLinear(nn.Linear(256, 64), mesh["tp"])
        y = down(torch.relu(up(x)))  # of one process

    gather_output: all outputs on every rank. sequence_dim: x has this rank's part of that dim (sequence parallel), and
    is gathered. whole, parts, unit: see `ParallelLinear`.
    """

    dim = 0

    def __init__(
        self,
        whole: nn.Linear,
        mesh_axis: Any,
        *,
        parts: int = 1,
        unit: int = 1,
        gather_output: bool = False,
        sequence_dim: int | None = None,
    ) -> None:
        if gather_output and parts > 1:
            raise InputError("outputs in several parts are not gathered", do="leave out gather_output or parts")
        super().__init__(whole, mesh_axis, parts, unit, sequence_dim)
        self.gather_output = gather_output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The own outputs, or all. Collective."""
        moves = self.moves
        x = moves.copied(x) if self.sequence_dim is None else moves.gathered_for_parts(x, self.sequence_dim)
        y = functional.linear(x, self.weight, self.bias)
        return moves.gathered(y, y.dim() - 1) if self.gather_output else y


class RowParallelLinear(ParallelLinear):
    """A linear layer of which each rank has some inputs: x [..., own inputs] -> [..., outputs], summed over the ranks.

    whole_input: x has all inputs, on every rank. sequence_dim: each rank gets its part of that dim of the result; parts
    differ by at most 1. whole, unit: see `ParallelLinear`.
    """

    dim = 1

    def __init__(
        self,
        whole: nn.Linear,
        mesh_axis: Any,
        *,
        unit: int = 1,
        whole_input: bool = False,
        sequence_dim: int | None = None,
    ) -> None:
        super().__init__(whole, mesh_axis, 1, unit, sequence_dim)
        self.whole_input = whole_input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs, or this rank's part of them along `sequence_dim`. Collective."""
        moves = self.moves
        if self.whole_input:
            x = moves.part(x, x.dim() - 1, np.array([len(rows) for rows in self._rows]))
        y = functional.linear(x, self.weight)
        y = moves.summed(y) if self.sequence_dim is None else moves.summed_part(y, self.sequence_dim)
        if self.bias is None:
            return y
        bias = self.bias if self.sequence_dim is None else moves.copied(self.bias)
        return y + bias.to(y.dtype)  # where autocast multiplies in 16 bits, as torch.nn.Linear gives them
