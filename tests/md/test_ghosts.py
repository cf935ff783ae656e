"""Ghosts between ranks of a node and between nodes: the checks are in tests/programs/ghosts.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("ranks", [4, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3, 5, 6))])
def test_ghosts_are_the_same_through_shared_memory_and_by_messages(mpirun, ranks):
    assert "all good" in mpirun(ranks, "ghosts.py").stdout
