"""Cuts that move with the work: a droplet's imbalance shrinks, and nothing else changes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpckit.particles.balance import _apart


def excess(work):
    """How much more than the mean the rank with most work has."""
    return max(work) / np.mean(work) - 1


def test_a_droplet_is_shared_evenly(mpirun):
    found = {ranks: json.loads(mpirun(ranks, "md_balance.py", timeout=150).stdout) for ranks in (1, 4)}
    four = found[4]
    assert excess(four["before"]) > 0.5
    assert excess(four["after"]) < 0.5 * excess(four["before"])
    assert (np.diff(four["cuts"]) > 0).all()
    assert four["place"] == pytest.approx(found[1]["place"], rel=1e-10)


def test_cuts_stay_apart():
    cuts = _apart(0.0, np.array([0.0, 0.05, 9.99]), 10.0, 0.5)
    assert np.diff(cuts).min() >= 0.5 - 1e-12
    assert cuts[0] == 0.0
    assert cuts[-1] == 10.0
    assert _apart(0.0, np.array([3.0, 7.0]), 10.0, 0.5) == (0.0, 3.0, 7.0, 10.0)
