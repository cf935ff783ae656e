"""Tensor and sequence parallelism: a transformer whose matrices, heads and vocabulary are spread over a mesh axis.

Shoeybi et al., "Megatron-LM", 2019, arXiv:1909.08053, and Korthikanti et al., "Reducing activation recomputation in
large transformer models", 2022, arXiv:2205.05198. Between the products each rank holds some of the microbatch's tokens,
whole: norms, dropout and residuals work on these alone. In front of a product that is cut by columns the tokens are
gathered; behind one that is cut by rows the sums are scattered:

    tokens of a rank -> norm -> all-gather -> columns -> heads | activation -> rows -> reduce-scatter -> + those tokens

In the backward pass each turns into the other. Logits stay cut by the vocabulary, and so does the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_gather, all_reduce, reduce_scatter
from hpckit.collectives.axis import axis_of
from hpckit.errors import InputError
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.memory import empty
from hpckit.nn.attention import Attention
from hpckit.nn.block import Recompute, Residual
from hpckit.nn.cuts import cuts, own_part, token_bounds
from hpckit.nn.dropout import Dropout, numbers_of
from hpckit.nn.embedding import Embedding, Unembedding
from hpckit.nn.feedforward import GatedFeedForward
from hpckit.nn.layer import Pass, Sequential
from hpckit.nn.linear import Linear, rows
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.norms import LayerNorm, RMSNorm
from hpckit.nn.parameters import Parameter, whole_numbers

if TYPE_CHECKING:
    from hpckit.nn.layer import Layer


class Ranks:
    """The ranks of a tensor-parallel group, `mesh["tp"]`, and what moves between them.

    deterministic: sums are added in the order of the ranks.
    """

    def __init__(self, mesh_axis: Any, deterministic: bool = True) -> None:
        axis = axis_of(mesh_axis)
        self.comm, self.rank, self.size, self.deterministic = axis.given, axis.rank, axis.size, deterministic

    def own(self, tokens: tuple[int, int]) -> slice:
        """The rows of this rank among those of a microbatch's tokens."""
        return slice(*token_bounds(tokens, self.size)[self.rank])

    def gather(self, own: Any, tokens: tuple[int, int]) -> Any:
        """All tokens [samples, tokens, d] from those of each rank [n, d]."""
        whole = empty((*tokens, own.shape[-1]), own)
        counts = [(end - start) * own.shape[-1] for start, end in token_bounds(tokens, self.size)]
        all_gather(own.reshape(-1), self.comm, whole.reshape(-1), counts=counts).wait()
        return whole

    def scatter(self, summands: Any, tokens: tuple[int, int]) -> Any:
        """The tokens [n, d] of this rank in the sum of all ranks' arrays [samples, tokens, d], which are used up."""
        width, own = summands.shape[-1], self.own(tokens)
        counts = [(end - start) * width for start, end in token_bounds(tokens, self.size)]
        flat = summands.reshape(-1)
        reduce_scatter(flat, self.comm, "sum", counts=counts, deterministic=self.deterministic).wait()
        return rows(summands)[own]

    def sum(self, values: Any) -> Any:
        """The sum of all ranks' arrays, in place."""
        all_reduce(values, self.comm, "sum", deterministic=self.deterministic).wait()
        return values

    def largest(self, values: Any) -> Any:
        """The largest numbers of all ranks, element by element, in place."""
        all_reduce(values, self.comm, "max").wait()
        return values

    def add_up(self, parameters: Iterable[Parameter]) -> None:
        """Add the gradients of parameters that each rank has from its own tokens only."""
        partial = [p.grad for p in parameters if p.partial and p.grad is not None]
        if partial:
            total = self.sum(np.concatenate([grad.reshape(-1) for grad in partial]))
            at = 0
            for grad in partial:
                grad.reshape(-1)[...] = total[at : at + grad.size]
                at += grad.size


class TokenDropout:
    """`Dropout` of a rank's tokens: it drops the numbers that it would drop of all tokens."""

    def __init__(self, whole: Dropout, ranks: Ranks) -> None:
        self.rate, self.name, self._ranks = whole.rate, whole.name, ranks

    def parameters(self) -> list[Parameter]:
        """No parameters."""
        return []

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """x: [n, d]. `saved` is the pass."""
        return self._drop(x, step), step

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: drop the same elements of dy."""
        return self._drop(dy, saved)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: there are no parameters."""

    def _drop(self, x: Any, step: Pass) -> Any:
        if not self.rate or not step.training or not len(x):
            return x
        (key, number, first), (_, length) = numbers_of(step, self.name), step.tokens
        own, width = self._ranks.own(step.tokens), x.shape[-1]
        if width % 4 == 0:  # four numbers are drawn at once: rows of such a width begin at a draw
            y = empty(x.shape, x)
            dispatch.dropout(x, y, key, number, first * length + own.start, self.rate)
            return y
        begin, end = own.start // length, -(-own.stop // length)  # samples of which this rank has tokens
        whole = np.zeros((end - begin, length * width), x.dtype)
        part = rows(whole.reshape(-1, width))[own.start - begin * length : own.stop - begin * length]
        part[...] = x
        dispatch.dropout(whole, whole, key, number, first + begin, self.rate)
        return part


class Branch:
    """y = x + dropout(branch(norm(x))) of a rank's tokens; the branch works on all tokens, with a part of its weights.

    bias: that of the branch's last product, which is added once.
    """

    def __init__(self, norm: Any, branch: Any, bias: Parameter | None, dropout: TokenDropout | None, ranks: Ranks):
        self.norm, self.branch, self.bias, self.dropout, self._ranks = norm, branch, bias, dropout, ranks

    def parameters(self) -> list[Parameter]:
        """Those of the norm, of the branch, and the bias of its last product."""
        return self.norm.parameters() + self.branch.parameters() + ([self.bias] if self.bias else [])

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """x: [n, d]. `saved` holds what norm and branch saved, and the pass."""
        normed, of_norm = self.norm.forward(x, step)
        summands, of_branch = self.branch.forward(self._ranks.gather(normed, step.tokens), step)
        change = self._ranks.scatter(summands, step.tokens)
        if self.bias is not None:
            change += self.bias.value
        if self.dropout is not None:
            change = self.dropout.forward(change, step)[0]
        y = x + change
        step.rounded(y)
        return y, {"norm": of_norm, "branch": of_branch, "pass": step}

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` keeps those between the parts for W."""
        step = saved["pass"]
        dchange = dy if self.dropout is None else self.dropout.backward_input(step, dy)
        saved["dbranch"] = self._ranks.gather(dchange, step.tokens)
        dsummands = self.branch.backward_input(saved["branch"], saved["dbranch"])
        saved["dnorm"] = self._ranks.scatter(dsummands, step.tokens)
        return self.norm.backward_input(saved["norm"], saved["dnorm"], carry=dy)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the branch, then of the norm."""
        if self.bias is not None:
            dispatch.add_columns(saved["dbranch"], self.bias.grad)
        self.branch.backward_weight(saved["branch"], saved["dbranch"])
        self.norm.backward_weight(saved["norm"], saved["dnorm"])


class TensorEmbedding:
    """`Embedding` with a part of the vocabulary on each rank: all tokens [B, T] -> a rank's tokens [n, width]."""

    def __init__(self, whole: Embedding, token: Parameter, ranks: Ranks) -> None:
        self.token, self.position, self._whole, self._ranks = token, whole.position, whole, ranks
        assert token.cut is not None
        ((self.first, self.end),) = token.cut.ranges[ranks.rank]

    def parameters(self) -> list[Parameter]:
        """The part of the table of the tokens, then the table of the positions."""
        return [self.token] if self.position is None else [self.token, self.position]

    def forward(self, tokens: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is the tokens. Raises `InputError` as `Embedding` does."""
        tokens, table = self._whole.checked(tokens, step), self.token.value
        summands = empty((*tokens.shape, table.shape[1]), table)
        foreign = (tokens < self.first) | (tokens >= self.end)
        if len(table):
            dispatch.embed(np.where(foreign, 0, tokens - self.first), table, table[:0], summands)
        summands[foreign] = 0
        y, own = self._ranks.scatter(summands, tokens.shape), self._ranks.own(tokens.shape)
        if self.position is not None:
            y += self.position.value[np.arange(own.start, own.stop) % tokens.shape[1]]
        return y, tokens

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: None, since tokens have no gradient."""
        return None

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy to the rows of this rank's words, and to all positions."""
        every, table = self._ranks.gather(dy, saved.shape), self.token.grad
        own = (saved >= self.first) & (saved < self.end)
        if own.any():
            dispatch.embed_gradient((saved[own] - self.first)[None], every[own][None], table, table[:0])
        if self.position is not None:
            used = self.position.grad[: saved.shape[1]].reshape(-1)
            dispatch.add_columns(every.reshape(len(saved), -1), used)


class TensorUnembedding:
    """Logits of a rank's part of the vocabulary for all tokens, from a rank's tokens: [n, width] -> [B, T, part]."""

    def __init__(self, weight: Parameter, ranks: Ranks) -> None:
        self.weight, self._ranks = weight, ranks

    def parameters(self) -> list[Parameter]:
        """The part of the weight."""
        return [self.weight]

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is all tokens, and the pass."""
        every = self._ranks.gather(x, step.tokens)
        y = empty((*step.tokens, self.weight.shape[0]), x)
        multiply(rows(every), self.weight.value.T, rows(y))
        return y, (every, step)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: dx, the sum over the vocabulary."""
        dx = empty(saved[0].shape, dy)
        multiply(rows(dy), self.weight.value, rows(dx))
        return self._ranks.scatter(dx, saved[1].tokens)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy^T x; for a shared weight, to its second gradient."""
        grad = self.weight.grad if self.weight.second_grad is None else self.weight.second_grad
        multiply(rows(dy).T, rows(saved[0]), grad, add=True)


class TensorCrossEntropy:
    """`CrossEntropy` of logits that are cut by the vocabulary, alike on all ranks; no rank has all logits.

    first, end: this rank's part of the table. Three numbers a token go around: the largest logit, the sum of the
    exponentials, and the logit of the target.
    """

    def __init__(self, whole: CrossEntropy, first: int, end: int, ranks: Ranks) -> None:
        self.vocab, self.first, self.columns, self._ranks = whole.vocab, first, end - first, ranks
        self.own = max(0, min(end, whole.vocab) - first)  # columns that are no padding

    def forward(self, logits: Any, targets: Any) -> tuple[Any, Any]:
        """The loss summed over all targets; backward reuses the logits' memory. Raises as `CrossEntropy` does."""
        targets = whole_numbers(targets, "targets")
        flat, wanted = rows(logits), targets.reshape(-1)
        if flat.shape != (wanted.size, self.columns):
            needed = (*targets.shape, self.columns)
            raise InputError(f"{targets.shape} targets need logits {needed} on this rank, not {logits.shape}")
        if wanted.size and wanted.max() >= self.vocab:
            raise InputError(f"target {wanted.max()} is not one of the {self.vocab} classes, 0 to {self.vocab - 1}")
        local = wanted - self.first
        local[(local < 0) | (local >= self.own)] = -1
        here = np.flatnonzero(local >= 0)
        largest = flat[:, : self.own].max(axis=1) if self.own else np.full(len(flat), -np.inf, flat.dtype)
        top = self._ranks.largest(largest.copy())
        sums = np.zeros((2, len(flat)))  # of the exponentials, and the target's logit, which one rank has
        sums[1, here] = flat[here, local[here]].astype(np.float64) - top[here]
        inverse = np.ones(len(flat), flat.dtype)
        if self.own:
            dispatch.cross_entropy(flat, np.zeros_like(wanted), self.own, inverse)
        else:
            flat[...] = 0
        factor = np.exp(largest - top)
        sums[0] = factor / inverse.astype(np.float64) if self.own else 0.0
        self._ranks.sum(sums)
        counted = wanted >= 0
        loss = float((np.log(sums[0]) - sums[1])[counted].sum())
        return loss, (logits, local, (counted * factor / sums[0]).astype(flat.dtype))

    def backward(self, saved: Any, scale: float) -> Any:
        """The gradient of scale times the loss by this rank's logits."""
        logits, local, inverse = saved
        dispatch.cross_entropy_gradient(rows(logits), local, inverse, scale)
        return logits

    def answers(self, logits: Any) -> Any:
        """The likeliest class of each row, the first of equal ones, on all ranks."""
        flat = rows(logits)[:, : self.own]
        best = flat.argmax(axis=1) if self.own else np.zeros(len(flat), np.int64)
        value = flat[np.arange(len(flat)), best] if self.own else np.full(len(flat), -np.inf, logits.dtype)
        top = self._ranks.largest(value.copy())
        mine = np.where(value == top, -(self.first + best), -self.vocab).astype(np.float64)
        return -self._ranks.largest(mine).astype(np.int64)


def tensor_parallel(model: Sequential, loss: Any, ranks: Ranks) -> tuple[Sequential, Any]:
    """The part of this rank of a transformer and of its loss; what is given stays as it is.

    Raises `InputError` where heads or widths do not divide, or a layer has no such form.
    """
    whole = cuts(model, ranks.size)
    made: dict[int, Parameter] = {}

    def part(parameter: Parameter) -> Parameter:
        if id(parameter) not in made:
            made[id(parameter)] = own_part(parameter, whole.get(parameter.name), ranks.rank)
        return made[id(parameter)]

    def linear(given: Linear, bias: bool = True) -> Linear:
        new = copy.copy(given)
        new.weight = part(given.weight)
        new.bias = part(given.bias) if given.bias is not None and bias else None
        return new

    def norm(given: LayerNorm | RMSNorm) -> Any:
        new = copy.copy(given)
        for name in ("gain", "bias"):
            if hasattr(given, name):
                setattr(new, name, part(getattr(given, name)))
                getattr(new, name).partial = True
        return new

    def branch(given: Any) -> tuple[Any, Parameter | None]:
        """A branch with this rank's heads or columns, and the bias of its last product."""
        new = copy.copy(given)
        last = given.out if isinstance(given, Attention) else given.down
        if isinstance(given, Attention):
            new.heads, new.kv_heads, new.share = (
                given.heads // ranks.size,
                given.kv_heads // ranks.size,
                (ranks.rank, ranks.size),
            )
            new.qkv, new.out = linear(given.qkv), linear(given.out, bias=False)
        else:
            new.up, new.down = linear(given.up), linear(given.down, bias=False)
            if isinstance(given, GatedFeedForward):
                new.gate = linear(given.gate)
        return new, None if last.bias is None else part(last.bias)

    def of(layer: Any) -> Layer:
        if isinstance(layer, Sequential):
            return Sequential([of(each) for each in layer.layers], layer.names)
        if isinstance(layer, Recompute):
            return Recompute(of(layer.layer))
        if isinstance(layer, Residual):
            dropout = None if layer.dropout is None else TokenDropout(layer.dropout, ranks)
            return Branch(norm(layer.norm), *branch(layer.branch), dropout, ranks)
        if isinstance(layer, Embedding):
            new = copy.copy(layer)
            new.position = None if layer.position is None else part(layer.position)
            return TensorEmbedding(new, part(layer.token), ranks)
        if isinstance(layer, Unembedding):
            return TensorUnembedding(part(layer.weight), ranks)
        if isinstance(layer, Dropout):
            return TokenDropout(layer, ranks)
        assert isinstance(layer, LayerNorm | RMSNorm), "misfits names all others"
        return norm(layer)

    found = Sequential([of(layer) for layer in model.layers], model.names)
    head = found.layers[-1].parameters()[-1]
    if head.cut is None or not isinstance(loss, CrossEntropy):
        raise InputError(
            "tensor parallelism needs a model that ends with a head over the vocabulary, and CrossEntropy",
            do="give hp.nn.gpt2(...) or hp.nn.llama(...) and its CrossEntropy, or a mesh without tp",
        )
    ((first, end),) = head.cut.ranges[ranks.rank]
    return found, TensorCrossEntropy(loss, first, end, ranks)
