"""What the axes of a mesh send: bytes that a rank sends in a step, by the same formulas as the times."""

from __future__ import annotations

import math
from typing import NamedTuple

from hpckit.plan.machine.machine import Machine
from hpckit.plan.training.block import folded_line
from hpckit.plan.training.context import KINDS
from hpckit.plan.training.links import line
from hpckit.plan.training.memory import held_parameters
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.strategy import Strategy


class AxisTraffic(NamedTuple):
    """An axis: its ranks, how many of them share a node, what it sends, and bytes that a rank sends in a step."""

    ranks: int
    inner: int
    what: str
    nbytes: float


def traffic(model: LanguageModel, it: Strategy, machine: Machine) -> dict[str, AxisTraffic]:
    """The axes of more than one rank."""
    n, m, t, item = it.tokens, it.microbatches, it.tp, it.item
    blocks = math.ceil(model.layers / (it.pp * it.chunks)) * it.chunks
    dense = round(blocks * model.dense_layers / model.layers)
    passes = 3 if it.recompute == "full" else 2
    found: dict[str, AxisTraffic] = {}

    def part(size: int) -> float:
        return (size - 1) / size

    if t > 1:
        ways = 4 * dense
        if model.experts is not None:
            ways += (4 if model.experts.shared else 2) * (blocks - dense)
        what = "activations, gathered and scattered" if it.sequence else "activations, summed"
        found["tp"] = AxisTraffic(
            t, line(machine, t, 1).inner, what, m * passes * ways * part(t) * item * n * model.width
        )
    if it.cp > 1:
        keys = item * n * max(model.kv_heads / t, 1) * (model.head + model.value)
        queries = item * n * model.heads / t * (model.head + model.value)
        one = {"ring": (it.cp - 1) * keys, "gather": (it.cp - 1) * keys, "ulysses": part(it.cp) * (keys + queries)}
        times = passes if it.context_by == "ulysses" else passes + 1
        here = line(machine, it.cp, t)
        found["cp"] = AxisTraffic(it.cp, here.inner, KINDS[it.context_by], m * blocks * times * one[it.context_by])
    if model.experts is not None:
        rows = m * (blocks - dense) * passes * 2 * item * n / t * model.experts.active * model.width
        if it.ep > 1:
            inner = folded_line(it, machine, it.ep, it.etp).inner
            found["ep"] = AxisTraffic(it.ep, inner, "tokens to experts and back", part(it.ep) * rows)
        if it.etp > 1:
            inner = folded_line(it, machine, it.etp, 1).inner
            found["etp"] = AxisTraffic(
                it.etp, inner, "tokens of experts, gathered, and sums scattered", (it.etp - 1) * rows
            )
    if it.pp > 1:
        here = line(machine, it.pp, t * it.cp)
        sent = m * 2 * it.chunks * item * n * model.width / t
        found["pp"] = AxisTraffic(it.pp, here.inner, "activations and their gradients", sent)
    replicas = it.dp * it.cp
    if replicas > 1:
        shared, own = held_parameters(model, it)
        one_copy = part(replicas) * shared + part(it.twins) * own
        gradient, value = it.precision.sent, it.precision.parameter
        often = {0: 2 * gradient, 1: gradient + value, 2: gradient * m + value, 3: (gradient + 2 * value) * m}
        name = "dp x cp" if it.cp > 1 and it.dp > 1 else "dp" if it.dp > 1 else "cp (gradients)"
        here = folded_line(it, machine, replicas, t)
        what = "gradients" if it.sharding == 0 else "gradients and parameters"
        found[name] = AxisTraffic(replicas, here.inner, what, often[it.sharding] * one_copy)
    return found
