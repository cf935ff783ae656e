"""Linear maps cut over the ranks of a mesh axis, for networks of your own.

Shoeybi et al., "Megatron-LM", 2019, arXiv:1909.08053: a map cut by its columns is followed by a function of
single numbers or heads (an activation, attention), and that by a map cut by its rows; between them nothing is sent.
Forward adds up the products of the rows, backward those of the columns: one all-reduce each. Cut into chunks of rows,
the sum of a chunk travels while the next one is multiplied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hpckit.collectives import Request, all_reduce
from hpckit.collectives.axis import axis_of
from hpckit.errors import InputError
from hpckit.kernels.nn.memory import empty
from hpckit.nn.cuts import own_part
from hpckit.nn.layer import Pass
from hpckit.nn.linear import Linear, rows
from hpckit.nn.parameters import Cut, Parameter
from hpckit.plan.blocks import block, block_starts


class _Parallel:
    """What both maps share: this rank's part of a `Linear`, and sums over the ranks chunk by chunk."""

    def __init__(
        self, linear: Linear, mesh_axis: Any, dim: int, with_bias: bool, chunks: int, deterministic: bool
    ) -> None:
        axis = axis_of(mesh_axis)
        self._comm, self._size, self._deterministic = axis.given, axis.size, deterministic
        count, name = linear.weight.shape[dim], linear.weight.origin.removesuffix(".weight")
        what = ("inputs", "outputs")[dim]
        if count < axis.size:
            raise InputError(f"{name} has {count} {what} for {axis.size} ranks", do=f"take at most {count} ranks")
        if chunks < 1:
            raise InputError(f"{name} in {chunks} chunks of rows", do="give 1 or more")
        self._chunks = chunks
        blocks = [block(count, axis.size, rank) for rank in range(axis.size)]
        ranges = tuple(((first, first + size),) for first, size in blocks)
        self.first, self.count = blocks[axis.rank]

        def part(parameter: Parameter, along: int) -> Parameter:
            cut = Cut(parameter.shape, along, ranges) if axis.size > 1 else None
            return own_part(parameter, cut, axis.rank)

        self._own = copy.copy(linear)
        self._own.weight = part(linear.weight, dim)
        self._own.bias = part(linear.bias, 0) if linear.bias is not None and with_bias else None

    def _summed(self, y: Any, product: Callable[[int, int], None], talks: bool = True) -> None:
        """Compute y [n, d] by product(first, end), and add up all ranks' y."""
        if not len(y):
            return
        under_way: list[Request] = []
        for first, end in pairwise(block_starts(len(y), min(self._chunks, len(y))).tolist()):
            product(first, end)
            if self._size > 1 and talks:
                for each in under_way[-1:]:
                    each.test()
                under_way.append(all_reduce(y[first:end], self._comm, "sum", deterministic=self._deterministic))
        for each in under_way:
            each.wait()


class ColumnParallel(_Parallel):
    """A `Linear` of which each rank of `mesh_axis` has some columns: x [..., inputs], the same on all ranks, to this
    rank's outputs [..., count]. Collective in `backward_input`.

        up = hp.training.ColumnParallel(Linear(64, 256, "up"), mesh["tp"])
        down = hp.training.RowParallel(Linear(256, 64, "down"), mesh["tp"])

    first, count: its columns, which need not divide. chunks: of rows, whose sums travel apart. deterministic: sums in
    the order of the ranks. Initial values are those of the whole, whatever the ranks. Raises `InputError` for fewer
    columns than ranks.
    """

    def __init__(self, linear: Linear, mesh_axis: Any, chunks: int = 1, deterministic: bool = True) -> None:
        super().__init__(linear, mesh_axis, 1, True, chunks, deterministic)

    def parameters(self) -> list[Parameter]:
        """Weight, then bias: the columns of this rank."""
        return self._own.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x."""
        return self._own.forward(x, step)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x, the same on all ranks: the sum of dy weight^T over their columns."""
        if not self._own.input_gradient:
            return None
        dx = empty(saved.shape, dy)
        given, found = rows(dy), rows(dx)
        self._summed(found, lambda first, end: self._own.transposed(given[first:end], found[first:end]))
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: of this rank's columns."""
        self._own.backward_weight(saved, dy)


class RowParallel(_Parallel):
    """A `Linear` of which each rank of `mesh_axis` has some rows: this rank's inputs [..., count], as `ColumnParallel`
    gives them, to y [..., outputs], the same on all ranks. Collective in `forward`.

    first, count: its rows. The bias is whole on every rank, and added once. chunks, deterministic and errors: as there.
    """

    def __init__(self, linear: Linear, mesh_axis: Any, chunks: int = 1, deterministic: bool = True) -> None:
        super().__init__(linear, mesh_axis, 0, False, chunks, deterministic)
        self._bias = None if linear.bias is None else own_part(linear.bias, None, 0)
        self._whole = copy.copy(self._own)  # for the gradients of both
        self._whole.bias = self._bias

    def parameters(self) -> list[Parameter]:
        """The rows of this rank of the weight, then the bias."""
        return self._whole.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x."""
        self._own.forward(rows(x)[:0], step)  # raises for an x that does not fit
        y = empty((*x.shape[:-1], self._own.weight.shape[1]), x)
        given, found = rows(x), rows(y)
        self._summed(found, lambda first, end: self._own.apply(given[first:end], found[first:end]), not step.shapes)
        if self._bias is not None:
            y += self._bias.value
        return y, x

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of this rank's inputs."""
        return self._own.backward_input(saved, dy)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: of this rank's rows, and of the bias, which is the same on all ranks."""
        self._whole.backward_weight(saved, dy)
