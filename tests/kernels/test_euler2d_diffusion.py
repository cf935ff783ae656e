"""Diffusion in the slab: simd against the reference, the factor of the scheme, conservation, bits over splits."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral, stable
from hpckit.kernels.euler.constants import HALO, RHO, RHO_THETA, RHO_U, RHO_W
from hpckit.kernels.euler.slab import dispatch, reference

DX, DZ = 50.0, 60.0
OWNED = (..., slice(HALO, -HALO))


def wrap(owned):
    return np.pad(owned, ((0, 0), (0, 0), (HALO, HALO)), mode="wrap")


def noise(nz, nx):
    return np.random.default_rng(1).normal(size=(4, nz, nx)) * np.array([0.004, 2.0, 2.0, 1.0])[:, None, None]


def test_simd_is_the_reference_and_conserves():
    base = base_state(stable(300.0, 0.012, 7.0), 7, DZ)
    calm = np.array([base.wind, 0 * base.wind, base.theta])
    start = wrap(noise(7, 23))
    expected, actual = start.copy(), start.copy()
    for kernels, state in ((reference, expected), (dispatch, actual)):
        kernels.diffuse(state, base.column, calm, DX, DZ, 300.0, np.empty_like(state))
    np.testing.assert_allclose((actual - start)[OWNED], (expected - start)[OWNED], rtol=0, atol=1e-11)
    np.testing.assert_array_equal(actual[RHO], start[RHO])
    change = (actual - start)[OWNED]
    for field, kept in ((RHO_U, True), (RHO_THETA, True), (RHO_W, False)):  # w leaves through the walls
        lost = abs(change[field].sum()) / np.abs(change[field]).sum()
        assert (lost < 1e-12) == kept, (field, lost)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_wave_is_damped_by_the_factor_of_the_scheme(dim):
    """1 - 4 K dt / d2 sin2(k d / 2), where the density is constant; in z cosines, of w a sine."""
    shape, amount = (8, 11), 200.0
    base = base_state(neutral(300.0), 8, DZ)
    column, calm = base.column.copy(), np.zeros((3, 8))
    column[0], calm[2] = 1.25, column[1] / 1.25
    n, width = shape[dim], (DZ, DX)[dim]
    phase = (np.pi, 2 * np.pi)[dim] * 2 / n
    places = phase * (np.arange(n) + 0.5)
    start = np.zeros((4, *shape))
    start[1:] = np.cos(places).reshape(-1, 1) if dim == 0 else np.cos(places)
    start[RHO_W] = np.sin(places)[:, None] if dim == 0 else 0.0  # along x it would leave through the walls too
    state = wrap(start)
    dispatch.diffuse(state, column, calm, DX, DZ, amount, np.empty_like(state))
    factor = 1 - 4 * amount / width**2 * np.sin(phase / 2) ** 2
    np.testing.assert_allclose(state[OWNED], factor * start, rtol=0, atol=1e-12)


def test_the_base_state_stays():
    base = base_state(stable(300.0, 0.012, 7.0), 9, DZ)
    state = np.zeros((4, 9, 25))
    state[RHO_U] = (base.column[0] * base.wind)[:, None]
    calm = np.array([base.wind, 0 * base.wind, base.theta])
    start = state.copy()
    dispatch.diffuse(state, base.column, calm, DX, DZ, 300.0, np.empty_like(state))
    np.testing.assert_allclose(state, start, rtol=0, atol=1e-11)


def test_bits_do_not_depend_on_the_split():
    base = base_state(stable(300.0, 0.012), 7, DZ)
    calm = np.array([base.wind, 0 * base.wind, base.theta])
    padded = wrap(noise(7, 29))
    whole = padded.copy()
    dispatch.diffuse(whole, base.column, calm, DX, DZ, 300.0, np.empty_like(whole))
    for left, right in ((0, 13), (13, 29)):
        block = np.ascontiguousarray(padded[..., left : right + 2 * HALO])
        dispatch.diffuse(block, base.column, calm, DX, DZ, 300.0, np.empty_like(block))
        np.testing.assert_array_equal(block[OWNED], whole[..., left + HALO : right + HALO])


def test_arrays_that_do_not_fit_are_refused():
    state, column, calm = np.zeros((4, 7, 25)), np.ones((3, 7)), np.zeros((3, 7))
    with pytest.raises(ValueError, match="do not fit 7 rows"):
        dispatch.diffuse(state, column, calm[:, :6].copy(), DX, DZ, 1.0, state.copy())
    with pytest.raises(ValueError, match="state and work"):
        dispatch.diffuse(state, column, calm, DX, DZ, 1.0, state[:, :6].copy())
    with pytest.raises(TypeError, match="float64"):
        dispatch.diffuse(state.astype(np.float32), column, calm, DX, DZ, 1.0, state)
