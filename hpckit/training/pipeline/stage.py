"""A contiguous run of layers, executed one by one: each is timed, and messages move in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.collectives import all_reduce
from hpckit.kernels.device_array import address
from hpckit.nn.layer import Pass, Turns, at_once, backward_turns, forward_turns
from hpckit.nn.parameters import Parameters, arithmetic_of
from hpckit.plan.pipeline.partition import TimedLayer as LayerTimes

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpckit.nn.layer import Layer, Sequential

FORWARD, INPUT, WEIGHT = range(3)
# The remaining work for the gradient of the weights: layer, its saved values, gradient of its output.
Left = list[tuple[int, Any, Any]]


def nothing(*_: object) -> None:
    """A hook that does nothing."""


class Stage:
    """Consecutive layers of a model, the part of one pipeline rank.

    pause: called between layers, to advance messages. complete: called with a layer's number after its part of a
    backward pass, when `backward` is called with `last`. settle: called before a clock is read after a layer, for
    instance to wait for a GPU. recompute: keep the input of the stage only, and run forward again in backward: the same
    bits. `seconds` and `calls` count F, I and W of each layer, the loss within the last one's:
    float64 and int64[layers, 3].
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        pause: Callable[[], object] = nothing,
        complete: Callable[[int], object] = nothing,
        settle: Callable[[], object] = nothing,
        recompute: bool = False,
    ) -> None:
        self.layers = list(layers)
        self.pause, self.complete, self.settle, self.recompute = pause, complete, settle, recompute
        self.seconds = np.zeros((len(self.layers), 3))
        self.calls = np.zeros((len(self.layers), 3), np.int64)

    def forward(self, x: Any, step: Pass) -> tuple[Any, list[Any]]:
        """The output, and what the layers saved."""
        return at_once(self.forward_turns(x, step))

    def forward_turns(self, x: Any, step: Pass) -> Turns[tuple[Any, list[Any]]]:
        """`forward` in turns, as are the two below of their namesakes: what is done between them counts no time."""
        given, kept = x, []
        for number, layer in enumerate(self.layers):
            x, saved = yield from self._timed(number, FORWARD, forward_turns(layer, x, step))
            kept.append(None if self.recompute else saved)
        return x, [given, step] if self.recompute else kept

    def _timed(self, number: int, kind: int, turns: Turns[Any], calls: int = 1) -> Turns[Any]:
        """The turns of a layer; the time of each counts to its F or I, and messages move behind each."""
        while True:
            begin, over, found = perf_counter(), False, None
            try:
                next(turns)
            except StopIteration as end:
                over, found = True, end.value
            self._spent(number, kind, begin, calls * over)
            self.pause()
            if over:
                return found
            yield

    def _again(self, kept: list[Any]) -> Turns[None]:
        """Replace the input by what the layers save when they run again. The time counts to the last layer's I."""
        if not self.recompute:
            return
        x, step = kept
        kept.clear()
        for layer in self.layers:
            x, saved = yield from self._timed(-1, INPUT, forward_turns(layer, x, step), calls=0)
            kept.append(saved)

    def output(self, x: Any, step: Pass) -> Any:
        """The output without training: nothing is kept, and no time is counted."""
        for layer in self.layers:
            x, _ = layer.forward(x, step)
        return x

    def backward_input(self, kept: list[Any], dy: Any) -> tuple[Any, Left]:
        """I: the gradient of the input, and the work left for `backward_weight`. Empties `kept`."""
        return at_once(self.backward_input_turns(kept, dy))

    def backward_input_turns(self, kept: list[Any], dy: Any) -> Turns[tuple[Any, Left]]:
        """See `forward_turns`."""
        left: Left = []
        yield from self._again(kept)
        for number in reversed(range(len(self.layers))):
            saved = kept.pop()
            left.append((number, saved, dy))
            dy = yield from self._timed(number, INPUT, backward_turns(self.layers[number], saved, dy))
        return dy, left

    def backward_weight(self, left: Left) -> None:
        """W: adds to the gradients of the weights. Empties `left`, so that saved values are freed layer by layer."""
        left.reverse()
        while left:
            self._weight(*left.pop())
            self.pause()

    def backward(self, kept: list[Any], dy: Any, last: bool = False, ready: Callable[[Any], object] = nothing) -> Any:
        """B: both, layer by layer; the gradient of the input. last: gradients are complete after it.

        ready: called with the gradient of the input when it is there, before W of the layer that made it.
        """
        return at_once(self.backward_turns(kept, dy, last, ready))

    def backward_turns(
        self, kept: list[Any], dy: Any, last: bool = False, ready: Callable[[Any], object] = nothing
    ) -> Turns[Any]:
        """See `forward_turns`."""
        yield from self._again(kept)
        for number in reversed(range(len(self.layers))):
            saved = kept.pop()
            dx = yield from self._timed(number, INPUT, backward_turns(self.layers[number], saved, dy))
            if not number:
                ready(dx)
            self._weight(number, saved, dy)
            dy = dx
            if last:
                self.complete(number)
            self.pause()
        return dy

    def add_loss(self, kind: int, begin: float) -> None:
        """Count the loss, computed since `begin`, as a part of the last layer."""
        self.settle()
        self.seconds[-1, kind] += perf_counter() - begin

    def means(self) -> np.ndarray:
        """The mean times of F, I and W of each layer for one microbatch, s: float64[layers, 3]."""
        return self.seconds / np.maximum(self.calls, 1)

    def mean_times(self) -> list[float]:
        """The mean times of all layers together: F, I, W, s."""
        return self.means().sum(axis=0).tolist()

    def reset_times(self) -> None:
        """Reset the times, for instance after a step that compiled kernels."""
        self.seconds[:] = 0
        self.calls[:] = 0

    def _weight(self, number: int, saved: Any, dy: Any) -> None:
        begin = perf_counter()
        self.layers[number].backward_weight(saved, dy)
        self._spent(number, WEIGHT, begin)

    def _spent(self, number: int, kind: int, begin: float, calls: int = 1) -> None:
        self.settle()
        self.seconds[number, kind] += perf_counter() - begin
        self.calls[number, kind] += calls


def held_bytes(values: Any) -> int:
    """Bytes of all arrays in nested lists, tuples and dicts; memory shared by several arrays counts once."""
    parts = sorted({(address(array), array.nbytes) for array in _arrays(values) if array.nbytes})
    total = end = 0
    for start, nbytes in parts:
        total += max(0, start + nbytes - max(start, end))
        end = max(end, start + nbytes)
    return total


def _arrays(values: Any) -> Iterator[Any]:
    if isinstance(values, dict):
        values = values.values()
    elif hasattr(values, "nbytes"):
        yield values
        return
    elif not isinstance(values, list | tuple):
        return
    for value in values:
        yield from _arrays(value)


def measure_layers(
    model: Sequential,
    loss: Any,
    x: Any,
    targets: Any,
    *,
    dtype: npt.DTypeLike = np.float32,
    repeats: int = 3,
    comm: MPI.Intracomm | None = None,
) -> list[LayerTimes]:
    """The times of F, I and W of each layer for the microbatch (x, targets), s; the last layer's with the loss.

    The least of `repeats` counts: a momentary delay of the process is not work of a layer.
    Their sums are the `costs` of `training_plan`. Only one layer has memory at a time, and none has any afterwards.
    With `comm` all its ranks measure and get the mean, the same numbers on all; collective then.
    """
    seconds = np.zeros((len(model.layers), 3))
    last = len(model.layers) - 1
    for number, layer in enumerate(model.layers):
        Parameters(layer.parameters(), arithmetic_of(dtype)[0]).initialize(0)
        stage, seconds[number] = Stage([layer]), np.inf
        for turn in range(max(1, repeats) + 1):
            y, kept = stage.forward(x, Pass())
            dy = np.ones_like(y)
            if number == last:
                begin = perf_counter()
                _, saved = loss.forward(y, targets)
                stage.add_loss(FORWARD, begin)
                begin = perf_counter()
                dy = loss.backward(saved, 1.0 / targets.size)
                stage.add_loss(INPUT, begin)
            stage.backward(kept, dy)
            if turn > 0:  # the first turn compiles, and touches memory
                seconds[number] = np.minimum(seconds[number], stage.means()[0])
            stage.reset_times()
        x, _ = stage.forward(x, Pass())
        for parameter in layer.parameters():
            parameter.value = parameter.grad = parameter.second_grad = None
    if comm is not None and comm.size > 1:
        all_reduce(seconds, comm, "mean").wait()
    return [LayerTimes(name, *row) for name, row in zip(model.names, seconds.tolist(), strict=True)]
