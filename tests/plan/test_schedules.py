"""Pipeline schedules: proved for many sizes, bubbles and memory by their closed forms, messages, tables, drawings."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from collections import deque
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpckit as hp
from hpckit.errors import InputError, PlanError
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.pipeline.draw import draw_schedule, draw_schedule_svg
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.program import OVERLAPPED, overlaps, pipeline_program, rounds_together, together
from hpckit.plan.pipeline.schedule import COMPUTE, Action
from hpckit.plan.pipeline.schedules import SCHEDULES, closed_form, pipeline_schedule, schedule_name
from hpckit.plan.pipeline.times import StageTimes
from hpckit.plan.pricing import price
from hpckit.plan.proving import prove

NAMES = tuple(SCHEDULES)
SIZES = settings(max_examples=15, deadline=None, derandomize=True)
FEW_SIZES = settings(SIZES, max_examples=5)
p_of, m_of, v_of = st.integers(1, 9), st.integers(1, 21), st.integers(2, 4)


def built(name, p, m, v):
    """A schedule, with the next larger number of microbatches where its own must be a multiple."""
    options = {"chunks": v + (v % 2 if name == "zb_wave" else 0)} if "chunks" in SCHEDULES[name][1] else {}
    return pipeline_schedule(name, p, -(-m // p) * p if name == "interleaved" else m, **options)


@pytest.mark.parametrize("name", NAMES)
@FEW_SIZES
@given(p=st.integers(1, 6), m=st.integers(1, 11), v=v_of)
def test_every_schedule_is_proved_and_its_program_too(name, p, m, v):
    proved(name, p, m, v)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
@SIZES
@given(p=p_of, m=m_of, v=v_of)
def test_every_larger_schedule_is_proved_and_its_program_too(name, p, m, v):
    proved(name, p, m, v)


def proved(name, p, m, v):
    schedule = built(name, p, m, v)
    proof, program = prove(schedule), pipeline_program(schedule)
    crossings = sum(a != b for a, b in zip(schedule.rank_of, schedule.rank_of[1:], strict=False))
    assert proof.messages == 2 * crossings * schedule.microbatches
    units = [2 if action.kind == "B" else 1 for actions in schedule.actions for action in actions]
    assert sum(units) == 3 * schedule.stages * schedule.microbatches
    assert max(program.posted()) <= (schedule.microbatches if name == "looped_bfs" else p + v)
    assert prove(program).messages == proof.messages
    tied = pipeline_program(schedule, reduce=True, tied=schedule.stages > 1)
    crossed = 2 * (schedule.stages > 1 and schedule.rank_of[0] != schedule.rank_of[-1])
    assert prove(tied).messages == proof.messages + crossed


@pytest.mark.parametrize("name", NAMES)
@SIZES
@given(p=p_of, m=m_of, v=v_of)
def test_bubbles_are_the_closed_forms_exactly(name, p, m, v):
    """Stated here once more, from the papers: `closed_form` is checked by the same simulation."""
    schedule = built(name, p, m, v)
    if name in ("interleaved_zb", "zb_wave"):  # found by the clock
        assert closed_form(schedule) is None
        assert price_schedule(schedule).bubble <= price_schedule(pipeline_schedule("zb_h1", p, m)).bubble + 1e-12
        assert max(schedule.live()) <= schedule.chunks * (2 * p + 1)
        return
    m, it = schedule.microbatches, price_schedule(schedule)
    work = {
        "interleaved": v * m,
        "looped_bfs": v * m,
        "zb_h1": 3 * m,
        "zb_h2": 3 * m,
        "zb_v": 6 * m,
        "dualpipe_v": 6 * m,
    }.get(name, m)
    least = {
        "interleaved": p,
        "looped_bfs": p,
        "zb_h1": p,
        "zb_h2": 2 * p - 1,
        "zb_v": 2 * p - 1,
        "dualpipe_v": 2 * p,
    }.get(name, 1)
    bubble = (p - 1) / (work + p - 1)
    if m < least:
        assert closed_form(schedule) is None
        assert it.bubble >= bubble
        return
    assert it.bubble == bubble
    assert it.open_bubble == (0.0 if name in ("zb_h2", "zb_v") else bubble)
    assert closed_form(schedule) == (it.bubble, it.open_bubble)


@SIZES
@given(p=p_of, m=m_of, f=st.integers(1, 9), b=st.integers(1, 9))
def test_the_bubble_of_whole_backward_passes_does_not_depend_on_their_times(p, m, f, b):
    for name in ("gpipe", "1f1b", "interleaved"):
        schedule = built(name, p, m, 3)
        it = price_schedule(schedule, times=StageTimes(f, b, 0))
        assert it.bubble == closed_form(schedule)[0]


@SIZES
@given(p=p_of, m=m_of, v=v_of)
def test_memory(p, m, v):
    assert pipeline_schedule("gpipe", p, m).live() == [m] * p
    assert pipeline_schedule("1f1b", p, m).live() == [min(p - rank, m) for rank in range(p)]
    assert max(pipeline_schedule("zb_h1", p, m).live()) == min(p, m)
    assert max(pipeline_schedule("zb_h2", p, m).live()) == min(2 * p - 1, m)
    assert max(pipeline_schedule("zb_v", p, m).live()) == min(2 * p, 2 * m)
    # Every rank of these holds as much: the last ones keep what W needs.
    assert pipeline_schedule("zb_h1", p, m + p).live() == [p] * p
    assert pipeline_schedule("zb_h2", p, m + 2 * p).live() == [2 * p - 1] * p
    assert pipeline_schedule("looped_bfs", p, m, chunks=v).live() == [v * m] * p
    # Narayanan et al. 2021, section 2.2: at most 1 + (p - 1) / (p v) of the v p stages that 1F1B holds.
    wide = built("interleaved", p, max(m, 2 * p), v).live()
    assert max(wide) == v * p + p - 1


def test_the_table_of_1f1b():
    """Narayanan et al. 2019, figure 8, and the same in the text of the schedule."""
    schedule = pipeline_schedule("1f1b", 3, 4)
    assert str(schedule).splitlines() == [
        "1f1b: 3 ranks, 4 microbatches",
        "rank 0: 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "rank 1: 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "rank 2: 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


def test_the_program_of_a_small_step():
    program = pipeline_program(pipeline_schedule("zb_h1", 2, 2), reduce=True, tied=True)
    assert str(program).splitlines()[1:] == [
        "rank 0: 0F0 0SEND_F0>1 0F1 0SEND_F1>1 0RECV_I0<1 0I0 0RECV_I1<1 0W0 0I1 0W1 0RECV_T<1 0SEND_T>1 0TIE 0REDUCE",
        "rank 1: 1RECV_F0<0 1RECV_F1<0 1F0 1I0 1SEND_I0>0 1F1 1I1 1SEND_I1>0 1W0 1W1 1RECV_T<0 1SEND_T>0 1TIE 1REDUCE",
    ]
    # B sends from within, before its last W.
    assert str(pipeline_program(pipeline_schedule("1f1b", 2, 2))).splitlines()[1:] == [
        "rank 0: 0F0 0SEND_F0>1 0F1 0SEND_F1>1 0RECV_I0<1 0RECV_I1<1 0B0 0B1",
        "rank 1: 1RECV_F0<0 1RECV_F1<0 1F0 1B0>0 1F1 1B1>0",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_receives_are_posted_before_their_senders_begin_and_sums_start_behind_messages(name):
    """Posted behind an action during which the sender begins, a receive could be late by all of that action."""
    schedule = built(name, 3, 6, 2)
    when = {(it.action.stage, it.action.kind, it.action.microbatch): it for it in price_schedule(schedule).intervals}
    for actions in pipeline_program(schedule, reduce=True).actions:
        ended = 0.0
        for before, action in pairwise((None, *actions)):
            stage, kind, number, _ = action
            if kind in COMPUTE:
                ended = when[stage, kind, number].end
            elif kind.startswith("RECV"):
                source = (stage - 1, "F") if kind == "RECV_F" else (stage + 1, "I")
                if (*source, number) not in when:
                    source = (stage + 1, "B")
                assert ended <= when[(*source, number)].begin
            elif kind.startswith("SEND"):
                assert before.kind != "REDUCE"


def test_the_folded_schedule_keeps_what_one_rank_passes_to_itself():
    program = pipeline_program(pipeline_schedule("zb_v", 3, 5), reduce=True, tied=True)
    said = str(program)
    assert "2SEND_F" not in said  # stages 2 and 3 are both on rank 2
    assert "3RECV_F" not in said
    assert "SEND_T" not in said  # stages 0 and 5 are both on rank 0
    assert said.splitlines()[1].endswith("0TIE 0REDUCE 5TIE 5REDUCE")


def test_actions_and_their_text_are_inverse():
    for text in ("2F0", "0B13", "7I1", "0W2", "2SEND_F0>3", "3RECV_I10<2", "0TIE", "5REDUCE", "0SEND_T>3", "1B2>0"):
        assert str(Action.parse(text)) == text
    assert Action.parse(" 12W3 ") == Action(12, "W", 3)
    for text in ("", "F0", "0F", "0X1", "0F1>2", "0TIE3", "0SEND_F1", "-1F0", "0F1 0F2", "00F1"):
        with pytest.raises(InputError, match="not an action"):
            Action.parse(text)


def test_messages_cost_what_the_machine_says():
    """2 ranks, 1 microbatch: F, message, F, B, message, B, all one after the other."""
    machine = Machine("flat", (Level("all", 0, 3e-3, 1e9),), 1e-3, 1e9)
    it = hp.plan.price_schedule(pipeline_schedule("gpipe", 2, 1), machine, 2e6, StageTimes(10e-3, 7e-3, 5e-3))
    message = 1e-3 + 2e6 / 1e9 + 3e-3 + 1e-3
    assert it.seconds == pytest.approx(2 * 10e-3 + 2 * 12e-3 + 2 * message, rel=1e-12)
    assert (it.messages, it.sent) == (2, (2e6, 2e6))
    # A link takes one message at a time: 3 of 40 ms each leave rank 0, whose F take 10 ms.
    it = hp.plan.price_schedule(pipeline_schedule("gpipe", 2, 3), machine, 40e6, StageTimes(10e-3, 0, 0))
    begins = [i.begin for i in it.intervals if i.action.kind == "F" and i.rank == 1]
    assert begins[1] - begins[0] == pytest.approx(40e-3)
    assert begins[2] - begins[1] == pytest.approx(40e-3)


def test_the_level_of_the_machine_is_that_of_the_stride():
    levels = (Level("node", 8, 0.0, 1e12), Level("net", 0, 0.0, 1e6))
    machine, schedule = Machine("two", levels, 0.0, 1e9), pipeline_schedule("1f1b", 4, 8)
    near, far = (hp.plan.price_schedule(schedule, machine, 1e6, stride=stride).seconds for stride in (1, 8))
    assert near == pytest.approx(33, rel=1e-3)
    assert far > near + 3 * 2 * 1.0 * 0.99


@pytest.mark.parametrize("name", NAMES)
def test_the_price_of_any_plan_is_that_of_a_schedule(name):
    """`price` runs clocks over steps and knows no schedule; `price_schedule` walks through the actions."""
    schedule = pipeline_schedule(name, 4, 8)
    whole = price_schedule(schedule)
    for plan in (schedule, pipeline_program(schedule)):
        assert (price(plan).seconds, price(plan).bubble) == (whole.seconds, pytest.approx(whole.bubble, rel=1e-12))
    timed = dataclasses.replace(pipeline_program(schedule), seconds=StageTimes(2, 2, 2).table(schedule))
    assert price(timed).seconds == 2 * whole.seconds
    if name in ("zb_v", "dualpipe_v"):  # messages of both directions share a link there, in another order
        return
    machine = Machine("flat", (Level("all", 0, 0.1, 1e9),), 0.0, 1e9)
    assert price(schedule, machine, 1e8).seconds == pytest.approx(price_schedule(schedule, machine, 1e8).seconds)


def test_w_does_not_wait_for_the_message_of_its_i():
    machine = Machine("slow", (Level("all", 0, 100.0, 1e9),), 0.0, 1e9)
    it = price_schedule(pipeline_schedule("zb_h1", 2, 1), machine)
    begin = {str(i.action): i.begin for i in it.intervals}
    assert begin["1W0"] == begin["1I0"] + 1
    assert begin["0I0"] == begin["1I0"] + 1 + 100


@pytest.mark.parametrize("name", OVERLAPPED)
@SIZES
@given(p=st.integers(1, 7), m=st.integers(1, 12))
def test_computations_are_taken_together_where_no_rank_waits_for_ever(name, p, m):
    program = pipeline_program(pipeline_schedule(name, p, m), reduce=True, tied=True)
    pairs = [list(together(actions)) for actions in program.actions]
    for each in pairs:
        assert all(it.forward.microbatch != it.backward.microbatch for it in each)
        assert all(one.end <= other.place for one, other in pairwise(each))
    if overlaps(program.schedule):
        made = sum(len(step.work.rank) for step in rounds_together(program, {}))
        assert made == sum(len(step.work.rank) for step in program.steps())
    elif m > 1:  # with fewer microbatches than ranks they would
        with pytest.raises(PlanError):
            deque(rounds_together(program, {}), maxlen=0)


def test_stages_of_different_times():
    schedule = pipeline_schedule("1f1b", 3, 100)
    it = price_schedule(schedule, times=StageTimes([1, 3, 1], [1, 3, 1], [1, 3, 1]))
    assert it.busy == (300, 900, 300)
    assert (
        it.seconds == 1 + 900 + 2
    )  # the slowest stage never waits between the first F and the last B of the first one
    with pytest.raises(InputError, match="2 times of W for 3 stages"):
        price_schedule(schedule, times=StageTimes(1, 1, [1, 1]))
    with pytest.raises(InputError, match="the time of I is -1"):
        StageTimes(1, [1, -1], 1)


def test_text_drawings():
    lines = draw_schedule(pipeline_schedule("zb_h1", 2, 2)).splitlines()
    assert lines == [
        "zb_h1: 2 ranks, 2 microbatches; bubble 14.29 %",
        "rank 0  F0 F1 ...I0 W0 I1 W1",
        "rank 1  ...F0 I0 F1 I1 W0 W1",
    ]
    assert "rank 1  ...1F0 " in draw_schedule(pipeline_schedule("interleaved", 2, 2)).replace("....", "...")
    short = draw_schedule(pipeline_schedule("zb_h1", 2, 2), wide=14).splitlines()
    assert short[1:] == ["rank 0  F0F1..I0W0I1W1", "rank 1  ..F0I0F1I1W0W1"]
    narrow = draw_schedule(pipeline_schedule("1f1b", 4, 60)).splitlines()[4]
    assert re.fullmatch(r"rank 3  \.+F(BBF)+BB\.+", narrow)


def test_svg_drawings_hold_every_action_once():
    for name in NAMES:
        schedule = pipeline_schedule(name, 3, 6)
        root = ElementTree.fromstring(draw_schedule_svg(schedule))
        said = [element.text.split(":")[0] for element in root.iter() if element.tag.endswith("title")]
        assert sorted(said) == sorted(str(action) for actions in schedule.actions for action in actions)
        assert ("later stages" in draw_schedule_svg(schedule)) == (schedule.chunks > 1)
    crowded = ElementTree.fromstring(
        draw_schedule_svg(pipeline_schedule("zb_v", 4, 16))
    )  # numbers of two digits are smaller
    numbers = [element.text for element in crowded.iter() if element.get("text-anchor") == "middle"]
    assert sorted(map(int, numbers)) == sorted([*range(16)] * 8 * 3)
    with pytest.raises(InputError, match="too large to draw"):
        draw_schedule(pipeline_schedule("gpipe", 65, 1))
    with pytest.raises(InputError, match="int is not a plan"):
        hp.plan.draw_svg(3)
    with pytest.raises(InputError, match="int is not a plan"):
        hp.price(3)


def test_names_and_numbers_that_cannot_be():
    for given_, said, do in (
        (("zb_h3", 4, 8), "no schedule 'zb_h3'", "zb_h"),
        (("1f1b", 0, 8), "pipeline of 0 stages", "1 stage or more"),
        (("1f1b", 4, 0), "step of 0 microbatches", "1 microbatch or more"),
        (("1f1b", 2.5, 8), "whole number, not 2.5", ""),
        (("interleaved", 4, 6), "multiple of 4 microbatches, not 6", "take 4 or 8"),
        (("interleaved", 4, 3), "multiple of 4 microbatches, not 3", "take 4 microbatches"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            pipeline_schedule(*given_)
        assert do in caught.value.do
    with pytest.raises(InputError, match="takes no option chunks"):
        pipeline_schedule("gpipe", 2, 2, chunks=2)
    with pytest.raises(InputError, match="2 chunks a rank or more, not 1"):
        pipeline_schedule("interleaved", 2, 2, chunks=1)
    with pytest.raises(InputError, match="1 chunk or more, not 0"):
        pipeline_schedule("looped_bfs", 2, 2, chunks=0)
    with pytest.raises(InputError, match="nothing to tie"):
        pipeline_program(pipeline_schedule("gpipe", 1, 2), tied=True)
    assert [schedule_name(n) for n in ("ZB-H1", "zbv", "OneFOneB", "Interleaved1F1B")] == [
        "zb_h1", "zb_v", "1f1b", "interleaved",
    ]  # fmt: skip


def test_the_program_of_the_docs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"<!-- program: pipelines -->\n```python\n(.*?)```", text, re.S)
    exec(program, {})
    for name in NAMES:
        assert f"`{name}`" in text
