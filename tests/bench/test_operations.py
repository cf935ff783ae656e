"""`hpckit bench collectives --operation …`: what is asked for, what is refused, and what rows say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpckit.bench.collectives import cases, verb
from hpckit.bench.collectives.cases import OPTIONS, algorithms_of, cases_of
from hpckit.bench.collectives.values import DTYPES, PERIOD, REDUCING, OperationValues, count_wrong, reduction
from hpckit.bench.collectives.verb import run
from hpckit.cli.main import main
from hpckit.collectives.choice import NODE_ALGORITHMS
from hpckit.errors import InputError
from hpckit.plan.collective.algorithms import ALGORITHMS, busbw_factor
from hpckit.settings.sizes import parse_sizes


@pytest.mark.nightly
def test_all_operations_by_all_algorithms_and_planted_wrong_values(mpirun):
    assert "all good" in mpirun(3, "bench_operations.py").stdout


def test_wrong_values_end_the_benchmark_with_a_code(monkeypatch, capsys):
    row = {"bytes": 8, "count": 2, "ranks": 2, "operation": "broadcast", "dtype": "float32", "reduce": None}
    row |= {"root": 0, "place": "host", "times": {"mpi": [1e-6], "auto": [1e-6]}, "left_out": {}}
    for wrong, code in ((0, 0), (3, 1)):
        found = [{**row, "wrong": {"mpi": 0, "auto": wrong}}]
        monkeypatch.setattr(verb, "run_ranks", lambda *_, found=found: found)
        assert main(["bench", "collectives", "--operation", "broadcast", "--sizes", "8"]) == code
        said = capsys.readouterr().err
        assert ("missed: broadcast of 8 bytes on 2 ranks by auto: 3 wrong values" in said) == bool(code)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8,32KiB,1MiB", (8, 32768, 1 << 20)),
        ("8:128MiB:4", tuple(8 * 4**n for n in range(13))),
        ("7:60", (7, 14, 28, 56)),
        ("1k, 3:3,2:5:3,3", (2, 3, 1024)),
    ],
)
def test_sizes_are_lists_and_ranges(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "8,", "0", "9:8", "8:64:1", "8:64:1.5", "1:2:3:4", "-8", "1e400", "8:x"])
def test_what_is_no_list_of_sizes_is_refused(text):
    with pytest.raises(InputError):
        parse_sizes(text)


def test_busbw_factors_are_those_of_nccl_tests():
    for p in (2, 3, 7):
        expected = {"all_reduce": 2 * (p - 1) / p, "broadcast": 1.0, "reduce": 1.0}
        assert {name: busbw_factor(name, p) for name in ALGORITHMS} == {
            name: expected.get(name, (p - 1) / p) for name in ALGORITHMS
        }


def test_one_message_tells_every_mistake_before_ranks_start(monkeypatch):
    monkeypatch.setattr("hpckit.bench.collectives.verb.run_ranks", lambda *_: pytest.fail("ranks were started"))
    wrong = {
        "operation": ["all_gater"], "sizes": "9:8", "dtype": "flot32", "reduce": "averag", "root": "x", "place": "up",
        "algorithm": ["rign"], "rounds": "0",
    }  # fmt: skip
    with pytest.raises(InputError) as caught:
        run(ranks=[1], tune=True, plot="/nowhere/at/all.svg", **wrong)
    assert set(wrong) == set(OPTIONS)
    for word in (*OPTIONS, "ranks", "tune", "plot"):
        assert f"- --{word} " in caught.value.message, word
    assert "did you mean 'all_gather'?" in caught.value.message


@pytest.mark.parametrize(
    ("ranks", "given", "told"),
    [
        (2, {"operation": ["all_reduce", "reduce"], "root": "1"}, "--root 1: there is no root in all_reduce;"),
        (2, {"operation": ["reduce"], "root": "2"}, "--root 2: a whole number from 0 to 1"),
        (2, {"operation": ["all_gather"], "reduce": "max"}, "--reduce max: nothing is combined in all_gather;"),
        (2, {"operation": ["scatter"], "algorithm": ["ring"]}, "--algorithm ring: scatter has none of that name; mpi,"),
        (
            3,
            {"operation": ["all_to_all"], "sizes": "8"},
            "8 bytes are too few for all_to_all of float32 on 3 ranks; 12",
        ),
        (2, {"operation": ["broadcast"], "sizes": "8", "dtype": "complex128"}, "complex128 on 2 ranks; 16 or more"),
        (2, {"operation": ["broadcast"], "place": "out"}, "--place out: only in place: broadcast;"),
        (2, {"operation": ["all_to_all"], "place": "in"}, "--place in: all_to_all needs a buffer of its own"),
        (2, {"dtype": "bool"}, "sum of bool means nothing; of bool: max, min"),
        (2, {"reduce": "average"}, "it needs a weight of each rank; sum, prod, max, min, mean"),
        (2, {"reduce": "mean", "dtype": "int8"}, "the mean of int8 is not int8; of int8: sum, prod, max, min"),
        (2, {"sizes": "1MiB", "algorithm": ["flat"]}, "--algorithm flat: for buffers up to 64 KiB"),
        (2, {"sizes": "8:1000TiB"}, "--sizes 8:1000TiB: buffers of "),
    ],
)
def test_what_cannot_be_is_refused_by_name(ranks, given, told):
    with pytest.raises(InputError) as caught:
        cases_of(given, [ranks])
    assert told in caught.value.message
    assert "\n" not in caught.value.message  # nothing else is wrong


def test_memory_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(cases, "available_bytes", lambda: 40_000_000)
    cases_of({"sizes": "1MB"}, [6])
    with pytest.raises(
        InputError, match=r"take about 40\.1 MiB on all ranks of this machine, which has 38\.1 MiB free"
    ):
        cases_of({"sizes": "1MB"}, [7])
    cases_of({"sizes": "1MB"}, [7], on_node=2)


def test_a_case_says_what_is_measured():
    given = {"operation": ["allgather", "reduce"], "sizes": "1000,1003,200KiB", "dtype": "int16", "rounds": "4"}
    cases = cases_of(given, [3])[3]
    blocks = [case for case in cases if case["operation"] == "all_gather"]
    # The bytes of all blocks, the elements of one; sizes that are one when blocks are whole are measured once.
    assert [(case["bytes"], case["count"]) for case in blocks] == [(996, 166), (1002, 167), (204798, 34133)]
    reduces = cases[len(blocks) :]
    assert [(case["bytes"], case["count"]) for case in reduces] == [(1000, 500), (1002, 501), (204800, 102400)]
    assert {(case["reduce"], case["root"], case["place"]) for case in blocks} == {(None, None, "out")}
    assert {(case["reduce"], case["root"], case["place"], case["rounds"]) for case in reduces} == {("sum", 0, "in", 4)}
    assert json.loads(json.dumps(cases)) == cases
    many = cases_of({"sizes": "64KiB,64004", "algorithm": ["flat", "mpi"]}, [2])[2]
    assert [case["names"] for case in many] == [["mpi", "flat"]] * 2
    assert "flat" not in cases_of({"sizes": "1MiB"}, [2])[2][0]["names"]
    assert {"gloo", "auto", "staged"} <= set(algorithms_of("reduce_scatter"))


def test_a_table_is_made_from_every_algorithm_that_there_is_a_choice_of():
    made = cases.tuning_cases(False, 3)
    assert {case["operation"] for case in made} == {name for name, plans in ALGORITHMS.items() if len(plans) > 1}
    for case in made:
        plans = cases.P2P if case["operation"] == "all_reduce" else ALGORITHMS[case["operation"]]
        assert {"mpi", *plans} <= set(case["names"]), case
        assert ("staged" in case["names"]) == (case["operation"] in NODE_ALGORITHMS)
        assert ("flat" in case["names"]) == (case["operation"] == "all_reduce" and case["bytes"] <= cases.FLAT_MOST)
    assert [case["bytes"] for case in cases.default_cases(True, 2)] == [size for size, _ in cases.QUICK_SIZES]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_exact_in_every_type_and_a_wrong_one_is_counted(dtype):
    for ranks in (2, 3, 40):
        for op in ("sum", "prod", "max", "min", "mean"):
            try:
                how = reduction(dtype, op)
            except InputError:
                continue
            values = OperationValues("all_reduce", dtype, ranks, op, 0)
            total = how.widened(values.given[-1]).copy()
            for one in values.given[-2::-1]:  # another order than that of the ranks
                how.combine(total, how.widened(one))
            how.finish(total, np.ones(ranks))
            found = np.empty_like(values.given[0])
            if total.dtype == found.dtype:
                found = total
            else:
                how.narrow(total, found)
            assert count_wrong(found, values.wanted(1, PERIOD)) == 0, (op, ranks)
    values = OperationValues("all_to_all", dtype, 3, None, 0)
    count = 2 * PERIOD + 5
    sent = [np.resize(one, 3 * count) for one in values.given]
    for rank in range(3):
        taken = np.concatenate([one[rank * count : (rank + 1) * count] for one in sent])
        assert count_wrong(taken, values.wanted(rank, count)) == 0
        taken[[0, PERIOD, count, -1]] = taken[[0, PERIOD, count, -1]] == 0
        assert count_wrong(taken, values.wanted(rank, count)) >= 3  # 1 may stand where 1 was
        assert count_wrong(np.roll(taken, 1), values.wanted(rank, count)) > count
    assert REDUCING == ("all_reduce", "reduce", "reduce_scatter")


def test_rows_tell_bytes_by_each_operation_and_what_was_left_out(monkeypatch, capsys, tmp_path):
    def ranks(module, n, cases):
        assert module == "hpckit.bench.collectives.ranks"
        times = {"mpi": [4e-3] * 5, "auto": [2e-3] * 5, "tree": [8e-3] * 5}
        found = {"times": times, "wrong": {"mpi": 0, "auto": 0, "tree": 3}, "left_out": {"gloo": "no int8"}}
        return [{**case, **found, "ranks": n} for (case,) in cases]

    monkeypatch.setattr("hpckit.bench.collectives.verb.run_ranks", ranks)
    words = "bench collectives --operation gather --operation reduce --sizes 3000000 --dtype int8 --ranks 3 --json"
    assert main([*words.split(), "--plot", str(tmp_path / "busbw.svg")]) == 1, "values were wrong"
    result = json.loads(capsys.readouterr().out)
    gather, reduce = (
        [row for row in result["results"] if row.get("operation") == name] for name in ("gather", "reduce")
    )
    auto = next(row for row in gather if row["algorithm"] == "auto")
    assert auto == {
        "operation": "gather", "ranks": 3, "bytes": 3_000_000, "count": 1_000_000, "dtype": "int8", "reduce": None,
        "root": 0, "place": "out", "algorithm": "auto", "us": 2000, "low_us": 2000, "high_us": 2000,
        "algbw_GB_per_s": 1.5, "busbw_GB_per_s": 1.0, "vs_mpi": 2.0, "wrong": 0,
    }  # fmt: skip
    tree = next(row for row in reduce if row["algorithm"] == "tree")
    assert (tree["reduce"], tree["busbw_GB_per_s"], tree["vs_mpi"], tree["wrong"]) == ("sum", 0.375, 0.5, 3)
    assert result["results"][-1] == {"note": "reduce on 3 ranks, gloo left out: no int8"}
    assert set(result["ratios"]) == {"gather_auto_min_vs_mpi", "reduce_auto_min_vs_mpi"}
    assert result["ratios"]["reduce_auto_min_vs_mpi"]["median"] == pytest.approx(2)
    assert "<svg" in (tmp_path / "busbw.svg").read_text()
