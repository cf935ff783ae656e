"""The layout of a run on its ranks, derived and checked without MPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpckit.apps.train.config import Config
from hpckit.apps.train.data import DataSet, read_data
from hpckit.apps.train.hugging_face import require_fit
from hpckit.apps.train.models import model_of
from hpckit.apps.train.shape import Shape, read_shape, shape_of
from hpckit.errors import InputError
from hpckit.io.safetensors import Safetensors
from hpckit.nn.cuts import context_misfits, expert_misfits, misfits
from hpckit.nn.layer import Sequential
from hpckit.plan.pipeline.parts import group_fault
from hpckit.plan.pipeline.training import TrainingPlan, training_plan


@dataclass(frozen=True)
class TrainingSetup:
    """What each rank makes alike: the network, by its shape, the data, and the plan of a step.

    window: tokens of a sample, 1 of an image.
    """

    shape: Shape
    window: int
    model: Sequential
    data: DataSet
    plan: TrainingPlan

    @property
    def mesh(self) -> dict[str, int]:
        """The axes of the mesh, the last one innermost."""
        return self.plan.mesh


def layout(config: Config, ranks: int) -> TrainingSetup:
    """The layout of a run on so many ranks.

    Raises `InputError` with everything that does not fit and what would, `SetupError` where a package is missing.
    """
    known = None if config.model.weights is None else read_shape(config.model.weights, config.model.kind)
    problems: list[InputError] = []

    def tried(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except InputError as problem:
            problems.append(problem)
            return None

    context = known.context if known else config.model.context
    window = (config.batch.window or context) if config.model.is_language else 1
    if window > context:
        problems.append(InputError(f"batch.window is {window}", do=f"the checkpoint sees {context} tokens at once"))
    data = tried(lambda: read_data(config, window))
    shape = shape_of(config.model, data.classes if data else 2)
    if data is not None and shape.vocab < data.classes:
        problems.append(_small_vocabulary(shape, data))
    tokenizer = data.tokenizer if data else None
    if tokenizer is not None and config.sample.tokens and not len(tokenizer.encode(config.sample.prompt)):
        problems.append(
            InputError(
                f"sample.prompt is {config.sample.prompt!r}, for which the tokenizer has no token",
                do="give a sample.prompt of some letters, or sample.tokens = 0",
            )
        )
    model = tried(lambda: model_of(shape))
    if model is not None and config.model.weights is not None:
        weights = config.model.weights
        tried(lambda: require_fit(shape, Safetensors(weights), model.parameters()))
    if model is not None:
        cut = (config.batch.layer_parts, "batch.layer_parts") if config.batch.layer_parts else (config.mesh.tp, "tp")
        wrong = [*misfits(model, *cut), *expert_misfits(model, config.mesh.ep, config.mesh.etp)]
        wrong += context_misfits(model, config.mesh.cp, config.context.kind, config.mesh.tp)
        problems += [InputError(each) for each in wrong]
    plan = tried(lambda: plan_of(config, shape.products(window), shape.tied, ranks))
    if plan is not None:
        what, do = group_fault(config.sharding.group, plan.replicas, plan.parts)
        problems += [InputError(f"sharding.group: {what}", do=do)] if what else []
    if problems:
        told = [problem.do for problem in problems if problem.do]
        raise InputError(
            "; ".join(problem.message for problem in problems),
            likely=problems[0].likely,
            do="; ".join(dict.fromkeys(told)),
        )
    return TrainingSetup(shape, window, model, data, plan)


def plan_of(config: Config, products: list[float], tied: bool, ranks: int) -> TrainingPlan:
    """The plan of a step of a network, from the operations of its layers' matrix products. Raises `InputError`."""
    costs = [product + 0.01 * max(products) for product in products]  # looking up takes a little, too
    schedule, chunks = config.pipeline.schedule, config.pipeline.chunks
    if schedule is None:
        # Gradients and parameters come and go by stages: without a pipeline each layer is one.
        by_layers = config.sharding.stage > 1 and config.mesh.pp == 1 and ranks > config.mesh.tp
        schedule, chunks = ("looped_bfs", len(costs)) if by_layers and chunks is None else ("1f1b", chunks)
    return training_plan(
        ranks,
        len(costs),
        batch=config.batch.size,
        dp=config.mesh.dp,
        pp=config.mesh.pp,
        cp=config.mesh.cp,
        tp=config.mesh.tp,
        ep=config.mesh.ep,
        etp=config.mesh.etp,
        microbatches=config.batch.microbatches or (1 if config.batch.parts else _microbatches(config, ranks)),
        parts=config.batch.parts,
        layer_parts=config.batch.layer_parts,
        schedule=schedule,
        chunks=chunks,
        costs=costs,
        tied=tied,
        paired=config.pipeline.paired,
    )


def _microbatches(config: Config, ranks: int) -> int:
    """Where the run file does not say: 1 without a pipeline; else at most 4 a rank, a multiple of the ranks if that
    divides the samples of a replica, as interleaved schedules want it.
    """
    pp = config.mesh.pp
    share = config.batch.size // (config.mesh.dp or max(1, ranks // (pp * config.mesh.cp * config.mesh.tp)))
    if pp == 1 or not share:
        return 1
    fitting = [parts for parts in range(1, min(share, 4 * pp) + 1) if share % parts == 0]
    return max([parts for parts in fitting if parts % pp == 0] or fitting)


def _small_vocabulary(shape: Shape, data: DataSet) -> InputError:
    return InputError(
        f"the checkpoint has a vocabulary of {shape.vocab}, and the data one of {data.classes}",
        likely="another tokenizer than the checkpoint's",
        do="set data.tokenizer to the tokenizer.json of the checkpoint",
    )
