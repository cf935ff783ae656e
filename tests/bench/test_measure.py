"""Rounds that are disturbed, orders in a round, intervals of medians, and which time goes over which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.bench import ranks
from hpckit.bench.measure import MOST, in_turn, interval
from hpckit.bench.shallow_water.verb import TOLERANCE, Basin, _step_of
from hpckit.bench.train.verb import data_ratios, pipeline_ratios

TIMINGS = 3  # of a round: on all ranks, alone, and alone at once


def clock(monkeypatch: pytest.MonkeyPatch, disturbed: Callable[[int], bool]) -> None:
    """The core is taken away for a while in one timing of each round for which `disturbed` holds."""

    def waits() -> Iterator[float]:
        total, turn = 0.0, -1  # a round before the first one compiles, and does not count
        while True:
            for timing in range(TIMINGS):
                yield total
                total += 1e6 if timing == 1 and disturbed(turn) else 0.0
                yield total
            turn += 1

    instants = waits()
    monkeypatch.setattr(ranks, "core_wait", lambda: next(instants))
    monkeypatch.setattr(ranks, "WAKE", 0.0)


@pytest.mark.parametrize(
    ("disturbed", "made", "left"),
    [
        (lambda turn: False, 4, 0),
        (lambda turn: turn in (-1, 0, 2), 6, 0),
        (lambda turn: turn < 5, MOST * 4, 1),
        (lambda turn: True, MOST * 4, 4),
    ],
)
def test_disturbed_rounds_are_made_again(monkeypatch, disturbed, made, left):
    clock(monkeypatch, disturbed)
    steps = {"together": 0, "alone": 0}

    def step(name: str) -> None:
        steps[name] += 1

    timed = ranks.against_one(MPI.COMM_SELF, lambda: step("together"), lambda: step("alone"), 2, 4)
    assert (timed["rounds_made"], timed["rounds_disturbed"]) == (made, left)
    assert {name: len(seconds) for name, seconds in timed["times"].items()} == {
        "1 rank": 4,
        "all ranks": 4,
        "1 rank each": 4,
    }
    assert steps == {"together": 2 * (made + 1), "alone": 4 * (made + 1)}


def test_the_rounds_that_count_are_those_that_were_calm(monkeypatch):
    clock(monkeypatch, lambda turn: turn in (1, 2))
    now, turns = [0.0], iter(range(-1, 100))

    def together() -> None:
        now[0] += 2.0 + next(turns)

    def alone() -> None:
        now[0] += 0.5

    monkeypatch.setattr(ranks, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    times = ranks.against_one(MPI.COMM_SELF, together, alone, 1, 3)["times"]
    assert times == {"1 rank": [0.5] * 3, "all ranks": [2.0, 5.0, 6.0], "1 rank each": [0.5] * 3}


@pytest.mark.parametrize("names", ["abc", "abcd", "abcdefghi"])
def test_each_candidate_follows_every_other_one_equally_often(names):
    orders = [in_turn(names, turn) for turn in range(2 * len(names))]
    assert all(sorted(order) == list(names) for order in orders)
    follows = Counter((before, name) for order in orders for before, name in pairwise(order))
    assert set(follows.values()) == {2}
    assert len(follows) == len(names) * (len(names) - 1)
    assert Counter(order[0] for order in orders) == dict.fromkeys(names, 2)


def test_the_interval_of_a_median():
    """Of numbers that are all alike it is a point; else it holds the median, and narrows as the root of the rounds."""
    assert interval([1.5] * 7) == [1.5, 1.5]
    normal = np.random.default_rng(1).normal(1.0, 0.1, 400)
    for count in (50, 400):
        low, high = interval(normal[:count])
        assert low < np.median(normal[:count]) < high
        deviation = 1.2533 * 0.1 / count**0.5  # of a normal median
        assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.35)


def medians(ratios):
    return {key: value["median"] for key, value in ratios.items()}


def test_efficiency_is_of_one_rank_and_times_of_torch():
    times = {"one": [1.0] * 3, "apart": [1.25] * 3, "data_parallel": [2.0] * 3}
    assert medians(data_ratios(times)) == {"dp_eff": 0.5, "dp_ceiling": 0.8}
    times |= {"torch_one": [1.0] * 3, "torch_ddp": [4.0] * 3}
    assert medians(data_ratios(times)) == {"dp_eff": 0.5, "dp_ceiling": 0.8, "dp_vs_torch": 0.5, "torch_eff": 0.25}


def test_pipelines_are_held_against_simulation_and_the_best_of_torch():
    times = {"one": [16.0] * 3, "apart": [20.0] * 3, "gpipe": [12.0] * 3, "1f1b": [10.0] * 3, "zb_h1": [8.0] * 3}
    found = medians(pipeline_ratios(times, simulated=2.5))
    wanted = {"zb_speedup": 2.0, "pp_ceiling": 0.8, "zb_vs_sim": 0.8, "zb_vs_1f1b": 0.8, "1f1b_vs_gpipe": 10 / 12}
    assert found == pytest.approx(wanted)
    times = {name: [*seconds, 99.0, 99.0, seconds[0]] for name, seconds in times.items()}  # PyTorch: rounds 0 and 3
    times |= {"torch_1f1b": [16.0] * 2, "torch_zbv": [10.0, 16.0]}
    found = pipeline_ratios({**times, "zb_h1": [8.0, 99.0, 99.0, 12.0, 99.0, 99.0]}, 2.5)["pp_vs_torch"]
    assert (found["low"], found["high"], found["rounds"]) == (0.75, 0.8, 2)


def test_the_array_form_of_shallow_water_is_the_same_scheme():
    basin, advance = Basin(48), _step_of(np)
    state = tuple(field.copy() for field in basin.owned())
    first = state
    for _ in range(10):
        basin.step()
        state = advance(*state)
    for ours, theirs, before in zip(basin.owned(), state, first, strict=True):
        assert np.abs(ours - theirs).max() < TOLERANCE * np.ptp(ours)
        assert np.abs(ours - before).max() > 1e-3 * np.ptp(ours)
