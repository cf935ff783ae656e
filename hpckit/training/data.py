"""Data parallelism: every rank has the whole model and a part of the batch; gradients are summed during backward."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.comm.device import HOST, Device
from hpckit.errors import InputError
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameters, Squares, arithmetic_of
from hpckit.training.averaging.gossip import LocalSGD
from hpckit.training.pipeline.stage import Stage
from hpckit.training.precision import mixed
from hpckit.training.replicas import Replicas, add_second
from hpckit.training.sharded.shards import Shards

if TYPE_CHECKING:
    from hpckit.nn.layer import Layer
    from hpckit.nn.parameters import Parameter

# Bytes of gradients per sum between nodes, where messages overlap with backward. Within a node the cores themselves
# add, so an early start gains nothing: there all gradients are one bucket.
BUCKET = 25 << 20


class DataParallel:
    """A model replicated on every rank of `mesh_axis`, equal on all.

        data = hp.training.DataParallel(mesh["dp"], model)
        data.initialize(seed=1)
        optimizer = AdamW(data.parameters)
        for share in ...:  # hp.training.Sampler
            data.parameters.zero_grads()
            y, saved = data.forward(x)
            loss, kept = loss_of.forward(y, targets)
            data.backward(saved, loss_of.backward(kept, 1 / data.total(targets.size)))
            optimizer.step(rate)

    Gradients are summed over the replicas, not averaged: the scale of the loss is one over the number of targets in the
    whole batch, so that replicas with unequal or empty parts get their correct weight. Gradients lie in symmetric
    memory where the replicas share a node. Within `no_sync` backward only accumulates; the next one outside sums all.

    bucket_bytes: of gradients that are summed at once, as soon as backward has completed them. sharding: 1 keeps the
    optimizer's state in shards (`hpckit.training.sharded`), with the same bits; parameters then stand once in the
    memory of a node, and a replica's gradients are sums in its own shard only. averaging: a `LocalSGD`
    on the same axis, not in mixed precision; gradients then stay local, and `after_step` averages parameters. dtype,
    gradients: see `Pipeline`. device: where the model lives and computes. Collective; raises `InputError` for invalid
    arguments.
    """

    def __init__(
        self,
        mesh_axis: Any,
        model: Layer,
        *,
        dtype: npt.DTypeLike = np.float32,
        bucket_bytes: int | None = None,
        deterministic: bool = True,
        sharding: int = 0,
        averaging: LocalSGD | None = None,
        device: Device = HOST,
        gradients: str = "",
    ) -> None:
        if not hasattr(model, "parameters"):
            raise InputError(
                f"a model is a layer or a Sequential of them, not a {type(model).__name__}",
                do="give it forward, backward_input, backward_weight and parameters (docs/layers.md)",
            )
        self.replicas = Replicas(mesh_axis, deterministic, device)
        self.averaging = averaging
        layers: Sequence[Layer] = getattr(model, "layers", [model])
        if bucket_bytes is None:
            bucket_bytes = sys.maxsize if self.replicas.share_node else BUCKET
        if bucket_bytes < 0:
            raise InputError(f"buckets of {bucket_bytes} bytes", do="give 0 (one a parameter) or more")
        if averaging and gradients:
            raise InputError(f"gradients in {gradients}, which averaging never sends", do="leave one of the two out")
        if sharding not in (0, 1) or (sharding and averaging):
            raise InputError(
                f"sharding={sharding}" + (" with averaging" if averaging else ""),
                do="take 0 or 1; a Pipeline, of one stage too, shards gradients and parameters as well",
            )
        storage = arithmetic_of(dtype)[1]
        if storage and averaging:
            raise InputError(
                f"averaging in {storage}", do="take float32: averages of rounded numbers would lose the small steps"
            )
        layers = mixed(layers, storage)
        self._buckets: list[Bucket] = []

        def units(parameters: Parameters) -> list[tuple[int, int]]:
            self._buckets = buckets_of(layers, parameters, bucket_bytes)
            return [(bucket.start, bucket.end) for bucket in self._buckets]

        self.shards = Shards(self.replicas, sharding, model.parameters(), dtype, units, kind=gradients)
        self.parameters = self.shards.parameters
        self.stage = Stage(layers, self.shards.move, self._complete)
        self._squares = Squares(self.parameters, self.parameters.list)
        self._sync = True

    def initialize(self, seed: int) -> None:
        """Set the parameters by a seed, broadcast those of replica 0, and check that all replicas agree."""
        self.parameters.initialize(seed)
        self.broadcast()

    def broadcast(self, root: int = 0) -> None:
        """Broadcast the parameters of one replica, for instance from a checkpoint. Raises `MismatchError`."""
        self.shards.broadcast(root)

    def check(self) -> None:
        """Raise `MismatchError` on all replicas unless they hold the same parameters, to the bit."""
        self.shards.check()

    def squared_norm(self) -> float:
        """The sum of the squares of all gradients, the same bits with shards and without. Collective."""
        return self.shards.squared_norm(self._squares())

    def total(self, number: float) -> float:
        """The sum of a number over the replicas, such as the targets in a batch or a loss."""
        return self.replicas.total(number)

    def forward(self, x: Any, step: Pass | None = None) -> tuple[Any, Any]:
        """The model's output for this rank's part of the batch, and the saved values for `backward`."""
        return self.stage.forward(x, step or Pass())

    def backward(self, saved: Any, dy: Any) -> Any:
        """Add to the gradients, and sum them over the replicas; returns the gradient of x when all sums are complete.

        A replica without samples calls `skip` in its place.
        """
        self._started = 0
        self._done: set[int] = set()
        dx = self.stage.backward(saved, dy, last=self._sums)
        self._finish()
        return dx

    def skip(self) -> None:
        """Replace `backward` on a replica whose part of the batch is empty: it adds 0 to the sums."""
        self._started = 0
        self._finish()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it gradients are accumulated on each replica, without communication."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def after_step(self) -> bool:
        """Call after the optimizer: average the parameters if local SGD is due; returns whether it did."""
        return self.averaging is not None and self.averaging.step(self.parameters.values)

    @property
    def _sums(self) -> bool:
        return self._sync and self.averaging is None

    def _complete(self, layer: int) -> None:
        """Called when backward has finished a layer: start the sums of the buckets that are now complete."""
        self._done.add(layer)
        while self._started < len(self._buckets) and self._buckets[self._started].layers <= self._done:
            self._start_next()

    def _start_next(self) -> None:
        bucket = self._buckets[self._started]
        add_second(bucket.shared)
        self.shards.start_sum(self._started)
        self._started += 1

    def _finish(self) -> None:
        """Start the remaining sums, and wait for all."""
        if self._sums:
            while self._started < len(self._buckets):
                self._start_next()
            self.shards.finish_sums()
        elif self._sync:
            self.parameters.add_second_grads()


class Bucket(NamedTuple):
    """A part of the gradients, start to end, that is summed at once, when backward has finished these layers.

    shared: parameters in it that two layers use, each layer with its own gradient.
    """

    start: int
    end: int
    layers: frozenset[int]
    shared: tuple[Parameter, ...]


def buckets_of(layers: Sequence[Layer], parameters: Parameters, nbytes: int) -> list[Bucket]:
    """Contiguous parts of the gradients, of `nbytes` or a little more, from the last parameter to the first."""
    users: dict[str, set[int]] = {}
    for number, layer in enumerate(layers):
        for parameter in layer.parameters():
            users.setdefault(parameter.name, set()).add(number)
    held: list[Parameter] = []
    found, end = [], parameters.size
    for parameter in reversed(parameters.list):
        held.append(parameter)
        start = parameters.offsets[parameter.name]
        if (end - start) * parameters.dtype.itemsize >= nbytes or start == 0:
            needs = frozenset().union(*(users[each.name] for each in held))
            found.append(Bucket(start, end, needs, tuple(each for each in held if each.shared)))
            held, end = [], start
    return found
