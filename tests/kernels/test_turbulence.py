"""Mixing by turbulence: simd against the reference, Smagorinsky's viscosity by hand, decay of shear, what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral, stable
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.turbulence import dispatch, reference

DX, DY, DZ = SPACING = (50.0, 45.0, 60.0)
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))
CS, PRANDTL = 0.2, 1 / 3
MOMENTA = (RHO_U, RHO_V, RHO_W)


def wrap(owned: np.ndarray, width: int = HALO) -> np.ndarray:
    """Periodic in y and x, with a halo."""
    return np.pad(owned, ((0, 0), (0, 0), (width, width), (width, width)), mode="wrap")


def noise(nz: int, ny: int, nx: int) -> np.ndarray:
    sizes = np.array([0.01, 5.0, 5.0, 5.0, 1.0])[:, None, None, None]
    return np.random.default_rng(2).normal(size=(FIELDS, nz, ny, nx)) * sizes


def calm_of(base) -> np.ndarray:
    return np.array([10 + 0.01 * base.height, -0.02 * base.height, 0 * base.height, base.theta])


def spaces(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full_like(state, np.nan), np.zeros(state.shape[1:])


def test_mixing_is_the_reference_and_conserves():
    base = base_state(stable(300.0, 0.012), 7, DZ)
    calm, start = calm_of(base), wrap(noise(7, 9, 13))
    results = []
    for kernels in (reference, dispatch):
        state = start.copy()
        work, viscosity = spaces(state)
        greatest = kernels.eddy_viscosity(state, base.column, SPACING, CS, PRANDTL, 20.0, work, viscosity)
        kernels.mix(state, calm, SPACING, 2.0, PRANDTL, work, viscosity)
        results.append((state[OWNED] - start[OWNED], viscosity[OWNED], greatest))
    (expected, thick, most), (actual, found, greatest) = results
    np.testing.assert_allclose(found, thick, rtol=1e-12, atol=1e-12)
    assert greatest == pytest.approx(most, rel=1e-12)
    assert greatest == 20.0  # the limit
    assert found.min() < 15
    for field in range(1, FIELDS):
        np.testing.assert_allclose(actual[field], expected[field], rtol=0, atol=1e-11 * np.abs(expected[field]).max())
    assert not actual[RHO].any()
    kept = np.abs(actual.sum(axis=(1, 2, 3))) / np.abs(actual).sum(axis=(1, 2, 3)).clip(1e-30)
    assert (kept[[RHO_U, RHO_V, RHO_THETA]] < 1e-12).all()
    assert kept[RHO_W] > 1e-6  # ground and lid take it up


def winds(u: np.ndarray, v: np.ndarray, w: np.ndarray, base, theta: float = 0.0) -> np.ndarray:
    """A state with these winds on all cells, halo included, at the base's density and theta."""
    rho = base.column[0][:, None, None]
    zero = np.zeros(np.broadcast_shapes(u.shape, v.shape, w.shape, rho.shape))
    return np.array([zero, rho * u + zero, rho * v + zero, rho * w + zero, rho * theta + zero])


def test_no_viscosity_in_uniform_or_rotating_air():
    base = base_state(neutral(300.0), 6, DZ)
    z = base.height[:, None, None]
    y, x = (np.arange(n + 2 * HALO)[(None, slice(None)) + (None,) * k] * d for n, d, k in ((7, DY, 1), (9, DX, 0)))
    zero, spin, calm = np.zeros((1, 1, 1)), 0.01, np.zeros((4, 6))
    calm[3] = 300.0
    for u, v, w in (
        (zero + 30.0, zero - 8.0, zero + 3.0),
        (-spin * y, spin * x, zero),
        (spin * z, zero, -spin * x),
        (zero, -spin * z, spin * y),
    ):
        state = winds(u, v, w, base)
        work, viscosity = spaces(state)
        # Rounding of N2, a difference of theta, is all there is: (Cs Delta)2 sqrt(1e-16) at most.
        assert dispatch.eddy_viscosity(state, base.column, SPACING, CS, PRANDTL, 1e9, work, viscosity) < 1e-4
        viscosity[:] = 50.0
        before = state.copy()
        dispatch.mix(state, calm, SPACING, 3.0, PRANDTL, work, viscosity)
        inner = (slice(None), slice(1, -1), *OWNED[1:])  # ground and lid are free-slip
        np.testing.assert_allclose(state[inner], before[inner], rtol=0, atol=1e-10)


def test_viscosity_of_a_shear_flow_is_that_of_the_formula():
    """U = a z: D2 = a2, less N2 / Pr; nothing beyond the critical Richardson number."""
    shear = 0.02
    for frequency, factor in ((None, 1.0), (0.008, np.sqrt(1 - 3 * 0.008**2 / shear**2)), (0.015, 0.0)):
        base = base_state(neutral(300.0) if frequency is None else stable(300.0, frequency), 8, DZ)
        zero = np.zeros((1, 3 * HALO, 3 * HALO))
        state = winds(shear * base.height[:, None, None], zero, zero, base)
        work, viscosity = spaces(state)
        dispatch.eddy_viscosity(state, base.column, SPACING, CS, PRANDTL, 1e9, work, viscosity)
        plain = CS**2 * (DX * DY * DZ) ** (2 / 3) * shear
        np.testing.assert_allclose(viscosity[OWNED][1:-1], plain * factor, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_shear_wave_decays_as_the_scheme_says(dim):
    """Transverse waves by 1 - 4 K dt / d2 sin2(k d / 2), longitudinal ones twice that, theta by 1 / Pr of it."""
    shape, thick, dt = (8, 9, 11), 60.0, 1.5
    n, width, normal = shape[dim - 1], (DZ, DY, DX)[dim - 1], (RHO_W, RHO_V, RHO_U)[dim - 1]
    column = np.array([np.full(8, 1.25), np.full(8, 375.0), np.full(8, 1e5)])
    phase = (np.pi if dim == 1 else 2 * np.pi) * 2 / n
    cells = np.arange(n) + 0.5
    start = np.zeros((FIELDS, *shape))
    for field in range(1, FIELDS):
        wave = np.sin(phase * cells) if dim == 1 and field == RHO_W else np.cos(phase * cells)
        if dim == 1 or field != RHO_W:  # the walls would take what is constant in z of w
            start[field] = wave.reshape([-1 if d == dim else 1 for d in (1, 2, 3)])
    state = wrap(start)
    work, viscosity = spaces(state)
    dispatch.eddy_viscosity(state, column, SPACING, CS, 1.0, 1e9, work, viscosity)
    viscosity[:] = thick
    dispatch.mix(state, np.array([[0.0]] * 3 + [[300.0]]) + np.zeros(8), SPACING, dt, 0.5, work, viscosity)
    loss = 4 * thick * dt / width**2 * np.sin(phase / 2) ** 2
    factors = [1.0, *(1 - loss * (2 if field == normal else 1) for field in MOMENTA), 1 - 2 * loss]
    expected = np.array(factors)[:, None, None, None] * start
    np.testing.assert_allclose(state[OWNED], expected, rtol=0, atol=1e-12)


def test_tracers_diffuse_as_the_reference_and_keep_mass_and_bounds():
    base = base_state(neutral(300.0), 7, DZ)
    state = wrap(noise(7, 9, 13))
    viscosity = wrap(np.random.default_rng(5).uniform(0, 90, size=(1, 7, 9, 13)))[0]
    owned = np.random.default_rng(6).uniform(size=(2, 7, 9, 13))
    owned[0] = 0.7
    q = wrap(owned, REACH)
    results = []
    for kernels in (reference, dispatch):
        out = np.zeros_like(q)
        kernels.mix_tracers(q, out, state, base.column, SPACING, 3.0, viscosity)
        results.append(out[..., REACH:-REACH, REACH:-REACH])
    expected, actual = results
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(actual[0], owned[0])
    rho = state[OWNED][RHO] + base.column[0][:, None, None]
    assert (rho * actual[1]).sum() == pytest.approx((rho * owned[1]).sum(), rel=1e-14)
    assert owned[1].min() < actual[1].min() < actual[1].max() < owned[1].max()


def test_drag_slows_the_lowest_level_alone():
    base = base_state(neutral(300.0), 5, DZ)
    state = wrap(noise(5, 7, 9))
    expected, start = state.copy(), state.copy()
    dispatch.drag(state, base.column, 2e-3, DZ, 5.0)
    reference.drag(expected, base.column, 2e-3, DZ, 5.0)
    np.testing.assert_allclose(state, expected, rtol=1e-14)
    np.testing.assert_array_equal(state[:, 1:], start[:, 1:])
    rho = start[OWNED][RHO, 0] + base.column[0, 0]
    speed = [np.hypot(each[OWNED][RHO_U, 0], each[OWNED][RHO_V, 0]) / rho for each in (start, state)]
    # The implicit step of dV/dt = -Cd |V| V / dz.
    np.testing.assert_allclose(1 / speed[1] - 1 / speed[0], 2e-3 * 5.0 / DZ, rtol=1e-10)


def test_dispatch_refuses_what_does_not_fit():
    base = base_state(neutral(300.0), 5, DZ)
    state = wrap(noise(5, 7, 9))
    work, viscosity = spaces(state)
    with pytest.raises(ValueError, match="the viscosity must be"):
        dispatch.eddy_viscosity(state, base.column, SPACING, CS, 1.0, 1.0, work, viscosity[1:])
    with pytest.raises(TypeError, match="float32"):
        dispatch.drag(state.astype("f4"), base.column, 1e-3, DZ, 1.0)
