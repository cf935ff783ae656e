"""Who owns which cells: tiling, index maps, core and rim, staggering, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hpckit.errors import DecompositionError, InputError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

CASES = [
    ((13,), ("x",), (4,)),
    ((7, 11), ("y", "x"), (3, 2)),
    ((7, 11), ("y", "x"), (1, 6)),
    ((5, 7, 9), ("z", "y", "x"), (2, 1, 3)),
]


def cases():
    for shape, names, sizes in CASES:
        for periodic in itertools.product((False, True), repeat=len(names)):
            closed = tuple(name for name, p in zip(names, periodic, strict=True) if p)
            for location in itertools.product(("center", "face"), repeat=len(names)):
                yield Decomposition(shape, Topology(names, sizes, closed), 1, location)


@pytest.mark.parametrize("dec", list(cases()))
def test_owned_blocks_tile_the_points_exactly_once(dec):
    count = np.zeros(dec.global_shape, int)
    for rank in range(dec.topology.size):
        count[dec.global_slices(rank)] += 1
        assert dec.local_shape(rank) == tuple(n + 2 for n in dec.owned(rank))
        for index in (dec.start(rank), tuple(s + n - 1 for s, n in zip(dec.start(rank), dec.owned(rank), strict=True))):
            assert dec.owner(index) == rank
            assert dec.to_global(rank, dec.to_local(rank, index)) == index
        before = tuple(
            (s - 1) % n if closed else s - 1
            for s, n, closed in zip(dec.start(rank), dec.global_shape, dec.periodic, strict=True)
        )
        assert dec.to_global(rank, (0,) * dec.ndim) == before
        assert tuple(dec.all_starts()[:, rank]) == dec.start(rank)
        assert tuple(dec.all_owned()[:, rank]) == dec.owned(rank)
    assert (count == 1).all()
    for d in range(dec.ndim):
        sizes = [dec.owned(rank)[d] for rank in range(dec.topology.size)]
        assert max(sizes) - min(sizes) <= 1


def test_faces_number_one_more_between_walls():
    walls, ring = Topology(("x",), (3,)), Topology(("x",), (3,), ("x",))
    assert Decomposition((8,), walls, 1, "face").global_shape == (9,)
    assert Decomposition((8,), ring, 1, "face").global_shape == (8,)
    assert Decomposition((8,), walls, 1).at("face").location == ("face",)


@pytest.mark.parametrize("shape", [(13, 17), (4, 17), (3, 3)])
@pytest.mark.parametrize("halo", [1, 2, (0, 2)])
def test_core_and_rim_tile_the_interior(shape, halo):
    dec = Decomposition(shape, Topology(("y", "x"), (1, 1)), halo)
    count = np.zeros(dec.local_shape(0), int)
    for box in (dec.core(0), *dec.rim(0)):
        count[box] += 1
    assert (count[dec.interior] == 1).all()
    assert count.sum() == count[dec.interior].sum()


def test_core_cells_stay_two_halos_from_the_ends():
    dec = Decomposition((10, 12), Topology(("y", "x"), (1, 1)), (1, 2))
    assert dec.core(0) == (slice(2, 10), slice(4, 12))


def test_thin_blocks_are_refused_with_the_legal_counts():
    with pytest.raises(
        DecompositionError, match=r"axis x: 7 cells over 3 ranks leave blocks of 2, the halo needs 3"
    ) as e:
        Decomposition((7,), Topology(("x",), (3,)), 3)
    assert "1, 2" in e.value.do
    with pytest.raises(DecompositionError, match="leave blocks of 0"):
        Decomposition((2, 40), Topology(("y", "x"), (3, 1)), 1)


def test_wrong_arguments_are_named():
    line = Topology(("x",), (1,))
    with pytest.raises(InputError, match="needs as many axes"):
        Decomposition((4, 4), line)
    with pytest.raises(InputError, match='"center" or "face"'):
        Decomposition((4,), line, 1, "edge")
    with pytest.raises(InputError, match="width of a halo is 0 or more"):
        Decomposition((4,), line, -1)
    for wrong in ((10.7,), "12", 40.0, (True,)):
        with pytest.raises(InputError, match="the shape of a grid is a whole number"):
            Decomposition(wrong, line)
    for wrong in (True, 1.5, (1.5,), "1"):
        with pytest.raises(InputError, match="the width of a halo is a whole number"):
            Decomposition((4,), line, wrong)
    with pytest.raises(InputError, match="one for each of 1, not"):
        Decomposition((4,), line, (1, 1))
    with pytest.raises(InputError, match="more than the"):
        Decomposition((10**30,), line)


def test_numpy_integers_are_integers():
    plane = Topology(("y", "x"), (1, 1))
    cells = Decomposition(np.array([5, 7]), plane, np.int64(2))
    assert cells == Decomposition((5, 7), plane, tuple(np.array([2, 2])))
    assert all(type(n) is int for n in (*cells.shape, *cells.halo))
