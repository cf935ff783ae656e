"""Ranks on named axes: numbering, neighbors, factorization."""

from __future__ import annotations

import itertools
import math

import pytest

from hpckit.errors import DecompositionError, InputError
from hpckit.plan.blocks import block, block_starts, owner
from hpckit.plan.grid.factor import best_factorization, factorizations, fitting_counts, halo_surface
from hpckit.plan.topology import Topology


@pytest.mark.parametrize("n", [0, 1, 7, 13, 100])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 13])
def test_blocks_tile_and_differ_by_at_most_one(n, parts):
    blocks = [block(n, parts, i) for i in range(parts)]
    assert [i for start, size in blocks for i in range(start, start + size)] == list(range(n))
    assert max(size for _, size in blocks) - min(size for _, size in blocks) <= 1
    assert [start for start, _ in blocks] + [n] == list(block_starts(n, parts))
    assert [owner(n, parts, cell) for cell in range(n)] == [
        i for i, (_, size) in enumerate(blocks) for _ in range(size)
    ]


def test_rank_and_coords_are_inverse_and_row_major():
    topology = Topology(("z", "y", "x"), (2, 3, 4))
    places = [topology.coords(rank) for rank in range(topology.size)]
    assert places == list(itertools.product(range(2), range(3), range(4)))
    assert [topology.rank(place) for place in places] == list(range(24))


def test_shift_ends_at_walls_and_wraps_where_periodic():
    topology = Topology(("y", "x"), (2, 3), periodic=("x",))
    assert topology.shift(0, "x", -1) == 2
    assert topology.shift(0, "y", -1) is None
    assert topology.shift(0, "y", 1) == 3
    for name, n in itertools.product(("y", "x"), (-2, -1, 0, 1, 2)):
        alone = [topology.shift(rank, name, n) for rank in range(6)]
        assert [None if r < 0 else int(r) for r in topology.all_shifted(name, n)] == alone


def test_a_wrong_topology_is_refused():
    with pytest.raises(InputError, match="differently named"):
        Topology(("x", "x"), (1, 2))
    with pytest.raises(InputError, match="at least 1 rank"):
        Topology(("x",), (0,))
    with pytest.raises(InputError, match="no axis is called 'q'; the axes are y, x"):
        Topology(("y", "x"), (1, 2), periodic=("q",))
    with pytest.raises(InputError, match="rank 6 is not one of"):
        Topology(("y", "x"), (2, 3)).coords(6)


def test_factorizations_are_all_and_only_the_products():
    assert sorted(factorizations(12, 2)) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert all(a * b * c == 24 for a, b, c in factorizations(24, 3))


def test_the_best_factorization_has_the_least_halo_surface():
    for ranks, shape in itertools.product((1, 2, 3, 4, 6, 12, 24), ((64, 64, 64), (7, 100, 31), (400, 25, 25))):
        best = best_factorization(ranks, shape, periodic=(True, False, True))
        least = min(halo_surface(shape, s, (True, False, True)) for s in factorizations(ranks, 3))
        assert halo_surface(shape, best, (True, False, True)) == least


def test_between_equals_the_unit_stride_dim_is_split_last():
    assert best_factorization(2, (64, 64, 64)) == (2, 1, 1)
    assert best_factorization(4, (64, 64, 64)) == (2, 2, 1)
    assert best_factorization(8, None, fixed=(0, 0, 0)) == (2, 2, 2)
    assert best_factorization(6, None, fixed=(0, 0)) == (3, 2)


def test_fixed_sizes_are_kept_and_impossible_ones_named():
    assert best_factorization(12, (40, 40, 40), fixed=(0, 3, 0))[1] == 3
    with pytest.raises(DecompositionError, match="7 ranks"):
        best_factorization(7, (40, 40), fixed=(2, 0))
    with pytest.raises(DecompositionError, match="2000 ranks") as caught:
        best_factorization(2000, (64, 128, 128), fixed=(1, 0, 0), least=(1, 6, 6))
    assert caught.value.do == "ranks that fit this grid: 400, 420, 441; at most 441"  # 21 blocks of 6 along y and x
    assert fitting_counts(23, (5, 7)) == "18, 20, 21, 24, 25, 28; at most 35"  # 19, 22, 26 do not fit
    assert fitting_counts(7, (5, 1)) == "3, 4, 5; at most 5"
    # Of a million ranks, too, without looking at all ways to lay each number of them.
    assert fitting_counts(10**6, (96, 96, 96)) == "866400, 875520, 884736; at most 884736"
    for ranks, most, fixed in itertools.product((5, 24, 61), ((3, 8, 5), (7, 2, 4)), ((0, 0, 0), (0, 2, 0), (3, 0, 4))):
        held = [w or m for w, m in zip(fixed, most, strict=True)]
        axes = [(w,) if w else range(1, m + 1) for w, m in zip(fixed, held, strict=True)]
        every = sorted({math.prod(sizes) for sizes in itertools.product(*axes)})
        below, above = [n for n in every if n < ranks][-3:], [n for n in every if n > ranks][:3]
        assert fitting_counts(ranks, held, fixed) == f"{', '.join(map(str, below + above))}; at most {math.prod(held)}"
    assert best_factorization(4, (3, 400), least=(2, 2)) == (1, 4)
