"""Tensors on ranks: every change of layout against NumPy, to the bit."""

from __future__ import annotations

import pytest
from conftest import by_day


@pytest.mark.parametrize("ranks", by_day([4, 6], 4))
def test_tensors_change_their_layout(mpirun, ranks):
    """Meshes of 1, 2, 3 and 4 ranks in one job; of 6 at night."""
    assert "all good" in mpirun(ranks, "tensors.py", timeout=240).stdout
