"""Memory of each rank of a pipeline: estimated before a run, measured after it."""

from __future__ import annotations

import resource
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import TrainingSetup
from hpckit.apps.train.shape import SIDE, Shape
from hpckit.apps.train.trainer import Trainer
from hpckit.comm.agree import all_of_ranks
from hpckit.kernels.nn.memory import owned_bytes
from hpckit.nn.cuts import local_sizes

VECTORS = {"adamw": 2, "sgd": 1}  # of the optimizer, each as long as the parameters


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


def memory_of(trainer: Trainer) -> dict[str, Any]:
    """Bytes on every rank, in their order: parameters, gradients and optimizer (with the master values of mixed
    precision) as allocated, of what a node holds once
    this rank's part; activations as weighed in a step, and as foreseen; work arrays of all kinds; and the most that
    the process had resident. Collective.
    """
    state = sum(array.nbytes for array in trainer.optimizer.state().values() if array.ndim)
    foreseen = memory_per_rank(trainer.config, trainer.laid)["activations"][trainer.mesh["pp"].rank]
    held = trainer.pipeline.shards.memory()
    own = {
        "parameters": held["parameters"],
        "gradients": held["gradients"],
        "optimizer": state + held["masters"],
        "activations": trainer.weighed,
        "activations_foreseen": foreseen,
        "work": owned_bytes(),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    every = all_of_ranks(trainer.mesh.comm, np.array([*own.values()], np.float64))
    return {name: every[:, column].tolist() for column, name in enumerate(own)}
