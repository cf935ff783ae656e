"""The split dynamics of a box: compiled forms against the reference, rest, mass, and a constant that stays constant."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import C0, GAMMA
from hpckit.kernels.euler.hevi import dispatch, reference
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS, NO_WATER, WORKS, LargeStage, Substep, upwind_weights
from hpckit.kernels.euler.hevi.faces import passed, weights_of
from hpckit.kernels.euler.hevi.stress import dispatch as stress
from hpckit.kernels.euler.hevi.stress import reference as stress_reference

u8 = np.uint64
DX, DY = 450.0, 500.0
STAGE = LargeStage(DX, DY, 1e-3)
SHAPE = (9, 7, 13)
INNER = (slice(HALO, -HALO), slice(HALO, -HALO))


def tables(nz: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column, levels (stretched by a tenth each) and wind of some air."""
    thick = 100.0 * 1.1 ** np.arange(nz)
    z = np.cumsum(thick) - thick / 2
    heat = 350.0 - 0.02 * z
    column = np.array([heat / (300 + 0.003 * z), heat, C0 * heat**GAMMA])
    levels = np.zeros((LEVELS, nz + 1))
    levels[0, :-1] = 1 / thick
    levels[1, 1:-1] = 1 / np.diff(z)
    levels[2, 1:-1] = thick[:-1] / (thick[:-1] + thick[1:])
    levels[2, -1] = 1
    levels[3] = 1 - levels[2]
    levels[4, :-1] = 0.01
    return column, levels, np.array([3.0 + 0 * z, -2.0 + 0 * z])


def air(seed: int = 0) -> np.ndarray:
    """A rough state, periodic in y and x."""
    rng, (nz, ny, nx) = np.random.default_rng(seed), SHAPE
    scale = np.array([0.01, 8.0, 8.0, 3.0, 4.0])[:, None, None, None]
    owned = rng.normal(size=(FIELDS, nz, ny, nx)) * scale
    owned[RHO_W, 0] = 0
    owned[4, 3, 2, 5] = 120.0  # outside of the series of the pressure
    return np.pad(owned, ((0, 0), (0, 0), (HALO, HALO), (HALO, HALO)), mode="wrap")


def fluxes() -> list[np.ndarray]:
    nz, ny, nx = SHAPE
    return [np.zeros((nz, ny, nx + 1)), np.zeros((nz, ny + 1, nx)), np.zeros((nz + 1, ny, nx))]


def stage_of(kernels, water: np.ndarray, order: int = 5, weno: bool = False) -> dict[str, np.ndarray]:
    """What a stage of three substeps leaves."""
    (column, levels, wind), wet = tables(SHAPE[0]), bool(water.size)
    start, state = air(1), air(2)
    work, slow = np.ones((WORKS, *state.shape[1:])), np.zeros_like(state)
    pressure = np.zeros((SHAPE[0], SHAPE[1] + 2, SHAPE[2] + 2))
    weights, stage = upwind_weights(order, weno), STAGE._replace(wet=wet)
    kernels.linearize(state, water, column, levels, work, wind, weights, stage, slow, start, pressure)
    first = pressure.copy()
    flux = fluxes()
    for _ in range(3):
        kernels.substep(start, state, work, slow, pressure, levels, *flux, Substep(DX, DY, 0.5, 0.6, 0.1, 1 / 3, wet))
        start = state
        pressure[:, [0, -1]] = pressure[:, [-2, 1]]
        pressure[:, :, [0, -1]] = pressure[:, :, [-2, 1]]
    return {"slow": slow, "first": first, "state": state[:, :, *INNER], "x": flux[0], "y": flux[1], "z": flux[2]}


@pytest.mark.parametrize(
    ("weno", "wet", "order"),
    [
        (False, False, 5),
        (False, True, 5),
        *(
            pytest.param(*given, marks=pytest.mark.nightly)
            for given in ((False, False, 3), (False, True, 3), (True, False, 5), (True, True, 5))
        ),
    ],
)
def test_a_stage_is_the_reference(weno, wet, order):
    rng = np.random.default_rng(4)
    water = 0.02 * rng.random(air().shape[1:]) if wet else NO_WATER
    expected, actual = (stage_of(kernels, water, order, weno) for kernels in (reference, dispatch))
    for name, values in expected.items():
        greatest = np.abs(values).max()
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-12 * greatest, err_msg=name)
        assert greatest > 0


def blowing(rho: np.ndarray, winds: np.ndarray) -> np.ndarray:
    """A state of some density (with that of the base state) whose winds are the same everywhere; as `air`."""
    state = air(2)
    state[RHO_U] = 0.5 * (np.roll(rho, 1, 2) + rho) * winds[0]
    state[RHO_V] = 0.5 * (np.roll(rho, 1, 1) + rho) * winds[1]
    return state


@pytest.mark.parametrize("kernels", [reference, dispatch])
def test_the_coriolis_force_leaves_the_wind_of_the_base_state_alone_in_air_of_any_density(kernels):
    column, levels, wind = tables(SHAPE[0])
    state = blowing(air(2)[RHO] + column[0][:, None, None], wind[:, :, None, None])
    work, pressure = np.ones((WORKS, *state.shape[1:])), np.zeros((SHAPE[0], SHAPE[1] + 2, SHAPE[2] + 2))
    found = []
    for coriolis in (0.0, 1e-3):
        found.append(np.zeros_like(state))
        stage = STAGE._replace(coriolis=coriolis, wet=False)
        rest = (levels, work, wind, upwind_weights(5), stage, found[-1], state, pressure)
        kernels.linearize(state, NO_WATER, column, *rest)
    assert np.abs(found[0][RHO_U : RHO_V + 1]).max() > 1e-2
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-16 * np.abs(found[0]).max() + 1e-17)


@jit
def pass_faces(flux, q, row, follows, out):
    around = (u8(0), u8(1), u8(2), u8(3), u8(4), u8(5))
    for i in range(u8(len(out))):
        out[i] = passed(flux[i], q, around, i, weights_of(row, 0), follows)


@pytest.mark.parametrize("weno", [False, True])
def test_what_passes_a_face_is_the_reference(weno):
    """All places of a step in q, and both directions; a whole stage whose weights follow the flow compiles a minute."""
    rng, row = np.random.default_rng(6), upwind_weights(5, weno)
    q = np.where(np.arange(70) % 20 < 10, 1.0, 0.0) + 0.1 * rng.normal(size=70) * (np.arange(70) > 30)
    flux, out = rng.normal(size=65), np.empty(65)
    pass_faces(flux, q, row[2:], row[2, 6], out)
    np.testing.assert_allclose(out, reference._face([q[at : at + 65] for at in range(6)], flux, row[2]), atol=1e-14)
    if not weno:
        pass_faces(flux, q, row[2:], None, out)
        np.testing.assert_allclose(out, reference._face([q[at : at + 65] for at in range(6)], flux, row[2]), atol=1e-14)


def advected(cells: int, start: np.ndarray, row: np.ndarray, steps: int) -> np.ndarray:
    """Once around a period by a constant wind, in the three stages of the large step."""
    rate, flux = cells / steps, np.ones(cells)
    q = start
    for _ in range(steps):
        new = q
        for share in (1 / 3, 1 / 2, 1.0):
            passes = reference._face([np.roll(new, 3 - at) for at in range(6)], flux, row)
            new = q - share * rate * (np.roll(passes, -1) - passes)
        q = new
    return q


def test_weno_keeps_a_square_in_its_bounds_and_the_order_where_smooth():
    limited, linear = (upwind_weights(5, weno)[2] for weno in (True, False))
    square = np.where(np.abs(np.arange(100) - 49.5) < 20, 1.0, 0.0)
    found = [advected(100, square, row, 250) for row in (limited, linear)]
    over, plain = (max(q.max() - 1, -q.min()) for q in found)
    assert over < 0.002
    assert plain > 0.05
    assert abs(found[0].sum() - 40) < 1e-12
    errors = []
    for cells in (20, 40):
        edges = np.arange(cells + 1) / cells
        wave = np.diff(-np.cos(2 * np.pi * edges)) * cells / (2 * np.pi)
        errors.append(np.abs(advected(cells, wave, limited, 20 * cells) - wave).max())
    assert np.log2(errors[0] / errors[1]) > 4.5


@pytest.mark.parametrize("kernels", [reference, dispatch])
def test_winds_are_prepared_without_what_sound_needs(kernels):
    column, levels, _ = tables(SHAPE[0])
    state, water = air(5), 0.02 * np.random.default_rng(8).random((SHAPE[0], SHAPE[1] + 8, SHAPE[2] + 8))
    whole, winds = np.ones((2, WORKS, *state.shape[1:]))
    kernels.prepare(state, water, column, levels, whole)
    kernels.prepare(state, water, column, levels, winds, False)
    own = [0, 1, 2, 3, 6]
    np.testing.assert_array_equal(winds[own], whole[own])
    assert (winds[[4, 5, 7]] == 1.0).all()


@pytest.mark.parametrize("cross", [0.0, 1.0])
def test_mixing_is_the_reference(cross):
    found = []
    column, levels, wind = tables(SHAPE[0])
    rest = np.array([*wind, 0 * wind[0], column[1] / column[0]])
    for kernels in (stress_reference, stress):
        state = air(5)
        work, mu = np.ones((WORKS, *state.shape[1:])), np.zeros(state.shape[1:])
        water = 0.02 * np.random.default_rng(8).random(mu.shape) if cross else NO_WATER
        reference.prepare(state, water, column, levels, work)
        greatest = kernels.viscosity(state, work, column, levels, (DX, DY), 0.2, 1 / 3, 1e-3, mu)
        before = state.copy()
        kernels.mix(state, work, mu, rest, levels, (DX, DY), 20.0, 1 / 3, cross)
        found.append((mu, (state - before)[:, :, *INNER], greatest))
    for expected, actual in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert (np.abs(found[0][1]).max(axis=(1, 2, 3)) > 0).tolist() == [False, True, True, True, True]


def test_mixing_of_what_the_air_carries_is_the_reference():
    rng, (column, levels, _), state = np.random.default_rng(7), tables(SHAPE[0]), air(5)
    mu = 5.0 + rng.random(state.shape[1:])
    q = rng.random((2, SHAPE[0], SHAPE[1] + 6, SHAPE[2] + 6))
    found = []
    for kernels in (stress_reference, stress):
        out = np.zeros_like(q)
        kernels.mix_carried(q, out, state, mu, column, levels, (DX, DY), 20.0)
        found.append(out[:, :, 3:-3, 3:-3])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-13)
    assert np.abs(found[0] - q[:, :, 3:-3, 3:-3]).max() > 1e-3
