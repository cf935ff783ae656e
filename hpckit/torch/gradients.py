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
from hpckit.torch.tensors import KINDS, as_tensor, by_dtype, kind_of, room_of, views_of

if TYPE_CHECKING:
    from hpckit.training.replicas import Replicas


@dataclass
class ParameterBucket:
    """Gradients that are averaged at once. members: numbers of the parameters; waits: for how many of them.

    array: the gradients. message: what goes to other replicas, the same memory unless its dtype is another one.
    """

    array: np.ndarray
    message: np.ndarray
    dtypes: tuple[torch.dtype, torch.dtype]  # of the array, of the message
    members: list[int]
    waits: int = 0

    def pack(self) -> None:
        """Round the gradients for the message."""
        if self.message is not self.array:
            as_tensor(self.message, self.dtypes[1]).copy_(as_tensor(self.array, self.dtypes[0]))

    def unpack(self) -> None:
        """Have what was averaged as the gradients."""
        if self.message is not self.array:
            as_tensor(self.array, self.dtypes[0]).copy_(as_tensor(self.message, self.dtypes[1]))


class Gradients:
    """The gradients of some parameters on all replicas. Making it is collective; afterwards each backward pass is.

    Every `parameter.grad` is a view of a bucket from its first backward pass on. A bucket is averaged as soon as
    backward has completed its gradients, and all buckets before it are under way: so all replicas average in the same
    order, whatever their graphs. What backward did not reach counts as 0; where no replica has a gradient it stays
    None, so that optimizers leave such a parameter as it is.

    bucket_bytes: of gradients that are averaged at once, from the last parameter to the first. reduce_dtype: in which
    they go to other replicas; None: in their own.
    """

    def __init__(
        self,
        replicas: Replicas,
        parameters: Sequence[nn.Parameter],
        bucket_bytes: int,
        reduce_dtype: torch.dtype | None = None,
    ) -> None:
        self.replicas, self.parameters, self._reduce_dtype = replicas, list(parameters), reduce_dtype
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
        dtype, count = own[0].dtype, sum(map(room_of, own))
        reduced = self._reduce_dtype or dtype
        message = self.replicas.allocate(count, KINDS[reduced][0])
        array = message if reduced == dtype else np.zeros(count, KINDS[dtype][0])
        for number, view in zip(members, views_of(array, own), strict=True):
            self._views[number], self._home[number] = view, len(self._buckets)
        self._buckets.append(ParameterBucket(array, message, (dtype, reduced), members))

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
        bucket.pack()
        op, kind = "mean" if self.weight is None else "average", kind_of(bucket.dtypes[1])
        how: dict[str, Any] = {"deterministic": self.replicas.deterministic, "weight": self.weight, "kind": kind}
        self._requests.append(all_reduce(bucket.message, self.replicas.comm, op, **how))

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
        for bucket in self._buckets if self.replicas.size > 1 else ():
            bucket.unpack()
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
