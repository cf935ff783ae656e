"""The split dynamics over terrain: compiled forms against the reference; flat ground is the flat box."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.euler.constants import C0, GAMMA
from hpckit.kernels.euler.hevi import dispatch as flat
from hpckit.kernels.euler.hevi.constants import NO_WATER, PER_CELL, PER_FACE, LargeStage, Substep, upwind_weights
from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS
from hpckit.kernels.euler.hevi.terrain import dispatch, reference
from hpckit.kernels.euler.hevi.terrain.constants import J_U, J_V, METRICS, PER_W, STEEP, WORKS, Ground
from tests.kernels.test_hevi import DX, DY, INNER, SHAPE, STAGE, air, fluxes, tables


def ground_of(rough: bool) -> Ground:
    """Metrics and base state of rough terrain, or of flat ground; they need not fit together."""
    rng, cells = np.random.default_rng(9), air().shape[1:]
    column, levels, wind = tables(SHAPE[0])
    base = np.broadcast_to(column[:, :, None, None], (3, *cells)).copy()
    metric = np.zeros((METRICS, *cells))
    metric[[J_U, J_V, STEEP, PER_W]] = 1.0
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


def stage_of(kernels, ground: Ground | None, stage: LargeStage = STAGE) -> dict[str, np.ndarray]:
    """What a stage of three substeps and the sponge leave; without `ground` by the flat kernels."""
    column, levels, wind = tables(SHAPE[0])
    start, state, weights = air(1), air(2), upwind_weights(5)
    work = np.ones((WORKS if ground else FLAT_WORKS, *state.shape[1:]))
    slow, fast = np.zeros_like(state), np.zeros_like(state)
    pressure = np.zeros((SHAPE[0], SHAPE[1] + 2, SHAPE[2] + 2))
    if ground:
        kernels.prepare(state, ground, levels, work)
        kernels.tendencies(state, work, ground, column, levels, weights, stage, slow)
    else:
        kernels.prepare(state, NO_WATER, column, levels, work)
        kernels.tendencies(state, work, column, levels, wind, weights, stage._replace(wet=False), slow)
    kept = slow.copy()
    flat.begin(start, state, work[:FLAT_WORKS], fast, pressure)
    flux, numbers = fluxes(), Substep(DX, DY, 0.5, 0.6, 0.1, 1 / 3)
    for _ in range(3):
        if ground:
            kernels.substep(work, ground, slow, fast, pressure, levels, *flux, numbers)
        else:
            kernels.substep(work, slow, fast, pressure, levels, *flux, numbers._replace(wet=False))
        pressure[:, [0, -1]] = pressure[:, [-2, 1]]
        pressure[:, :, [0, -1]] = pressure[:, :, [-2, 1]]
    flat.finish(state, fast, state)
    found = {"slow": kept, "state": state[:, :, *INNER].copy(), "x": flux[0], "y": flux[1], "z": flux[2]}
    if ground:
        kernels.relax(state, ground, levels, np.linspace(0.0, 0.1, SHAPE[0]), 2.0)
        found["relaxed"] = state[:, :, *INNER]
    return found


def test_a_stage_over_terrain_is_the_reference():
    ground = ground_of(True)
    expected, actual = stage_of(reference, ground), stage_of(dispatch, ground)
    for name, values in expected.items():
        greatest = np.abs(values).max()
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * greatest, err_msg=name)
        assert greatest > 0


def test_flat_ground_is_the_flat_box():
    expected, actual = stage_of(flat, None), stage_of(dispatch, ground_of(False))
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * np.abs(values).max(), err_msg=name)


def test_arrays_of_another_box_are_refused():
    ground, (_, levels, _) = ground_of(False), tables(SHAPE[0])
    with pytest.raises(ValueError, match="terrain, levels and work space"):
        dispatch.prepare(
            air(), ground._replace(tilt=ground.tilt[:, 1:].copy()), levels, np.ones((WORKS, *air().shape[1:]))
        )
