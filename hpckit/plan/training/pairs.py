"""Whether two microbatches in pairs make a step quicker: by the prices of its plan with pairs, and without.

What pairs gain or lose is the same again with every few microbatches and with every stage, so a short pipeline with
the same blocks a stage is priced, and as few replicas as exchange tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hpckit.plan.machine.machine import Machine
from hpckit.plan.pipeline.program import OVERLAPPED
from hpckit.plan.price import price
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.step import TrainingStep, reached
from hpckit.plan.training.strategy import Strategy

STAGES = 4  # ranks of the short pipeline
MOST = 8  # microbatches for each of them


def may_pair(it: Strategy) -> bool:
    """Whether ranks have messages to experts, and a schedule that takes passes in pairs."""
    return it.pp > 1 and it.ep * it.etp > 1 and it.schedule in OVERLAPPED and it.microbatches >= it.pp


def pairs_pay(model: LanguageModel, it: Strategy, machine: Machine) -> bool:
    """Whether a step is at least as quick with pairs as without, also where there are none."""
    if not may_pair(it):
        return True
    short, brief = _short(model, it)
    each = [replace(brief, paired=flag) for flag in (True, False)]
    seconds = [price(TrainingStep(short, one, machine, it.together), reached(machine)).seconds for one in each]
    return seconds[0] <= seconds[1]


def _short(model: LanguageModel, it: Strategy) -> tuple[LanguageModel, Strategy]:
    """A pipeline of fewer ranks, with the same blocks a stage, and as many microbatches for each of them."""
    pp = min(it.pp, STAGES)
    layers = math.ceil(model.layers / (it.pp * it.chunks)) * pp * it.chunks
    assert model.experts is not None
    experts = replace(model.experts, first=round(model.experts.first * layers / model.layers))
    microbatches = min(max(math.ceil(it.microbatches * pp / it.pp), 2 * pp - 1), MOST * pp)
    batch = microbatches * it.dp * it.microbatch
    return replace(model, layers=layers, experts=experts), replace(it, pp=pp, batch=batch)
