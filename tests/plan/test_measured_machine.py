"""Machines made from measured times: one that times were made with is found again; files, and what is wrong in them."""

from __future__ import annotations

import math

import pytest

from hpckit.bench.calibrate import EMPTY, SIZES, STARTS, all_reduce_cases, judged, model, predictions, probe_cases
from hpckit.bench.probes import LONG, PROBES, STEPS, at_once, probe_plan, share
from hpckit.errors import InputError
from hpckit.plan.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.machine import Level, Machine, Measured, machine_of, toml_of
from hpckit.plan.price import price


def true_machine():
    """Rates that fall with the size of the buffer and with the number of messages."""
    tables = []
    for ranks, most in ((2, 2), (4, 4)):
        for messages in sorted({1, ranks // 2, most}):
            sizes = tuple(float(n) for n in SIZES)
            stored = tuple(8e9 / messages**0.7 / (1 + math.log2(n / SIZES[0]) / 8) for n in sizes)
            added = tuple(0.6 * rate for rate in stored)
            tables.append(Measured(ranks, messages, 40e-6, (3 + messages) * 1e-6, sizes, stored, added))
    return Machine("true", (Level("node", 0, 1e-6, 8e9),), 0.0, 5e9, "made up", tuple(tables))


def options_of(name, ranks):
    return {"node_size": ranks} if name == "hierarchical" else {}


def times_on(machine, ranks):
    """Seconds of all cases as the machine would take them; a bare probe starts sooner than a whole call."""
    found = {}
    for operation, name, nbytes in [*probe_cases(ranks), *all_reduce_cases()]:
        whole = operation == "all_reduce"
        plan = collective_plan(operation, name, ranks, **options_of(name, ranks)) if whole else probe_plan(name, ranks)
        size = 0 if nbytes == EMPTY else nbytes
        found[operation, name, nbytes] = price(plan, machine, size).seconds - (0 if whole else 30e-6)
    return found


@pytest.mark.parametrize("probe", PROBES)
def test_probes_are_chains_of_so_many_messages(probe):
    for ranks in (2, 4):
        for name in (probe, probe + "+", probe + LONG):
            plan = probe_plan(name, ranks)
            assert plan.length == STEPS * (3 if name.endswith(LONG) else 1)
            for before, step in zip([None, *plan.steps()], plan.steps(), strict=False):
                assert (step.send_to >= 0).sum() == at_once(probe, ranks)
                assert step.reduce == ("+" in name)
                if before is not None:  # every sender took something in the step before
                    assert (before.recv_from[step.send_to >= 0] >= 0).all()
            assert share(name) == 1 / plan.slots


def test_a_machine_is_found_again_from_the_times_of_its_steps():
    true = true_machine()
    times = {ranks: times_on(true, ranks) for ranks in (2, 4)}
    found = model(times, "found", "here")
    for ours, given in zip(found.measured, true.measured, strict=True):
        assert (ours.ranks, ours.messages) == (given.ranks, given.messages)
        assert ours.start == pytest.approx(given.start, rel=1e-6)
        assert ours.latency == pytest.approx(given.latency, rel=1e-6)
        assert ours.stored == pytest.approx(given.stored, rel=1e-3)
        assert ours.added == pytest.approx(given.added, rel=1e-3)
    for ranks in (2, 4):
        options = {case: options_of(case[1], ranks) for case in times[ranks]}
        rows = predictions(found, ranks, times[ranks], options)
        assert len(rows) == len(SIZES) * len(ALGORITHMS["all_reduce"])
        verdict = judged(rows)
        assert verdict["worst"] < 1.01
        assert verdict["within"] == verdict["ordered"] == 1.0
    rows[0]["predicted_over_measured"] = 0.5
    assert judged(rows)["worst"] == 2.0
    assert judged(rows)["within"] < 1


def test_steps_between_and_beyond_what_was_measured():
    machine = true_machine()
    two, four = machine.measured[1], machine.measured[-1]
    assert machine.step(2, 2, SIZES[0]) == pytest.approx((two.latency, 1 / two.stored[0], 1 / two.added[0]))
    assert machine.step(3, 2, SIZES[0]) == machine.step(2, 2, SIZES[0])  # the nearest from below
    assert machine.step(8, 8, SIZES[-1])[1] == pytest.approx(2 / four.stored[-1])  # they share
    between = machine.step(4, 3, math.sqrt(SIZES[0] * SIZES[1]))[1]
    assert 1 / machine.measured[3].stored[0] < between < 1 / four.stored[1]


def test_cores_that_add_do_not_copy_meanwhile():
    """A segmented ring on such a machine takes as long as a whole one, up to its latencies."""
    true = true_machine()
    whole, cut = (price(collective_plan("all_reduce", "ring", 2, segments=k), true, 2**26).seconds for k in (1, 16))
    assert cut == pytest.approx(whole, rel=0.02)


def test_files_there_and_back(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(toml_of(true_machine()))
    again = machine_of(path)
    assert (again.name, again.source, len(again.measured)) == ("true", "made up", 5)
    plan = collective_plan("all_reduce", "ring", 4)
    assert price(plan, again, 1e6).seconds == pytest.approx(price(plan, true_machine(), 1e6).seconds, rel=1e-5)
    shipped = machine_of("infiniband")
    path.write_text(toml_of(shipped))
    assert machine_of(path) == shipped
    path.write_text(toml_of(true_machine()).replace("messages = 2", "messages = 0").replace("start =", "begin ="))
    with pytest.raises(InputError) as caught:
        machine_of(path)
    for said in ("measured 1: unknown begin", "measured 1: start (s)", "measured 2: messages is a whole number"):
        assert said in caught.value.do
    text = toml_of(true_machine())
    first = text.index("bytes = [") + len("bytes = [")
    path.write_text(text[:first] + "7e9, " + text[first:])
    with pytest.raises(InputError) as caught:
        machine_of(path)
    assert "measured 1: bytes ascend" in caught.value.do


def test_a_node_as_large_as_the_job_is_priced():
    """The ring between the leaders of one node has no step."""
    plan = collective_plan("all_reduce", "hierarchical", 4, node_size=4)
    flat = Machine("flat", (Level("all", 0, 2e-6, 5e9),), 1e-6, 10e9)
    assert price(plan, flat, 1e6).seconds == price(collective_plan("all_reduce", "tree", 4), flat, 1e6).seconds


def test_what_a_call_costs_is_asked_of_algorithms_that_are_there():
    assert set(STARTS) <= set(ALGORITHMS["all_reduce"])
