"""Collective plans: every algorithm proved for many rank counts, closed forms of rounds and bytes, planted faults."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import by_day

from hpckit.errors import InputError, PlanError
from hpckit.plan.collective.algorithms import ALGORITHMS, add_algorithm, collective_plan
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.protocol import Step, transposed
from hpckit.plan.proving import prove

NAMES = [(operation, algorithm) for operation, builders in ALGORITHMS.items() for algorithm in builders]


def variants(operation, algorithm, ranks):
    """Option sets worth proving."""
    takes = ALGORITHMS[operation][algorithm][1]
    sets = [{}]
    if "segments" in takes:
        sets.append({"segments": 3})
    if "root" in takes:
        sets = [{**options, "root": root} for options in sets for root in {0, ranks // 2, ranks - 1}]
    if "node_size" in takes:
        sets = [{"node_size": size} for size in (1, 2, 3, 40)]
    if "servers" in takes:
        sets = [{"servers": servers} for servers in {1, min(2, ranks), ranks}]
    return sets


@pytest.mark.parametrize("most", by_day([7, 17], 7))
@pytest.mark.parametrize(("operation", "algorithm"), NAMES)
def test_every_algorithm_does_what_its_operation_promises(operation, algorithm, most):
    for ranks in (each for each in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17) if each <= most):
        for options in variants(operation, algorithm, ranks):
            assert prove(collective_plan(operation, algorithm, ranks, **options)).ranks == ranks


@pytest.mark.parametrize("algorithm", by_day(ALGORITHMS["all_reduce"], "ring", "hierarchical"))
def test_a_thousand_ranks(algorithm):
    options = {"node_size": 64} if algorithm == "hierarchical" else {}
    assert prove(collective_plan("all_reduce", algorithm, 1024, **options)).ranks == 1024


def test_torus_shapes():
    for shape in ((3, 5), (5, 3), (1, 15), (15, 1)):
        prove(collective_plan("all_reduce", "torus", 15, shape=shape))
    with pytest.raises(InputError, match="4 x 4 does not hold 15") as caught:
        collective_plan("all_reduce", "torus", 15, shape=(4, 4))
    assert "3 x 5" in caught.value.do


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 16])
def test_closed_forms(ranks):
    """Rounds and elements a rank sends: Thakur, Rabenseifner and Gropp 2005, table of costs."""
    n, log = 7 * ranks * 16, (ranks - 1).bit_length()
    ring = collective_plan("all_reduce", "ring", ranks)
    assert ring.rounds() == 2 * (ranks - 1)
    assert (ring.sent(n) == 2 * (ranks - 1) * n // ranks).all()
    tree = collective_plan("all_reduce", "tree", ranks)
    assert tree.rounds() == 2 * log
    assert tree.sent(n).sum() == 2 * (ranks - 1) * n
    naive = collective_plan("all_reduce", "naive", ranks)
    assert naive.rounds() == 2 * (ranks - 1)
    assert naive.sent(n)[0] == (ranks - 1) * n
    gather = collective_plan("all_gather", "doubling", ranks)
    assert gather.rounds() == log
    assert (gather.sent(n) == (ranks - 1) * n // ranks).all()
    exchange = collective_plan("all_to_all", "pairwise", ranks)
    assert exchange.rounds() == ranks - 1
    assert (exchange.sent(n) == (ranks - 1) * n // ranks).all()
    if ranks == 2**log:
        doubling = collective_plan("all_reduce", "recursive_doubling", ranks)
        assert (doubling.rounds(), set(doubling.sent(n))) == (log, {log * n})
        halving = collective_plan("all_reduce", "halving_doubling", ranks)
        assert (halving.rounds(), set(halving.sent(n))) == (2 * log, {2 * (ranks - 1) * n // ranks})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_fewer_elements_than_ranks(count):
    plan = collective_plan("all_reduce", "ring", 4)
    sizes = plan.sizes(count)
    assert sizes.sum() == count
    assert sizes.max() - sizes.min() <= 1
    assert plan.sent(count).sum() == 6 * count


def test_counts_of_the_callers():
    counts = [5, 0, 2, 11]
    for operation, algorithm in (("gather", "tree"), ("scatter", "naive"), ("all_gather", "ring")):
        plan = collective_plan(operation, algorithm, 4, counts=counts)
        prove(plan)
        assert list(plan.sizes(18)) == counts
    matrix = [[1, 2, 3], [4, 0, 6], [0, 8, 9]]
    plan = collective_plan("all_to_all", "pairwise", 3, counts=matrix)
    prove(plan)
    assert list(plan.sent(0)) == [5, 10, 8]
    with pytest.raises(InputError, match="3 x 3 whole numbers"):
        collective_plan("all_to_all", "pairwise", 3, counts=[1, 2, 3])


def fault(plan: CollectivePlan, number: int, change) -> CollectivePlan:
    """The plan with one step changed."""

    def step(i: int) -> Step:
        return change(plan.step(i)) if i == number else plan.step(i)

    return dataclasses.replace(plan, step=step)


def with_sends(step, **changes):
    return dataclasses.replace(step, sends=dataclasses.replace(step.sends, **changes))


def with_receives(step, **changes):
    return dataclasses.replace(step, receives=dataclasses.replace(step.receives, **changes))


def at(values, rank, value):
    changed = np.array(values)
    changed[rank] = value
    return changed


def test_planted_faults_are_named():
    plan = collective_plan("all_reduce", "ring", 5)

    def lose_a_receive(step):
        return with_receives(step, peer=at(step.receives.peer, 3, -1))

    def wrong_peer(step):
        return with_sends(step, peer=at(step.sends.peer, 2, 0))

    def nobody_there(step):
        return with_sends(step, peer=at(step.sends.peer, 2, 9))

    def longer(step):
        return with_sends(step, last=at(step.sends.last, 1, step.sends.last[1] + 1))

    def twice(step):
        return dataclasses.replace(step, add=True)

    def lost(step):
        return dataclasses.replace(step, add=False)

    def wrong_slot(step):
        return with_sends(step, first=at(step.sends.first, 0, 0), last=at(step.sends.last, 0, 1))

    def below(step):
        return with_sends(step, first=at(step.sends.first, 1, -1), last=at(step.sends.last, 1, 0))

    def beyond(step):
        return with_receives(step, first=at(step.receives.first, 1, 5), last=at(step.receives.last, 1, 6))

    def backward(step):
        return with_sends(step, last=at(step.sends.last, 1, step.sends.first[1] - 1))

    def in_memory(step):
        return dataclasses.replace(step, place="memory")

    for number, change, said in (
        (2, lose_a_receive, "step 2: rank 4 sends to rank 3, whose side of it is with nobody"),
        (1, wrong_peer, "step 1: rank 2 sends to rank 0, whose side of it is with rank 1"),
        (0, nobody_there, "step 0: rank 2 sends to rank 9, there are 5 ranks"),
        (3, longer, "step 3: rank 1 sends 2 cells from cell . on, rank 0 takes 1"),
        (6, twice, "rank . ends with .*slot"),
        (2, lost, "rank . ends with .*slot"),
        (0, wrong_slot, "step 0: rank 0 sends slot 0, and rank 4 stores it in slot ., of another size"),
        (0, below, "step 0: rank 1 sends the cells -1 to 0"),
        (4, beyond, "step 4: rank 1 receives the cells 5 to 6"),
        (4, backward, "step 4: rank 1 sends the cells"),
        (5, in_memory, "step 5: rank 0 sends to rank . in shared memory"),
    ):
        with pytest.raises(PlanError, match=said):
            prove(fault(plan, number, change))


def test_a_range_wider_than_the_buffer_is_refused_where_it_may_wrap():
    plan = collective_plan("all_gather", "doubling", 5)
    for width in (6, 20):
        with pytest.raises(PlanError, match="step 2: rank 3 sends the cells"):
            prove(fault(plan, 2, lambda s, n=width: with_sends(s, last=at(s.sends.last, 3, s.sends.first[3] + n))))
    with pytest.raises(PlanError, match="step 1: rank 0 sends the cells 4 to 6, and has the cells 0 to 5"):
        prove(fault(plan, 1, lambda step: dataclasses.replace(step, wraps=False)))


@pytest.mark.parametrize(("operation", "algorithm"), NAMES)
def test_a_plan_of_messages_run_backward_does_the_reverse(operation, algorithm):
    """All-gather and reduce-scatter, broadcast and reduce, scatter and gather, all-to-all and its own reverse."""
    if (operation, algorithm) == ("all_reduce", "recursive_doubling"):
        with pytest.raises(PlanError, match="stores into slot 0 while it sends it"):
            prove(transposed(collective_plan(operation, algorithm, 4)))
        return
    for ranks in (1, 2, 5, 8):
        options = {"node_size": 2} if algorithm == "hierarchical" else {}
        plan = transposed(collective_plan(operation, algorithm, ranks, **options))
        assert prove(plan).ranks == ranks
        assert prove(transposed(plan)).ranks == ranks


def test_a_segmented_plan_may_not_send_what_is_still_on_its_way():
    plan = collective_plan("all_reduce", "ring", 4, segments=2)
    with pytest.raises(PlanError, match="which step 0 completed; the plan allows what is 4 steps old"):
        prove(dataclasses.replace(plan, lag=4))


def test_a_store_into_what_leaves_is_refused():
    plan = collective_plan("all_reduce", "recursive_doubling", 4)
    with pytest.raises(PlanError, match=r"step 1: rank \d stores into slot 0 while it sends it"):
        prove(fault(plan, 1, lambda step: dataclasses.replace(step, add=False)))


def test_names_and_numbers_that_cannot_be():
    for arguments, options, said, do in (
        (("all_reduc", "ring", 4), {}, "no operation 'all_reduc'", "did you mean 'all_reduce'"),
        (("all_reduce", "rnig", 4), {}, "no algorithm of all_reduce 'rnig'", "did you mean 'ring'"),
        (("all_reduce", "ring", 0), {}, "on 0 ranks", "1 rank or more"),
        (("all_reduce", "ring", 4), {"root": 1}, "takes no option root", "segments"),
        (("broadcast", "tree", 4), {"root": 4}, "one of the 4", "0 to 3"),
        (("all_reduce", "ring", 4), {"segments": 0}, "1 segment or more", ""),
        (("all_reduce", "ring", 4), {"segments": "3"}, "segments is a whole number, not '3'", ""),
        (("all_reduce", "hierarchical", 4), {}, "needs the ranks of a node", "node_size"),
        (("all_reduce", "nodes", 4), {}, "needs the ranks of a node", "node_size"),
        (("all_reduce", "parameter_server", 4), {"servers": 5}, "5 parameter servers on 4", "1 to 4"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            collective_plan(*arguments, **options)
        assert do in caught.value.do
    with pytest.raises(InputError, match="int is not a plan"):
        prove(42)


@pytest.mark.nightly
def test_the_program_of_the_docs_runs():
    text = (Path(__file__).parents[2] / "docs" / "collectives.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"<!-- program: collectives -->\n```python\n(.*?)```", text, re.S)
    exec(program, {})


def test_the_docs_name_every_algorithm():
    text = (Path(__file__).parents[2] / "docs" / "collectives.md").read_text(encoding="utf-8")
    for operation, algorithm in NAMES:
        assert f"`{operation}`" in text
        assert f"`{algorithm}`" in text


def test_an_algorithm_of_ones_own_is_proved_when_it_is_made(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "all_reduce", dict(ALGORITHMS["all_reduce"]))

    def mine(ranks, segments=1):
        return collective_plan("all_reduce", "ring", ranks, segments=segments)

    add_algorithm("all_reduce", mine, ["segments"])
    assert prove(collective_plan("all_reduce", "mine", 7, segments=2)).ranks == 7
    add_algorithm("all_reduce", lambda ranks: dataclasses.replace(mine(ranks), length=ranks), name="short")
    with pytest.raises(PlanError):
        collective_plan("all_reduce", "short", 7)
    add_algorithm("all_reduce", lambda ranks: collective_plan("broadcast", "tree", ranks), name="other")
    with pytest.raises(InputError, match="broadcast"):
        collective_plan("all_reduce", "other", 7)
    for operation, name in (("all_reduce", "ring"), ("all_reduce", "auto"), ("sum", "mine")):
        with pytest.raises(InputError):
            add_algorithm(operation, mine, name=name)
    with pytest.raises(InputError, match="not 3"):
        add_algorithm("all_reduce", 3)
    with pytest.raises(InputError, match="no name"):
        add_algorithm("all_reduce", functools.partial(mine, 2))
