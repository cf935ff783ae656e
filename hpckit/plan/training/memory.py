"""Memory of a rank in training: parameters, gradients, optimizer, activations.

Activations are counted tensor by tensor, and for a GPT come out as the closed formulas of Korthikanti et al. 2022
(arXiv:2205.05198, table 2): s b h (34 + 5 a s / h) bytes a block, 10 + 24 / t + 5 a s / (h t) under tensor parallelism.
"""

from __future__ import annotations

import math

from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.strategy import Strategy

LOGITS = 3 * 4  # bytes of a logit: itself, its softmax and its gradient in float32, for one microbatch


def held_parameters(model: LanguageModel, it: Strategy) -> tuple[float, float]:
    """Parameters of the fullest rank: those that dp x cp ranks share, and those of its experts.

    It is the first rank of a pipeline, with the embedding; if there is no other, it has the head too.
    """
    share, tp = 1 / it.pp, it.tp
    ends = model.embedding + (0 if model.tied or it.pp > 1 else model.vocab * model.width)
    dense = model.dense_layers * model.dense
    if model.experts is None:
        return dense * share / tp + ends / tp, 0.0
    with_experts = (model.layers - model.dense_layers) * share
    experts = model.experts.count * (2 + model.gated) * model.width * model.experts.hidden / (it.ep * it.etp)
    return dense * share / tp + ends / tp + with_experts * model.common / tp, with_experts * experts


def block_bytes(model: LanguageModel, it: Strategy, recompute: str | None = None, experts: bool = False) -> float:
    """Bytes that a block keeps of a microbatch for its backward pass, on one rank.

    recompute: by default the strategy's. experts: of a block with experts.
    """
    recompute, n, t, item = recompute or it.recompute, it.tokens, it.tp, it.item
    between = n * model.width / (t if it.sequence else 1)  # tensors that are whole between the matrices
    if recompute == "full":
        return item * between
    drop = int(model.dropout)
    light = it.flash and recompute == "selective"  # outputs of norms and activations come from their inputs again
    whole = between * ((2 if light else 4) * item + 2 * drop)  # inputs of both norms, of both first matrices; masks
    inner = model.heads * (model.head + model.value) + model.kv_heads * (model.head + model.value)
    hidden = model.hidden
    if experts and model.experts is not None:
        hidden = model.experts.hidden * (model.experts.active + model.experts.shared)
        # Each expert's own copy of its tokens: those of all ranks that hold parts of it.
        whole += between * item * model.experts.active * it.etp
    if model.latent is not None:
        whole += n * item * (model.latent.queries + model.latent.keys + model.latent.rotary)
    split = n * item * (inner + hidden * (2 + model.gated - light)) / t
    stored = 0.0
    if not it.flash and recompute == "none":
        stored = n * it.context * model.heads / t * (2 * item + drop)  # softmax, its dropped form, the mask
    elif it.flash:
        stored = n * model.heads / t * 4  # the log-sums of the scores
    return whole + split + stored


def in_flight(it: Strategy) -> float:
    """Microbatches that the first rank of a pipeline holds at once, in units of its whole share of the layers."""
    p, m, v = it.pp, it.microbatches, it.chunks
    most = {"gpipe": m, "interleaved": p + (p - 1) / v, "dualpipe_v": p + 0.5}.get(it.schedule, p)
    return min(most, m)


def memory(model: LanguageModel, it: Strategy) -> dict[str, float]:
    """Bytes of the fullest rank by kind: parameters, gradients, optimizer, activations, work.

    work: a block that is being recomputed, the logits, and with ZeRO 3 two blocks of gathered parameters.
    """
    shared, own = held_parameters(model, it)
    replicas, twins = it.dp * it.cp, it.twins
    stage, bytes_of = it.sharding, it.precision

    def held(each: int, least: int) -> float:
        return each * (shared / (replicas if stage >= least else 1) + own / (twins if stage >= least else 1))

    blocks = math.ceil(model.layers / (it.pp * it.chunks)) * it.chunks
    dense = min(model.dense_layers, blocks)
    each = [block_bytes(model, it), block_bytes(model, it, experts=True)]
    kept = (dense * each[0] + (blocks - dense) * each[1]) * in_flight(it)
    work = LOGITS * it.tokens * model.vocab / it.tp if it.pp == 1 else 0.0
    if it.recompute != "none":
        work += block_bytes(model, it, "none", model.experts is not None) - each[1 if model.experts else 0]
    if stage == 3:
        work += 2 * bytes_of.parameter * (shared + own) / max(blocks, 1)
    if stage >= 2:
        work += bytes_of.gradient * (shared + own) / max(blocks, 1)
    return {
        "parameters": held(bytes_of.parameter, 3),
        "gradients": held(bytes_of.gradient, 2),
        "optimizer": held(bytes_of.optimizer, 1),
        "activations": kept,
        "work": work,
    }
