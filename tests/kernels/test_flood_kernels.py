"""Flood kernels: simd against the reference, exact solutions, lakes at rest, dry land, symmetry, friction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import by_day
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpckit.apps.exact.shallow_water import bowl, ritter, stoker, thacker_planar, thacker_radial
from hpckit.kernels.flood import dispatch, reference, simd
from hpckit.kernels.flood.constants import BROKEN, DEPTH_MIN, HALO, RATE, WET, Physics
from hpckit.kernels.parts import INNER, OUTER, WHOLE

G, DRY = 9.81, 1e-6
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))


def stage(kernels, new, now, start, bottom, weight, dt, physics, part=WHOLE):
    """A stage; returns what it found."""
    found = dispatch.found_by(now)
    kernels.stage(new, now, start, bottom, weight, dt, physics, found, part)
    return dispatch.ends(found)


class Basin:
    """A basin with walls, or periodic in x, y or both, advanced by Heun's method."""

    def __init__(self, depth, bottom, dx=1.0, dy=1.0, u=0.0, v=0.0, periodic=""):
        self.spacing, self.periodic = (dx, dy), periodic
        self.state = np.zeros((3, depth.shape[0] + 2 * HALO, depth.shape[1] + 2 * HALO))
        self.state[OWNED] = depth, depth * u, depth * v
        self.bottom = self.fill(np.broadcast_to(np.pad(bottom, HALO), self.state.shape).copy(), 1.0)[0].copy()

    def fill(self, state, sign=-1.0):
        for axis, name, across in ((2, "x", 1), (1, "y", 2)):
            cells = np.moveaxis(state, axis, 0)
            n = cells.shape[0] - 2 * HALO
            for k in range(HALO):
                for out, mirrored, wrapped in ((1 - k, 2 + k, n + 1 - k), (n + 2 + k, n + 1 - k, 2 + k)):
                    cells[out] = cells[wrapped if name in self.periodic else mirrored]
                    if name not in self.periodic:
                        cells[out][across] *= sign
        return state

    def rate(self):
        self.fill(self.state)
        return self.stage(np.empty_like(self.state), self.state, 1.0, 0.0)[RATE]

    def stage(self, new, now, weight, dt, **physics):
        return stage(
            dispatch, new, now, self.state, self.bottom, weight, dt, Physics(G, *self.spacing, **physics, dry=DRY)
        )

    def step(self, dt, **physics):
        middle, new = np.zeros_like(self.state), np.zeros_like(self.state)
        self.fill(self.state)
        first = self.stage(middle, self.state, 1.0, dt, **physics)
        self.fill(middle)
        second = self.stage(new, middle, 0.5, dt, **physics)
        self.state = new
        return dt * max(first[RATE], second[RATE]), min(first[DEPTH_MIN], second[DEPTH_MIN])

    def run(self, end, cfl=0.45, **physics):
        time = 0.0
        while time < end:
            dt = min(cfl / self.rate(), end - time)
            courant, depth = self.step(dt, **physics)
            assert depth >= 0, "a depth is below 0"
            assert courant < 2, "a time step is far too long"
            time += dt
        return self.state[OWNED]


def noise(ny, nx, seed=0):
    """Wet and dry cells over rough ground, with halo."""
    rng = np.random.default_rng(seed)
    state = np.zeros((3, ny + 2 * HALO, nx + 2 * HALO))
    state[0] = np.maximum(0, rng.normal(size=state[0].shape) + 0.3)
    state[1:] = 2 * rng.normal(size=state[1:].shape) * state[0]
    start = state.copy()
    start[0] += 0.1 * rng.random(state[0].shape)
    return state, start, 0.5 * rng.normal(size=state[0].shape)


@pytest.mark.parametrize("nx", [3, 5, 23, simd.STRIP - 1, simd.STRIP, simd.STRIP + 1, 2 * simd.STRIP + 7])
@pytest.mark.parametrize(("weight", "forces"), [(1.0, (0.0, 0.0, 0.0)), (0.5, (1e-2, 0.03, 0.002))])
def test_a_stage_is_the_reference(nx, weight, forces):
    now, start, bottom = noise(11, nx)
    results = []
    for module in (dispatch, reference):
        new = np.full_like(now, 7.0)
        physics = Physics(G, 1.0, 1.3, *forces, 1e-3)
        told = stage(module, new, now, start, bottom, weight, 0.01, physics)
        results.append((new[OWNED].copy(), told))
        stage(module, new, now, start, bottom, weight, 0.01, physics, INNER)
        told_again = stage(module, new, now, start, bottom, weight, 0.01, physics, OUTER)
        np.testing.assert_array_equal(told_again, told)
        np.testing.assert_array_equal(new[OWNED], results[-1][0])
        new[OWNED] = 7.0
        assert (new == 7.0).all(), "the halo was written"
    (ours, our_told), (theirs, their_told) = results
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13 * np.abs(theirs).max())
    np.testing.assert_allclose(our_told, their_told, rtol=1e-12)
    assert np.abs(ours - start[OWNED]).max() > 1e-3
    np.testing.assert_allclose(
        dispatch.diagnose(now, bottom, physics), reference.diagnose(now, bottom, physics), rtol=1e-12
    )


@pytest.mark.parametrize(("rows", "columns"), [((0, 7), (0, 300)), ((4, 15), (1, 38)), ((9, 12), (187, 192))])
def test_bits_do_not_depend_on_the_split(rows, columns):
    now, start, bottom = noise(15, 300)
    cut = (..., slice(rows[0], rows[1] + 2 * HALO), slice(columns[0], columns[1] + 2 * HALO))
    whole, part = np.zeros_like(now), np.zeros_like(now[cut])
    arguments = (0.5, 0.01, Physics(G, 1.0, 1.3, 1e-2, 0.03, 0.002, 1e-3))
    stage(dispatch, whole, now, start, bottom, *arguments)
    pieces = (np.ascontiguousarray(array[cut]) for array in (now, start, bottom))
    stage(dispatch, part, *pieces, *arguments)
    np.testing.assert_array_equal(part[OWNED], whole[cut][OWNED])


@pytest.mark.parametrize("right", [0.0, 1e-4, 0.1, 0.7])
@pytest.mark.parametrize("turned", by_day([False, True], True))
def test_dam_breaks_are_those_of_stoker_and_ritter(right, turned):
    """First order of the error in the mean, as at any shock; also along y."""
    errors, end, half = [], 1.2, 10.0
    for n in (100, 200, 400):
        dx = 2 * half / n
        x = (np.arange(n) + 0.5) * dx - half
        depth = np.tile(np.where(x < 0, 1.0, right), (4, 1))
        if turned:
            depth = depth.T.copy()
        state = Basin(depth, np.zeros_like(depth), dx, dx).run(end)
        h, hu = (state[0].T, state[2].T) if turned else (state[0], state[1])
        assert (h == h[0]).all()
        exact_h, exact_u = stoker(x, end, 1.0, right, G)
        errors.append([np.abs(h[0] - exact_h).mean(), np.abs(hu[0] - exact_h * exact_u).mean()])
    # Over both refinements: where in its cell the shock stands makes single ones scatter.
    orders = np.log2(np.array(errors[0]) / np.array(errors[-1])) / 2
    assert orders.min() > 0.75, (orders, errors)
    assert errors[-1][0] < 1.5e-3
    assert errors[-1][1] < 6e-3


def test_smooth_flow_converges_in_second_order():
    states = []
    for n in (32, 64, 128, 256):
        x = (np.arange(n) + 0.5) / n
        wave = np.sin(2 * np.pi * x)
        depth = 1 + 0.1 * np.tile(wave, (4, 1)) + 0.0 * x
        basin = Basin(depth, np.tile(0.2 * np.cos(2 * np.pi * x), (4, 1)), 1 / n, 1 / n, u=0.3, periodic="xy")
        states.append(basin.run(0.05)[:2, 0])
    coarse = [(fine[:, ::2] + fine[:, 1::2]) / 2 for fine in states[1:]]
    errors = np.array([np.abs(a - b).mean() for a, b in zip(states, coarse, strict=False)])
    assert np.log2(errors[:-1] / errors[1:]).min() > 1.7, errors


@pytest.mark.parametrize(
    ("solution", "amplitude", "bound"), [(thacker_planar, 0.5, 0.03), (thacker_radial, 0.04, 0.02)]
)
def test_lakes_swing_in_their_bowl_as_those_of_thacker(solution, amplitude, bound):
    errors = []
    for n in (40, 80):
        dx = 4.0 / n
        x = (np.arange(n) + 0.5) * dx - 2.0
        x, y = np.meshgrid(x, x)
        h, u, v = solution(x, y, 0.0, 1.0, 0.1, amplitude, G)
        end = 1.1
        state = Basin(h, bowl(x, y, 1.0, 0.1), dx, dx, u, v).run(end)
        exact = solution(x, y, end, 1.0, 0.1, amplitude, G)[0]
        errors.append(np.abs(state[0] - exact).sum() / exact.sum())
        assert abs(state[0].sum() / h.sum() - 1) < 1e-13
    assert errors[1] < bound, errors
    assert math.log2(errors[0] / errors[1]) > 0.9, errors


def test_a_lake_with_an_island_stays_at_rest_to_the_bit():
    rng = np.random.default_rng(3)
    bottom = rng.integers(0, 3 * 2**30, (17, 23)) * 2.0**-30
    depth = np.maximum(2.0 - bottom, 0.0)
    assert (depth == 0).any()
    basin = Basin(depth, bottom)
    before = basin.state.copy()
    for _ in range(20):
        basin.step(0.05, manning=0.03, coriolis=1e-2)
    np.testing.assert_array_equal(basin.state[OWNED], before[OWNED])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), rough=st.floats(0, 5), friction=st.sampled_from([0.0, 0.05]))
@example(seed=6447596, rough=1.0, friction=0.0)  # a wave of subnormal speed over dry ground
def test_water_stays_and_depths_are_never_below_nothing(seed, rough, friction):
    rng = np.random.default_rng(seed)
    depth = np.where(rng.random((9, 14)) < 0.5, rng.random((9, 14)) * 10.0 ** rng.integers(-8, 2, (9, 14)), 0.0)
    basin = Basin(depth, rough * rng.random(depth.shape), u=rng.normal(), v=rng.normal())
    for _ in range(15):
        before = basin.state.copy()
        dt = 0.45 / basin.rate() if depth.any() else 0.1
        while min(basin.step(dt, manning=friction)[1], 0) < 0:  # as the app does
            basin.state, dt = before.copy(), dt / 2
            assert dt > 1e-12
    assert basin.state[OWNED][0].min() >= 0
    assert basin.state[OWNED][0].sum() == pytest.approx(depth.sum(), rel=1e-13)
    assert np.isfinite(basin.state[OWNED]).all()


def test_a_symmetric_start_stays_symmetric_to_the_bit():
    n = 32
    x = (np.arange(n) + 0.5) - n / 2
    square = x[:, None] ** 2 + x**2
    state = Basin(np.where(square < 36, 10.0, 0.0), 0.003 * square, periodic="").run(2.0, manning=0.02)
    h, hu, hv = state
    np.testing.assert_array_equal(h, h[::-1])
    np.testing.assert_array_equal(h, h[:, ::-1])
    np.testing.assert_array_equal(h, h.T)
    np.testing.assert_array_equal(hu, -hu[:, ::-1])
    np.testing.assert_array_equal(hu, hv.T)
    assert np.abs(hu).max() > 1


def test_a_steady_flow_down_a_slope_is_that_of_manning():
    """The speed is sqrt(slope) h**(2/3) / n, in a channel whose ends repeat depth and momentum."""
    slope, depth, manning, n = 0.01, 0.5, 0.03, 12
    speed = math.sqrt(slope) * depth ** (2 / 3) / manning
    bottom = np.broadcast_to(-slope * np.arange(n + 2 * HALO), (8, n + 2 * HALO)).copy()
    for first in (0.0, 2 * speed):
        now = np.zeros((3, *bottom.shape))
        now[0], now[1] = depth, depth * first
        for _ in range(6000):
            new = now.copy()
            stage(dispatch, new, now, now, bottom, 1.0, 0.05, Physics(G, 1.0, 1.0, 0.0, manning, 0.0, DRY))
            now[...] = new[:, HALO : HALO + 1, n // 2 : n // 2 + 1]
        np.testing.assert_allclose(now[0], depth, rtol=1e-10)
        np.testing.assert_allclose(now[1] / depth, speed, rtol=1e-6)


def test_rotation_turns_the_flow_and_keeps_its_speed():
    f, dt, steps = 1e-2, 1.0, 100
    basin = Basin(np.full((5, 6), 10.0), np.zeros((5, 6)), 1e3, 1e3, u=1.0, periodic="xy")
    for _ in range(steps):
        basin.step(dt, coriolis=f)
    u, v = basin.state[OWNED][1:, 2, 2] / 10
    np.testing.assert_allclose([u, v], [math.cos(f * dt * steps), -math.sin(f * dt * steps)], atol=1e-4)


def test_ritter_is_stoker_over_dry_ground():
    x = np.linspace(-8, 12, 41)
    for ours, theirs in zip(stoker(x, 1.0, 2.0, 1e-12, G), ritter(x, 1.0, 2.0, G), strict=True):
        np.testing.assert_allclose(ours[x < 7], theirs[x < 7], atol=1e-4)
    with pytest.raises(ValueError, match="deeper"):
        stoker(x, 1.0, 1.0, 2.0)


@pytest.mark.parametrize(("solution", "amplitude"), [(thacker_planar, 0.5), (thacker_radial, 0.05)])
def test_thacker_solves_the_equations(solution, amplitude):
    def fluxes(x, y, t):
        h, u, v = solution(x, y, t, 1.0, 0.1, amplitude, G)
        pressure = 0.5 * G * h * h
        return np.array(
            [[h, h * u, h * v], [h * u, h * u * u + pressure, h * u * v], [h * v, h * u * v, h * v * v + pressure]]
        )

    (x, y, t), e = (0.13, 0.21, 0.37), 1e-5
    change = (fluxes(x, y, t + e)[0] - fluxes(x, y, t - e)[0]) / (2 * e)
    change += (fluxes(x + e, y, t)[1] - fluxes(x - e, y, t)[1]) / (2 * e)
    change += (fluxes(x, y + e, t)[2] - fluxes(x, y - e, t)[2]) / (2 * e)
    h = fluxes(x, y, t)[0, 0]
    change[1:] += G * h * 0.2 * np.array([x, y])
    np.testing.assert_allclose(change, 0, atol=1e-9)


def test_what_is_lost_is_counted_and_what_does_not_fit_refused():
    now, start, bottom = noise(5, 6)
    now[0, 3, 3], now[2, 4, 5] = -1.0, np.nan
    physics = Physics(G, 1.0, 1.0, dry=1e-3)
    told = dispatch.diagnose(now, bottom, physics)
    assert told[BROKEN] == 2
    assert 0 < told[WET] < 29
    with pytest.raises(ValueError, match="memory of its own"):
        stage(dispatch, now, now, start, bottom, 1.0, 0.1, physics)
    with pytest.raises(ValueError, match="a state is"):
        dispatch.diagnose(now[:2].copy(), bottom, physics)
    with pytest.raises(TypeError, match="float32"):
        dispatch.diagnose(now.astype(np.float32), bottom, physics)
    with pytest.raises(ValueError, match="bottom is"):
        dispatch.diagnose(now[:, :4].copy(), bottom[:4].copy(), physics)
