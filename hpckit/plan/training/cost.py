"""The time of a training step by closed formulas: what a search compares, and what `prices` of its plan confirm."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpckit.plan.machine.machine import Machine
from hpckit.plan.training.block import BlockTimes, Kernels, block_times, folded_line
from hpckit.plan.training.links import compute_of, line
from hpckit.plan.training.memory import held_parameters
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.strategy import SINGLE, Strategy

# Bytes that a step of Adam in mixed precision moves a parameter: the gradient to float32 (6), unscaled (8), its norm
# (4), clipped (8), value, moments and gradient read, three of them written (28), the value in half precision (6).
OPTIMIZER = 60
OPTIMIZER_SINGLE = 44  # all in float32: the gradient zeroed (4), its norm (4), clipped (8), Adam (28)

Blocks = tuple[BlockTimes | None, BlockTimes | None]  # without experts, with them


@dataclass(frozen=True)
class StepCost:
    """Seconds of a training step on its slowest rank, by what it waits for.

    parts: compute, head (what the last stage has more), tp, cp, ep, etp, pp, bubble, dp, optimizer. block: of the
    blocks of a rank, one microbatch. hidden: messages that computations hide. flops: of the model, a step.
    """

    parts: dict[str, float]
    block: BlockTimes
    hidden: dict[str, float]
    flops: float
    tokens: int
    ranks: int
    peak: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return sum(self.parts.values())

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: the FLOPs of the model, nothing recomputed, over what the ranks could do."""
        return self.flops / (self.ranks * self.peak * self.seconds)

    @property
    def rate(self) -> float:
        """Model FLOP/s of a rank."""
        return self.flops / self.ranks / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks."""
        return self.tokens / self.seconds


def share(model: LanguageModel, it: Strategy, machine: Machine, each: Blocks | None = None) -> BlockTimes:
    """The blocks of the fullest rank for one microbatch, all its chunks. each: of `blocks_of`, where they are known."""
    dense, with_experts = each or blocks_of(model, it, machine)
    count = math.ceil(model.layers / (it.pp * it.chunks)) * it.chunks
    plain = min(model.dense_layers, round(count * model.dense_layers / model.layers))
    found = dense.times(plain) if dense and plain else BlockTimes()
    return found.plus(with_experts.times(count - plain)) if with_experts and count > plain else found


def blocks_of(model: LanguageModel, it: Strategy, machine: Machine) -> Blocks:
    """The times of a block without experts, and of one with them: however many a rank has."""
    dense = block_times(model, it, machine) if model.dense_layers else None
    return dense, block_times(model, it, machine, experts=True) if model.experts is not None else None


def step_cost(model: LanguageModel, it: Strategy, machine: Machine, block: BlockTimes | None = None) -> StepCost:
    """The cost of a step that fits (`strategy.require`). block: `share`, where it is known already."""
    block = block or share(model, it, machine)
    kernels, n, m, p, v = Kernels(machine, it.item), it.tokens, it.microbatches, it.pp, it.chunks
    spare = math.ceil(model.layers / (p * v)) * p * v - model.layers
    blocks = math.ceil(model.layers / (p * v)) * v
    head = _head(model, it, kernels)
    # The head's stage has a block less, where one is to spare.
    if p > 1:
        head = max(head - (block.seconds / blocks if spare else 0.0), 0.0)
    send = 0.0
    if p > 1:
        # The ranks of tp send a part each; where each has all tokens, the receivers gather the parts.
        nbytes = kernels.item * n * model.width / it.tp
        send = line(machine, p, it.tp * it.cp).message(nbytes)
        if not it.sequence:
            send += line(machine, it.tp, 1).gather(nbytes * it.tp)
        send *= 2 * v
    chunk = 1 / v
    bubble = {
        "gpipe": (p - 1) * (block.seconds + send),
        "1f1b": (p - 1) * (block.seconds + send),
        "interleaved": (p - 1) * (block.seconds + send) * chunk,
        "zb_h1": (p - 1) * (max(block.seconds - 2 * block.weights, 0.0) + send),
        "zb_v": (p - 1) * (block.ahead * chunk + send * chunk),
        "dualpipe_v": (p - 1) * (max(2 * block.seconds - block.ahead - 3 * block.weights, 0.0) * chunk + send * chunk),
    }[it.schedule]
    sent = dict(block.messages)
    hidden = {"cp": m * block.hidden}
    # The messages of one microbatch fly while the other computes half of its pass; what tp sends, for which both wait,
    # is in their way (`TrainingStep`, by whose prices of Mixtral and DeepSeek-V3 this was chosen).
    if it.paired and it.schedule == "dualpipe_v" and it.ep * it.etp > 1 and it.tp == 1:
        flying = sum(value for axis, value in sent.items() if axis != "tp")
        part = min(block.computing / 2 / flying, 1.0) if flying else 0.0
        for axis in [axis for axis in sent if axis != "tp"]:
            hidden[axis] = hidden.get(axis, 0.0) + m * part * sent[axis]
            sent[axis] *= 1 - part
    dp, behind = _data(model, it, machine, block)
    hidden["dp"] = behind
    parts = {
        "compute": m * block.computing,
        "head": m * head,
        **{axis: m * value for axis, value in sent.items()},
        "pp": m * send,
        "bubble": bubble,
        "dp": dp,
        "optimizer": _optimizer(model, it, kernels),
    }
    tokens = it.batch * it.context
    flops = tokens * model.flops(it.context, causal=it.flash)
    return StepCost(parts, block, hidden, flops, tokens, it.ranks, compute_of(machine).peak)


def _head(model: LanguageModel, it: Strategy, kernels: Kernels) -> float:
    """Head and loss, forward and backward, for one microbatch: three products, passes over the logits."""
    n, columns = it.tokens, model.vocab / it.tp
    products = kernels.product(n, model.width, columns) + kernels.product(n, columns, model.width)
    weight = kernels.product(model.width, n, columns, written=it.precision.gradient)
    return products + weight + kernels.over(n * columns * (2 * kernels.item + 3 * 4))


def _data(model: LanguageModel, it: Strategy, machine: Machine, block: BlockTimes) -> tuple[float, float]:
    """Exposed and hidden seconds of the messages of data parallelism, over dp and cp.

    Stages 0 and 1 send gradients once a step, and values from stage 1 on; stage 2 gradients of every microbatch of a
    pipeline; stage 3 values of every microbatch, forward and backward. Those of a microbatch hide behind its
    computations but for the first block's; those of a step behind the backward pass of the last microbatch.
    """
    replicas = it.dp * it.cp
    shared, own = held_parameters(model, it)
    all_ranks = folded_line(it, machine, replicas, it.tp)
    apart = folded_line(it, machine, it.twins, it.ep * it.etp)

    buckets = math.ceil(model.layers / it.pp)  # messages of a block each

    def moved(each: int) -> float:
        rest = (buckets - 1) * (all_ranks.around + (apart.around if own else 0.0))
        return all_ranks.gather(each * shared) + (apart.gather(each * own) if own else 0.0) + rest

    if replicas == 1 and (apart.size == 1 or not own):
        return 0.0, 0.0
    gradients, values = moved(it.precision.sent), moved(it.precision.parameter)
    once, each = 0.0, 0.0
    visits = it.microbatches
    if it.sharding == 0:
        once = 2 * gradients
    elif it.sharding == 1:
        once = gradients + values
    elif it.sharding == 2:
        once, each = values, gradients * visits
    else:
        each = (gradients + 2 * values) * visits
    if not it.overlap:
        return once + each, 0.0
    parts = buckets if it.pp == 1 else it.chunks
    room = block.seconds * (1 - 1 / parts)
    exposed = max(once - room, once / parts)
    work = it.microbatches * block.computing
    exposed += max(each - work * 0.9, each / (visits * buckets)) if each else 0.0
    return exposed, once + each - exposed


def _optimizer(model: LanguageModel, it: Strategy, kernels: Kernels) -> float:
    shared, own = held_parameters(model, it)
    if it.sharding:
        shared /= it.dp * it.cp
        own /= it.twins
    return kernels.over((OPTIMIZER if it.item < SINGLE.parameter else OPTIMIZER_SINGLE) * (shared + own))
