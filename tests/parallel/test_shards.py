"""Shards of flat vectors without MPI: where they are cut, which boxes they are, which buffers units take."""

import itertools

import numpy as np
import pytest

from hpckit.apps.train.trainer import boxes
from hpckit.nn.feedforward import mlp
from hpckit.nn.parameters import CHUNK, Parameters, Squares, in_order
from hpckit.training.sharded.units import lifetimes, shard_bounds


def test_boxes_cover_a_range_in_its_order():
    random = np.random.default_rng(0)
    for shape in [(7,), (3, 4), (2, 3, 5), (4, 1, 3), ()]:
        numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        for _ in range(20):
            low, high = np.sort(random.integers(0, numbers.size + 1, 2)).tolist()
            if not shape:
                low, high = 0, 1
            found = [
                numbers[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))].reshape(-1)
                for start, size in boxes(shape, low, high)
            ]
            assert np.concatenate([*found, np.zeros(0, int)]).tolist() == list(range(low, high)), (shape, low, high)
            assert len(found) <= max(1, 2 * len(shape) - 1)


@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_cuts_lie_between_chunks_and_are_even(replicas):
    parameters = Parameters(mlp([70, 300, 200, 9]).parameters())
    bounds = shard_bounds(parameters, 0, parameters.size, replicas)
    assert bounds[0] == 0
    assert bounds[-1] == parameters.size
    assert (np.diff(bounds) >= 0).all()
    assert (abs(np.diff(bounds) - parameters.size / replicas) <= 2 * CHUNK).all()
    edges = {0, parameters.size}
    for p in parameters.list:
        edges |= {parameters.offsets[p.name] + at for at in range(0, p.size, CHUNK)}
    assert set(bounds.tolist()) <= edges


def test_the_norm_of_shards_is_that_of_the_whole_to_the_bit():
    parameters = Parameters(mlp([70, 300, 200, 9]).parameters())
    parameters.grads[...] = np.random.default_rng(1).standard_normal(parameters.size)
    for p in parameters.list:  # what lies between parameters does not count
        parameters.grads[parameters.offsets[p.name] + p.size :][: -p.size % 16] = 0
    whole = parameters.squared_norm()
    assert whole == pytest.approx(float(np.square(parameters.grads, dtype=np.float64).sum()), rel=1e-12)
    for replicas in (2, 3, 5):
        bounds = shard_bounds(parameters, 0, parameters.size, replicas)
        total = 0
        for start, end in itertools.pairwise(bounds):
            part = parameters.owned[0]._replace(
                start=start, end=end, values=parameters.values[start:end], grads=parameters.grads[start:end]
            )
            shard = Parameters(mlp([70, 300, 200, 9]).parameters())
            shard.owned = (part,)
            total = total + Squares(shard, parameters.list)()
        assert in_order(total) == whole


def test_units_that_live_at_once_have_buffers_of_their_own():
    events = [(3, False), (2, False), (3, True), (1, False), (2, True), (0, False), (1, True), (0, True)]
    place = lifetimes(events, 4)
    live = set()
    for unit, ends in events:
        assert ends or place[unit] not in {place[other] for other in live}
        (live.discard if ends else live.add)(unit)
    assert max(place) == 1
    assert lifetimes([], 2) == [0, 0]
