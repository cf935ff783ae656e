"""The table of measured times, what `--tune` makes of times, and how the benchmark reports them."""

from __future__ import annotations

import json

import pytest

from hpckit.bench.collectives.rows import busbw, interval
from hpckit.bench.collectives.verb import KEYS, entry_of, run
from hpckit.collectives.rank_program import phases_over_nodes
from hpckit.collectives.table import SHIPPED, Entry, best, parse, steps_of, write
from hpckit.comm.shared.calls import KERNELS
from hpckit.errors import InputError
from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.proving import prove

SMALL_OR_LARGE = ((1000, ("flat", "mpi")), (None, ("ring",)))


def measured(nbytes, **microseconds):
    times = {name: [t * 1e-6] * 5 for name, t in microseconds.items()}
    head = {"operation": "all_reduce", "bytes": nbytes, "ranks": 2}
    return {**head, "layout": "node", "times": times, "wrong": dict.fromkeys(times, 0)}


def test_the_nearest_number_of_ranks_and_the_size_decide():
    table = (
        Entry("all_reduce", 2, "node", "host", SMALL_OR_LARGE),
        Entry("all_reduce", 64, "node", "host", ((None, ("tree",)),)),
        Entry("all_reduce", 2, "nodes", "host", ((None, ("mpi",)),)),
    )
    assert best(table, "all_reduce", 3, "node", "host", 1000) == ("flat", "mpi")
    assert best(table, "all_reduce", 2, "node", "host", 1001) == ("ring",)
    assert best(table, "all_reduce", 12, "node", "host", 8) == ("tree",)
    assert best(table, "all_reduce", 12, "nodes", "host", 8) == ("mpi",)
    assert best(table, "reduce", 2, "node", "host", 8) == ()
    assert best(table, "all_reduce", 2, "node", "device", 8) == ()


def test_what_was_tuned_is_kept_and_replaces_the_same_case_only(tmp_path):
    path = tmp_path / "new" / "table.json"
    first = Entry("all_reduce", 2, "node", "host", SMALL_OR_LARGE)
    other = Entry("all_reduce", 4, "node", "host", SMALL_OR_LARGE)
    again = Entry("all_reduce", 2, "node", "host", ((None, ("tree",)),))
    assert write((first, other), path) == path
    write((again,), path)
    assert set(parse(path.read_text(), "table")) == {again, other}


def test_the_shipped_table_is_one():
    table = parse(SHIPPED.read_text(), SHIPPED.name)
    assert best(table, "all_reduce", 2, "node", "host", 8)[0] == "flat"
    for entry in table:  # where sums must be in rank order, and where memory cannot be shared, something is left
        assert entry.steps[-1][0] is None
    assert best(table, "all_reduce", 1000, "nodes", "host", 8)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"operation": "all_reduce"}]', json.dumps([{"steps": 3}])])
def test_a_broken_table_says_what_to_do(text):
    with pytest.raises(InputError, match="not one that hpckit wrote") as caught:
        parse(text, "here.json")
    assert "--tune" in caught.value.do


def test_times_become_steps_in_the_order_of_the_medians():
    found = [measured(100, mpi=3, flat=1, symmetric=0.5), measured(10_000, mpi=3, ring=2, symmetric=0.5)]
    entry = entry_of("all_reduce", "host", found, ("symmetric",))
    assert entry.steps == ((1000, ("flat", "mpi")), (None, ("ring", "mpi")))
    assert steps_of([8], [("a",)]) == ((None, ("a",)),)


def test_busbw_and_intervals():
    assert busbw(8_000_000_000, 4, 1.0) == 12e9  # nccl-tests: 2 (p - 1) / p
    assert interval([5.0, 1.0, 2.0]) == (1.0, 5.0)
    # 95 % of the median of 41 numbers: between the 14th and the 28th, by the binomial distribution
    assert interval([float(n) for n in range(1, 42)]) == (14, 28)


def test_figures_and_rows_from_times(monkeypatch, tmp_path):
    names = {"mpi": 60, "gloo": 120, "ring": 30, "staged": 20, "symmetric": 10, "auto": 40}

    def ranks(module, n, cases):
        return [
            {**measured(case["bytes"], **names, **({"flat": 15} if case["bytes"] < 1e5 else {})), "ranks": n}
            for (case,) in cases
        ]

    monkeypatch.setattr("hpckit.bench.collectives.verb.run_ranks", ranks)
    result = run(quick=True, plot=str(tmp_path / "busbw.svg"))
    assert set(result["ratios"]) == {*KEYS, "flat_8b_vs_mpi", "auto_min_vs_mpi"}
    medians = {key: ratio["median"] for key, ratio in result["ratios"].items()}
    assert medians["ring_64m_vs_gloo"] == pytest.approx(4)
    assert medians["symmetric_64m_4ranks_vs_mpi"] == pytest.approx(6)
    assert medians["flat_8b_vs_mpi"] == pytest.approx(0.25)
    assert medians["auto_min_vs_mpi"] == pytest.approx(1.5)
    row = next(r for r in result["results"] if (r["ranks"], r["algorithm"], r["bytes"]) == (4, "ring", 64 * 1024**2))
    assert row["algbw_GB_per_s"] == pytest.approx(2236.963)
    assert row["busbw_GB_per_s"] == pytest.approx(1.5 * 2236.963, rel=1e-5)
    assert "<svg" in (tmp_path / "busbw.svg").read_text()
    with pytest.raises(InputError, match="2 ranks or more"):
        run(ranks=[1])


def test_all_that_runs_in_shared_memory_is_a_plan():
    """Each compiled collective is one of the plans that are proved; "direct" is how a large staged all-reduce runs."""
    kernels = {names for names in KERNELS if names[1] != "direct"}
    assert kernels == {(operation, name) for operation, plans in IN_MEMORY.items() for name in plans if name != "nodes"}


def test_the_program_over_nodes_is_that_of_the_proved_plan():
    """The ranks of a node add and gather their own blocks; messages stay between ranks of one place."""
    for across, segments in (("ring", 1), ("ring", 3), ("halving_doubling", 1)):
        options = {"node_size": 3, "across": across, "segments": segments}
        prove(collective_plan("all_reduce", "nodes", 12, **options))
        for rank in range(12):
            first, *between, last = phases_over_nodes(12, 3, across, segments, rank)
            assert (first.add, last.add, first.block) == (True, False, last.block)
            assert first.block[0] == rank % 3 * (first.block[1] - first.block[0])
            (phase,) = between
            assert phase.program is not None
            for move in phase.program.moves:
                assert {move.send_to, move.recv_from} <= {-1, 0, 1, 2, 3}
                for begin, end in (move.send, move.recv):
                    assert begin == end == 0 or first.block[0] <= begin <= end <= first.block[1]
