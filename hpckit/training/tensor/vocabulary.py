"""Embedding, head and loss with parts of the vocabulary on each rank."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import placed, to_host
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.memory import empty
from hpckit.nn.embedding import Embedding
from hpckit.nn.layer import Pass
from hpckit.nn.linear import rows
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.parameters import Parameter, whole_numbers

if TYPE_CHECKING:
    from hpckit.training.tensor.ranks import Ranks


class TensorEmbedding:
    """`Embedding` with parts of the vocabulary on each rank: all tokens [B, T] -> a rank's tokens [n, width]."""

    def __init__(self, whole: Embedding, tables: Sequence[Parameter], ranks: Ranks) -> None:
        self.tables, self.position, self._whole, self._ranks = list(tables), whole.position, whole, ranks

    def parameters(self) -> list[Parameter]:
        """The parts of the table of the tokens, then the table of the positions."""
        return self.tables + ([] if self.position is None else [self.position])

    def forward(self, tokens: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is the tokens and the pass. Raises `InputError` as `Embedding` does."""
        tokens, like = self._whole.checked(tokens, step), self.tables[0].value
        summand = empty((*tokens.shape, like.shape[1]), like)
        summand[...] = 0
        for part in self.tables:
            words, rows_of = _words_of(part, tokens, like)
            if len(rows_of):
                found = empty((1, len(rows_of), like.shape[1]), like)
                dispatch.embed(words, part.value, like[:0], found)
                rows(summand)[rows_of] = found[0]
        y, own = self._ranks.scatter([summand], tokens.shape), self._ranks.own(tokens.shape)
        if self.position is not None:
            places = self._whole.places(tokens.shape[1], step)
            own_places = places[np.arange(own.start, own.stop) % max(1, tokens.shape[1])]
            y += self.position.value[placed(own_places, y)]
        return y, (tokens, step)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: None, since tokens have no gradient."""
        return None

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy to the rows of this rank's words, and to all positions."""
        tokens, step = saved
        every = self._ranks.gather(dy, tokens.shape)
        for part in self.tables:
            words, rows_of = _words_of(part, tokens, every)
            if len(rows_of):
                dispatch.embed_gradient(words, rows(every)[rows_of][None], part.grad, part.grad[:0])
        if self.position is not None and tokens.size:
            places = placed(self._whole.places(tokens.shape[1], step), every)
            used = self.position.grad[places]
            dispatch.add_columns(every.reshape(len(tokens), -1), used.reshape(-1))
            self.position.grad[places] = used


def _range(part: Parameter) -> tuple[int, int]:
    """The rows of the whole that a part of a vocabulary's table has."""
    if part.cut is None:
        return 0, part.shape[0]
    ((first, end),) = part.cut.ranges[part.rank]
    return first, end


def _words_of(part: Parameter, tokens: Any, like: Any) -> tuple[Any, Any]:
    """The tokens that are words of a part, as rows [1, n] of it, and their places among all; where `like` is."""
    first, end = _range(part)
    flat = tokens.reshape(-1)
    places = np.flatnonzero((flat >= first) & (flat < end))
    return placed((flat[places] - first)[None], like), placed(places, like)


def _columns(logits: Any, tables: Sequence[Parameter]) -> list[Any]:
    """The logits of each part as a matrix: they stand one after the other in memory."""
    flat, at, found = logits.reshape(-1), 0, []
    count = flat.size // max(1, sum(table.shape[0] for table in tables))
    for table in tables:
        size = count * table.shape[0]
        found.append(flat[at : at + size].reshape(count, table.shape[0]))
        at += size
    return found


class TensorUnembedding:
    """Logits of a rank's parts of the vocabulary for all tokens, from a rank's tokens [n, width].

    Those of a part are a matrix [B T, words of the part]; they stand one after the other in an array [B, T, words].
    """

    def __init__(self, tables: Sequence[Parameter], ranks: Ranks) -> None:
        self.tables, self._ranks = list(tables), ranks

    def parameters(self) -> list[Parameter]:
        """The parts of the weight."""
        return self.tables

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is all tokens, and the pass."""
        every = self._ranks.gather(x, step.tokens)
        y = empty((*step.tokens, sum(table.shape[0] for table in self.tables)), x)
        for table, part in zip(self.tables, _columns(y, self.tables), strict=True):
            multiply(rows(every), table.value.T, part)
        return y, (every, step)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: dx, the sum over the vocabulary."""
        summands = []
        for table, part in zip(self.tables, _columns(dy, self.tables), strict=True):
            summands.append(empty(saved[0].shape, dy))
            multiply(part, table.value, rows(summands[-1]))
        return self._ranks.scatter(summands, saved[1].tokens)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy^T x; for a shared weight, to its second gradient."""
        for table, part in zip(self.tables, _columns(dy, self.tables), strict=True):
            grad = table.grad if table.second_grad is None else table.second_grad
            multiply(part.T, rows(saved[0]), grad, add=True)


class TensorCrossEntropy:
    """`CrossEntropy` of logits that are cut by the vocabulary, alike on all ranks; no rank has all logits.

    tables: the parts of this rank. Three numbers a token go around: the largest logit, the sum of the exponentials, and
    the logit of the target. They are the host's, where the logits are those of a GPU, too.
    """

    def __init__(self, whole: CrossEntropy, tables: Sequence[Parameter], ranks: Ranks) -> None:
        self.vocab, self.tables, self._ranks = whole.vocab, list(tables), ranks
        # The first word of each part, and its columns without the padding.
        self._words = [(first, max(0, min(end, whole.vocab) - first)) for first, end in map(_range, tables)]

    def forward(self, logits: Any, targets: Any) -> tuple[Any, Any]:
        """The loss summed over all targets; backward reuses the logits' memory. Raises as `CrossEntropy` does."""
        targets = whole_numbers(targets, "targets")
        wanted, columns = targets.reshape(-1), sum(table.shape[0] for table in self.tables)
        if logits.shape[-1:] != (columns,) or logits.size != wanted.size * columns:
            raise InputError(
                f"{targets.shape} targets need logits {(*targets.shape, columns)} on this rank, not {logits.shape}"
            )
        if wanted.size and wanted.max() >= self.vocab:
            raise InputError(f"target {wanted.max()} is not one of the {self.vocab} classes, 0 to {self.vocab - 1}")
        parts = _columns(logits, self.tables)
        largest = [
            to_host(part[:, :own].max(axis=1)) if own else np.full(wanted.size, -np.inf, part.dtype)
            for part, (_, own) in zip(parts, self._words, strict=True)
        ]
        top = self._ranks.largest(functools.reduce(np.maximum, largest[1:], largest[0].copy()))
        sums, of_target = np.zeros((len(parts), wanted.size)), np.zeros(wanted.size)
        found, factors = [], [np.exp(each - top) for each in largest]
        for place, (part, (first, own)) in enumerate(zip(parts, self._words, strict=True)):
            local = wanted - first
            local[(local < 0) | (local >= own)] = -1
            here, inverse = np.flatnonzero(local >= 0), empty((wanted.size,), part)
            logit = to_host(part[placed(here, part), placed(local[here], part)])
            of_target[here] = logit.astype(np.float64) - top[here]
            if own:
                dispatch.cross_entropy(part, placed(np.zeros_like(wanted), part), own, inverse)
                sums[place] = factors[place] / to_host(inverse).astype(np.float64)
            else:
                part[...] = 0
            found.append(placed(local, part))
        total = self._ranks.added(list(self._ranks.of_parts(sums)))
        of_target, counted = self._ranks.sum(of_target), wanted >= 0
        loss = float((np.log(total) - of_target)[counted].sum())
        shares = [(counted * factor / total).astype(logits.dtype) for factor in factors]
        return loss, (logits, found, [placed(share, logits) for share in shares])

    def backward(self, saved: Any, scale: float) -> Any:
        """The gradient of scale times the loss by this rank's logits."""
        logits, locals_, inverses = saved
        for part, local, inverse in zip(_columns(logits, self.tables), locals_, inverses, strict=True):
            dispatch.cross_entropy_gradient(part, local, inverse, scale)
        return logits

    def answers(self, logits: Any) -> Any:
        """The likeliest class of each row, the first of equal ones, on all ranks."""
        count = logits.size // max(1, logits.shape[-1])
        best, number = np.full(count, -np.inf, logits.dtype), np.full(count, self.vocab)
        for part, (first, own) in zip(_columns(logits, self.tables), self._words, strict=True):
            if own:
                likeliest, value = to_host(part[:, :own].argmax(axis=1)), to_host(part[:, :own].max(axis=1))
                number = np.where(value > best, first + likeliest, number)
                best = np.maximum(best, value)
        top = self._ranks.largest(best.copy())
        mine = np.where(best == top, -number, -self.vocab).astype(np.float64)
        return -self._ranks.largest(mine).astype(np.int64)
