"""Collective variables, restraints and metadynamics: slopes by differences, known free energies, any ranks alike."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.errors import InputError
from hpckit.md.external.estimators import inefficiency, integrated, mbar
from hpckit.md.external.grid import HillGrid
from hpckit.md.external.variables import Box, CollectiveVariable
from hpckit.plan.particles.cell import Cell

VARIABLES = (
    CollectiveVariable("r", "distance", ((0, 1), (2, 3, 4))),
    CollectiveVariable("bend", "angle", ((0,), (1, 2), (3,))),
    CollectiveVariable("turn", "dihedral", ((0, 5), (1,), (2,), (3, 4))),
    CollectiveVariable("near", "coordination", ((0, 1), (2, 3, 4, 5)), radius=1.3),
    CollectiveVariable("odd", "coordination", ((0, 2), (1, 4)), radius=0.9, powers=(5, 9)),
    CollectiveVariable("x", "position", ((1, 3),), axis="y", origin=0.4),
)


@pytest.mark.parametrize("tilt", [(0.0, 0.0, 0.0), (1.5, -2.0, 1.0)], ids=["upright", "tilted"])
@pytest.mark.parametrize("variable", VARIABLES, ids=lambda each: each.name)
def test_slopes_of_variables_are_those_of_differences_and_images_do_not_matter(variable, tilt):
    rng = np.random.default_rng(11)
    if variable.kind == "position" and any(tilt):
        return  # settings refuse it
    box = Box(Cell.of(np.zeros(3), [9.0, 8.0, 7.0], tilt), np.array([True, True, True]))
    every = np.array(
        [[0.2, 0.1, 0], [1.1, 0.3, 0.2], [1.4, 1.2, 0.1], [2.2, 1.5, 0.9], [2.1, 0.7, 1.3], [0.1, 0.9, 0.6]]
    )
    places, masses = (every + rng.normal(0, 0.05, (6, 3)))[list(variable.ids)], np.arange(1.0, 1 + len(variable.ids))
    found = variable.value(places, masses, box)
    moved = variable.value(places + rng.integers(-1, 2, places.shape) @ box.cell.matrix, masses, box)
    assert moved.value == pytest.approx(found.value, rel=1e-12)
    np.testing.assert_allclose(moved.slopes, found.slopes, rtol=1e-9, atol=1e-12)
    h, by = 1e-5, np.zeros_like(places)
    for place in np.ndindex(places.shape):
        ends = []
        for sign in (1, -1):
            shifted = places.copy()
            shifted[place] += sign * h
            ends.append(variable.value(shifted, masses, box).value)
        by[place] = (ends[0] - ends[1]) / (2 * h)
    np.testing.assert_allclose(found.slopes, by, atol=2e-7 * max(1.0, np.abs(by).max()))
    if variable.kind == "position":
        return
    strain = np.zeros((3, 3))
    for a, b in np.ndindex(3, 3):
        ends = []
        for sign in (1, -1):
            changed = np.eye(3)
            changed[b, a] += sign * h
            ends.append(variable.value(places @ changed.T, masses, box).value)
        strain[a, b] = (ends[0] - ends[1]) / (2 * h)
    np.testing.assert_allclose(found.strain, strain, atol=2e-7 * max(1.0, np.abs(strain).max()))


def test_hills_between_the_points_of_a_grid_are_gaussians_with_their_slopes():
    grid = HillGrid((-180.0, 0.5), (180.0, 3.0), (72, 60), (20.0, 0.15), (True, False))
    rng = np.random.default_rng(2)
    hills = [(np.array([rng.uniform(-180, 180), rng.uniform(0.5, 3)]), rng.uniform(0.5, 1)) for _ in range(20)]
    for center, height in hills:
        grid.add(center, height)

    def exact(place):
        total = 0.0
        for center, height in hills:
            x, y = place - center
            x -= 360 * np.rint(x / 360)
            total += height * np.exp(-0.5 * (x / 20) ** 2 - 0.5 * (y / 0.15) ** 2)
        return total

    for place in (np.array([-179.7, 0.51]), np.array([178.2, 2.99]), np.array([33.0, 1.7])):
        value, slope = grid.at(place)
        assert value == pytest.approx(exact(place), abs=2e-4)
        for d, h in enumerate((1e-4, 1e-6)):
            ends = [place + sign * h * np.eye(2)[d] for sign in (1, -1)]
            assert slope[d] == pytest.approx((grid.at(ends[0])[0] - grid.at(ends[1])[0]) / (2 * h), rel=1e-4, abs=1e-7)
    beyond, slope = grid.at(np.array([10.0, 5.0]))
    assert beyond == pytest.approx(grid.at(np.array([10.0, 3.0]))[0])
    assert slope[1] == 0.0
    with pytest.raises(InputError, match="too narrow"):
        HillGrid((0.0,), (1.0,), (5,), (0.1,), (False,))


def test_free_energies_of_many_states_have_their_exact_values_and_errors():
    """Springs: f = ln(k) / 2. Errors are the spread of repetitions; two states are Bennett's acceptance ratio."""
    rng, strengths, count = np.random.default_rng(0), np.array([1.0, 2.0, 4.0, 8.0]), 300
    found, errors = [], []
    for _ in range(60):
        x = np.concatenate([rng.normal(0, 1 / np.sqrt(k), count) for k in strengths])
        one = mbar(0.5 * strengths * x[:, None] ** 2, [count] * 4)
        found.append(one.values)
        errors.append(one.errors)
    exact, spread = 0.5 * np.log(strengths), np.std(found, axis=0, ddof=1)
    assert np.abs(np.mean(found, axis=0) - exact).max() < 4 * spread.max() / np.sqrt(60)
    np.testing.assert_allclose(np.mean(errors, axis=0)[1:], spread[1:], rtol=0.2)
    assert (np.std(errors, axis=0) < 0.04 * spread.max()).all(), "they are those of the sample sizes"
    u = 0.5 * strengths[:2] * x[: 2 * count, None] ** 2
    f = mbar(u, [count, count]).values[1]
    gap = u[:, 1] - u[:, 0] - f
    assert (1 / (1 + np.exp(gap[:count]))).sum() == pytest.approx((1 / (1 + np.exp(-gap[count:]))).sum(), rel=1e-8)
    with pytest.raises(InputError, match="do not overlap"):
        mbar(np.array([[0.0, 900.0]] * 5 + [[900.0, 0.0]] * 5), [5, 5])
    assert integrated([0.0, 0.5, 1.0], np.array([1.0, 2.0, 3.0]), np.full(3, 0.1)).values[-1] == 2.0
    noise = rng.normal(size=20_000)
    slow = np.zeros(20_000)
    for k in range(1, 20_000):
        slow[k] = 0.8 * slow[k - 1] + noise[k]
    assert inefficiency(slow) == pytest.approx(9.0, rel=0.2)
