"""The state of a training run on each rank, and its step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import TrainingSetup
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.io.checkpoint.state import Piece, Restored, State
from hpckit.kernels.device_array import set_from_host
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import SGD, AdamW, clip_scale, warmup_cosine
from hpckit.nn.parameters import Parameter
from hpckit.plan.pipeline.partition import partition_layers
from hpckit.training.pipeline.pipeline import Pipeline
from hpckit.training.pipeline.stage import measure_layers
from hpckit.training.precision import LossScale
from hpckit.training.sampler import Sampler


@dataclass(frozen=True)
class StepFigures:
    """One step, the same on every rank but for `seconds`.

    loss: mean over the batch, nats a token or image. norm: of the gradient, before it is clipped. lr: the learning
    rate. seen: tokens, or images, of all steps so far. seconds: of forward and backward.
    """

    step: int
    loss: float
    norm: float
    lr: float
    samples: int
    seen: int
    seconds: float


class Trainer:
    """Model, optimizer and position in the data on a mesh dp x pp x cp x tp. Collective, as are all of its methods.

    device: where parameters, gradients and optimizer are, and where steps are computed; the data are the host's.
    """

    def __init__(self, config: Config, laid: TrainingSetup, mesh: Mesh, device: Device = HOST) -> None:
        self.config, self.laid, self.mesh, self.device = config, laid, mesh, device
        self.replica, self.replicas = mesh["dp"].rank, mesh["dp"].size
        self.pipeline = Pipeline(
            mesh,
            laid.model,
            CrossEntropy(laid.shape.vocab),
            laid.plan,
            dtype=config.precision,
            sharding=config.sharding.stage,
            shard_group=config.sharding.group,
            recompute=config.model.recomputed == "whole",
            device=device,
            context=config.context.kind,
            tensor_chunks=config.tensor.chunks,
            gradients=config.mixed.gradients or "",
        )
        self.model, self.loss = self.pipeline.model, self.pipeline.loss
        self.pipeline.initialize(config.seed)
        self.optimizer = _optimizer(config, self.pipeline)
        self.sampler = Sampler(len(laid.data.training), config.batch.size, seed=config.seed)
        half = config.precision == "float16"
        start = config.mixed.loss_scale or (2.0**16 if half else 1.0)
        self.loss_scale = LossScale(start, config.mixed.growth if half else 0)
        self.done = 0  # steps
        self.weighed = 0  # bytes that this rank keeps for backward passes at once, at most

    def step(self, timer: PhaseTimer) -> StepFigures:
        """One step of the optimizer, skipped where the gradients overflow in float16.

        Raises `BlowUpError` on every rank if the loss is not finite.
        """
        scale = self.loss_scale.value
        with timer("data"):
            share = self.sampler.take(self.replica, self.replicas, self.laid.plan.parts)
            x, targets = self.laid.data.training.take(share.indices, share.epoch)
        with timer("compute"):
            self.pipeline.zero_grads()
            passing = Pass(True, self.config.seed, self.done, share.first_sample)
            result = self.pipeline.run(x, targets, passing, loss_scale=scale)
        with timer("optimizer"):
            squared, lr = self.pipeline.squared_norm() / scale**2, self._lr()
            used = self.loss_scale.update(math.isfinite(squared))
            self._require_finite(result.loss, squared, scale)
            if used:
                self.optimizer.step(lr, clip_scale(squared, self.config.optimizer.clip) / scale)
        self.done += 1
        return StepFigures(self.done, result.loss, math.sqrt(squared), lr, share.total, self._seen, result.seconds)

    @property
    def _seen(self) -> int:
        """Tokens, or images, of all steps so far."""
        return self.sampler.position * self.laid.window

    @property
    def saved(self) -> list[Parameter]:
        """The parameters of which this rank saves what it owns: a weight of two stages belongs to the first of them.

        Without shards the first replica owns all, as far as files go, and of what the ranks of tp hold whole the first.
        """
        rank_of, layers, seen = self.laid.plan.schedule.rank_of, self.model.layers, set[str]()
        first = not self.pipeline.tensor.rank
        found = []
        for stage, home in enumerate(rank_of):
            for number in self.laid.plan.partition.layers(stage):
                for parameter in layers[number].parameters():
                    mine = home == self.mesh["pp"].rank and (first or parameter.cut is not None)
                    mine = mine and self.pipeline.shards.saves(parameter)
                    if parameter.name not in seen and mine:
                        found.append(parameter)
                    seen.add(parameter.name)
        return found

    def state(self) -> State:
        """The content of a checkpoint: parameters and optimizer by parameter name, steps, position in the data."""
        return self._state_of(self.saved)

    def held(self) -> State:
        """The same of all parameters that this rank updates, be it a copy of others'."""
        return self._state_of(self.pipeline.parameters.list, copies=True)

    def _state_of(self, parameters: Iterable[Parameter], copies: bool = False) -> State:
        host = self.device.to_host
        pieces = []
        for parameter in parameters:
            for start, shape, arrays in self._boxes(parameter):
                pieces += [
                    Piece(f"{name}/{parameter.origin}", parameter.whole, place, host(array).reshape(shape)[part])
                    for name, array in arrays.items()
                    for place, part in placed(parameter, start, shape)
                ]
        if copies or not (self.pipeline.replicas.rank or self.pipeline.tensor.rank):
            pieces += [
                Piece(f"shares/{name}", layer.shares.shape, (0,), layer.shares.copy())
                for name, layer in self.pipeline.experts().items()
            ]
        scaling = {f"loss_scale/{name}": value for name, value in self.loss_scale.state().items()}
        return State(pieces, {"step": self.done, "position": self.sampler.position, **scaling})

    def restore(self, restored: Restored) -> None:
        """Go on from a state, whatever mesh saved it."""
        for parameter in self.pipeline.parameters.list:
            for start, shape, arrays in self._boxes(parameter):
                for name, array in arrays.items():
                    box = np.empty(shape, array.dtype)
                    for place, part in placed(parameter, start, shape):
                        box[part] = restored.read(f"{name}/{parameter.origin}", place, box[part].shape)
                    set_from_host(array, box.reshape(-1))
        self.pipeline.parameters.updated()
        for name, layer in self.pipeline.experts().items():
            if f"shares/{name}" in restored.names:
                layer.shares = restored.read(f"shares/{name}", (0,), layer.shares.shape)
        self.done, self.sampler.position = restored.values["step"], restored.values["position"]
        kept = self.loss_scale.state()
        self.loss_scale.load({name: restored.values.get(f"loss_scale/{name}", kept[name]) for name in kept})
        if isinstance(self.optimizer, AdamW):
            self.optimizer.count = self.done - self.loss_scale.skipped

    def _boxes(self, parameter: Parameter) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]:
        """The boxes of a parameter that this rank owns: start, shape, and their elements of values and optimizer."""
        first = self.pipeline.parameters.offsets[parameter.name]
        for part in self.optimizer.parts:
            low, high = max(part.owned.start - first, 0), min(part.owned.end - first, parameter.size)
            shift = first - part.owned.start
            for start, shape in boxes(parameter.shape, low, high):
                count = math.prod(shape)
                at = shift + low
                arrays = {"parameters": part.owned.values[at : at + count]}
                for name, vector in _vectors(self.optimizer).items():
                    arrays[name] = vector[part.state][at : at + count]
                yield start, shape, arrays
                low += count

    def warm_up(self) -> None:
        """Compile what a step calls and weigh what it keeps, outside the time that is measured; nothing is learned."""
        share = self.sampler.take(self.replica, self.replicas, self.laid.plan.parts)
        self.sampler.position = 0  # it is taken again
        x, targets = self.laid.data.training.take(share.indices)
        self.weighed = self.pipeline.run(x, targets, Pass(True, self.config.seed), weigh=True).held
        self.pipeline.squared_norm()
        self.pipeline.zero_grads()
        for layer in self.pipeline.experts().values():
            layer.forget()
        self.optimizer.step(0.0, 0.0)
        self.optimizer = _optimizer(self.config, self.pipeline)
        self.pipeline.reset_times()

    def _lr(self) -> float:
        settings = self.config.optimizer
        return warmup_cosine(
            self.done, settings.lr, self.config.warmup, self.config.time.steps, settings.floor * settings.lr
        )

    def _require_finite(self, loss: float, squared: float, scale: float) -> None:
        half = self.config.precision == "float16"
        if math.isfinite(loss) and (math.isfinite(squared) or (half and self.loss_scale.value >= 1)):
            return
        if half:
            raise BlowUpError(
                f"the loss is {loss:g} and the norm of the gradient {_root(squared):g} with a loss scale of {scale:g}",
                where=f"step {self.done + 1}",
                likely="numbers beyond 65504, where float16 ends",
                do='set precision = "bfloat16", which has the range of float32, or lower optimizer.lr',
            )
        raise BlowUpError(
            f"the loss is {loss:g} and the norm of the gradient {_root(squared):g}",
            where=f"step {self.done + 1}",
            likely="a learning rate that is too high"
            if self.config.optimizer.clip
            else "gradients that are not clipped",
            do="lower optimizer.lr, lengthen optimizer.warmup"
            + ("" if self.config.optimizer.clip else ", or set optimizer.clip = 1.0"),
        )


def boxes(shape: tuple[int, ...], low: int, high: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The elements low to high of a C-ordered array, cut into boxes in their order: start and shape of each."""
    if low >= high:
        return
    if len(shape) < 2:
        yield ((low,), (high - low,)) if shape else ((), ())
        return
    inner = math.prod(shape[1:])
    row, rest = divmod(low, inner)
    if rest or high < low + inner:  # the rest of a row, or a part of it
        end = min(high, (row + 1) * inner)
        for start, size in boxes(shape[1:], rest, end - row * inner):
            yield (row, *start), (1, *size)
        yield from boxes(shape, end, high)
        return
    rows = (high - low) // inner
    yield (row, *[0] * (len(shape) - 1)), (rows, *shape[1:])
    yield from boxes(shape, low + rows * inner, high)


def placed(
    parameter: Parameter, start: tuple[int, ...], shape: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """The pieces of a box of a parameter's part: where each begins in the whole, and its place in the box."""
    if parameter.cut is None:
        yield start, (slice(None),) * len(shape)
        return
    dim, (second, _) = parameter.cut.dim, parameter.cut.second
    begin = parameter.cut.inner(parameter.rank).start or 0
    start = (*start[:second], start[second] + begin, *start[second + 1 :]) if begin else start
    low, high = start[dim], start[dim] + shape[dim]
    for at, there, count in parameter.cut.places(parameter.rank):
        first, end = max(low, at), min(high, at + count)
        if first < end:
            place = (*start[:dim], there + first - at, *start[dim + 1 :])
            yield place, (*[slice(None)] * dim, slice(first - low, end - low), *[slice(None)] * (len(shape) - dim - 1))


def _root(squared: float) -> float:
    """The square root, of nan too."""
    return math.sqrt(squared) if squared >= 0 else squared


def _vectors(optimizer: AdamW | SGD) -> dict[str, Any]:
    """The flat vectors of an optimizer, each as long as what this rank owns of the parameters."""
    return {name: array for name, array in optimizer.state().items() if array.ndim}


def _optimizer(config: Config, pipeline: Pipeline) -> AdamW | SGD:
    settings = config.optimizer
    if settings.kind == "sgd":
        return SGD(pipeline.parameters, settings.momentum, settings.weight_decay)
    return AdamW(pipeline.parameters, settings.betas, settings.eps, settings.weight_decay)


def balanced(config: Config, laid: TrainingSetup, comm: MPI.Intracomm, device: Device) -> TrainingSetup:
    """The layout with layers on stages that take equally long, by a microbatch that all ranks measure at once.

    Without a pipeline, on GPUs and with `pipeline.balance = "arithmetic"` it stays as it is. What is learned does not
    depend on it, to the bit. Collective.
    """
    plan = laid.plan
    if plan.pp == 1 or device.is_gpu or config.pipeline.balance == "arithmetic":
        return laid
    x, targets = laid.data.training.take(np.arange(max(1, plan.batch // (plan.dp * plan.microbatches))))
    loss = CrossEntropy(laid.shape.vocab)
    times = measure_layers(laid.model, loss, x, targets, dtype=config.arithmetic, comm=comm)
    partition = partition_layers([layer.seconds for layer in times], plan.schedule.stages)
    return replace(laid, plan=replace(plan, partition=partition))
