"""A training step of all axes as one plan: proved, spoiled, priced beside the formulas, its bytes counted."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from conftest import by_day

from hpckit.errors import PlanError
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.machine.timeline import timeline
from hpckit.plan.pricing import price, priced_ranks
from hpckit.plan.protocol import AlikeUnits
from hpckit.plan.proving import prove
from hpckit.plan.training.cost import step_cost
from hpckit.plan.training.draw import draw_step
from hpckit.plan.training.model import language_model
from hpckit.plan.training.search import search
from hpckit.plan.training.step import TrainingStep, reached
from hpckit.plan.training.strategy import AXES, EXPERT_AXES, Strategy
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
    "cut experts": (EXPERTS, Strategy(16, 512, dp=4, pp=2, tp=2, ep=2, etp=2, schedule="zb_v", chunks=2, sharding=1)),
    "ulysses": (
        EXPERTS,
        Strategy(12, 512, dp=3, pp=2, cp=2, tp=2, ep=4, schedule="interleaved", chunks=2, context_by="ulysses"),
    ),
}


def slower(times):
    """The machine with all links so many times slower."""
    levels = (replace(each, bandwidth=each.bandwidth / times, uplink=each.uplink / times) for each in MACHINE.levels)
    return replace(MACHINE, levels=tuple(levels))


@pytest.mark.parametrize("name", SPLITS)
def test_a_step_is_proved_and_priced_as_the_formulas_say(name):
    model, it = SPLITS[name]
    plan = TrainingStep(model, it, MACHINE)
    prove(plan)
    seconds = price(plan, reached(MACHINE)).seconds
    cost = step_cost(model, replace(it, overlap=False), MACHINE)
    # Messages of a plan go once a chunk, not once a block, and its optimizer may hide behind the ring.
    assert seconds == pytest.approx(cost.seconds, rel=0.02 if it.dp * it.cp * it.tp == 1 else 0.15)


@pytest.mark.parametrize("name", by_day(SPLITS, *list(SPLITS)[:3]))
def test_the_price_of_alike_replicas_is_that_of_all_to_the_bit(name):
    model, it = SPLITS[name]

    class Whole(TrainingStep):
        def steps(self):
            return iter(super().steps())

    inner, *outer = MACHINE.levels
    for node, shared in ((8, 0.0), (4, 60e9)):  # replicas of 8 ranks are units of their own, or have two each
        machine = replace(MACHINE, levels=(replace(inner, ranks=node, uplink=shared), *outer))
        alike, whole = (price(plan(model, it, machine), reached(machine)) for plan in (TrainingStep, Whole))
        assert alike.seconds > 0
        for field in fields(alike):
            np.testing.assert_array_equal(getattr(alike, field.name), getattr(whole, field.name), err_msg=field.name)


def test_units_that_share_a_link_are_priced_together():
    steps = AlikeUnits(24, 2, lambda ranks: (), lambda: ())
    inner, *outer = MACHINE.levels

    def ranks(node, **more):
        return priced_ranks(steps, replace(MACHINE, levels=(replace(inner, ranks=node, **more), *outer)))

    assert ranks(8) == 2
    assert ranks(8, shared=1e12) == 8  # the bus of a node
    assert ranks(3) == 6  # a unit stands in two nodes
    assert ranks(7) == 24


@pytest.mark.parametrize("name", ["four axes", "five axes", "cut experts", "ulysses"])
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
    ("schedule", "ep", "tp", "part"),
    by_day([("dualpipe_v", 2, 1, 0.40), ("zb_v", 2, 1, 0.28), ("dualpipe_v", 4, 2, 0.10)], ("dualpipe_v", 2, 1, 0.40)),
)
def test_messages_of_experts_fly_while_the_other_microbatch_computes(schedule, ep, tp, part):
    slow = slower(20)
    it = Strategy(32, 512, dp=2, pp=4, tp=tp, ep=ep, schedule=schedule, chunks=2)

    class Hasty(TrainingStep):
        """A half is computed before what tp sent for the other action is there, or the action's own tokens."""

        def _swap(self, it, before):
            found = super()._swap(it, before)
            second = it.own > self.first_cell and before
            return super()._swap(replace(it, rank=it.rank[:0]), before) if second else found

    together, apart = (TrainingStep(EXPERTS, replace(it, paired=flag), slow) for flag in (True, False))
    prove(together)
    prove(apart)
    seconds = [price(each, reached(slow)).seconds for each in (together, apart)]
    messages = step_cost(EXPERTS, replace(it, schedule="1f1b", chunks=1), slow).parts["ep"]
    assert seconds[1] - seconds[0] > part * messages, (seconds, messages)
    with pytest.raises(PlanError):
        prove(Hasty(EXPERTS, it, slow))


@pytest.mark.nightly
@pytest.mark.parametrize(("network", "dp", "tp", "pays"), [(5, 2, 1, True), (1, 1, 4, False)])
def test_the_search_takes_microbatches_in_pairs_where_the_whole_plan_is_quicker_so(network, dp, tp, pays):
    machine, model = slower(network), replace(EXPERTS, layers=12)
    it = Strategy(12 * dp, 512, dp=dp, pp=6, tp=tp, ep=dp * tp, schedule="dualpipe_v", chunks=2)
    fixed = {name: getattr(it, name) for name in (*AXES, *EXPERT_AXES, "microbatch", "schedule", "sharding")}

    def found(**more):
        best = search(model, it.ranks, machine, it.batch, it.context, fixed | {"recompute": "none"} | more).best
        return best.strategy

    seconds = {
        flag: price(TrainingStep(model, found(paired=flag), machine), reached(machine)).seconds
        for flag in (True, False)
    }
    assert (seconds[True] < seconds[False]) == pays
    chosen = found()
    assert chosen == replace(it, paired=pays)
    assert (" apart" in str(chosen)) != pays


@pytest.mark.parametrize("name", ["four axes", "five axes", "cut experts", "ulysses"])
def test_bytes_are_those_of_the_formulas(name):
    model, it = SPLITS[name]
    plan = TrainingStep(model, it, MACHINE)
    sent = dict.fromkeys(("dp x cp", "pp", "cp", "tp", "ep", "etp"), 0.0)
    for step in plan.steps():
        if len(step.sends.peer):
            axes = np.array(step.texts())
            for axis in np.unique(axes):
                sent["dp x cp" if axis == "dp" else str(axis)] += float(step.sends.amount[axes == axis].sum())
    said = traffic(model, it, MACHINE)
    if "dp x cp" not in said:
        sent["dp"] = sent.pop("dp x cp")
    # The ends of the pipeline have no neighbor on one side; a fold has both on one rank.
    stages = it.pp * it.chunks
    sent["pp"] *= (
        stages / (stages - (it.pp if it.schedule in ("zb_v", "dualpipe_v") else 1)) * it.pp * it.chunks / stages
    )
    for axis, nbytes in sent.items():
        assert nbytes / plan.ranks == pytest.approx(said[axis].nbytes if axis in said else 0.0), axis


def test_a_step_is_drawn_on_one_time_axis():
    model, it = SPLITS["five axes"]
    picture = draw_step(TrainingStep(model, it, MACHINE, replicas=1), reached(MACHINE))
    for color in ("#d1495b", "#3b6fb6", "#8f5aa4"):
        assert picture.count(color) > 3


def test_a_drawing_of_some_ranks_asks_for_theirs_alone():
    model, it = SPLITS["five axes"]
    plan, machine = TrainingStep(model, it, MACHINE, replicas=1), reached(MACHINE)
    shown = np.array([3, 6])
    every = [event for event in timeline(plan, machine, itemsize=1) if event.sender in shown]
    assert list(timeline(plan, machine, itemsize=1, shown=shown)) == every
    assert {event.text for event in every if not event.work} == {"tp", "cp", "ep", "pp"}
