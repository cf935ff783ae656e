"""Halos that travel during sweeps: which lines go first, and the same bits as on one rank."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.atmosphere.overlap import edges_first
from hpckit.kernels.euler.slab.dispatch import has_inner
from hpckit.kernels.euler.sweeps.lines import TILE


@pytest.mark.parametrize("count", [1, 7, 23, 24, 25, 100])
def test_edges_go_first_where_blocks_are_wide_enough(count):
    order = edges_first(count, 6)
    assert (order.meanwhile is not None) == (count >= 24)
    lines = [*order.first, *([order.meanwhile] if order.meanwhile else [])]
    assert sorted(line for begin, end in lines for line in range(begin, end)) == list(range(count))
    if order.meanwhile:
        begin, end = order.meanwhile
        assert begin == count - end == 6
        assert end - begin >= count / 2


def test_rows_of_three_tiles_have_an_inner_part():
    assert [has_inner(cells) for cells in (6, TILE, 2 * TILE, 2 * TILE + 1, 10 * TILE)] == [False] * 3 + [True] * 2


@pytest.mark.nightly
@pytest.mark.parametrize("counts", [(1, 2), pytest.param((1, 3, 4), marks=pytest.mark.nightly)], ids=str)
def test_overlap_leaves_the_bits(mpirun, tmp_path, counts):
    """Slab and box, forced, open and with tracers; the program knows which splits overlap."""
    for ranks in counts:
        mpirun(ranks, "overlap_ranks.py", tmp_path, timeout=150)
    for name, variants in (*((n, [""]) for n in ("near", "collision", "forced", "diffusing", "thin")), *BOX):
        one = np.load(tmp_path / f"{name}{'0' if variants != [''] else ''}-1.npy")
        assert np.isfinite(one).all()
        assert np.abs(one[2]).max() > 0
        for ranks in counts[1:]:
            for variant in variants if ranks == 2 else variants[:1]:
                many = np.load(tmp_path / f"{name}{variant}-{ranks}.npy")
                np.testing.assert_array_equal(many, one, err_msg=f"{name}{variant} on {ranks} ranks")


BOX = [(name, ["0", "1"]) for name in ("box", "open", "tracer")]
