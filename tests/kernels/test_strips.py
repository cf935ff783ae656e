"""Strips side by side in a vector: where cells go and come from, and arithmetic that keeps its order."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.compile.intrinsics import store
from hpckit.kernels.compile.jit import jit
from hpckit.kernels.compile.strips import LANES, collect, load, spread
from hpckit.kernels.compile.vectors import Vec


@jit
def _turn(field, place, strips, ring, at):
    spread(field, place, strips, ring, at)


@jit
def _turn_back(ring, at, field, place, strips):
    collect(field, place, strips, load(ring, at), load(ring, at + LANES))


@jit
def _settle(values, shift):
    store(values, 0, (load(values, 0) + shift) - shift)


@pytest.mark.parametrize("distance", [1, 2, 7])
def test_two_columns_of_each_strip_stand_side_by_side_and_return(distance):
    field, ring = np.arange(100.0), np.full(4 * LANES, -1.0)
    strips = distance * np.arange(LANES)
    _turn(field, 5, strips, ring, 3)
    np.testing.assert_array_equal(ring[3 : 3 + LANES], field[5 + strips])
    np.testing.assert_array_equal(ring[3 + LANES : 3 + 2 * LANES], field[6 + strips])
    assert (ring == -1.0).sum() == 2 * LANES
    back = np.zeros(100)
    _turn_back(ring, 3, back, 5, strips)
    np.testing.assert_array_equal(np.flatnonzero(back), np.unique([5 + strips, 6 + strips]))
    np.testing.assert_array_equal(back[back > 0], field[np.flatnonzero(back)])


def test_sums_of_these_vectors_are_not_reordered():
    """Vectors of "d" would give the values back."""
    assert Vec("w", 4) != Vec("d", 4)
    values = np.array([1e-30, 1.0, 3e-17, -2.0] * 2)
    _settle(values, 1.0)
    np.testing.assert_array_equal(values[:LANES], np.array([0.0, 1.0, 0.0, -2.0] * 2)[:LANES])
