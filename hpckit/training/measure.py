"""The times of a model's layers on this machine, before any is placed on a rank."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpckit.collectives import all_reduce
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameters, arithmetic_of
from hpckit.plan.pipeline.partition import TimedLayer as LayerTimes
from hpckit.training.stage import FORWARD, INPUT, Stage

if TYPE_CHECKING:
    from hpckit.nn.layer import Sequential


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
