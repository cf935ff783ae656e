"""Relaxation: simd against the reference, the rates it is given, what it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import stable
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import HALO
from hpckit.kernels.euler.relaxation import dispatch, reference

NZ, NY, NX, DT = 7, 9, 11, 2.0
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))


@pytest.fixture
def air():
    """A base state with wind, what diffusion and relaxation leave alone, and a disturbed state."""
    base = base_state(stable(300.0, 0.012), NZ, 400.0)
    calm = np.array([12.0 + 0.01 * base.height, -3.0 - 0.02 * base.height, 0 * base.height, base.theta])
    sizes = np.array([0.01, 4.0, 4.0, 4.0, 2.0])[:, None, None, None]
    state = sizes * np.random.default_rng(1).normal(size=(FIELDS, NZ, NY + 2 * HALO, NX + 2 * HALO))
    return base, calm, state


def rates(count: int, depth: int) -> np.ndarray:
    """From both ends inward, 0 in the interior."""
    index = np.arange(count)
    middles = np.maximum(0, depth - np.minimum(index, count - 1 - index)) * 0.05
    return np.stack([middles, np.maximum(0, depth - np.minimum(index, count - index)) * 0.05])


def none(count: int) -> np.ndarray:
    return np.zeros((2, count))


@pytest.mark.parametrize("back", [0, 1])
def test_relaxation_is_the_reference(air, back):
    base, calm, start = air
    lid = np.maximum(0, np.arange(NZ) - 3) * 0.1
    expected, actual = start.copy(), start.copy()
    added = reference.relax(expected, base.column, calm, rates(NX, 3), rates(NY, 2), lid, DT, back)
    given = dispatch.relax(actual, base.column, calm, rates(NX, 3), rates(NY, 2), lid, DT, back)
    assert given == pytest.approx(added, 1e-12)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    assert added == pytest.approx((actual - start)[RHO].sum(), rel=1e-10)
    x, y = rates(NX, 3), rates(NY, 2)
    for field, at_x, at_y in ((RHO, 0, 0), (RHO_U, 1, 0), (RHO_V, 0, 1), (RHO_W, 0, 0), (RHO_THETA, 0, 0)):
        moves = np.maximum(x[at_x], y[at_y][:, None]) > 0
        moves = moves | (lid[:, None, None] > 0) if field != RHO else np.broadcast_to(moves, (NZ, NY, NX))
        np.testing.assert_array_equal((actual != start)[OWNED][field], moves)


def test_the_lid_relaxes_winds_and_theta_by_its_rate_and_keeps_the_mass(air):
    base, calm, state = air
    before = state[OWNED].copy()
    rate = 0.7
    dispatch.relax(state, base.column, calm, none(NX), none(NY), np.full(NZ, rate), DT, 0)
    after = state[OWNED]
    np.testing.assert_array_equal(after[RHO], before[RHO])
    rho = before[RHO] + base.column[0][:, None, None]
    column = base.column[:, :, None, None]
    for field, row in ((RHO_U, 0), (RHO_V, 1), (RHO_W, 2), (RHO_THETA, 3)):
        base_part = column[1] if field == RHO_THETA else 0.0
        deviation = [(each[field] + base_part) / rho - calm[row][:, None, None] for each in (before, after)]
        np.testing.assert_allclose(deviation[1], deviation[0] / (1 + rate * DT), rtol=0, atol=1e-11)


def test_beside_an_open_side_everything_returns_to_the_base_state(air):
    base, calm, state = air
    for _ in range(60):
        dispatch.relax(state, base.column, calm, none(NX) + 1.0, none(NY), np.zeros(NZ), DT, 0)
    expected = np.zeros((FIELDS, NZ, NY, NX))
    expected[RHO_U], expected[RHO_V] = ((base.column[0] * wind)[:, None, None] for wind in calm[:2])
    np.testing.assert_allclose(state[OWNED], expected, rtol=0, atol=1e-12)


def test_dispatch_refuses_what_does_not_fit(air):
    base, calm, state = air
    with pytest.raises(ValueError, match="these rates belong to a state of"):
        dispatch.relax(state, base.column, calm, none(NX + 1), none(NY), np.zeros(NZ), DT, 0)
    with pytest.raises(TypeError, match="float32"):
        dispatch.relax(state.astype(np.float32), base.column, calm, none(NX), none(NY), np.zeros(NZ), DT, 0)
