"""Faults planted in schedules, programs and tables: each is caught and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpckit.errors import InputError, PlanError
from hpckit.plan.pipeline.program import pipeline_program
from hpckit.plan.pipeline.schedule import Action
from hpckit.plan.pipeline.schedules import SCHEDULES, pipeline_schedule
from hpckit.plan.pipeline.table import read_schedule, write_schedule
from hpckit.plan.proving import prove


def changed(plan, rank, change):
    """A schedule or a program with the list of one rank changed."""
    lists = [list(actions) for actions in plan.actions]
    lists[rank] = change(lists[rank])
    return replace(plan, actions=tuple(map(tuple, lists)))


def moved(text, places):
    """Take the action `text` out of a list and put it in again so many places later."""

    def change(actions):
        at = [str(action) for action in actions].index(text)
        action = actions.pop(at)
        actions.insert(at + places, action)
        return actions

    return change


def without(text):
    return lambda actions: [action for action in actions if str(action) != text]


def instead(old, new):
    return lambda actions: [Action.parse(new) if str(action) == old else action for action in actions]


@pytest.mark.parametrize(
    ("name", "rank", "change", "said"),
    [
        ("zb_h1", 1, without("1W3"), "stage 1 never does W of microbatch 3"),
        ("zb_h1", 1, without("1I0"), "stage 1 never does I of microbatch 0"),
        ("1f1b", 2, without("2B4"), r"stage 2 never does B \(or I and W\) of microbatch 4"),
        ("1f1b", 0, without("0F4"), "stage 0 never does F of microbatch 4"),
        ("1f1b", 0, lambda actions: [*actions, Action(0, "F", 1)], "stage 0 does 0F1 2 times"),
        ("1f1b", 0, lambda actions: [*actions, Action(0, "W", 1)], "does B of microbatch 1 and its half W again"),
        ("1f1b", 0, instead("0F2", "1F2"), "rank 0 does 1F2, stage 1 is on rank 1"),
        ("1f1b", 0, instead("0F2", "3F2"), "rank 0 does 3F2, there are 3 stages"),
        ("1f1b", 0, instead("0F2", "0F6"), "rank 0 does 0F6, there are 6 microbatches"),
        ("1f1b", 0, instead("0F2", "0SEND_F2>1"), "which is not F, B, I or W"),
        ("1f1b", 1, instead("1B2", "1B2>0"), "rank 1 does 1B2>0, which is not F, B, I or W"),
        ("zb_h1", 1, moved("1W0", -1), "deadlock: rank 1 waits in 1W0 for 1I0, which comes later on the same rank"),
        ("gpipe", 2, moved("2B0", -1), "rank 1 waits in 1B0"),
        ("1f1b", 1, moved("1F5", 3), "deadlock: .*rank 2 waits in 2F5 for 1F5, which rank 1 has"),
    ],
)
def test_a_wrong_schedule_is_named(name, rank, change, said):
    good = pipeline_schedule(name, 3, 6)
    wrong = changed(good, rank, change)
    if said == "rank 1 waits in 1B0":  # the last stage may begin early: a different schedule, but a right one
        assert prove(wrong).messages == prove(good).messages
        return
    with pytest.raises(PlanError, match=said):
        prove(wrong)


@pytest.mark.parametrize(
    ("rank", "change", "said"),
    [
        (0, without("0SEND_F2>1"), "rank 0 never does 0SEND_F2>1"),
        (1, without("1RECV_F2<0"), "rank 1 never does 1RECV_F2<0"),
        (1, instead("1SEND_F2>2", "1SEND_F2>0"), "rank 1 never does 1SEND_F2>2; rank 1 does 1SEND_F2>0, which is no"),
        (0, lambda actions: [*actions, actions[1]], "rank 0 does 0SEND_F0>1 again"),
        (1, moved("1RECV_F1<0", -1), "message 0 from rank 0 to rank 1 is sent by 0SEND_F0>1 and taken by 1RECV_F1<0"),
        (1, moved("1RECV_I5<2", 3), "deadlock: rank 1 waits in 1I5 for 1RECV_I5<2, which comes later on the same rank"),
        (0, moved("0SEND_F5>1", -1), "deadlock: rank 0 waits in 0SEND_F5>1 for 0F5, which comes later"),
        (0, moved("0F1", -2), "rank 0 computes 0F1 as number 0, the schedule says 0F0"),
        (0, without("0F1"), "rank 0 computes 0F2 as number 1, the schedule says 0F1"),
        (0, without("0W5"), "rank 0 computes 17 actions, the schedule has 18"),
        (1, without("1REDUCE"), "rank 1 never does 1REDUCE"),
        (1, lambda actions: [*actions, Action(1, "REDUCE")], "rank 1 does 1REDUCE once too often"),
        (1, moved("1REDUCE", -1), "rank 1 waits in 1REDUCE for 1W5, which comes later on the same rank"),
        (2, without("2TIE"), "rank 2 never does 2TIE"),
        (2, moved("2RECV_T<0", 2), "deadlock: rank 2 waits in 2TIE for 2RECV_T<0, which comes later"),
        (0, moved("0REDUCE", -1), "rank 0 waits in 0REDUCE for 0TIE, which comes later"),
    ],
)
def test_a_wrong_program_is_named(rank, change, said):
    program = pipeline_program(pipeline_schedule("zb_h1", 3, 6), reduce=True, tied=True)
    wrong = changed(program, rank, change)
    with pytest.raises(PlanError, match=said):
        prove(wrong)


@pytest.mark.parametrize(
    ("rank", "change", "said"),
    [
        (2, instead("2B3>1", "2B3"), "rank 2 never does 2SEND_I3>1"),
        (1, instead("1B3>0", "1B3>2"), "rank 1 never does 1SEND_I3>0; rank 1 does 1SEND_I3>2, which is not a message"),
        (0, instead("0B3", "0B3>1"), "rank 0 does 0SEND_I3>1, which is not a message"),
        (2, lambda actions: [*actions, Action(2, "SEND_I", 3, 1)], "rank 2 does 2SEND_I3>1 again"),
        (1, moved("1RECV_I0<2", 8), "is sent by 2SEND_I0>1 and taken by 1RECV_I1<2"),
        (1, moved("1RECV_I5<2", 3), "waits in 1B5>0 for 1RECV_I5<2, which comes later on the same rank"),
    ],
)
def test_a_wrong_program_of_whole_backward_passes_is_named(rank, change, said):
    program = pipeline_program(pipeline_schedule("1f1b", 3, 6))
    prove(program)
    with pytest.raises(PlanError, match=said):
        prove(changed(program, rank, change))


def test_only_the_first_faults_are_named():
    empty = changed(pipeline_schedule("gpipe", 2, 50), 1, lambda actions: [])
    with pytest.raises(PlanError, match=r"; and 42 more") as caught:
        prove(empty)
    assert "every microbatch 0 to 49 once" in caught.value.do


@pytest.mark.parametrize("name", SCHEDULES)
def test_tables_are_read_as_they_were_written(name, tmp_path):
    schedule = pipeline_schedule(name, 3, 6)
    path = tmp_path / "gpipe.csv"
    write_schedule(schedule, path)
    read = read_schedule(path)
    assert (read.actions, read.rank_of, read.microbatches) == (schedule.actions, schedule.rank_of, 6)
    assert read.name == "gpipe.csv"  # no name of a schedule: no closed form is promised


def test_a_table_may_mix_and_wait(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("# rank 0\n0F0, 0F1,,,0I0,0W0,0B1\n\n,1F0,1B0,1F1,1I1,1W1\n")
    read = read_schedule(path)
    assert (read.ranks, read.microbatches, prove(read).messages) == (2, 2, 4)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", PlanError, r"stage 0 never does B \(or I and W\) of microbatch 1"),
        ("0F0,0F2,0B0,0B2\n", PlanError, "stage 0 never does F, B .or I and W. of microbatch 1"),
        ("0F0,0B0\n2F0,2B0\n", PlanError, "no action of stage 1"),
        ("0F0,0B0\n1F0,1B0,0W0\n", PlanError, "rank 1 does 0W0, stage 0 is on rank 0"),
        ("0B0,0F0\n", PlanError, "waits in 0B0 for 0F0, which comes later"),
        ("", InputError, "it is empty"),
        ("0F99999\n", InputError, "the schedule table is wrong"),
        ("0F0,B0,0Q1\n0X\n", InputError, "the schedule table is wrong"),
        ("0F0,0SEND_F0>1\n", InputError, "the schedule table is wrong"),
        ("0F0\n0B0>1\n", InputError, "the schedule table is wrong"),
        ("0F0\n" * 10_002, InputError, "the schedule table is wrong"),
        ("1,2,3\n" * 100, InputError, "the schedule table is wrong"),
    ],
    ids=range(12),
)
def test_a_table_with_a_hole_is_refused(text, error, said, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(error, match=said) as caught:
        read_schedule(path)
    assert caught.value.where == str(path)
    assert "own.csv" not in caught.value.message  # once is enough
    if "0Q1" in text:
        for part in ("line 1, cell 2: 'B0'", "line 1, cell 3: '0Q1'", "line 2, cell 1: '0X'"):
            assert part in caught.value.do
    if text.count("\n") >= 100:
        assert caught.value.do.endswith(("line 10002: more than 10000 ranks", "is not an action; and more"))


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_schedule(tmp_path / "none.csv")
    (tmp_path / "picture.csv").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_schedule(tmp_path / "picture.csv")
    with pytest.raises(InputError, match="cannot be written"):
        write_schedule(pipeline_schedule("gpipe", 1, 1), tmp_path / "no" / "such.csv")
