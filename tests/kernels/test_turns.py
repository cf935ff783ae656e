"""Rows of several acoustic substeps in turn: every row waits for what it reads, and the bits are those of substeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.hevi import dispatch as flat
from hpckit.kernels.euler.hevi import simd
from hpckit.kernels.euler.hevi.constants import HALO, MIRRORED, NO_WATER, WORKS, WRAPPED, Substep, upwind_weights
from hpckit.kernels.euler.hevi.slow import ROWS
from hpckit.kernels.euler.hevi.terrain import dispatch as sloping
from hpckit.kernels.euler.hevi.terrain import simd as sloping_simd
from hpckit.kernels.euler.hevi.terrain.constants import WORKS as SLOPING_WORKS
from hpckit.kernels.euler.hevi.turns import core, deepest, rims
from tests.kernels.test_hevi import DX, DY, SHAPE, STAGE, air, fluxes, tables
from tests.kernels.test_hevi_terrain import ground_of

SUBSTEPS = 4


def stage(rows: int, substeps: int, advance: Callable, exchange: Callable, rims_first: bool) -> None:
    """All turns of some substeps, with an exchange where the pressure beyond is read next."""
    if rims_first:
        advance(rims(rows, 0))
        exchange()
    advance(core(rows, substeps, rims_first))
    for substep in range(1, substeps):
        if substep > 1 or not rims_first:
            exchange()
        advance(rims(rows, substep))


@pytest.mark.parametrize("rims_first", [True, False])
@pytest.mark.parametrize("rows", [4, 5, 7, 8, 13])
def test_each_row_has_one_turn_a_substep_and_waits_for_its_neighbors(rows, rims_first):
    substeps = deepest(rows, 8, 8)
    made = np.zeros(rows + 2, int)  # substeps of the pressure of each row, and of the rows beyond
    faces, columns = np.zeros(rows + 1, int), np.zeros(rows, int)

    def advance(turns: np.ndarray) -> None:
        for substep, row, south, north in turns:
            for face, moved in ((row, south), (row + 1, north)):
                if moved:
                    assert faces[face] == substep
                    assert (made[face : face + 2] == substep).all()  # either side of it
                    faces[face] += 1
            assert made[row + 1] == substep
            assert (faces[row : row + 2] == substep + 1).all()
            assert columns[row] == substep
            columns[row] += 1
            made[row + 1] += 1

    def exchange() -> None:
        made[[0, -1]] = made[1], made[-2]

    stage(rows, substeps, advance, exchange, rims_first)
    assert (columns == substeps).all()
    assert (faces == substeps).all()
    assert substeps == min(SUBSTEPS, (rows + 1) // 2)


@pytest.mark.parametrize(("sloped", "wet", "ends"), [(False, False, WRAPPED), (True, True, MIRRORED)])
def test_rows_in_turn_have_the_bits_of_substeps(sloped, wet, ends):
    (_, levels, _), ground, kernels = tables(SHAPE[0]), ground_of(True), sloping if sloped else flat
    over, ny = ((ground,) if sloped else ()), SHAPE[1]
    rng, found = np.random.default_rng(8), []
    work = 1.0 + rng.random((SLOPING_WORKS if sloped else WORKS, *air().shape[1:]))
    work[3], work[5], slow = 300 * work[3], 300 * work[5], 0.1 * air(3)
    first = rng.normal(size=(SHAPE[0], ny + 2, SHAPE[2] + 2))
    numbers = Substep(DX, DY, 0.5, 0.6, 0.1, 1 / SUBSTEPS, wet)

    def fill(pressure: np.ndarray, dim: int) -> None:
        to = pressure.swapaxes(0, dim)
        to[[0, -1]] = to[[1, -2]] if ends == MIRRORED else to[[-2, 1]]

    def in_turn(
        start: np.ndarray, state: np.ndarray, pressure: np.ndarray, rest: tuple, rims_first: bool = True
    ) -> None:
        kept = (sloping.faces_kept(state, SUBSTEPS),) if sloped else ()

        def advance(turns: np.ndarray) -> None:
            kernels.sweep(state if turns[0, 0] else start, state, *rest, turns, ends, *kept)

        stage(ny, SUBSTEPS, advance, lambda: fill(pressure, 1), rims_first)

    def in_order(*given: Any) -> None:
        in_turn(*given, rims_first=False)

    def one_by_one(start: np.ndarray, state: np.ndarray, pressure: np.ndarray, rest: tuple) -> None:
        for substep in range(SUBSTEPS):
            kernels.substep(state if substep else start, state, *rest)
            fill(pressure, 2)
            fill(pressure, 1)

    for way in (one_by_one, in_turn, in_order):
        start, state, pressure, flux = air(1), air(2), first.copy(), fluxes()
        way(start, state, pressure, (work, *over, slow, pressure, levels, *flux, numbers))
        owned = slice(HALO, -HALO)
        found.append([state[:, :, owned, owned], state[2, :, HALO : 1 - HALO, owned], pressure[:, 1:-1], *flux])
    for one, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_array_equal(other, one)
        assert np.isfinite(one).all()
        assert np.ptp(one) > 0


@pytest.mark.parametrize(("sloped", "goes_on", "wet"), [(False, True, False), (False, False, True), (True, True, True)])
def test_slow_tendencies_and_sweeps_in_one_pass_have_the_bits_of_two(monkeypatch, sloped, goes_on, wet):
    """With all rows of what only substeps read, and with few; between walls in moist air."""
    (column, levels, wind), (nz, ny, nx) = tables(SHAPE[0]), (SHAPE[0], 31, SHAPE[2])
    numbers = sloping_simd.NUMBERS if sloped else simd.NUMBERS
    monkeypatch.setattr(simd, "WITHIN", 9 * 8 * numbers * nx * nz)
    assert simd.rows_at_once(nx, nz, numbers) == 9
    assert simd.rows_at_once(2 * nx, nz, numbers) == ROWS  # where too few fit

    def tall(seed: int) -> np.ndarray:
        return high(*(air(seed + k) for k in range(3)))

    def high(*parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts, axis=2)[:, :, : ny + 2 * HALO].copy()

    water, weights, found = 0.02 * np.abs(tall(5)[0]) if wet else NO_WATER, upwind_weights(5), []
    large, sound = STAGE._replace(wet=wet), Substep(DX, DY, 0.5, 0.6, 0.1, 1 / SUBSTEPS, wet)
    ground = ground_of(True)
    ground = ground._replace(**{row: high(*(getattr(ground, row),) * 3) for row in ("base", "metric", "wind")})
    walls, all_rows, works = (wet,) * 4, ny + 2 * HALO, SLOPING_WORKS if sloped else WORKS
    few = (sloping if sloped else flat).rows_kept(tall(1))
    assert few < all_rows
    for at_once, rows in ((False, all_rows), (True, all_rows), (True, few)):
        start, state = tall(1), tall(2)
        cells = nz, rows, nx + 2 * HALO
        work, slow, pressure = np.ones((works, *cells)), np.zeros((FIELDS, *cells)), np.zeros((nz, ny + 2, nx + 2))
        flux = np.zeros((nz, ny, nx + 1)), np.zeros((nz, ny + 1, nx)), np.zeros((nz + 1, ny, nx))
        begun = state if goes_on else start
        linear, given = (begun, water, column), (wind, weights, large)
        rest = pressure, levels, *flux, sound, core(ny, SUBSTEPS, False), WRAPPED
        if sloped and at_once:
            kept = sloping.faces_kept(state, SUBSTEPS), walls
            linear = begun, water, ground, column, weights, large
            sloping.linearize_and_sweep(*linear, start, state, work, slow, *rest, *kept)
        elif sloped:
            sloping.prepare(begun, water, ground, levels, work)
            sloping.tendencies(begun, work, ground, column, levels, weights, large, slow)
            slow[1, :, :, [HALO, -HALO]] = slow[2, :, [HALO, -HALO]] = 0.0
            flat.begin(start, work[:WORKS], pressure)
            sloping.sweep(start, state, work, ground, slow, *rest, sloping.faces_kept(state, SUBSTEPS))
        elif at_once:
            flat.linearize_and_sweep(*linear, *given, start, state, work, slow, *rest, walls)
        else:
            flat.linearize(*linear, levels, work, *given, slow, start, pressure)
            if wet:
                slow[1, :, :, [HALO, -HALO]] = slow[2, :, [HALO, -HALO]] = 0.0
            flat.sweep(start, state, work, slow, *rest)
        found.append([state, pressure, *flux, *([slow] if rows == all_rows else [])])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=False):
            np.testing.assert_array_equal(other, one)
            assert np.ptp(one) > 0
