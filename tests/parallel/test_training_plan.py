"""Plans of a training step: what does not fit is refused, all at once, and without MPI."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hpckit as hp
from hpckit.errors import InputError

GOOD = {"ranks": 4, "layers": 6, "batch": 16, "pp": 2, "microbatches": 4}


def refused(**changed):
    with pytest.raises(InputError) as caught:
        hp.plan.training_plan(**{**GOOD, **changed})
    return caught.value.message, caught.value.do


def test_a_plan_says_who_has_which_layers():
    plan = hp.plan.training_plan(4, 7, dp=2, pp=2, batch=16, microbatches=4, schedule="zb_v", tied=True)
    assert (plan.dp, plan.pp, plan.microbatches) == (2, 2, 4)
    assert [plan.stages_of(rank) for rank in (0, 1)] == [[0, 3], [1, 2]]
    assert plan.partition.starts == (0, 2, 4, 6, 7)
    assert plan.program.tied
    assert plan.program.reduced
    assert [cut.stop - cut.start for cut in plan.cuts(8)] == [2, 2, 2, 2]
    assert [cut.stop - cut.start for cut in plan.cuts(3)] == [1, 1, 1, 0]
    assert "layers of the stages: 0-1, 2-3, 4-5, 6-6" in str(plan)


def test_what_the_ranks_leave_are_replicas():
    assert hp.plan.training_plan(6, 3, pp=3, batch=12, microbatches=2).dp == 2
    assert hp.plan.training_plan(1, 1, batch=5).dp == 1


def test_costs_move_layers():
    plan = hp.plan.training_plan(2, 4, pp=2, batch=4, costs=[9.0, 1.0, 1.0, 1.0])
    assert plan.partition.starts == (0, 1, 4)


@pytest.mark.parametrize(
    ("changed", "says", "do"),
    [
        ({"dp": 3}, "dp=3 x pp=2 is 6 ranks, and there are 4", "dp=4 pp=1, dp=2 pp=2, dp=1 pp=4, or start 6 ranks"),
        ({"pp": 3}, "dp=1 x pp=3 is 3 ranks", "dp=2 pp=2"),
        ({"layers": 1}, "1 layers cannot be cut into pp=2 stages", "1 to 1"),
        ({"schedule": "zb_v", "layers": 3}, "3 layers cannot be cut into 2 stages on each of 2 ranks", "1 to 3"),
        ({"batch": 12}, "12 samples does not divide into 4 microbatches on each of 2", "microbatches=1, 2, 3, 6"),
        ({"batch": 15}, "15 samples does not divide", "batch of 8 or 16"),
        ({"schedule": "interleaved", "microbatches": 5, "batch": 20}, "multiple of 2 microbatches", "4 or 6"),
        ({"schedule": "zb_h3"}, "no schedule 'zb_h3'", "did you mean 'zb_h"),
        ({"schedule": "1f1b", "chunks": 2}, "takes no option chunks", "it has no options"),
        ({"costs": [1.0, 2.0]}, "2 costs for 6 layers", "one a layer"),
        ({"microbatches": 0}, "microbatches is 0", "1 or more"),
        ({"batch": 2.5}, "batch is a whole number", ""),
        ({"dp": -1}, "dp is -1", "0 to take"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(changed, says, do):
    message, advice = refused(**changed)
    assert says in message
    assert do in advice


def test_all_mistakes_are_told_at_once():
    message, _ = refused(dp=3, batch=15, layers=1)
    assert all(words in message for words in ("6 ranks", "15 samples", "1 layers"))


def test_a_table_with_a_hole_is_refused(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("0F0,0F1,,,0I0,0W0,0B1\n,1F0,1B0,1F1,1I1,1W1\n")
    plan = hp.plan.training_plan(2, 2, pp=2, batch=4, microbatches=2, schedule=str(table))
    assert plan.schedule.name == "mine.csv"
    message, do = refused(schedule=str(table))
    assert "microbatches: 2, not 4" in message
    assert "pp=2 and microbatches=2" in do
    table.write_text("0F0,0F1,,,0I0,0W0,0B1\n,1F0,1B0,,1I1,1W1\n")
    message, _ = refused(schedule=str(table), microbatches=2)
    assert "stage 1 never does F of microbatch 1" in message


def test_mistakes_are_found_before_mpi_is_touched():
    code = (
        "import sys, hpckit as hp\n"
        "try:\n"
        "    hp.plan.training_plan(4, 2, dp=3, pp=3, batch=7, microbatches=2)\n"
        "except hp.errors.InputError: print('mpi4py' in sys.modules)"
    )
    code = code.replace("import sys, hpckit as hp", "import sys, hpckit as hp, hpckit.errors")
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
