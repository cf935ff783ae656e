"""Transport of tracers: simd against the reference, constants stay, mass stays, no new extremes, order of accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral, stable
from hpckit.kernels.euler.box import dispatch as euler
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import HALO, REACH, Sweep
from hpckit.kernels.euler.status import new_status
from hpckit.kernels.euler.tracers import dispatch, reference

DX, DY, DZ, DT, BETA = 50.0, 45.0, 60.0, 0.1, 0.05
SPACING = (DZ, DY, DX)
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))
INSIDE = (..., slice(REACH, -REACH), slice(REACH, -REACH))


def wrap(owned: np.ndarray, width: int) -> np.ndarray:
    """Periodic in y and x, with a halo."""
    return np.pad(owned, ((0, 0), (0, 0), (width, width), (width, width)), mode="wrap")


def gust(nz: int, ny: int, nx: int, seed: int = 0) -> np.ndarray:
    """A violent state, [5, nz, ny, nx]: winds of 60 m/s and a density off by up to a few percent."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(FIELDS, nz, ny, nx)) * np.array([0.01, 25.0, 25.0, 25.0, 1.0])[:, None, None, None]


def step(
    kernels, owned: np.ndarray, tracers: np.ndarray, base, dim: int, bounded: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The sweep of the air along a dim and the tracers with it."""
    state, q = wrap(owned, HALO), wrap(tracers, REACH)
    shape = owned.shape[1:]
    old, out = state[RHO].copy(), np.full_like(q, np.nan)
    flux = np.zeros(tuple(n + (d == dim) for d, n in enumerate(shape)))
    numbers, status = Sweep(SPACING[dim], DT, BETA, 1), new_status(state)
    if dim:
        sweep = euler.sweep_x if dim == 2 else euler.sweep_y
        sweep(state, state, base.column, flux, numbers, status)
    else:
        euler.sweep_z(state, state, base.faces_3d, base.ghost, flux, numbers, status)
    rates = np.full(shape[0], DT / SPACING[dim])
    kernels.transport(q, out, old, state[RHO], base.column, flux, dim, rates, bounded, False)
    return state[OWNED].copy(), out[INSIDE].copy()


SHAPES = [(4, 6, 6), (7, 9, 37), (5, 6, 301)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("bounded", [True, False])
def test_transport_is_the_reference(bounded, dim, shape):
    base = base_state(stable(300.0, 0.012), shape[0], DZ)
    q = np.random.default_rng(3).uniform(size=(2, *shape))
    expected, actual = (step(kernels, gust(*shape), q, base, dim, bounded)[1] for kernels in (reference, dispatch))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-14)
    assert np.abs(actual - q).max() > 0.01


def test_constant_stays_mass_stays_and_no_extremes_are_made():
    shape = (9, 13, 61)
    base = base_state(stable(300.0, 0.012), shape[0], DZ)
    air = gust(*shape)
    rng = np.random.default_rng(4)
    q = np.array([np.full(shape, 0.3), rng.uniform(size=shape), rng.integers(0, 2, size=shape)])
    density = base.column[0][:, None, None]
    before = ((air[RHO] + density) * q).sum(axis=(1, 2, 3))
    for dim in (2, 1, 0, 0, 1, 2):
        low, high = q.min(axis=(1, 2, 3)), q.max(axis=(1, 2, 3))
        air, q = step(dispatch, air, q, base, dim)
        assert (q.min(axis=(1, 2, 3)) >= low - 1e-15).all()
        assert (q.max(axis=(1, 2, 3)) <= high + 1e-15).all()
    np.testing.assert_allclose(q[0], 0.3, rtol=5e-15)
    np.testing.assert_allclose(((air[RHO] + density) * q).sum(axis=(1, 2, 3)), before, rtol=1e-14)
    assert np.abs(air[RHO]).max() > 0.02  # the density did change


def test_linear_transport_keeps_constants_and_mass_and_adds_up():
    """What is carried of a sum is the sum of what is carried: theta_e and its like stay what they are."""
    shape = (9, 13, 61)
    base = base_state(stable(300.0, 0.012), shape[0], DZ)
    air, rng = gust(*shape), np.random.default_rng(4)
    one, other = rng.uniform(size=(2, *shape))
    q = np.array([np.full(shape, 0.3), one, other, 2 * one - 3 * other])
    density = base.column[0][:, None, None]
    before = ((air[RHO] + density) * q).sum(axis=(1, 2, 3))
    for dim in (2, 1, 0):
        air, q = step(dispatch, air, q, base, dim, False)
    np.testing.assert_allclose(q[0], 0.3, rtol=5e-15)
    np.testing.assert_allclose(((air[RHO] + density) * q).sum(axis=(1, 2, 3)), before, rtol=1e-13)
    np.testing.assert_allclose(q[3], 2 * q[1] - 3 * q[2], rtol=0, atol=1e-13)


def uniform_wind(n: int, dim: int, courant: float, bounded: bool = True) -> float:
    """Mean error of a smooth hill after one turn around n cells in a uniform wind, its height 1."""
    shape = [4, 6, 6]
    shape[dim] = n
    base = base_state(neutral(300.0), 4, DZ)
    state = np.zeros((FIELDS, *shape))
    state[RHO_U if dim == 2 else RHO_V] = base.column[0][:, None, None]  # 1 m/s
    place = (np.arange(n) + 0.5) / n
    hill = (np.sin(np.pi * place) ** 4).reshape([-1 if d == dim else 1 for d in range(3)]) * np.ones(shape)
    q, old = hill[None].copy(), wrap(state, HALO)[RHO].copy()
    flux = np.ones(tuple(size + (d == dim) for d, size in enumerate(shape))) * base.column[0][:, None, None]
    for _ in range(round(n / courant)):
        padded = wrap(q, REACH)
        out = np.empty_like(padded)
        dispatch.transport(padded, out, old, old, base.column, flux, dim, np.full(4, courant), bounded)
        q = out[INSIDE].copy()
    return float(np.abs(q[0] - hill).mean())


@pytest.mark.parametrize("dim", [1, 2])
def test_error_after_one_turn_falls_with_more_than_the_second_order(dim):
    errors = [uniform_wind(n, dim, 0.4) for n in (24, 48, 96)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (orders > 2.3).all(), orders  # three where smooth, the limiter takes some at the top
    linear = [uniform_wind(n, dim, 0.1, False) for n in (12, 24)]
    assert np.log2(linear[0] / linear[1]) > 3.5, linear  # five in space, three where a large share passes
    assert uniform_wind(24, dim, 1.0) < 1e-14  # whole cells a step: exact


def test_mirrored_air_carries_mirrored_bits():
    shape = (5, 7, 24)
    base = base_state(neutral(300.0), shape[0], DZ)
    air, q = gust(*shape), np.random.default_rng(6).uniform(size=(1, *shape))
    turned = air[..., ::-1].copy()
    turned[RHO_U] *= -1
    one = step(dispatch, air, q, base, 2)[1]
    other = step(dispatch, turned, q[..., ::-1].copy(), base, 2)[1]
    np.testing.assert_array_equal(other[..., ::-1], one)
    assert air[RHO_W].any()


def test_dispatch_refuses_what_does_not_fit():
    base = base_state(neutral(300.0), 4, DZ)
    rho, q, flux, rates = np.zeros((4, 18, 18)), np.zeros((1, 4, 12, 12)), np.zeros((4, 6, 7)), np.ones(4)
    with pytest.raises(ValueError, match="a mass flux of"):
        dispatch.transport(q, q.copy(), rho, rho.copy(), base.column, flux, 1, rates)
    with pytest.raises(ValueError, match="as many rates"):
        dispatch.transport(q, q.copy(), rho, rho.copy(), base.column, flux, 2, rates[:1])
    with pytest.raises(TypeError, match="float32"):
        dispatch.transport(q.astype("f4"), q.copy(), rho, rho.copy(), base.column, flux, 2, rates)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_density_changes_with_what_it_carries_on_levels_of_any_thickness(dim, bounded):
    """The compiled form against NumPy, the density to the bit; mass of air and tracers is kept."""
    rng, found, (nz, ny, nx) = np.random.default_rng(1), [], (5, 9, 7)
    thick, area = rng.random(nz) + 0.5, 0.8 if dim else 1.0
    rates = np.full(nz, 1 / area) if dim else 1 / thick
    column = np.array([np.linspace(1.5, 1.0, nz)] * 3)
    density, q = 0.01 * rng.normal(size=(nz, ny, nx)), rng.random((2, nz, ny, nx))
    flux = 0.1 * rng.normal(size=[n + (d == dim) for d, n in enumerate((nz, ny, nx))])
    ends = np.moveaxis(flux, dim, 0)
    ends[-1] = ends[0] = 0.0 if dim == 0 else ends[0]
    for kernels in (reference, dispatch):
        old, new, carried = (
            wrap(density[None], HALO)[0],
            np.full((nz, ny + 2 * HALO, nx + 2 * HALO), np.nan),
            wrap(q, REACH),
        )
        out = np.full_like(carried, np.nan)
        kernels.transport(carried, out, old, new, column, flux, dim, rates, bounded, True)
        found.append((new[OWNED], out[INSIDE]))
    np.testing.assert_array_equal(found[1][0], found[0][0])
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=0, atol=1e-14)
    masses = [(each + column[0][:, None, None]) * thick[:, None, None] for each in (density, found[1][0])]
    np.testing.assert_allclose(masses[1].sum(), masses[0].sum(), rtol=1e-14)
    for before, after in zip(q, found[1][1], strict=True):
        np.testing.assert_allclose((masses[1] * after).sum(), (masses[0] * before).sum(), rtol=1e-14)
    assert np.abs(found[1][0] - density).max() > 0.05


def test_what_is_below_zero_is_made_up_for_from_its_column_by_mass():
    rng, found = np.random.default_rng(3), []
    start, density = rng.uniform(-0.2, 1.0, (2, 7, 4 + 6, 5 + 6)), rng.uniform(0.5, 1.5, (1, 7, 4 + 12, 5 + 12))
    rho, inner = density[:, :, 6:-6, 6:-6], (..., slice(3, -3), slice(3, -3))
    for kernels in (reference, dispatch):
        q = start.copy()
        kernels.borrow(q, density)
        found.append(q)
        np.testing.assert_allclose((rho * q[inner]).sum(axis=1), (rho * start[inner]).sum(axis=1), rtol=1e-13)
        assert q[inner].min() >= -1e-16
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-15)
    assert start[inner].min() < -0.1


def test_what_a_column_lacks_of_a_kind_comes_from_its_vapor():
    rng, found = np.random.default_rng(4), []
    start, density = rng.uniform(-0.02, 0.01, (3, 7, 4 + 6, 5 + 6)), rng.uniform(0.5, 1.5, (1, 7, 4 + 12, 5 + 12))
    start[0] = 1.0
    rho, inner = density[:, :, 6:-6, 6:-6], (..., slice(3, -3), slice(3, -3))
    for kernels in (reference, dispatch):
        q = start.copy()
        kernels.borrow(q, density)
        found.append(q)
        np.testing.assert_allclose((rho * q[inner]).sum(axis=(0, 1)), (rho * start[inner]).sum(axis=(0, 1)), rtol=1e-13)
        assert q[inner].min() >= -1e-16
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-15)
