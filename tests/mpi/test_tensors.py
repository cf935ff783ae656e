"""Tensors on ranks: every change of layout against NumPy, to the bit."""

from __future__ import annotations


def test_tensors_change_their_layout(mpirun):
    """Meshes of 1, 2, 3, 4 and 6 ranks, in one job."""
    assert "all good" in mpirun(6, "tensors.py", timeout=240).stdout
