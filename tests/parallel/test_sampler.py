"""The sampler: every sample once an epoch, in an order of each epoch, whatever ranks and restarts there are."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

import hpckit as hp
from hpckit.errors import InputError
from hpckit.training.sampler import permuted


@pytest.mark.parametrize("count", [1, 2, 3, 7, 13, 64, 65, 1000, 4097])
def test_orders_are_permutations_of_their_own(count):
    orders = [permuted(np.arange(count), count, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for order in orders:
        assert sorted(order) == list(range(count))
    if count > 12:
        assert len({order.tobytes() for order in orders}) == 3
        assert permuted(np.array([5]), count, 0, 0)[0] == orders[0][5]


def test_an_order_looks_random():
    """Neighbors are far apart, places are no function of the number: correlation and first moments, 4 sigma."""
    count = 20011
    order = permuted(np.arange(count), count, 3, 2) / count
    sigma = count**-0.5
    assert abs(order[: count // 2].mean() - 0.5) < 4 * sigma * 0.29 * 2**0.5
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 4 * sigma
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 4 * sigma


def test_positions_beyond_what_fits_memory():
    some = permuted(np.arange(100, dtype=np.int64) + 10**14, 10**15, 1, 0)
    assert len(set(some.tolist())) == 100
    assert 0 <= some.min() <= some.max() < 10**15


def batches(sampler, replicas, count):
    """The samples of `count` batches, of all replicas one after the other."""
    found = []
    for _ in range(count):
        position, shares = sampler.position, []
        for replica in range(replicas):
            sampler.position = position
            shares.append(sampler.take(replica, replicas))
        assert {share.total for share in shares} == {sum(len(share.indices) for share in shares)}
        sizes = [len(share.indices) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        assert [share.first_sample for share in shares] == [sampler.position - sum(sizes[r:]) for r in range(replicas)]
        found.append(np.concatenate([share.indices for share in shares]).tolist())
    return found


def test_any_number_of_replicas_goes_on_with_the_same_batches():
    whole = batches(hp.training.Sampler(23, 6, seed=4), 1, 9)
    sampler = hp.training.Sampler(23, 6, seed=4)
    parts = batches(sampler, 3, 2) + batches(sampler, 4, 1)
    later = hp.training.Sampler(23, 6, seed=4, position=sampler.position)
    assert parts + batches(later, 2, 3) + batches(later, 7, 3) == whole
    assert sorted(chain(*whole[:4])) == list(range(23))
    assert [len(batch) for batch in whole[:4]] == [6, 6, 6, 5]
    assert later.epoch == 2
    assert list(chain(*whole[:4])) != list(chain(*whole[4:8]))  # every epoch has an order of its own


def test_the_last_batch_may_be_dropped():
    sampler = hp.training.Sampler(23, 6, drop_last=True)
    found = batches(sampler, 1, 6)
    assert [len(batch) for batch in found] == [6] * 6
    assert len(set(chain(*found[:3]))) == 18
    assert sampler.position == 23 + 18
    assert sampler.epoch == 2


def test_without_shuffling_samples_come_in_order():
    assert batches(hp.training.Sampler(5, 3, shuffle=False), 2, 3) == [[0, 1, 2], [3, 4], [0, 1, 2]]


@pytest.mark.parametrize(
    "options",
    [{"samples": 0}, {"batch": 0}, {"position": -1}, {"seed": -1}, {"batch": 9, "drop_last": True}, {"batch": 1.5}],
)
def test_numbers_that_cannot_be_are_refused(options):
    with pytest.raises(InputError):
        hp.training.Sampler(**{"samples": 8, "batch": 4, **options})


def test_replicas_are_counted_from_0():
    with pytest.raises(InputError, match="replica 2 of 2"):
        hp.training.Sampler(8, 4).take(2, 2)
