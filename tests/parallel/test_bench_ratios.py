"""The ratios of `hpckit bench train` on 2 ranks: which time over which."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from hpckit.bench.measure import in_turn, interval
from hpckit.bench.train.verb import data_ratios, pipeline_ratios


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
