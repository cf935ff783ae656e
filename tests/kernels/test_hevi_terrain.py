"""The split dynamics over terrain: compiled forms against the reference; flat ground is the flat box."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels.euler.constants import C0, GAMMA, REACH
from hpckit.kernels.euler.hevi import dispatch as flat
from hpckit.kernels.euler.hevi.constants import HALO, NO_WATER, PER_CELL, PER_FACE, WATER, Substep, upwind_weights
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.stress import dispatch as flat_stress
from hpckit.kernels.euler.hevi.terrain import dispatch, reference
from hpckit.kernels.euler.hevi.terrain.constants import J_U, J_V, METRICS, PER_W, SIZE, STEEP, WORKS, Ground
from hpckit.kernels.euler.hevi.terrain.stress import dispatch as stress
from hpckit.kernels.euler.hevi.terrain.stress import reference as stress_reference
from hpckit.kernels.euler.hevi.terrain.stress.constants import ROWS
from tests.kernels.test_hevi import DX, DY, INNER, SHAPE, STAGE, air, blowing, fluxes, tables


def ground_of(rough: bool) -> Ground:
    """Metrics and base state of rough terrain, or of flat ground; they need not fit together."""
    rng, cells = np.random.default_rng(9), air().shape[1:]
    column, levels, wind = tables(SHAPE[0])
    base = np.zeros((4, *cells))
    base[:3], base[3] = column[:, :, None, None], levels[WATER, :-1, None, None]
    metric = np.zeros((METRICS, *cells))
    metric[[J_U, J_V, STEEP, PER_W, SIZE]] = 1.0
    winds = np.broadcast_to(wind[:, :, None, None], (2, *cells)).copy()
    if rough:
        base[:2] *= 1 + 0.1 * rng.random(cells)
        base[2] = C0 * column[1][:, None, None] ** GAMMA * (1 + 0.01 * rng.random(cells))
        metric += rng.uniform(-0.2, 0.2, metric.shape)
        winds += rng.normal(size=winds.shape)
    per_face, per_cell = levels[PER_FACE], levels[PER_CELL]
    tilt = np.array([0.5 * per_face[:-1], 0.5 * per_face[1:]])
    ratio = per_cell[1] / per_cell[0]
    tilt[:, 0] = 0.5 * (2 + ratio) * per_face[1], -0.5 * ratio * per_face[2]
    tilt[:, -1] = 0.0, per_face[-2]
    return Ground(base, metric, winds, tilt)


def stage_of(kernels, ground: Ground | None, water: np.ndarray = NO_WATER) -> dict[str, np.ndarray]:
    """What a stage of three substeps and the sponge leave; without `ground` by the flat kernels."""
    (column, levels, wind), wet = tables(SHAPE[0]), bool(water.size)
    stage = STAGE._replace(wet=wet)
    start, state, weights = air(1), air(2), upwind_weights(5)
    work = np.ones((WORKS if ground else FLAT_WORKS, *state.shape[1:]))
    slow = np.zeros_like(state)
    pressure = np.zeros((SHAPE[0], SHAPE[1] + 2, SHAPE[2] + 2))
    if ground:
        kernels.prepare(state, water, ground, levels, work)
        kernels.tendencies(state, work, ground, column, levels, weights, stage, slow)
    else:
        kernels.prepare(state, water, column, levels, work)
        kernels.tendencies(state, work, column, levels, wind, weights, stage, slow)
    kept = slow.copy()
    flat.begin(start, work[:FLAT_WORKS], pressure)
    flux, numbers = fluxes(), Substep(DX, DY, 0.5, 0.6, 0.1, 1 / 3, wet)
    for _ in range(3):
        if ground:
            kernels.substep(start, state, work, ground, slow, pressure, levels, *flux, numbers)
        else:
            kernels.substep(start, state, work, slow, pressure, levels, *flux, numbers)
        start = state
        pressure[:, [0, -1]] = pressure[:, [-2, 1]]
        pressure[:, :, [0, -1]] = pressure[:, :, [-2, 1]]
    found = {"slow": kept, "state": state[:, :, *INNER].copy(), "x": flux[0], "y": flux[1], "z": flux[2]}
    if ground:
        kernels.relax(state, ground, levels, np.linspace(0.0, 0.1, SHAPE[0]), 2.0)
        found["relaxed"] = state[:, :, *INNER]
    return found


def water_of(wet: bool) -> np.ndarray:
    return 0.02 * np.random.default_rng(4).random(air().shape[1:]) if wet else NO_WATER


@pytest.mark.parametrize("wet", by_day([False, True], True))  # dry air over terrain compiles for 20 s
def test_a_stage_over_terrain_is_the_reference(wet):
    ground, water = ground_of(True), water_of(wet)
    expected, actual = stage_of(reference, ground, water), stage_of(dispatch, ground, water)
    for name, values in expected.items():
        greatest = np.abs(values).max()
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * greatest, err_msg=name)
        assert greatest > 0


@pytest.mark.parametrize("wet", by_day([False, True], True))
def test_flat_ground_is_the_flat_box(wet):
    expected, actual = stage_of(flat, None, water_of(wet)), stage_of(dispatch, ground_of(False), water_of(wet))
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * np.abs(values).max(), err_msg=name)


@pytest.mark.parametrize("kernels", [reference, dispatch])
def test_the_coriolis_force_leaves_the_wind_of_the_base_state_alone_over_terrain(kernels):
    ground, (column, levels, _) = ground_of(True), tables(SHAPE[0])
    state = blowing(air(2)[0] + ground.base[0], ground.wind)
    work, water, found = np.ones((WORKS, *state.shape[1:])), water_of(True), []
    kernels.prepare(state, water, ground, levels, work)
    for coriolis in (0.0, 1e-3):
        found.append(np.zeros_like(state))
        stage = STAGE._replace(coriolis=coriolis)
        kernels.tendencies(state, work, ground, column, levels, upwind_weights(5), stage, found[-1])
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-15 * np.abs(found[0]).max())


def mixed(form, ground: Ground | None, cross: float = 1.0) -> dict[str, np.ndarray]:
    """What mixing leaves of a state and of two mixing ratios; without `ground` by the flat kernels."""
    (column, levels, _), state, cells = tables(SHAPE[0]), air(3), air().shape[1:]
    mu, rows, slow = np.zeros(cells), np.zeros((ROWS, *cells)), np.zeros_like(state)
    q = np.random.default_rng(5).random((2, SHAPE[0], *(n - 2 * (HALO - REACH) for n in cells[1:])))
    out, numbers = np.zeros_like(q), (levels, (DX, DY), 0.2, 1 / 3, 2e-3)
    if ground:
        work = np.ones((WORKS, *cells))
        dispatch.prepare(state, water_of(cross > 0), ground, levels, work)
        greatest = form.viscosity(state, work, ground, *numbers, rows, mu)
        form.mix(state, work, mu, ground, levels, (DX, DY), 5.0, 1 / 3, cross, rows, slow)
        form.mix_carried(q, out, state, mu, ground, levels, (DX, DY), 5.0)
    else:
        work, rest = np.ones((FLAT_WORKS, *cells)), np.zeros((4, SHAPE[0]))
        rest[:2], rest[3] = tables(SHAPE[0])[2], column[1] / column[0]
        flat.prepare(state, water_of(cross > 0), column, levels, work)
        greatest = form.viscosity(state, work, column, *numbers, mu)
        form.mix(state, work, mu, rest, levels, (DX, DY), 5.0, 1 / 3, cross)
        form.mix_carried(q, out, state, mu, column, levels, (DX, DY), 5.0)
    inside = out[:, :, 3:-3, 3:-3]
    return {"greatest": np.array(greatest), "mu": mu[:, *INNER], "state": state[:, :, *INNER], "q": inside}


@pytest.mark.parametrize("cross", [0.0, 1.0])
def test_mixing_over_terrain_is_the_reference(cross):
    ground = ground_of(True)
    expected, actual = mixed(stress_reference, ground, cross), mixed(stress, ground, cross)
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * np.abs(values).max(), err_msg=name)
    assert expected["mu"].min() >= 0
    assert np.abs(expected["state"] - air(3)[:, :, *INNER]).max() > 0.1


@pytest.mark.parametrize("cross", [0.0, 1.0])
def test_mixing_over_flat_ground_is_that_of_the_flat_box(cross):
    expected, actual = mixed(flat_stress, None, cross), mixed(stress, ground_of(False), cross)
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * np.abs(values).max(), err_msg=name)


def test_arrays_of_another_box_are_refused():
    ground, (_, levels, _) = ground_of(False), tables(SHAPE[0])
    with pytest.raises(ValueError, match="terrain, levels and work space"):
        dispatch.prepare(
            air(), NO_WATER, ground._replace(tilt=ground.tilt[:, 1:].copy()), levels, np.ones((WORKS, *air().shape[1:]))
        )
