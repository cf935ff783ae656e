"""What works on a rank's tokens: norms, dropout, and the branches of a block, whose products meet all tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hpckit.kernels.device_array import zeros
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty
from hpckit.nn.dropout import Dropout, drop_tokens
from hpckit.nn.layer import Pass
from hpckit.nn.linear import Linear, rows
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

    bias: that of the branch's last product, which is added once. chunks: of the tokens, one after the other: the tokens
    of the next come, and the sums of the last leave, while one is computed.
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
        change, kept = self._branch(normed, step)
        if self.bias is not None:
            change += self.bias.value
        if self.dropout is not None:
            change = self.dropout.forward(change, step)[0]
        y = x + change
        step.rounded(y)
        return y, {"norm": of_norm, "parts": kept, "pass": step}

    def _branch(self, normed: Any, step: Pass) -> tuple[Any, list[list[Any]]]:
        """The change of this rank's tokens, and of each chunk what each part saved."""
        kept: list[list[Any]] = []
        leaving = []
        for number, every in self._coming(normed, step):
            if self._chunks > 1:
                step.rounded(every)  # it is: this marks it as such
            done = [part.forward(every, step) for part in self.parts]
            kept.append([each for _, each in done])
            leaving.append(self._leave(number, [summand for summand, _ in done], step))
        return self._left(leaving, normed, step), kept

    def _gradient(self, kept: list[list[Any]], dchange: Any, step: Pass) -> tuple[Any, list[Any]]:
        """The gradient of this rank's `normed`, and those of all tokens' change, chunk by chunk."""
        found, leaving = [], []
        for number, every in self._coming(dchange, step):
            found.append(every)
            each = zip(self.parts, kept[number], strict=True)
            leaving.append(self._leave(number, [part.backward_input(saved, every) for part, saved in each], step))
        return self._left(leaving, dchange, step), found

    def _coming(self, own: Any, step: Pass) -> Iterator[tuple[int, Any]]:
        """The tokens of all ranks, chunk by chunk: those of the next come while one is worked on."""
        ranks, count = self._ranks, self._chunks
        pieces = [ranks.piece(step.tokens, (number, count), own) for number in range(count)]
        coming = ranks.start_gather(own[pieces[0]], step.tokens, (0, count))
        for number in range(count):
            every = coming()
            if number + 1 < count:
                coming = ranks.start_gather(own[pieces[number + 1]], step.tokens, (number + 1, count))
            yield number, every

    def _leave(self, number: int, summands: list[Any], step: Pass) -> Callable[[], Any]:
        """Start to sum what the parts give for a chunk."""
        return self._ranks.start_scatter(summands, step.tokens, (number, self._chunks))

    def _left(self, leaving: list[Callable[[], Any]], own: Any, step: Pass) -> Any:
        """The sums for this rank's tokens, which have the shape of `own`; waits for them."""
        if len(leaving) == 1:
            return leaving[0]()
        total = empty(own.shape, own)
        for number, finish in enumerate(leaving):
            total[self._ranks.piece(step.tokens, (number, self._chunks), own)] = finish()
        return total

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` keeps those between the parts for W."""
        step = saved["pass"]
        dchange = dy if self.dropout is None else self.dropout.backward_input(step, dy)
        saved["dnorm"], saved["dparts"] = self._gradient(saved["parts"], dchange, step)
        return self.norm.backward_input(saved["norm"], saved["dnorm"], carry=dy)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the branch, then of the norm."""
        for every, of_parts in zip(saved["dparts"], saved["parts"], strict=True):
            if self.bias is not None:
                dispatch.add_columns(every, self.bias.grad)
            for part, kept in zip(self.parts, of_parts, strict=True):
                part.backward_weight(kept, every)
        self.norm.backward_weight(saved["norm"], saved["dnorm"])


class AttentionBranch(Branch):
    """A `Branch` of attention: its products take one chunk after the other, and between them all tokens meet."""

    def _branch(self, normed: Any, step: Pass) -> tuple[Any, list[list[Any]]]:
        x, flats = self._multiplied(normed, step, [_forward(part.qkv, step) for part in self.parts])
        step.rounded(x)  # it is: this marks it as such
        met = [part.meet(x, flat, step) for part, flat in zip(self.parts, flats, strict=True)]
        outs = [_forward(part.out, step) for part in self.parts]
        mixed = [
            saved["mixed"].reshape(*step.tokens, part.out.weight.shape[0])
            for part, saved in zip(self.parts, met, strict=True)
        ]
        change = self._summed(mixed, normed, step, outs)
        kept = [
            {"x": x, "pass": step} if part.recompute else saved for part, saved in zip(self.parts, met, strict=True)
        ]
        return change, [kept]

    def _gradient(self, kept: list[list[Any]], dchange: Any, step: Pass) -> tuple[Any, list[Any]]:
        saved = kept[0]
        for part, of_part in zip(self.parts, saved, strict=True):
            part.met_again(of_part)
        dy, dmixed = self._multiplied(dchange, step, [partial(part.out.backward_input, None) for part in self.parts])
        each = zip(self.parts, saved, dmixed, strict=True)
        dflats = [part.meet_gradient(of_part, dmixed_of_part) for part, of_part, dmixed_of_part in each]
        ins = [partial(part.qkv.backward_input, None) for part in self.parts]
        return self._summed(dflats, dchange, step, ins), [dy]

    def _multiplied(self, own: Any, step: Pass, products: Sequence[Callable[[Any], Any]]) -> tuple[Any, list[Any]]:
        """The tokens of all ranks, and each product of them, chunk by chunk."""
        whole: list[Any] = []
        for number, every in self._coming(own, step):
            found = [every, *(product(every) for product in products)]
            whole = whole or [empty((*step.tokens, array.shape[-1]), array) for array in found]
            into = self._ranks.every_piece(step.tokens, (number, self._chunks), own)
            for array, piece in zip(whole, found, strict=True):
                rows(array)[into] = rows(piece)
        return whole[0], whole[1:]

    def _summed(self, arrays: list[Any], own: Any, step: Pass, products: Sequence[Callable[[Any], Any]]) -> Any:
        """The sum of each array's product for this rank's tokens, which have the shape of `own`, chunk by chunk."""
        leaving = []
        for number in range(self._chunks):
            of = self._ranks.every_piece(step.tokens, (number, self._chunks), own)
            each = zip(arrays, products, strict=True)
            summands = [product(rows(array)[of]) for array, product in each]
            leaving.append(self._leave(number, summands, step))
        return self._left(leaving, own, step)


def _forward(linear: Linear, step: Pass) -> Callable[[Any], Any]:
    """The function that multiplies by a linear map."""
    return lambda x: linear.forward(x, step)[0]
