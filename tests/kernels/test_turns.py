"""Rows of several acoustic substeps in turn: every row waits for what it reads, and the bits are those of substeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hpckit.kernels.euler.hevi import dispatch as flat
from hpckit.kernels.euler.hevi.constants import HALO, MIRRORED, WORKS, WRAPPED, Substep
from hpckit.kernels.euler.hevi.terrain import dispatch as sloping
from hpckit.kernels.euler.hevi.terrain.constants import WORKS as SLOPING_WORKS
from hpckit.kernels.euler.hevi.turns import core, deepest, rims
from tests.kernels.test_hevi import DX, DY, SHAPE, air, fluxes, tables
from tests.kernels.test_hevi_terrain import ground_of

SUBSTEPS = 4


def stage(rows: int, substeps: int, advance: Callable, exchange: Callable) -> None:
    """All turns of some substeps, with an exchange where the pressure beyond is read next."""
    advance(rims(rows, 0))
    exchange()
    advance(core(rows, substeps))
    for substep in range(1, substeps):
        if substep > 1:
            exchange()
        advance(rims(rows, substep))


@pytest.mark.parametrize("rows", [4, 5, 7, 8, 13])
def test_each_row_has_one_turn_a_substep_and_waits_for_its_neighbors(rows):
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

    stage(rows, substeps, advance, exchange)
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

    def in_turn(start: np.ndarray, state: np.ndarray, pressure: np.ndarray, rest: tuple) -> None:
        kept = (sloping.faces_kept(state, SUBSTEPS),) if sloped else ()

        def advance(turns: np.ndarray) -> None:
            kernels.sweep(state if turns[0, 0] else start, state, *rest, turns, ends, *kept)

        stage(ny, SUBSTEPS, advance, lambda: fill(pressure, 1))

    def one_by_one(start: np.ndarray, state: np.ndarray, pressure: np.ndarray, rest: tuple) -> None:
        for substep in range(SUBSTEPS):
            kernels.substep(state if substep else start, state, *rest)
            fill(pressure, 2)
            fill(pressure, 1)

    for way in (one_by_one, in_turn):
        start, state, pressure, flux = air(1), air(2), first.copy(), fluxes()
        way(start, state, pressure, (work, *over, slow, pressure, levels, *flux, numbers))
        owned = slice(HALO, -HALO)
        found.append([state[:, :, owned, owned], state[2, :, HALO : 1 - HALO, owned], pressure[:, 1:-1], *flux])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(other, one)
        assert np.isfinite(one).all()
        assert np.ptp(one) > 0
