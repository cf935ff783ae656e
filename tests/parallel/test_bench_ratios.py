"""The ratios of `hpckit bench train` on 2 ranks: which time over which."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hpckit.bench.measure import in_turn
from hpckit.bench.train import data_ratios, pipeline_ratios


def test_no_candidate_always_follows_the_same_one():
    orders = [in_turn("abc", turn) for turn in range(-2, 4)]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    follows = {(before, name) for order in orders for before, name in pairwise(order)}
    assert len(follows) == 6
    assert {order[0] for order in orders} == {"a", "b", "c"}


def medians(ratios):
    return {key: value["median"] for key, value in ratios.items()}


def test_efficiency_is_of_one_rank_and_times_of_torch():
    times = {"one": [1.0] * 3, "apart": [1.25] * 3, "data_parallel": [2.0] * 3}
    assert medians(data_ratios(times)) == {"dp_eff": 0.5, "dp_ceiling": 0.8}
    times |= {"torch_one": [1.0] * 3, "torch_ddp": [4.0] * 3}
    assert medians(data_ratios(times)) == {"dp_eff": 0.5, "dp_ceiling": 0.8, "dp_vs_torch": 0.5, "torch_eff": 0.25}


def test_pipelines_are_held_against_simulation_and_the_best_of_torch():
    times = {"one": [16.0] * 3, "gpipe": [12.0] * 3, "1f1b": [10.0] * 3, "zb_h1": [8.0] * 3}
    found = medians(pipeline_ratios(times, simulated=2.5))
    assert found == pytest.approx({"zb_speedup": 2.0, "zb_vs_sim": 0.8, "zb_vs_1f1b": 0.8, "1f1b_vs_gpipe": 10 / 12})
    times |= {"torch_1f1b": [16.0] * 3, "torch_zbv": [10.0] * 3}
    assert medians(pipeline_ratios(times, 2.5))["pp_vs_torch"] == 0.8
