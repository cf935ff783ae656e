"""Gradients of PyTorch's parameters on several replicas: in symmetric memory, averaged while backward goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

from hpckit.collectives import Request, all_reduce
from hpckit.errors import InputError
from hpckit.torch.tensors import KINDS, by_dtype, kind_of, room_of, views_of

if TYPE_CHECKING:
    from hpckit.training.replicas import Replicas


@dataclass
class ParameterBucket:
    """Gradients that are averaged at once. members: numbers of the parameters; waits: for how many of them."""

    array: np.ndarray
    kind: str | None
    members: list[int]
    waits: int = 0


class Gradients:
    """The gradients of some parameters on all replicas. Making it is collective; afterwards each backward pass is.

    Every `parameter.grad` is a view of a bucket from its first backward pass on. A bucket is averaged as soon as
    backward has completed its gradients, and all buckets before it are under way: so all replicas average in the same
    order, whatever their graphs. What backward did not reach counts as 0; where no replica has a gradient it stays
    None, so that optimizers leave such a parameter as it is.

    bucket_bytes: of gradients that are averaged at once, from the last parameter to the first.
    """

    def __init__(self, replicas: Replicas, parameters: Sequence[nn.Parameter], bucket_bytes: int) -> None:
        self.replicas, self.parameters = replicas, list(parameters)
        self.weight: float | None = None  # of this replica in the average; None where all count alike
        self.sync = True
        self._views: list[torch.Tensor] = [torch.empty(0)] * len(self.parameters)
        self._home = [0] * len(self.parameters)
        self._buckets: list[ParameterBucket] = []
        for members in _cut(self.parameters, bucket_bytes):
            self._add(members)
        self._has = np.zeros(len(self.parameters), np.uint8)  # which have a gradient, here or anywhere
        self._running = False
        self._started = 0
        self._requests: list[Request] = []
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))

    def _add(self, members: list[int]) -> None:
        own = [self.parameters[number] for number in members]
        array = self.replicas.allocate(sum(map(room_of, own)), KINDS[own[0].dtype][0])
        for number, view in zip(members, views_of(array, own), strict=True):
            self._views[number], self._home[number] = view, len(self._buckets)
        self._buckets.append(ParameterBucket(array, kind_of(own[0].dtype), members))

    def _hook(self, number: int) -> Any:
        def arrived(parameter: torch.Tensor) -> None:
            self._begin()
            self._take(number)
            bucket = self._buckets[self._home[number]]
            bucket.waits -= 1
            if self.sync:
                if not bucket.waits:
                    self._start_complete()
                elif self._requests:
                    self._requests[-1].test()

        return arrived

    def _begin(self) -> None:
        """At the first gradient of a backward pass: be called at its end."""
        if self._running:
            return
        self._running = True
        self.open()
        Variable._execution_engine.queue_callback(self._end)

    def open(self) -> None:
        """A backward pass begins."""
        self._has[:] = 0
        self._started = 0
        for bucket in self._buckets:
            bucket.waits = len(bucket.members)

    def _take(self, number: int) -> None:
        """Have a gradient in its bucket, and let the parameter have that memory."""
        parameter, view = self.parameters[number], self._views[number]
        grad = parameter.grad
        assert grad is not None
        if grad.data_ptr() != view.data_ptr():
            if grad.layout != torch.strided:
                raise InputError(
                    "a gradient is sparse, and buckets hold dense ones", do="make the embedding with sparse=False"
                )
            view.copy_(grad)
            parameter.grad = view
        self._has[number] = 1

    def _start_complete(self) -> None:
        while self._started < len(self._buckets) and not self._buckets[self._started].waits:
            self._start_next()

    def _start_next(self) -> None:
        bucket = self._buckets[self._started]
        self._started += 1
        if self.replicas.size == 1:
            return
        how: dict[str, Any] = {"deterministic": self.replicas.deterministic}
        if bucket.kind is not None:
            how["kind"] = bucket.kind
        if self.weight is not None:
            how["weight"] = self.weight
        op = "mean" if self.weight is None else "average"
        self._requests.append(all_reduce(bucket.array, self.replicas.comm, op, **how))

    def _end(self) -> None:
        """At the end of a backward pass."""
        self._running = False
        if self.sync:
            self._finish()

    def forget(self) -> None:
        """A new forward pass begins: a backward pass that did not come to its end has raised."""
        self._running = False

    def skip(self) -> None:
        """Replace a backward pass on a replica without samples."""
        self.open()
        self._finish()

    def _finish(self) -> None:
        """Average what is left, wait, and let parameters have what others computed for them."""
        self.start()
        self.wait()

    def start(self) -> None:
        """Begin to average what is not under way."""
        for number, (parameter, view) in enumerate(zip(self.parameters, self._views, strict=True)):
            if parameter.grad is None:
                view.zero_()
            elif not self._has[number]:  # of an earlier backward pass
                self._take(number)
        while self._started < len(self._buckets):
            self._start_next()

    def wait(self) -> None:
        """Wait until all is averaged."""
        if self.replicas.size > 1:
            self._requests.append(all_reduce(self._has, self.replicas.comm, "max"))
        for request in self._requests:
            request.wait()
        self._requests.clear()
        for number in np.flatnonzero(self._has).tolist():
            if self.parameters[number].grad is None:
                self.parameters[number].grad = self._views[number]


def _cut(parameters: Sequence[nn.Parameter], nbytes: int) -> list[list[int]]:
    """Buckets of parameters of one dtype, of `nbytes` or a little more, from the last parameter to the first."""
    found: list[list[int]] = []
    backward = parameters[::-1]
    for _, places in by_dtype(backward):
        held = nbytes
        for place in places:
            if held >= nbytes:
                found.append([])
                held = 0
            found[-1].append(len(parameters) - 1 - place)
            held += backward[place].numel() * backward[place].element_size()
    return found
