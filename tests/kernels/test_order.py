"""Operations of several turns that go over slabs side by side: none reads too early, none overwrites too soon."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.graph.order import Access, SlabOrders, SlabWork, lags_of, order_of


def done_by(work, arrays, slabs, origin):
    """What an operation writes is a number that tells all that it has read."""
    if work.at_once:
        read = [arrays[each.array][each.low + origin : each.high + origin].copy() for each in work.accesses]
        for each in work.accesses:
            if each.writes:
                arrays[each.array][each.low + origin : each.high + origin] += sum(map(np.sum, read)) * 3 + 1
        return
    for slab in slabs:
        total = 0
        for each in work.accesses:
            total = total * 7 + arrays[each.array][slab + each.low + origin : slab + each.high + origin + 1].sum()
        for each in work.accesses:
            if each.writes:
                arrays[each.array][slab + origin] = total * 5 + 1


@pytest.mark.parametrize("seed", range(5))
def test_an_order_does_what_one_operation_after_the_other_does(seed):
    """Random stencils, copies between turns, and walls that are filled and folded, of 29 slabs."""
    rng, n, origin = np.random.default_rng(seed), 29, 4

    def some_work():
        first, stop = int(rng.integers(-2, 2)), n + int(rng.integers(-1, 3))
        if rng.random() < 0.3:
            a, b = ((0, 2), (-2, 0)) if rng.random() < 0.5 else ((n - 2, n), (n, n + 2))
            a, b = (a, b) if rng.random() < 0.5 else (b, a)
            array = int(rng.integers(4))
            return SlabWork(0, max(a[1], b[1]), True, (Access(array, *a, False), Access(array, *b, True)))
        array, *others = (int(each) for each in rng.permutation(4)[:3])
        reach = [sorted(int(each) for each in rng.integers(-2, 3, 2)) for _ in others]
        reads = [Access(other, *each, False) for other, each in zip(others, reach, strict=True)]
        return SlabWork(first, stop, False, (Access(array, 0, 0, True), *reads))

    turns = [[some_work() for _ in range(4)] for _ in range(3)]
    start = [rng.integers(1, 100, n + 2 * origin).astype(np.uint64) for _ in range(4)]
    expected = [each.copy() for each in start]
    for work in (each for turn in turns for each in turn):
        done_by(work, expected, range(work.first, work.stop), origin)
    for slabs in (1, 3, 8):
        order, found = order_of(turns, slabs, lags_of(turns)), [each.copy() for each in start]
        for at in range(order.begin * slabs, order.end * slabs, slabs):
            for turn, lags in zip(turns, order.lags, strict=True):
                for work, lag in zip(turn, lags.tolist(), strict=True):
                    here = range(max(at - lag, work.first), min(at - lag + slabs, work.stop))
                    if not work.at_once:
                        done_by(work, found, here, origin)
                    elif at - lag < work.stop <= at - lag + slabs:
                        done_by(work, found, (), origin)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_turns_go_together_where_their_slabs_fit_the_cache_and_the_arrays_do_not(monkeypatch):
    """Jacobi's method from one array to the other and back; not where the ends of the slabs are joined, as one waits
    for all of the other then.
    """
    step = SlabWork(0, 40, False, (Access(1, 0, 0, True), Access(0, -1, 1, False)))
    ends = SlabWork(-1, 41, True, (Access(0, -1, 41, False), Access(0, -1, 41, True)))
    layouts = dict.fromkeys((0, 1), (1, 42, 10))
    addresses = np.array([[0, 1], [1, 0]] * 4)
    for nbytes, works, expected in (
        (1600, [step], 6),
        (1120, [step], 5),
        (1 << 20, [step], None),
        (2560, [ends, step], None),
    ):
        monkeypatch.setattr("hpckit.kernels.graph.order.NEAR", nbytes)
        count, order = SlabOrders(works, layouts, 0, False).of(addresses)
        assert (count, order is None) == (expected or 8, expected is None)
    assert SlabOrders([step], layouts, 5, False).of(addresses)[1] is None  # of 8 slabs 5 more were computed again
