"""The fixed parts of a microbatch computed together, layer by layer, with the bits of one part after the other.

Samples do not meet each other in a product, a norm or an attention, so that all parts can go through a layer at once,
if its kernels add each row up in the same order however many rows there are. BLAS does not promise that: at the lower
edge of a matrix and for small ones it takes other kernels. So parts go together where each fills whole tiles of rows,
and where a layer, tried out once for each form of its input, gives random numbers the same bits both ways. Sums over
rows, the gradients of parameters, are made part by part and added as a tree (`hpckit.plan.pipeline.parts`) while those
of a layer are in the caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.kernels.device_array import address, is_device_array
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.kernels.nn.narrow.dispatch import narrowed, round_to
from hpckit.nn.cuts import parts_of
from hpckit.nn.embedding import Unembedding
from hpckit.nn.feedforward import Experts
from hpckit.nn.layer import Layer, Pass
from hpckit.nn.parameters import Parameter
from hpckit.plan.pipeline.parts import PartialSum, joined
from hpckit.training.parts import added

TILE = 16  # rows of a product that BLAS computes at once, or a multiple of that
DRAWS, FEW = 8, 2  # trials of a layer; few where an input has `LARGE` numbers, each of which is one more
LARGE = 1 << 16
NUMBERS = 65_537  # random numbers of a trial, which are repeated: a prime, so that no two rows are alike
Grad = tuple[Parameter, str]  # a parameter, and the name of the gradient that a layer adds to
Tried = dict[tuple[Any, ...], bool]  # whether the parts of a form of input may go through a layer together


class Grouped:
    """A layer, for passes over several fixed parts (`Pass.parts`); all others go through as they are.

    kind: of 16 bits, to which the sums of gradients are rounded, "" for none. storage: that of mixed precision. tried:
    what trials of like layers have found.
    """

    def __init__(self, layer: Layer, kind: str = "", storage: str = "", tried: Tried | None = None) -> None:
        self.layer, self._kind, self._storage = layer, kind, storage
        inner = list(parts_of(getattr(layer, "layer", layer) if storage else layer))
        self._may = not any(isinstance(part, Experts) for part in inner)  # these count the tokens that they meet
        self._grads: list[Grad] = list(
            {
                (id(p), name): (p, name)
                for part in inner
                for p in part.parameters()
                for name in ["second_grad" if p.shared and isinstance(part, Unembedding) else "grad"]
            }.values()
        )
        self._tried = {} if tried is None else tried
        self._form = *(type(part).__name__ for part in inner), *(p.shape for p in self.parameters())

    def parameters(self) -> list[Parameter]:
        """Those of the layer."""
        return self.layer.parameters()

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is where the parts begin, and what the layer saved: of all of them, or a list with that of each."""
        if not step.parts:
            y, kept = self.layer.forward(x, step)
            return y, [(), kept]
        if self._at_once(x, step):
            y, kept = self.layer.forward(x, step)
            return y, [step.parts, kept]
        done = [self.layer.forward(x[part], own) for part, own in passes(step)]
        return rows_of_parts([y for y, _ in done], step.parts), [step.parts, Each(kept for _, kept in done)]

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x."""
        starts, kept = saved
        if not isinstance(kept, Each):
            return self.layer.backward_input(kept, dy)
        done = [self.layer.backward_input(own, dy[part]) for own, part in zip(kept, filled(starts), strict=True)]
        return None if done[0] is None else rows_of_parts(done, starts)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add the tree of the parts to the gradients, which are zero or those of no part."""
        starts, kept = saved
        if not starts:
            self.layer.backward_weight(kept, dy)
            return
        grads = [grad for grad in self._grads if getattr(*grad) is not None]
        roots, kinds = [getattr(*grad) for grad in grads], [self._kind if name == "grad" else "" for _, name in grads]
        of_each = iter(kept) if isinstance(kept, Each) else None
        free: list[list[Any]] = []
        done: list[tuple[PartialSum, list[Any]]] = []

        def add(left: list[Any], right: list[Any]) -> list[Any]:
            for kind, one, other in zip(kinds, left, right, strict=True):
                added(one, other, kind)
            free.append(right)
            return left

        for number, part in enumerate(slices(starts)):
            sums = roots
            if number:
                sums = free.pop() if free else [empty_like(root) for root in roots]
                for each in sums:
                    each[...] = 0
            _bind(grads, sums)
            if part.start < part.stop:
                own = of_part(kept, part, starts[-1]) if of_each is None else next(of_each)
                self.layer.backward_weight(own, dy[part])
            for kind, each in zip(kinds, sums, strict=True):
                if kind:
                    round_to(each, kind)
            joined(done, PartialSum(0, number), sums, add)
        _bind(grads, roots)

    def _at_once(self, x: Any, step: Pass) -> bool:
        """Whether the parts of such an input may go through the layer together."""
        form = self._form, x.shape, x.dtype.char, step.parts, step.training
        if form not in self._tried:
            rows = x.shape[1] if x.ndim == 3 else 1  # of a sample
            fits = x.dtype.kind == "i" or all(
                (part.stop - part.start) * rows % TILE == 0 for part in slices(step.parts)
            )
            draws = DRAWS if x.size < LARGE else FEW
            self._tried[form] = (
                self._may and fits and not is_device_array(x) and all(self._try(x, step, n) for n in range(draws))
            )
        return self._tried[form]

    def _try(self, x: Any, step: Pass, seed: int) -> bool:
        """Whether random numbers give the same bits together and part by part: y, the gradient of x, and those of the
        parameters from a part of what the layer saved.
        """
        random = np.random.default_rng(seed)
        held = [(p, p.value, p.stored, p.grad, p.second_grad) for p in self.parameters()]
        try:
            for p in self.parameters():
                scale = len(p.shape) > 1 and p.shape[0] ** -0.5
                values = 1 + 0.1 * _numbers(random, p.shape) if not scale else scale * _numbers(random, p.shape)
                values = values.astype(np.float32 if p.value is None else p.value.dtype)
                p.value, p.stored = (None, narrowed(values, self._storage)) if self._storage else (values, None)
            given = self._random_like(random, x)
            y, saved = self.layer.forward(given, step)
            dy = self._random_like(random, y)
            apart = [(part, *self.layer.forward(given[part], own)) for part, own in passes(step)]
            same = all(_equal(y[part], own) for part, own, _ in apart)
            dx = self.layer.backward_input(saved, dy)
            for part, _, kept in apart:
                own = self.layer.backward_input(kept, dy[part])
                same = same and (dx is None or _equal(dx[part], own))
                found = [self._weighed(kept, dy[part]), self._weighed(of_part(saved, part, len(x)), dy[part])]
                same = same and all(_equal(one, other) for one, other in zip(*found, strict=True))
            return bool(same)
        finally:
            for p, *kept in held:
                p.value, p.stored, p.grad, p.second_grad = kept

    def _weighed(self, saved: Any, dy: Any) -> list[Any]:
        """The gradients of the parameters."""
        sums = [np.zeros(p.shape, np.float32 if p.value is None else p.value.dtype) for p, _ in self._grads]
        for p, _ in self._grads:
            p.second_grad = None
        _bind(self._grads, sums)
        self.layer.backward_weight(saved, dy)
        return sums

    def _random_like(self, random: np.random.Generator, x: Any) -> Any:
        """Random numbers in place of others; whole numbers as they are."""
        if x.dtype.kind == "f":
            return _numbers(random, x.shape).astype(x.dtype)
        if self._storage and x.dtype == np.uint16:
            return narrowed(_numbers(random, x.shape).astype(np.float32), self._storage)
        return x


def grouped(layers: Sequence[Layer], kind: str | None, storage: str, tried: Tried) -> list[Layer]:
    """The layers with their parts together; as they are for the kind None."""
    return list(layers) if kind is None else [Grouped(layer, kind, storage, tried) for layer in layers]


class Each(list[Any]):
    """What a layer saved of each part that has samples."""


class LossOfParts:
    """A loss of the fixed parts of a microbatch, each of which is a sum of its own."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss

    def forward(self, y: Any, targets: Any, starts: Sequence[int]) -> tuple[list[Any], Any]:
        """The sum of each part, 0 without samples. `saved` is y and what the loss saved of each part."""
        sums, kept = [], []
        for part in slices(starts):
            has_samples = part.start < part.stop
            total, own = self._loss.forward(y[part], targets[part]) if has_samples else (0.0, None)
            sums.append(total)
            kept += [own] if has_samples else []
        return sums, (y, starts, kept)

    def backward(self, saved: Any, scale: float) -> Any:
        """The gradient of scale times the sum of all."""
        y, starts, kept = saved
        done = [self._loss.backward(own, scale) for own in kept]
        each = zip(filled(starts), done, strict=True)
        in_place = all(dy.shape == y[part].shape and address(dy) == address(y[part]) for part, dy in each)
        return y if in_place else rows_of_parts(done, starts)


def slices(starts: Sequence[int]) -> Iterator[slice]:
    """The samples of each part."""
    return (slice(first, end) for first, end in pairwise(starts))


def filled(starts: Sequence[int]) -> Iterator[slice]:
    """The samples of each part that has any."""
    return (part for part in slices(starts) if part.start < part.stop)


def passes(step: Pass) -> Iterator[tuple[slice, Pass]]:
    """The samples of each part that has any, and the pass that has them alone."""
    for part in filled(step.parts):
        count = part.stop - part.start
        own = replace(
            step, first_sample=step.first_sample + part.start, tokens=(count, step.tokens[1]), parts=(), marks=None
        )
        yield part, own


def rows_of_parts(parts: Sequence[Any], starts: Sequence[int]) -> Any:
    """The arrays of all parts that have samples as one."""
    whole = empty((starts[-1], *parts[0].shape[1:]), parts[0])
    for part, own in zip(filled(starts), parts, strict=True):
        whole[part] = own
    return whole


def of_part(values: Any, part: slice, samples: int) -> Any:
    """A part of all arrays in nested lists, tuples and dicts, whose rows are those of so many samples."""
    if isinstance(values, dict):
        return {name: of_part(value, part, samples) for name, value in values.items()}
    if isinstance(values, list):
        return [of_part(value, part, samples) for value in values]
    if isinstance(values, tuple):
        made = [of_part(value, part, samples) for value in values]
        return type(values)(*made) if hasattr(values, "_fields") else tuple(made)
    if getattr(values, "ndim", 0) and len(values) % samples == 0:
        each = len(values) // samples
        return values[part.start * each : part.stop * each]
    return values


def _bind(grads: Sequence[Grad], arrays: Sequence[Any]) -> None:
    for (parameter, name), array in zip(grads, arrays, strict=True):
        setattr(parameter, name, array)


def _numbers(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.resize(random.standard_normal(NUMBERS, np.float32), shape)


def _equal(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
