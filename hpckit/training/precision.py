"""Mixed precision: weights and what layers keep in 16 bits, arithmetic and sums in float32, float32 master weights.

Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740. bfloat16 has the range of float32 and 8 bits of
accuracy; float16 has 11 bits and ends at 65504, so that its gradients need a scaled loss.

Three things are rounded, to the nearest, ties to even, never by chance: the weights, from master values that the
optimizer updates; what a layer hands on, forward and backward; and what it keeps for its backward pass, before anything
is computed from it. Rounded numbers are therefore the same wherever they are held: recomputed or kept, on one rank or
sent to another one. On a GPU both operands of a product are rounded, for its tensor cores, and added in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import address, is_device_array, stretch
from hpckit.kernels.nn.cublas import Known, known_bits, products_of
from hpckit.kernels.nn.memory import empty
from hpckit.kernels.nn.narrow.dispatch import narrowed, round_to, widened
from hpckit.nn.layer import Layer, Pass, Turns, at_once, backward_turns, forward_turns
from hpckit.nn.parameters import Parameter

GAP = 32  # bytes, at most, between parameters that lie one behind the other


class SavedBits(NamedTuple):
    """An array that a layer keeps, as the bits of its numbers."""

    bits: Any


class MixedPrecision:
    """A layer of float32 arithmetic whose weights, input, output and kept arrays are held in 16 bits.

    kind: "bfloat16" or "float16", that of the `Parameters`; arrays between layers are the bits of such numbers, uint16.
    first: x is data: whole numbers go in as they are, others are rounded. last: y and its gradient are float32, for a
    loss. What a layer keeps without having rounded it, such as the statistics of rows, stays float32, unless it is as
    large as the layer's tokens: copies of what is rounded are. The layer's values are there during `forward` and
    `backward_input`; `backward_weight` sees gradients only.
    """

    def __init__(self, layer: Layer, kind: str, *, first: bool = False, last: bool = False) -> None:
        self.layer, self.kind, self.first, self.last = layer, kind, first, last
        self._users = 0  # passes that are in the midst of the layer

    def parameters(self) -> list[Parameter]:
        """Those of the layer."""
        return self.layer.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is what the layer saved, in 16 bits."""
        return at_once(self.forward_turns(x, step))

    def forward_turns(self, x: Any, step: Pass) -> Turns[tuple[Any, Any]]:
        """`forward` in turns."""
        known, given = {}, []
        if not self.first:
            bits, x = x, widened(x, self.kind)
            known[address(x), x.nbytes] = SavedBits(bits)
            given = [(x, bits)]
        elif x.dtype.kind == "f":
            data, x = x, empty(x.shape, x, np.float32)
            x[...] = data
            round_to(x, self.kind)
        marks: list[Any] = []
        with self._values(given) as found:
            short_step = replace(step, storage=self.kind, marks=marks, known=found)
            y, saved = yield from forward_turns(self.layer, x, short_step)
            # The same arrays on every mesh: ranks that share layers may hold few of the tokens, or none.
            most = max(x.size, math.prod(step.tokens) * x.shape[-1] if x.ndim else 0) // 2
            short = {(address(array), array.nbytes) for array in marks} | set(known)
            marks.clear()  # layers keep the pass
            kept = _kept(saved, self.kind, most, short, known) if step.training else None
        return y if self.last else narrowed(y, self.kind), [kept]

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` gets what W needs, in float32."""
        return at_once(self.backward_turns(saved, dy))

    def backward_turns(self, saved: Any, dy: Any) -> Turns[Any]:
        """`backward_input` in turns."""
        inner = _widened(saved[0], self.kind, {})
        dy = dy if self.last else widened(dy, self.kind)
        with self._values():  # layers may write over what they kept: its bits are not known
            dx = yield from backward_turns(self.layer, inner, dy)
        saved[:] = [inner, dy]
        return None if dx is None else narrowed(dx, self.kind)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients, in float32."""
        with products_of(self.kind):
            self.layer.backward_weight(*saved)

    @contextmanager
    def _values(self, given: Iterable[tuple[Any, Any]] = ()) -> Iterator[Known]:
        """The layer's values in float32, while it computes; a pass of another microbatch may come between its turns.

        given: arrays that it computes with and does not change, each with its bits.
        """
        every = self.layer.parameters()
        self._users += 1
        if self._users == 1:
            for parameter in every:
                if parameter.stored is None:
                    raise InputError(
                        f"{parameter.name} has no values in 16 bits",
                        do=f"make Parameters(model.parameters(), {self.kind!r}) and initialize them",
                    )
            widen_values(every, self.kind)
        try:
            with products_of(self.kind, [*given, *((each.value, each.stored) for each in every)]) as known:
                yield known
        finally:
            self._users -= 1
            for parameter in every if not self._users else ():
                parameter.value = None


def widen_values(parameters: Sequence[Parameter], kind: str) -> None:
    """Widen the stored bits to values; on a GPU, adjacent parameters in one call."""
    place = 0
    while place < len(parameters):
        first, end = parameters[place].stored, place + 1
        if is_device_array(first):
            while end < len(parameters) and 0 <= _gap(parameters[end - 1].stored, parameters[end].stored) < GAP:
                end += 1
        start, last = address(first), parameters[end - 1].stored
        whole = first if end == place + 1 else stretch(first, (address(last) - start + last.nbytes) // first.itemsize)
        values = widened(whole, kind).reshape(-1)
        for parameter in parameters[place:end]:
            at = (address(parameter.stored) - start) // first.itemsize
            parameter.value = values[at : at + parameter.size].reshape(parameter.shape)
        place = end


def _gap(one: Any, other: Any) -> int:
    """Bytes between the end of an array and the start of another."""
    return address(other) - address(one) - one.nbytes


def mixed(layers: Sequence[Layer], kind: str, *, first: bool = True, last: bool = True) -> list[Layer]:
    """The layers in mixed precision; unchanged for the kind "". first, last: whether they begin and end the model."""
    if not kind:
        return list(layers)
    end = len(layers) - 1
    return [
        MixedPrecision(layer, kind, first=first and number == 0, last=last and number == end)
        for number, layer in enumerate(layers)
    ]


def _kept(
    saved: Any, kind: str, most: int, short: set[tuple[int, int]], known: dict[tuple[int, int], SavedBits]
) -> Any:
    """The same nested values with float32 arrays that are rounded, and those of more than `most` numbers, in 16 bits.

    short: address and bytes of those that are rounded. known: those that there are already; each array comes once.
    """

    def inner(value: Any) -> Any:
        return _kept(value, kind, most, short, known)

    if isinstance(saved, dict):
        return {name: inner(value) for name, value in saved.items()}
    if isinstance(saved, list):
        return [inner(value) for value in saved]
    if isinstance(saved, tuple):
        values = [inner(value) for value in saved]
        return type(saved)(*values) if hasattr(saved, "_fields") else tuple(values)
    if getattr(saved, "dtype", None) != np.float32 or not saved.flags.c_contiguous:
        return saved
    key = address(saved), saved.nbytes
    if key not in short and saved.size <= most:
        return saved
    if key not in known:
        bits = known_bits(saved)
        known[key] = SavedBits(narrowed(saved, kind) if bits is None else bits)
    return SavedBits(known[key].bits.reshape(saved.shape))


def _widened(kept: Any, kind: str, made: dict[int, Any]) -> Any:
    """The nested values in float32; an array that occurs twice is widened once."""
    if isinstance(kept, SavedBits):
        key = address(kept.bits)
        if key not in made:
            made[key] = widened(kept.bits, kind)
        return made[key].reshape(kept.bits.shape)
    if isinstance(kept, dict):
        return {name: _widened(value, kind, made) for name, value in kept.items()}
    if isinstance(kept, list):
        return [_widened(value, kind, made) for value in kept]
    if isinstance(kept, tuple):
        values = [_widened(value, kind, made) for value in kept]
        return type(kept)(*values) if hasattr(kept, "_fields") else tuple(values)
    return kept


class LossScale:
    """A factor of the loss that keeps gradients in the range of float16, found by trying: a power of two.

        result = pipeline.run(x, targets, loss_scale=scale.value)
        squared = pipeline.squared_norm() / scale.value**2  # the same number on every rank
        if scale.update(math.isfinite(squared)):
            optimizer.step(rate, clip_scale(squared, 1.0) / scale.value)

    A step whose gradients overflow is skipped and halves the factor; `growth` steps in a row without one double it
    (Micikevicius et al. 2018, section 3.2). Ranks agree without a message of their own: they decide by a norm that is
    a sum over all of them. growth 0: the factor stays as it is. skipped: the number of skipped steps.
    """

    MOST = 2.0**24

    def __init__(self, value: float = 2.0**16, growth: int = 2000) -> None:
        if np.frexp(value)[0] != 0.5 or not 1 <= value <= self.MOST or growth < 0:
            raise InputError(
                f"a loss scale of {value:g} that grows after {growth} steps",
                do=f"give a power of two from 1 to {self.MOST:.0f}, and 0 steps or more",
            )
        self.value, self.growth = float(value), growth
        self.good = self.skipped = 0

    def update(self, finite: bool) -> bool:
        """Take note of a step; returns whether the optimizer is to use its gradients."""
        if not finite:
            self.skipped, self.good = self.skipped + 1, 0
            if self.growth:
                self.value /= 2
            return False
        self.good += 1
        if self.growth and self.good >= self.growth:
            self.value, self.good = min(2 * self.value, self.MOST), 0
        return True

    def state(self) -> dict[str, float]:
        """What a checkpoint needs."""
        return {"value": self.value, "good": self.good, "skipped": self.skipped}

    def load(self, state: dict[str, float]) -> None:
        """Go on from a state."""
        self.value, self.good, self.skipped = float(state["value"]), int(state["good"]), int(state["skipped"])
