"""The layout of a run on its ranks, derived and checked without MPI, and the cost of a run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpckit.apps.train.config import Config
from hpckit.apps.train.data import DataSet, read_data
from hpckit.apps.train.hugging_face import require_fit
from hpckit.apps.train.models import model_of
from hpckit.apps.train.shape import SIDE, Shape, read_shape, shape_of
from hpckit.errors import InputError, Mistakes
from hpckit.io.safetensors import Safetensors
from hpckit.nn.cuts import context_misfits, expert_misfits, local_sizes, misfits
from hpckit.nn.layer import Sequential
from hpckit.plan.pipeline.parts import group_fault
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.training import TrainingPlan, training_plan
from hpckit.run.context import DryRun

VECTORS = {"adamw": 2, "sgd": 1}  # of the optimizer, each as long as the parameters


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
    tried = Mistakes()
    context = known.context if known else config.model.context
    window = (config.batch.window or context) if config.model.is_language else 1
    if window > context:
        tried.found.append(InputError(f"batch.window is {window}", do=f"the checkpoint sees {context} tokens at once"))
    data = tried(lambda: read_data(config, window))
    shape = shape_of(config.model, data.classes if data else 2)
    if data is not None and shape.vocab < data.classes:
        tried.found.append(_small_vocabulary(shape, data))
    tokenizer = data.tokenizer if data else None
    if tokenizer is not None and config.sample.tokens and not len(tokenizer.encode(config.sample.prompt)):
        tried.found.append(
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
        tried.found += [InputError(each) for each in wrong]
    plan = tried(lambda: plan_of(config, shape.products(window), shape.tied, ranks))
    if plan is not None:
        what, do = group_fault(config.sharding.group, plan.replicas, plan.parts)
        tried.found += [InputError(f"sharding.group: {what}", do=do)] if what else []
    tried.tell()
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


def describe(laid: TrainingSetup) -> list[str]:
    """What is trained on what, in lines."""
    count = sum(parameter.size for parameter in laid.model.parameters())
    shape, plan = laid.shape, laid.plan
    net = {
        "gpt2": f"GPT-2 shaped network of {shape.layers} x {shape.width}, {shape.heads} heads",
        "llama": f"Llama shaped network of {shape.layers} x {shape.width}, {shape.heads} heads,"
        f" {shape.kv_heads} of keys and values" + f", {shape.top_k} of {shape.experts} experts" * (shape.experts > 0),
        "mlp": f"multilayer perceptron of {shape.layers} hidden layers of {shape.width}",
        "cnn": f"convolution network of {', '.join(map(str, shape.channels))} channels",
    }[shape.kind]
    each = f"samples of {laid.window} tokens" if shape.is_language else "images"
    return [
        f"{net}: {count} parameters",
        f"{laid.data.name}: {len(laid.data.training)} {each} to train on, {len(laid.data.validation)} for validation",
        str(plan),
    ]


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    laid = layout(config, ranks)
    plan, itemsize = laid.plan, np.dtype(config.precision if not config.storage else np.uint16).itemsize
    count = sum(parameter.size for parameter in laid.model.parameters())
    price = price_schedule(plan.schedule)
    per_step = config.batch.size * laid.window
    unit = "tokens" if laid.shape.is_language else "images"
    memory = memory_per_rank(config, laid)
    part = config.batch.size // (plan.dp * plan.microbatches)
    tokens = part * laid.window * laid.shape.width * itemsize // plan.cp if laid.shape.is_language else 0  # microbatch
    sent = price.messages // max(plan.pp, 1) * tokens / plan.tp if plan.pp > 1 else 0
    # Tokens are gathered twice in a block, and their sums scattered, forward and backward.
    blocks = plan.microbatches * laid.shape.layers / plan.pp
    sent += 8 * blocks * (plan.tp - 1) / plan.tp * tokens
    if plan.cp > 1:  # keys and values are gathered forward and backward, their gradients scattered
        sent += 3 * blocks * (plan.cp - 1) * tokens * 2 * laid.shape.kv_heads / laid.shape.heads
    largest = max(memory["parameters"]) * (plan.replicas if config.sharding.stage == 3 else 1) / itemsize
    back = itemsize if config.sharding.stage else config.gradient_bytes  # values of shards, or sums
    reduced = (plan.replicas - 1) / plan.replicas * largest * (config.gradient_bytes + back)
    notes = [
        f"{per_step} {unit} and {config.batch.size * laid.shape.training_flops(laid.window) / 1e9:.3g} GFLOP a step"
    ]
    if plan.pp > 1:
        notes.append(f"bubble {price.bubble:.2%} if F, I and W take equally long on all stages")
    for rank, (*held, activations) in enumerate(zip(*memory.values(), strict=True)):
        who = f"{'a rank of stage' if plan.tp > 1 else 'rank'} {rank} of a pipeline" if plan.pp > 1 else "a rank"
        notes.append(
            f"{who}: {sum(held) / 1e6:.3g} MB of parameters, gradients and optimizer,"
            f" about {activations / 1e6:.3g} MB of activations"
        )
    return DryRun(
        ranks=ranks,
        decomposition=describe(laid),
        halo_bytes=round(sent + reduced),
        moved="messages",
        memory_per_rank=round(max(map(sum, zip(*memory.values(), strict=True)))),
        output_bytes=count * itemsize,
        frames=1,
        steps=config.time.steps,
        notes=notes,
    )


def memory_per_rank(config: Config, laid: TrainingSetup) -> dict[str, list[float]]:
    """Bytes of parameters, gradients, optimizer and activations on each rank of a pipeline, as they can be foreseen.

    In mixed precision the master values count to the optimizer.

    With shards a rank has its part of what they hold, and gradients, beyond a node parameters too, of whole stages that
    come and go besides (not counted here: `Shards` has buffers for those that live at once).

    Activations are those that backward passes need, of as many microbatches as a rank holds at once, worked out from
    the shapes of the layers. What a schedule keeps for a late W besides, gradients of each layer's output and what
    recomputation brought back, is not foreseen.
    """
    plan, itemsize = laid.plan, np.dtype(config.arithmetic).itemsize
    short = 2 if config.storage else itemsize  # bytes of what mixed precision holds in 16 bits
    samples = config.batch.size // (plan.dp * plan.microbatches)
    window = -(-laid.window // plan.cp)  # tokens of a sample on the rank that has most
    kept = [samples * n * short for n in saved_numbers(laid.shape, window, plan.tp)]
    kept[-1] += samples * window * laid.shape.vocab * (itemsize - short) / plan.tp  # logits are float32
    live, sizes = plan.schedule.live(), local_sizes(laid.model, plan.tp, plan.layer_parts)
    experts = {p.name: p.experts for p in laid.model.parameters() if p.experts}
    for name, number in experts.items():  # on the rank that has most of them
        sizes[name] = sizes[name] // number * -(-number // plan.ep) // plan.etp
    found: dict[str, list[float]] = {"parameters": [], "gradients": [], "optimizer": [], "activations": []}
    for rank in range(plan.pp):
        stages = plan.stages_of(rank)
        numbers = [n for stage in stages for n in plan.partition.layers(stage)]
        held = {p.name: sizes[p.name] for n in numbers for p in laid.model.layers[n].parameters()}
        count, sharding = float(sum(held.values())), config.sharding.stage
        # Shards are over the replicas, of experts those that have the same ones.
        copies = plan.replicas * plan.tp // dealt if (dealt := plan.ep * plan.etp) > 1 else plan.replicas
        group = config.sharding.group or plan.replicas
        part = sum(n / (copies if name in experts else group) for name, n in held.items())
        vectors = VECTORS[config.optimizer.kind] + bool(config.storage)
        found["parameters"].append(short * (part if sharding == 3 else count))
        found["gradients"].append(itemsize * (part if sharding > 1 else count))
        found["optimizer"].append(vectors * itemsize * (part if sharding else count))
        if laid.shape.recompute == "whole":  # the input of each stage, and of the last one the logits
            first = [plan.partition.layers(stage)[0] for stage in stages]
            inputs = [laid.shape.width * window * short / plan.tp if n else 4.0 * window for n in first]
            held_inputs = samples * sum(inputs) / len(stages) * live[rank]
            ends = plan.schedule.stages - 1 in stages
            found["activations"].append(held_inputs + ends * samples * window * laid.shape.vocab * itemsize / plan.tp)
            continue
        found["activations"].append(live[rank] / len(stages) * sum(kept[n] for n in numbers))
    return found


def saved_numbers(shape: Shape, window: int, tp: int = 1) -> list[float]:
    """How many numbers each layer saves for the backward pass of one sample, the last one with the loss.

    A rank of a group of tp keeps its part of everything but the tokens that it gathered, two for a block, one for the
    head.
    """
    if shape.kind == "cnn":
        side, inputs, found = SIDE, 1, []
        for outputs in shape.channels:
            found.append(float(side * side * (inputs + outputs)))  # the image; the slope of ReLU
            side, inputs = side // 2, outputs
        return [*found, float(side * side * inputs + shape.vocab)]
    if shape.kind == "mlp":
        sizes = [SIDE * SIDE, *[shape.width] * shape.layers, shape.vocab]
        return [float(a + b) for a, b in pairwise(sizes)]  # what comes in; slopes, or the logits
    inner = (2 if shape.kind == "gpt2" else 3) * shape.hidden
    if shape.experts:  # tokens on their way to and from the experts, and the router's values
        inner = shape.top_k * (inner + 3 * shape.width) + 3 * shape.experts + 3 * shape.shared_expert
    keys = 2 * shape.width * shape.kv_heads // shape.heads
    block = shape.width / tp
    if shape.recompute != "blocks":
        block = 2 * shape.width + (4 * shape.width + keys + inner + shape.heads) / tp
    if shape.recompute == "attention":
        block -= (2 * shape.width + keys + shape.heads) / tp
    head = shape.width + (shape.width + shape.vocab) / tp
    return [window * n for n in (1.0, *[block] * shape.layers, head)]


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
