"""Training with a parameter server: each server holds a part of the flat vector, and its optimizer's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpckit.collectives.axis import axis_of
from hpckit.nn.parameters import Owned
from hpckit.plan.blocks import block_starts
from hpckit.training.averaging.parameter_server import ParameterServer

if TYPE_CHECKING:
    from hpckit.nn.parameters import Parameters


class Optimizer(Protocol):
    """An optimizer, which updates values by gradients: `AdamW`, `SGD`."""

    def step(self, rate: float, scale: float = 1.0) -> None:
        """Update the values."""


class PartOfParameters:
    """A contiguous part of the vectors of `Parameters`, for an optimizer: it may cut parameters in two.

    values: the part's, changed in place. start: where it begins in the whole vector.
    """

    def __init__(self, whole: Parameters, start: int, values: np.ndarray) -> None:
        self.grads = np.zeros_like(values)
        self.list, self.offsets, self.size, self.dtype = whole.list, whole.offsets, whole.size, whole.dtype
        self.owned = (Owned(start, start + values.size, values, self.grads),)

    def add_second_grads(self) -> None:
        """Do nothing: workers have added theirs before they push."""

    def updated(self) -> None:
        """Do nothing: workers pull the new values."""


def parameter_server(
    mesh_axis: Any,
    parameters: Parameters,
    optimizer: Callable[[Any], Optimizer],
    rate: Callable[[int], float],
    *,
    servers: int = 1,
    staleness: int | None = 0,
) -> ParameterServer:
    """A `ParameterServer` that updates by optimizer steps, each server on its part of the parameters.

        with hp.training.parameter_server(comm, parameters, AdamW, lambda step: 1e-3, staleness=2) as server:
            for share in ... if server.is_worker else ():
                server.pull(parameters.values)
                ...  # forward and backward of this worker's batch, the mean over it
                parameters.add_second_grads()
                server.push(parameters.grads)

    optimizer: makes one of `Parameters`, as `AdamW` does. rate: the learning rate of update number 0, 1, … of a server.
    servers, staleness: see `ParameterServer`; 0 is synchronous, to the bit. Collective, with equal parameters on all
    ranks. Raises `InputError` for invalid arguments.
    """
    rank = axis_of(mesh_axis).rank
    made: list[tuple[PartOfParameters, Optimizer]] = []
    count = 0

    def update(part: np.ndarray, gradient: np.ndarray) -> None:
        nonlocal count
        if not made:
            own = PartOfParameters(parameters, int(block_starts(parameters.size, servers)[rank]), part)
            made.append((own, optimizer(own)))
        own, steps = made[0]
        own.grads[...] = gradient
        steps.step(rate(count))
        count += 1

    return ParameterServer(mesh_axis, parameters.values, update, servers=servers, staleness=staleness)
