"""A training step of all axes as one plan: proved, spoiled, priced beside the formulas, its bytes counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpckit.errors import PlanError
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.price import price
from hpckit.plan.prove import prove
from hpckit.plan.training.cost import step_cost
from hpckit.plan.training.draw import draw_step
from hpckit.plan.training.model import language_model
from hpckit.plan.training.step import TrainingStep, reached
from hpckit.plan.training.strategy import Strategy
from hpckit.plan.training.traffic import traffic

MACHINE = machine_of("llama3")
DENSE = replace(language_model("llama3-8b"), layers=8)
EXPERTS = replace(language_model("mixtral-8x7b"), layers=8)
SPLITS = {
    "one rank": (DENSE, Strategy(4, 512)),
    "pp": (DENSE, Strategy(7, 512, pp=3)),
    "tp": (DENSE, Strategy(3, 512, tp=4, recompute="full")),
    "dp": (DENSE, Strategy(6, 512, dp=3, sharding=1)),
    "cp": (DENSE, Strategy(2, 512, cp=4, context_by="ring")),
    "four axes": (DENSE, Strategy(16, 512, dp=2, pp=2, cp=2, tp=2, schedule="zb_v", chunks=2)),
    "five axes": (
        EXPERTS,
        Strategy(16, 512, dp=2, pp=2, cp=2, tp=2, ep=4, schedule="dualpipe_v", chunks=2, sharding=1),
    ),
    "ulysses": (
        EXPERTS,
        Strategy(12, 512, dp=3, pp=2, cp=2, tp=2, ep=4, schedule="interleaved", chunks=2, context_by="ulysses"),
    ),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_step_is_proved_and_priced_as_the_formulas_say(name):
    model, it = SPLITS[name]
    plan = TrainingStep(model, it, MACHINE)
    prove(plan)
    seconds = price(plan, reached(MACHINE)).seconds
    cost = step_cost(model, replace(it, overlap=False), MACHINE)
    # Messages of a plan go once a chunk, not once a block, and its optimizer may hide behind the ring.
    assert seconds == pytest.approx(cost.seconds, rel=0.02 if it.dp * it.cp * it.tp == 1 else 0.15)


def test_one_replica_takes_as_long_as_all():
    model, it = SPLITS["four axes"]
    whole, one = TrainingStep(model, it, MACHINE), TrainingStep(model, replace(it, overlap=False), MACHINE, replicas=1)
    prove(one)
    assert one.ranks == whole.ranks // it.dp
    seconds = [price(plan, reached(MACHINE)).seconds for plan in (one, whole)]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.15)  # the optimizer of all may hide behind their ring


@pytest.mark.parametrize("name", ["four axes", "five axes", "ulysses"])
def test_a_message_from_a_wrong_rank_or_of_a_wrong_time_is_found(name):
    model, it = SPLITS[name]

    class Spoiled(TrainingStep):
        where, how = 0, ""

        def steps(self):
            for number, step in enumerate(super().steps()):
                if number == self.where and len(step.sends.peer):
                    sends, receives = step.sends, step.receives
                    if self.how == "lost":
                        keep = np.arange(len(sends.peer)) != 1
                        sends = replace(
                            sends,
                            **{k: getattr(sends, k)[keep] for k in ("peer", "first", "last", "rank", "amount")},
                        )
                        step = replace(step, sends=sends)
                    else:
                        first = receives.first.copy()
                        first[:2] = first[:2][::-1] if first[0] != first[1] else first[:2] + 1
                        step = replace(step, receives=replace(receives, first=first, last=first + 1))
                yield step

    plan = TrainingStep(model, it, MACHINE)
    numbers = [n for n, step in enumerate(plan.steps()) if len(step.sends.peer)]
    for where in (numbers[0], numbers[len(numbers) // 2], numbers[-1]):
        for how in ("lost", "elsewhere"):
            spoiled = Spoiled(model, it, MACHINE)
            object.__setattr__(spoiled, "where", where)
            object.__setattr__(spoiled, "how", how)
            with pytest.raises(PlanError):
                prove(spoiled)


@pytest.mark.parametrize(
    ("schedule", "ep", "tp", "part"), [("dualpipe_v", 2, 1, 0.55), ("zb_v", 2, 1, 0.14), ("dualpipe_v", 4, 2, 0.18)]
)
def test_messages_of_experts_fly_while_the_other_microbatch_computes(schedule, ep, tp, part):
    levels = (replace(each, bandwidth=each.bandwidth / 20, uplink=each.uplink / 20) for each in MACHINE.levels)
    slow = replace(MACHINE, levels=tuple(levels))
    it = Strategy(32, 512, dp=2, pp=4, tp=tp, ep=ep, schedule=schedule, chunks=2)

    class Apart(TrainingStep):
        def _firsts(self, actions):
            return set()

    class Hasty(TrainingStep):
        """A half is computed before what tp sent for the other action is there, or the action's own tokens."""

        def _swap(self, it, before):
            found = super()._swap(it, before)
            second = it.own > self.first_cell and before
            return super()._swap(replace(it, rank=it.rank[:0]), before) if second else found

    together, apart = TrainingStep(EXPERTS, it, slow), Apart(EXPERTS, it, slow)
    prove(together)
    seconds = [price(each, reached(slow)).seconds for each in (together, apart)]
    messages = step_cost(EXPERTS, replace(it, schedule="1f1b", chunks=1), slow).parts["ep"]
    assert seconds[1] - seconds[0] > part * messages, (seconds, messages)
    with pytest.raises(PlanError):
        prove(Hasty(EXPERTS, it, slow))


def test_bytes_are_those_of_the_formulas():
    model, it = SPLITS["four axes"]
    plan = TrainingStep(model, it, MACHINE)
    shape = (it.dp, it.pp, it.cp, it.tp)
    sent = dict.fromkeys(("dp", "pp", "cp", "tp"), 0.0)
    for step in plan.steps():
        if not len(step.sends.peer):
            continue
        a, b = np.unravel_index(step.sends.rank, shape), np.unravel_index(step.sends.peer, shape)
        apart = np.array(a) != np.array(b)
        ring = step.sends.first[0] >= plan.cells - 3
        for number, axis in enumerate(sent):
            mine = apart[number] if not ring else np.ones(len(step.sends.peer), bool) & (axis == "dp")
            if not (ring and axis != "dp"):
                sent[axis] += float(step.sends.amount[mine].sum()) / plan.ranks
    said = traffic(model, it, MACHINE)
    assert sent["tp"] == pytest.approx(said["tp"].nbytes)
    assert sent["cp"] == pytest.approx(said["cp"].nbytes)
    assert sent["dp"] == pytest.approx(said["dp x cp"].nbytes)
    # The ends of the pipeline, both on rank 0 here, have no neighbor on one side.
    assert sent["pp"] == pytest.approx(said["pp"].nbytes / 2)


def test_a_step_is_drawn_on_one_time_axis():
    model, it = SPLITS["five axes"]
    picture = draw_step(TrainingStep(model, it, MACHINE, replicas=1), reached(MACHINE))
    for color in ("#d1495b", "#3b6fb6", "#8f5aa4"):
        assert picture.count(color) > 3
