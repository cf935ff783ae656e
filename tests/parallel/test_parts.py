"""Fixed parts of a batch: one tree of sums, whoever adds them."""

import numpy as np
import pytest

from hpckit.errors import InputError
from hpckit.plan.pipeline.parts import PartialSum, fault, group_fault, joined, subtrees, tree_sum
from hpckit.plan.pipeline.training import training_plan
from hpckit.training.sampler import Sampler


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_some_meshes_have_the_bits_of_one_rank(ranks, mpirun):
    assert "good" in mpirun(ranks, "parts_ranks.py", "few", timeout=200).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", range(1, 9))
def test_every_mesh_has_the_bits_of_one_rank(ranks, mpirun):
    assert "good" in mpirun(ranks, "parts_ranks.py", timeout=1800).stdout


def pairs(values):
    """The sum of a power of two of numbers, in pairs, then pairs of pairs."""
    return values[0] if len(values) == 1 else pairs(values[0::2] + values[1::2])


@pytest.mark.parametrize("parts", [1, 2, 8, 16])
def test_replicas_add_up_to_the_tree_of_one_rank(parts):
    values = np.random.default_rng(1).standard_normal(parts)
    for replicas in range(1, parts + 1):
        nodes, roots = subtrees(parts, replicas), []
        assert [node.first for node in nodes] == [0, *np.cumsum([node.parts for node in nodes])[:-1]]
        assert sum(node.parts for node in nodes) == parts
        for node in nodes:
            done: list = []
            for part in range(node.first, node.first + node.parts):
                joined(done, PartialSum(0, part), values[part], np.add)
            ((found, root),) = done
            assert found == node
            roots.append(root)
        assert tree_sum(nodes, roots, np.add) == pairs(values)
    assert parts < 8 or np.add.accumulate(values)[-1] != pairs(values)


def test_replicas_take_the_samples_of_their_parts():
    for total in (13, 3):
        taken = np.concatenate([Sampler(total, 13, shuffle=False).take(r, 3, 8).indices for r in range(3)])
        assert taken.tolist() == list(range(total))
    plan = training_plan(3, 4, batch=13, parts=8, microbatches=4)
    assert (plan.microbatches, [plan.samples(r) for r in range(3)]) == (4, [8, 3, 2])
    assert plan.cuts(3, 1) == [slice(0, 2), slice(2, 3), slice(3, 3), slice(3, 3)]


def test_what_is_no_tree_is_told():
    assert fault(8, 8) == fault(0, 9) == ""
    assert "take 8" in fault(6, 2)
    assert group_fault(0, 6, 8) == group_fault(3, 6, 0) == group_fault(4, 8, 8) == ("", "")
    assert group_fault(4, 6, 0)[1] == "take 1 or 2 or 3 or 6, or 0 for all"
    assert group_fault(3, 6, 8)[1] == "take 1 or 2 or 6, or 0 for all"  # three have 2, 2 and 1 of 8 parts
    with pytest.raises(InputError, match="parts=8 is less than dp=9") as caught:
        training_plan(9, 4, batch=13, parts=8)
    assert caught.value.do == "take 16, or 0"
    with pytest.raises(InputError, match="goes with fixed parts of the batch; layer_parts=2 is less than tp=4"):
        training_plan(4, 4, batch=4, tp=4, layer_parts=2)
