"""Layers dealt to stages: against all partitions that there are, and what is refused."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpckit.errors import InputError
from hpckit.plan.pipeline.partition import partition_layers, read_layers


def every_partition(layers, stages):
    for cuts in combinations(range(1, layers), stages - 1):
        yield (0, *cuts, layers)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(costs=st.lists(st.integers(0, 9), min_size=1, max_size=9), stages=st.integers(1, 5), tied=st.integers(0, 6))
def test_no_partition_is_better(costs, stages, tied):
    stages = min(stages, len(costs))
    parts = partition_layers(costs, stages, tied)

    def loads(starts):
        own = [sum(costs[a:b]) for a, b in pairwise(starts)]
        for end in {0, stages - 1} if stages > 1 else ():
            own[end] += tied
        return own

    def badness(starts):
        return max(loads(starts)), sum(load**2 for load in loads(starts))

    assert list(parts.loads) == loads(parts.starts)
    assert badness(parts.starts) == min(map(badness, every_partition(len(costs), stages)))


def test_even_layers_are_dealt_evenly():
    assert partition_layers([0.1] * 10, 4).starts == (0, 3, 6, 8, 10)  # low stages first, as the block rule
    assert partition_layers([0.1] * 12, 4).balance == pytest.approx(1)
    parts = partition_layers([5, 1, 1, 1, 1, 1, 1, 7], 3)
    assert (parts.starts, parts.loads) == ((0, 2, 7, 8), (6.0, 5.0, 7.0))
    assert parts.sums([1] * 8) == (2, 5, 1)


def test_a_thousand_layers():
    parts = partition_layers([1 + i % 7 for i in range(1000)], 64)
    assert max(parts.loads) <= sum(parts.loads) / 64 + 7


def test_what_cannot_be_dealt():
    for costs, stages, said, do in (
        ([1, 2], 3, "2 layers cannot be dealt to 3 stages", "1 to 2"),
        ([1, 2], 0, "cannot be dealt to 0", "1 to 2"),
        ([], 1, "0 layers cannot", "give layers"),
        ([1, -2], 1, "finite numbers, 0 or more", ""),
        ([1, float("nan")], 1, "finite numbers, 0 or more", ""),
    ):
        with pytest.raises(InputError, match=said) as caught:
            partition_layers(costs, stages)
        assert do in caught.value.do


def test_files_of_layers(tmp_path):
    path = tmp_path / "layers.csv"
    path.write_text("# name, F, I, W\nembedding, 0.2, 0, 0.4\n\nhead,2,2.5,1\n")
    layers = read_layers(path)
    assert [layer.name for layer in layers] == ["embedding", "head"]
    assert layers[1].seconds == pytest.approx(5.5e-3)
    path.write_text("a,1,2\nb,1,2,3\nc,1,2,x\nd,1,2,-3\n")
    with pytest.raises(InputError, match=r"line 1: 'a,1,2'; line 3: 'c,1,2,x'; line 4") as caught:
        read_layers(path)
    assert "line 2" not in caught.value.message
    path.write_text("#\n")
    with pytest.raises(InputError, match="no layers"):
        read_layers(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_layers(tmp_path)
