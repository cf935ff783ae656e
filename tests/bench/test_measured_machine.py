"""Machines made from measured times: one that times were made with is found again; files, and what is wrong in them."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest

from hpckit.bench.machine.calibrate import (
    EMPTY,
    PROBE_SIZES,
    SIZES,
    STARTS,
    STRIDED,
    all_reduce_cases,
    default_cases,
    judged,
    memory_cases,
    model,
    pairs,
    predictions,
    probe_cases,
)
from hpckit.bench.machine.times import HALO, LONG, PROBES, STEPS, CollectiveTimes, at_once, probe_plan, share
from hpckit.errors import InputError
from hpckit.plan.collective.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import LARGE, HaloField, halo_plan
from hpckit.plan.machine.machine import Level, Machine, MeasuredSteps, machine_of, toml_of
from hpckit.plan.pricing import price
from hpckit.plan.topology import Topology


def true_machine():
    """Rates that fall with the size of the buffer and with the number of messages."""
    tables = []
    for ranks, most in ((2, 2), (4, 4)):
        for messages in sorted({1, ranks // 2, most}):
            sizes = tuple(n / 2 if messages == ranks else float(n) for n in PROBE_SIZES)
            stored = tuple(8e9 / messages**0.7 / (1 + math.log2(n / PROBE_SIZES[0]) / 8) for n in PROBE_SIZES)
            added = tuple(0.6 * rate for rate in stored)
            tables.append(MeasuredSteps(ranks, messages, 40e-6, (3 + messages) * 1e-6, sizes, stored, added))
        halves = tuple(n / 2 for n in PROBE_SIZES)
        copied = tuple(20e9 / (1 + math.log2(n / halves[0]) / 8) for n in halves)
        tables.append(MeasuredSteps(ranks, ranks, 0.0, 0.5e-6, halves, copied, copied, "copy"))
        counts = tuple((n + 2.0) ** 2 for n in STRIDED[1:])
        pieces = tuple(1e9 / (1 + k / 4) for k in range(len(counts)))
        tables.append(MeasuredSteps(ranks, ranks, 2e-6, 0.7e-6, counts, pieces, pieces, "pieces"))
        for place, latency, rate in (("rows", 0.0, 12e9), ("mail", 0.7e-6, 5e9), ("slabs", 0.0, 4e9)):
            sizes = tuple(8 * count for count in counts if place == "rows" or (8 * count > LARGE) == (place == "slabs"))
            rates = tuple(rate / (1 + k / 4) for k in range(len(sizes)))
            tables.append(MeasuredSteps(ranks, ranks, 2e-6, latency, sizes, rates, rates, place))
    return Machine("true", (Level("node", 0, 1e-6, 8e9),), 0.0, 5e9, "made up", tuple(tables))


def options_of(name, ranks):
    return {"node_size": ranks} if name == "hierarchical" else {}


def halo_seconds(machine, ranks, along, n):
    """Of cubes of n cells: messages along z, copies of rows along y, of cells along x; nothing but latency of few."""
    tables = {place: machine.tables(ranks, place)[0] for place in ("pieces", "rows", "mail", "slabs")}
    cells = np.array([(n + 2.0) ** 2])

    def of(place, amount):
        it = tables[place]
        return amount[0] * it.seconds_per_byte(it.stored, 0.0, amount)[0] + it.latency * (place == "mail")

    seconds = tables["pieces"].start
    if n == STRIDED[0]:
        return seconds + 2 * tables["pieces"].latency * ("z" in along)
    seconds += 2 * of("pieces", cells) * ("x" in along) + 2 * of("rows", 8 * cells) * ("y" in along)
    return seconds + 2 * of("slabs" if 8 * cells[0] > LARGE else "mail", 8 * cells) * ("z" in along)


def times_on(machine, ranks):
    """Seconds of all cases as the machine would take them; a bare probe starts sooner than a whole call."""
    found = {}
    for operation, name, nbytes in [*probe_cases(ranks), *all_reduce_cases()]:
        if operation == HALO:
            found[operation, name, nbytes] = halo_seconds(machine, ranks, name, nbytes)
            continue
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
                assert (step.sends.peer >= 0).sum() == at_once(probe, ranks)
                assert step.add == ("+" in name)
                if before is not None:  # every sender took something in the step before
                    assert (before.receives.peer[step.sends.peer >= 0] >= 0).all()
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
        measured = rounds_of(times[ranks], ranks)
        rows = predictions(found, ranks, measured)
        assert len(rows) == len(SIZES) * len(ALGORITHMS["all_reduce"])
        unlike = pairs(rows, measured)
        verdict = judged(rows, unlike)
        assert verdict["off_worst"][0] < 1.01
        assert verdict["within_35"] == (1.0, len(rows))
        assert verdict["order"] == (1.0, len(unlike))
        assert len(unlike) > 20


def rounds_of(times, ranks, unsteady=()):
    """Rounds that all take as long; those of the cases `unsteady` sometimes half as long, sometimes twice."""
    factors = {case: [0.5, 2.0] * 10 if case in unsteady else [1.0] * 20 for case in times}
    seconds = {case: [factor * seconds for factor in factors[case]] for case, seconds in times.items()}
    return CollectiveTimes(seconds, {case: options_of(case[1], ranks) for case in times})


def test_a_wrong_prediction_and_a_wrong_order_count_and_noise_does_not():
    times = times_on(true_machine(), 2)
    measured = rounds_of(times, 2)
    rows = predictions(true_machine(), 2, measured)
    unlike = pairs(rows, measured)
    slow, quick, nbytes = unlike[0]["slower"], unlike[0]["quicker"], unlike[0]["bytes"]
    row = next(row for row in rows if (row["algorithm"], row["bytes"]) == (slow, nbytes))
    row["predicted_over_measured"], row["predicted_us"] = 0.5, 0.0
    verdict = judged(rows, pairs(rows, measured))
    assert verdict["off_worst"][0] == 2.0
    assert verdict["within_35"][0] == pytest.approx(1 - 1 / len(rows))
    assert verdict["order"][0] < 1
    noisy = pairs(rows, rounds_of(times, 2, unsteady={("all_reduce", slow, nbytes)}))
    assert not [pair for pair in noisy if pair["bytes"] == nbytes and slow in (pair["slower"], pair["quicker"])]
    assert [pair for pair in unlike if pair["quicker"] == quick]


def test_steps_between_and_beyond_what_was_measured():
    machine = true_machine()
    two, four = machine.tables(2)[-1], machine.tables(4)[-1]

    def step(ranks, messages, nbytes, moved):
        latency, stored, added = machine.step(ranks, messages, nbytes, np.array([moved]))
        return latency, stored.item(), added.item()

    low, high = two.nbytes[0], two.nbytes[-1]
    assert step(2, 2, 2 * low, low) == pytest.approx((two.latency, 1 / two.stored[0], 1 / two.added[0]))
    assert step(3, 2, 2 * low, low) == step(2, 2, 2 * low, low)  # the nearest from below
    assert step(8, 8, 2 * high, high)[1] == pytest.approx(2 / four.stored[-1])  # they share
    between = step(4, 3, 0, math.sqrt(PROBE_SIZES[0] * PROBE_SIZES[1]))[1]
    assert 1 / machine.tables(4)[1].stored[0] < between < 1 / four.stored[1]
    assert step(2, 2, 2 * high, low)[1] == pytest.approx(1 / two.stored[-1])  # a part of a buffer that no cache holds
    # Here small messages are the slower ones, whatever buffer they are part of.
    slow = dataclasses.replace(two, stored=(1e9, *two.stored[1:]))
    machine = dataclasses.replace(machine, measured=(slow,))
    assert step(2, 2, 2 * high, low)[1] == pytest.approx(1e-9)
    # Messages of fields have no buffer in common: they cost what messages of their own size do.
    assert step(2, 2, 0, high)[1] == pytest.approx(1 / two.stored[-1])


def test_copies_within_a_rank_cost_what_copies_cost():
    """All-to-all on 2 ranks: half of the buffer is copied at the rate of copies, and half is sent."""
    true, n = true_machine(), float(PROBE_SIZES[-1])
    plan = collective_plan("all_to_all", "pairwise", 2)
    exchange, copy = true.measured[1], true.measured[2]
    sent = exchange.latency + n / 2 / exchange.stored[-1]
    assert price(plan, true, n).seconds == pytest.approx(
        40e-6 + copy.latency + n / 2 / copy.stored[-1] + sent, rel=1e-3
    )
    flat = Machine("flat", (Level("all", 0, 2e-6, 1e9),), 1e-6, 10e9)
    alone = dataclasses.replace(plan, length=1)  # the copy
    assert price(alone, flat, n).seconds == pytest.approx(n / 2 / 10e9)
    assert price(alone, dataclasses.replace(flat, copy=20e9), n).seconds == pytest.approx(n / 2 / 20e9)


def test_cores_that_add_do_not_copy_meanwhile():
    """A segmented ring on such a machine takes as long as a whole one, up to its latencies."""
    true = true_machine()
    whole, cut = (price(collective_plan("all_reduce", "ring", 2, segments=k), true, 2**26).seconds for k in (1, 16))
    assert cut == pytest.approx(whole, rel=0.02)


def test_files_there_and_back(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(toml_of(true_machine()))
    again = machine_of(path)
    assert (again.name, again.source) == ("true", "made up")
    assert len(again.measured) == len(true_machine().measured)
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


def test_the_shared_memory_of_a_node_is_found_again_from_the_times_of_its_calls():
    sizes = tuple(map(float, PROBE_SIZES))
    stored = tuple(8e9 / (1 + k / 8) for k in range(len(sizes)))
    table = MeasuredSteps(2, 2, 0.3e-6, 0.9e-6, sizes, stored, tuple(0.6 * rate for rate in stored), "memory")
    true = true_machine()
    true = Machine(true.name, true.levels, true.overhead, true.reduction, "", (*true.measured, table))
    cases = [*memory_cases(), *default_cases()]
    plans = {case: collective_plan(*case[:2], 2) for case in cases}
    found = times_on(true, 2)
    for case, plan in plans.items():
        found[case] = price(plan, true, 0 if case[2] == EMPTY else case[2]).seconds
    ours = model({2: found}, "found", "here")
    (memory,) = ours.tables(2, "memory")
    assert (memory.ranks, memory.messages, memory.place) == (2, 2, "memory")
    assert (memory.start, memory.latency) == pytest.approx((table.start, table.latency), rel=1e-6)
    for case in default_cases():
        assert price(plans[case], ours, case[2]).seconds == pytest.approx(found[case], rel=0.2)
    assert machine_of_text(toml_of(ours)).tables(2, "memory") == [memory_rounded(memory)]


@pytest.mark.parametrize("n", STRIDED[1:])
def test_an_exchange_of_halos_costs_what_its_phases_were_made_of(n):
    """Copies of cells, copies of rows, then messages: through the memory of the node, or large ones by MPI."""
    true = true_machine()
    memory = MeasuredSteps(2, 2, 0.3e-6, 0.9e-6, (1e4, 1e6), (8e9, 6e9), (4e9, 3e9), "memory")
    true = dataclasses.replace(true, measured=(*true.measured, memory))
    decomposition = Decomposition((2 * n, n, n), Topology(("z", "y", "x"), (2, 1, 1), ("z", "y", "x")), 1)
    for along in ("x", "yx", "zyx"):
        plan = halo_plan(HaloField(decomposition, itemsize=8), along, node=[0, 0])
        assert price(plan, true).seconds == pytest.approx(halo_seconds(true, 2, along, n), rel=1e-6)


def machine_of_text(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.toml"
        path.write_text(text)
        return machine_of(path)


def memory_rounded(it):
    def rounded(values):
        return tuple(float(f"{value:.6g}") for value in values)

    start, latency = rounded((it.start, it.latency))
    return MeasuredSteps(
        it.ranks, it.messages, start, latency, rounded(it.nbytes), rounded(it.stored), rounded(it.added), it.place
    )
