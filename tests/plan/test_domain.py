"""Domains: who owns what, and who must send which particles to whom, against looking at every image of each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hpckit.errors import DecompositionError
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.topology import Topology

AXES = ("x", "y", "z")


def uneven(sizes, periodic, lower, upper, seed=1):
    rng = np.random.default_rng(seed)
    cuts = []
    for a, b, n in zip(lower, upper, sizes, strict=True):
        inner = np.sort(rng.uniform(a, b, n - 1)) if n > 1 else []
        cuts.append((a, *map(float, inner), b))
    return DomainDecomposition(Topology(AXES, sizes, periodic), tuple(cuts))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 1), (1, 3, 2), (4, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("periodic", [AXES, ("y",), ()])
@pytest.mark.parametrize("reach", [0.7, 3.1, 7.5])
def test_every_image_within_reach_is_sent_exactly_once(sizes, periodic, reach):
    """Reaches beyond a domain, and beyond the box, among them; some particles are outside of open sides."""
    lower, upper = np.array([-1.0, 0.0, 2.0]), np.array([4.0, 7.0, 5.0])
    domains = uneven(sizes, periodic, lower, upper)
    rng = np.random.default_rng(3)
    positions = rng.uniform(lower, upper, (60, 3))
    open_dims = ~domains.periodic
    positions[:9, open_dims] += rng.uniform(-3, 3, (9, int(open_dims.sum())))
    for d, cuts in enumerate(domains.cuts):  # on a cut: the upper domain's
        positions[9 + d, d] = cuts[(len(cuts) - 1) // 2]
    owners = domains.owners(positions)
    sent = set()
    for rank in range(domains.topology.size):
        low, high = domains.owned(rank)
        inside = ((positions >= low) & (positions < high)).all(axis=1)
        np.testing.assert_array_equal(inside, owners == rank)
        options, segments = domains.ghosts(rank, reach)
        assert segments[0].peer == rank
        assert segments[0].image == (0, 0, 0)
        combined = list(itertools.product(*options))
        for each, segment in list(zip(combined, segments, strict=True))[1:]:
            wanted = np.all(
                [(positions[:, d] >= e.low) & (positions[:, d] < e.high) for d, e in enumerate(each)], axis=0
            )
            for particle in np.flatnonzero(wanted & inside):
                assert (segment.peer, particle, segment.image) not in sent
                sent.add((segment.peer, particle, segment.image))
    expected = set()
    most = [range(-k, k + 1) for k in np.where(domains.periodic, np.ceil(reach / domains.lengths), 0).astype(int)]
    for rank, image in itertools.product(range(domains.topology.size), itertools.product(*most)):
        low, high = domains.owned(rank)
        places = positions + np.array(image) * domains.lengths
        near = ((places >= low - reach) & (places < high + reach)).all(axis=1)
        mine = (owners == rank) & (image == (0, 0, 0))
        expected |= {(rank, particle, image) for particle in np.flatnonzero(near & ~mine)}
    assert sent == expected


def test_who_sends_also_receives():
    domains = uneven((3, 2, 2), ("x", "z"), [0, 0, 0], [9, 9, 9])
    peers = [{s.peer for s in domains.ghosts(rank, 2.0)[1]} - {rank} for rank in range(12)]
    for rank, others in enumerate(peers):
        for other in others:
            assert rank in peers[other]


def test_wrong_boxes_are_refused():
    topology = Topology(AXES, (2, 1, 1), ())
    with pytest.raises(DecompositionError, match="must be finite and grow"):
        DomainDecomposition.even(topology, [0, 0, 0], [1, -1, 1])
    with pytest.raises(DecompositionError, match="2 ranks along x have 3 cuts"):
        DomainDecomposition(topology, ((0, 1), (0, 1), (0, 1)))
    with pytest.raises(DecompositionError, match="three axes"):
        DomainDecomposition.even(Topology(("x",), (2,), ()), [0], [1])
