"""Rounds of 2 ranks against 1 in which a rank waited for its core are made again, and calm ones count before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from hpckit.bench.core_wait import MOST, core_wait
from hpckit.bench.weather import ranks

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

    timed = ranks.in_turn(MPI.COMM_SELF, lambda: step("together"), lambda: step("alone"), 2, 4)
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
    times = ranks.in_turn(MPI.COMM_SELF, together, alone, 1, 3)["times"]
    assert times == {"1 rank": [0.5] * 3, "all ranks": [2.0, 5.0, 6.0], "1 rank each": [0.5] * 3}


def test_the_wait_for_a_core_only_grows():
    before = core_wait()
    assert 0.0 <= before <= core_wait()
