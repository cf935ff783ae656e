"""Many random decompositions, each proved; a nightly job runs them (pytest -m nightly)."""

from __future__ import annotations

import random

import pytest

from hpckit.errors import DecompositionError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.factor import best_factorization, factorizations
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.proving import prove
from hpckit.plan.topology import Topology

pytestmark = pytest.mark.nightly
NAMES = ("z", "y", "x")


@pytest.mark.parametrize("seed", range(300))
def test_a_random_decomposition_is_proved_or_refused(seed):
    rng = random.Random(seed)
    dims = rng.randint(1, 3)
    names = NAMES[-dims:]
    ranks = rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 36, 64, 128])
    shape = tuple(rng.randint(1, 60) for _ in names)
    halo = tuple(rng.randint(0, 3) for _ in names)
    periodic = tuple(name for name in names if rng.random() < 0.5)
    location = tuple(rng.choice(["center", "face"]) for _ in names)
    try:
        sizes = best_factorization(ranks, shape, None, [name in periodic for name in names], halo)
        cells = Decomposition(shape, Topology(names, sizes, periodic), halo, location)
    except DecompositionError:
        fits = [n // max(1, width) for n, width in zip(shape, halo, strict=True)]
        assert all(any(s > fit for s, fit in zip(sizes, fits, strict=True)) for sizes in factorizations(ranks, dims))
        return
    assert prove(halo_plan(cells)).ranks == ranks


def test_ten_thousand_ranks():
    topology = Topology(NAMES, (25, 20, 20), ("x",))
    assert prove(halo_plan(Decomposition((1600, 1601, 1603), topology, 3))).ranks == 10_000
