"""Ways to split a grid: closed forms by hand, and the numbers of every rank's plan."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from hpckit.errors import DecompositionError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.grid.split import Split, possible_splits
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.pricing import price
from hpckit.plan.topology import Topology


def test_a_split_by_hand():
    """8 x 8 ranks on 4096 x 2048 cells, 2 layers, walls: an inner rank sends 2 slabs of 2 x 260 and 2 of 516 x 2."""
    split = Split(Decomposition((4096, 2048), Topology(("y", "x"), (8, 8)), 2))
    assert split.block == (512, 256)
    assert split.messages == 4
    assert split.sent_cells == 2 * (2 * 260) + 2 * (516 * 2) == 3104
    assert split.surface == 3104 / (512 * 256)
    assert split.imbalance == 0.0
    assert split.redundant == pytest.approx((4096 + 28) * (2048 + 28) / (4096 * 2048) - 1)


def test_the_price_by_hand():
    """On one level a rank sends its two messages of a phase one after the other, then those of the next phase."""
    flat = Machine("flat", (Level("all", 0, 2e-6, 5e9),), 1e-6, 1e10)
    split = Split(Decomposition((30, 20), Topology(("y", "x"), (3, 4), ("y", "x")), (2, 1)))
    slabs = 8 * 3 * np.array([14 * 1, 2 * 7])  # bytes of 3 fields: x first
    expected = sum(2 * (1e-6 + slab / 5e9) + 1e-6 + 2e-6 for slab in slabs)
    assert price(halo_plan(split.decomposition), flat, itemsize=24).seconds == pytest.approx(expected, rel=1e-12)


def test_numbers_are_those_of_all_ranks():
    rng = random.Random(20)
    for _ in range(40):
        names = "zyx"[rng.randrange(3) :]
        shape = [rng.randint(4, 23) for _ in names]
        halo = tuple(rng.randint(0, 3) for _ in names)
        closed = [name for name in names if rng.random() < 0.5]
        ranks = rng.choice((1, 2, 3, 5, 8, 12, 18))
        for split in possible_splits(ranks, shape, dict.fromkeys(names, 0), closed, halo):
            dec, every = split.decomposition, range(ranks)
            plan = halo_plan(dec)
            away = [sum(m.send_to not in (None, r) for phase in plan.messages(r) for m in phase) for r in every]
            sent = [plan.nbytes(r, 1) for r in every]
            owned = [math.prod(dec.owned(r)) for r in every]
            assert (split.messages, split.sent_cells) == (max(away), max(sent))
            assert math.prod(split.block) == max(owned)
            assert split.imbalance == pytest.approx(max(owned) / np.mean(owned) - 1, abs=1e-12)
            assert split.surface == pytest.approx(max(s / n for s, n in zip(sent, owned, strict=True)), rel=1e-12)
            assert split.redundant == pytest.approx(copies(dec) / math.prod(shape), abs=1e-12)


def copies(dec):
    """Local cells of all ranks that stand for a cell of the grid, but for those that the rank owns."""
    count = 0
    for rank in range(dec.topology.size):
        held = 1
        for d, n in enumerate(dec.local_shape(rank)):
            point = np.arange(n) - dec.halo[d] + dec.start(rank)[d]
            held *= n if dec.periodic[d] else int(((point >= 0) & (point < dec.shape[d])).sum())
        count += held - math.prod(dec.owned(rank))
    return count


@pytest.mark.parametrize("ranks", [1, 6, 7, 30, 64])
@pytest.mark.parametrize("shape", [(211, 97), (61, 67, 71), (301, 13)])
def test_the_choice_of_a_mesh_is_among_them(ranks, shape):
    axes = dict.fromkeys("zyx"[-len(shape) :], 0)
    splits = possible_splits(ranks, shape, axes, ("x",), 2)
    assert Topology.over(ranks, shape, axes, ("x",), 2) in [split.topology for split in splits]
    assert [split.sent_cells for split in splits] == sorted(split.sent_cells for split in splits)


def test_fixed_axes_and_what_cannot_be():
    splits = possible_splits(12, (40, 50, 60), {"z": 1, "y": 0, "x": 0})
    assert sorted(split.topology.sizes for split in splits) == [(1, a, 12 // a) for a in (1, 2, 3, 4, 6, 12)]
    assert possible_splits(7, (9, 9), {"y": 0, "x": 0}, (), 2) == []
    with pytest.raises(DecompositionError, match="the halo needs 3"):
        possible_splits(2, (9, 2), {"y": 0, "x": 0}, (), 3)
