"""What works on a rank's tokens: norms, dropout, and the branches of a block, whose products meet all tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hpckit.kernels.device_array import zeros
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty
from hpckit.nn.dropout import Dropout, drop_tokens
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameter

if TYPE_CHECKING:
    from hpckit.training.tensor.ranks import Ranks


class TokenDropout:
    """`Dropout` of a rank's tokens: it drops the numbers that it would drop of all tokens."""

    def __init__(self, whole: Dropout, ranks: Ranks) -> None:
        self.rate, self.name, self._whole, self._ranks = whole.rate, whole.name, whole, ranks

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
        if not self.rate or not step.training:
            return x
        y = empty(x.shape, x)
        for run, start in self._whole.runs(self._ranks.own(step.tokens), step):
            y[run] = drop_tokens(x[run], start, step, self.name, self.rate)
        return y


class TokenNorm:
    """A norm of a rank's tokens: its gradients are those of these tokens, part by part."""

    def __init__(self, norm: Any, ranks: Ranks) -> None:
        self.norm, self._ranks = norm, ranks

    def parameters(self) -> list[Parameter]:
        """Those of the norm."""
        return self.norm.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """x: [n, d]. `saved` is what the norm saved, and the pass."""
        y, saved = self.norm.forward(x, step)
        return y, (saved, step)

    def backward_input(self, saved: Any, dy: Any, carry: Any = None) -> Any:
        """B: the gradient of x, added to `carry` if a residual goes around the norm."""
        return self.norm.backward_input(saved[0], dy, carry=carry)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the norm."""
        kept, step = saved
        if len(self._ranks.held) == 1:
            self.norm.backward_weight(kept, dy)
            return
        own = self.norm.parameters()
        into, summands = [p.grad for p in own], []
        for block in self._ranks.blocks(step.tokens):
            summands.append(zeros((len(own), *own[0].shape), dy))
            for p, grad in zip(own, summands[-1], strict=True):
                p.grad = grad
            self.norm.backward_weight(tuple(each[block] for each in kept), dy[block])
        for p, grad, total in zip(own, into, self._ranks.added(summands, self._ranks.held[0]), strict=True):
            grad += total
            p.grad = grad


class Branch:
    """y = x + dropout(branch(norm(x))) of a rank's tokens; each part of the branch works on all tokens.

    bias: that of the branch's last product, which is added once. chunks: of the tokens, one after the other, for parts
    that work on each token alone; the tokens of the next come, and the sums of the last leave, while one is computed.
    """

    def __init__(
        self,
        norm: TokenNorm,
        parts: Sequence[Any],
        bias: Parameter | None,
        dropout: TokenDropout | None,
        ranks: Ranks,
        chunks: int = 1,
    ) -> None:
        self.norm, self.parts, self.bias, self.dropout, self._ranks = norm, list(parts), bias, dropout, ranks
        self._chunks = chunks

    def parameters(self) -> list[Parameter]:
        """Those of the norm, of the parts of the branch, and the bias of its last product."""
        own = [parameter for part in self.parts for parameter in part.parameters()]
        return self.norm.parameters() + own + ([self.bias] if self.bias else [])

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """x: [n, d]. `saved` holds what norm and branch saved, and the pass."""
        normed, of_norm = self.norm.forward(x, step)
        kept: list[list[Any]] = []

        def compute(number: int, every: Any) -> list[Any]:
            if self._chunks > 1:
                step.rounded(every)  # it is: this marks it as such
            done = [part.forward(every, step) for part in self.parts]
            kept.append([each for _, each in done])
            return [summand for summand, _ in done]

        change, _ = self._chunk_by_chunk(normed, step, compute)
        if self.bias is not None:
            change += self.bias.value
        if self.dropout is not None:
            change = self.dropout.forward(change, step)[0]
        y = x + change
        step.rounded(y)
        return y, {"norm": of_norm, "parts": kept, "pass": step}

    def _chunk_by_chunk(self, own: Any, step: Pass, compute: Callable[[int, Any], list[Any]]) -> tuple[Any, list[Any]]:
        """compute(number, tokens of all ranks) gives summands for each chunk: their sum for this rank's tokens, and the
        tokens of all ranks, chunk by chunk.
        """
        ranks, count = self._ranks, self._chunks
        pieces = [ranks.piece(step.tokens, (number, count), own) for number in range(count)]
        found: list[Any] = []
        leaving = []
        coming = ranks.start_gather(own[pieces[0]], step.tokens, (0, count))
        for number in range(count):
            found.append(coming())
            if number + 1 < count:
                coming = ranks.start_gather(own[pieces[number + 1]], step.tokens, (number + 1, count))
            leaving.append(ranks.start_scatter(compute(number, found[-1]), step.tokens, (number, count)))
        if count == 1:
            return leaving[0](), found
        total = empty(own.shape, own)
        for piece, finish in zip(pieces, leaving, strict=True):
            total[piece] = finish()
        return total, found

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` keeps those between the parts for W."""
        step = saved["pass"]
        dchange = dy if self.dropout is None else self.dropout.backward_input(step, dy)

        def compute(number: int, every: Any) -> list[Any]:
            each = zip(self.parts, saved["parts"][number], strict=True)
            return [part.backward_input(kept, every) for part, kept in each]

        saved["dnorm"], saved["dparts"] = self._chunk_by_chunk(dchange, step, compute)
        return self.norm.backward_input(saved["norm"], saved["dnorm"], carry=dy)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the branch, then of the norm."""
        for every, of_parts in zip(saved["dparts"], saved["parts"], strict=True):
            if self.bias is not None:
                dispatch.add_columns(every, self.bias.grad)
            for part, kept in zip(self.parts, of_parts, strict=True):
                part.backward_weight(kept, every)
        self.norm.backward_weight(saved["norm"], saved["dnorm"])
