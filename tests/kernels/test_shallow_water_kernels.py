"""Shallow-water kernels: simd against the reference, bits over splits, walls, rest, what a run watches."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels.parts import INNER, OUTER, WHOLE
from hpckit.kernels.shallow_water import dispatch, reference, simd
from hpckit.kernels.shallow_water.constants import BROKEN, CORNER, DEPTH_MIN, FACE, HALO, STRESS, WATER, F, Physics

G, DX, DY, DT = 9.81, 900.0, 1100.0, 5.0
WIDTHS = [3, 5, 23, 26, simd.STRIP - 1, simd.STRIP, simd.STRIP + 1, 2 * simd.STRIP + 7]

WIDE = simd.STRIP + 40


def step(kernels, fields, bottom, rows, columns, gravity, dx, dy, dt, *forces, steps=1, part=WHOLE) -> None:
    """In place."""
    kernels.step(fields, fields, bottom, rows, columns, Physics(gravity, dx, dy, *forces), dt, steps, part)


def step_free(kernels, fields, f, gravity, dx, dy, dt, steps=1, part=WHOLE) -> None:
    """In place."""
    kernels.step_free(fields, fields, f, Physics(gravity, dx, dy), dt, steps, part)


def state_of(ny: int, nx: int, more_x: int = 0, more_y: int = 0, seed: int = 0) -> list[np.ndarray]:
    """Noise in h, u and v, with halo."""
    rng = np.random.default_rng(seed)
    shapes = (ny, nx), (ny, nx + more_x), (ny + more_y, nx)
    scales = (100.0, 3.0), (0.0, 1.0), (0.0, 1.0)
    return [
        mean + size * rng.normal(size=[n + 2 * HALO for n in shape])
        for shape, (mean, size) in zip(shapes, scales, strict=True)
    ]


def tables(ny: int, nx: int, slip: float = 0.0, walls: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of a whole closed basin, with a beta-plane and a wind."""
    rows, columns = np.ones((5, ny + 2 * HALO)), np.ones((3, nx + 2 * HALO))
    for table, n in ((rows, ny), (columns, nx)):
        if walls:
            table[WATER, :HALO] = table[WATER, n + HALO :] = 0
            table[FACE, : HALO + 1] = table[FACE, n + HALO :] = 0
            table[CORNER, :HALO] = table[CORNER, n + HALO + 1 :] = 0
            table[CORNER, [HALO, n + HALO]] = slip
    rows[F] = 1e-4 + 1e-6 * np.arange(ny + 2 * HALO)
    rows[STRESS] = 1e-3 * np.cos(np.arange(ny + 2 * HALO))
    return rows, columns


def close_basin(state: list[np.ndarray], rows: np.ndarray, columns: np.ndarray) -> None:
    """No velocity on and beyond the walls."""
    shape = state[0].shape
    for field, (y, x) in ((1, (WATER, FACE)), (2, (FACE, WATER))):
        mask = np.zeros(state[field].shape)
        mask[: shape[0], : shape[1]] = rows[y][:, None] * columns[x]
        state[field] *= mask


def both(advance, state: list[np.ndarray], *arguments) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The owned cells after a step by simd and by the reference."""
    results = []
    for module in (dispatch, reference):
        fields = tuple(field.copy() for field in state)
        advance(module, fields, *arguments, part=INNER)
        advance(module, fields, *arguments, part=OUTER)
        results.append([field[HALO:-HALO, HALO:-HALO] for field in fields])
    return results[0], results[1]


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray], before: list[np.ndarray]) -> None:
    for a, b, old in zip(actual, expected, before, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max())
        assert np.abs(a - old[HALO:-HALO, HALO:-HALO]).max() > 1e-3


@pytest.mark.parametrize("dy", by_day([DX, DY], DX))
@pytest.mark.parametrize("nx", WIDTHS)
def test_the_free_step_is_the_reference(nx, dy):
    state = state_of(11, nx)
    f = 1e-4 + 1e-6 * np.arange(17)
    assert_close(*both(step_free, state, f, G, DX, dy, DT), state)


@pytest.mark.parametrize("slip", [0.0, 2.0])
@pytest.mark.parametrize("nx", WIDTHS)
def test_the_step_with_all_its_terms_is_the_reference(nx, slip):
    state, (rows, columns) = state_of(13, nx, 1, 1), tables(13, nx, slip)
    close_basin(state, rows, columns)
    bottom = np.random.default_rng(1).normal(size=state[0].shape)
    walls = [state[1][:, nx + HALO :].copy(), state[2][13 + HALO :].copy()]
    ours, theirs = both(step, state, bottom, rows, columns, G, DX, DY, DT, 2e3, 1e-3, 0.2)
    assert_close(ours, theirs, state)
    assert not ours[1][:, [0, -1]].any()
    assert not ours[2][[0, -1]].any()
    assert not walls[0].any()
    assert not walls[1].any()


@pytest.mark.parametrize(("full", "dy"), by_day([(False, DX), (False, DY), (True, DY)], (False, DX), (True, DY)))
@pytest.mark.parametrize("nx", [5, simd.STRIP, simd.STRIP + 1])
def test_two_steps_at_once_are_two_steps_to_the_bit(nx, full, dy):
    """The halo of the first one is the outer half of that of both."""
    wide, (rows, columns) = (
        state_of(13 + 2 * HALO, nx + 2 * HALO, full, full),
        tables(13 + 2 * HALO, nx + 2 * HALO, 2.0),
    )
    for table, n in ((rows, 13), (columns, nx)):  # the walls stand around the cells that both steps own
        table[:3] = np.pad(tables(n, n, 2.0)[1], ((0, 0), (HALO, HALO)), "edge")
    close_basin(wide, rows, columns)
    bottom, forces = np.random.default_rng(1).normal(size=wide[0].shape), (2e3, 1e-3, 0.2)
    results = []
    for module, steps in ((dispatch, (2,)), (dispatch, (1, 1)), (reference, (2,))):
        fields = tuple(field.copy() for field in wide)
        for count in steps:
            if full:
                step(module, fields, bottom, rows, columns, G, DX, dy, DT, *forces, steps=count)
            else:
                step_free(module, fields, rows[F], G, DX, dy, DT, count)
        results.append([field[2 * HALO : -2 * HALO, 2 * HALO : -2 * HALO] for field in fields])
    for pair, singles, oracle in zip(*results, strict=True):
        np.testing.assert_array_equal(pair, singles)
        np.testing.assert_allclose(pair, oracle, rtol=0, atol=1e-13 * np.abs(oracle).max())


@pytest.mark.parametrize("term", ["bottom", "viscosity", "drag", "drag_quadratic", "stress", "coriolis"])
def test_each_term_alone_is_the_reference(term):
    """And without any the step with all terms is the free one."""
    state, (rows, columns) = state_of(9, 21), tables(9, 21, walls=False)
    bottom, forces = np.zeros_like(state[0]), [0.0, 0.0, 0.0]
    f = rows[F].copy()
    rows[STRESS] = 0.0
    free, _ = both(step_free, state, f, G, DX, DY, DT)
    none, _ = both(step, state, bottom, rows, columns, G, DX, DY, DT, *forces)
    assert_close(none, free, state)
    if term == "bottom":
        bottom += np.random.default_rng(3).normal(size=bottom.shape)
    elif term == "stress":
        rows[STRESS] = 1e-2
    elif term == "coriolis":
        rows[F] = 0.0
    else:
        forces[("viscosity", "drag", "drag_quadratic").index(term)] = {"viscosity": 1e3, "drag": 1e-3}.get(term, 0.1)
    ours, theirs = both(step, state, bottom, rows, columns, G, DX, DY, DT, *forces)
    assert_close(ours, theirs, state)
    assert max(np.abs(a - b).max() for a, b in zip(ours, none, strict=True)) > 1e-6


@pytest.mark.parametrize(("free", "dy"), [(False, DY), (True, DY), (True, DX)])
@pytest.mark.parametrize(
    ("part_y", "part_x"),
    [((0, 7), (0, WIDE)), ((1, 15), (0, WIDE)), ((4, 15), (1, 38)), ((9, 12), (200, 203)), ((2, 9), (WIDE - 70, WIDE))],
)
def test_bits_do_not_depend_on_the_split(part_y, part_x, free, dy):
    state, (rows, columns) = state_of(15, WIDE), tables(15, WIDE)
    close_basin(state, rows, columns)
    bottom = np.random.default_rng(1).normal(size=state[0].shape)
    cut_y, cut_x = (slice(first, last + 2 * HALO) for first, last in (part_y, part_x))

    def advance(fields, y, x):
        if free:
            step_free(dispatch, fields, np.ascontiguousarray(rows[F, y]), G, DX, dy, DT)
        else:
            parts = (bottom[y, x], rows[:, y], columns[:, x])
            step(dispatch, fields, *map(np.ascontiguousarray, parts), G, DX, dy, DT, 2e3, 1e-3, 0.2)
        return fields

    whole = advance(tuple(field.copy() for field in state), slice(None), slice(None))
    part = advance(tuple(np.ascontiguousarray(field[cut_y, cut_x]) for field in state), cut_y, cut_x)
    owned = slice(HALO, -HALO)
    for one, all_of_it in zip(part, whole, strict=True):
        np.testing.assert_array_equal(one[owned, owned], all_of_it[cut_y, cut_x][owned, owned])


def test_a_step_leaves_the_halo_alone():
    state = state_of(6, 8, 1, 1)
    fields, others = (tuple(field.copy() for field in state) for _ in range(2))
    rows, columns = tables(6, 8)
    numbers = np.zeros_like(state[0]), rows, columns, Physics(G, DX, DY), DT
    dispatch.step(fields, others, *numbers)  # to other arrays
    dispatch.step(fields, fields, *numbers)
    for new, other, old in zip(fields, others, state, strict=True):
        np.testing.assert_array_equal(new, other)
        new[HALO:9, HALO:11] = old[HALO:9, HALO:11]
        np.testing.assert_array_equal(new, old)


def test_rest_stays_rest_to_the_bit():
    rows, columns = tables(10, 12)
    rows[STRESS] = 0.0
    bottom = np.random.default_rng(0).integers(0, 2**30, (16, 18)) * 2.0**-25
    fields = (65.3 - bottom, np.zeros((16, 18)), np.zeros((16, 18)))
    depth = fields[0].copy()
    surface = depth + bottom
    assert (surface == surface[0, 0]).mean() > 0.9  # 65.3 has bits below 2**-25: some sums may round
    fields[0][...] = np.rint(65.3 * 2**25) / 2**25 - bottom
    depth = fields[0].copy()
    for _ in range(5):
        step(dispatch, fields, bottom, rows, columns, G, DX, DY, DT, 1e3, 1e-3, 0.1)
    np.testing.assert_array_equal(fields[0], depth)
    assert not fields[1].any()
    assert not fields[2].any()


def test_velocities_too_small_to_square_become_nothing():
    """Else squares of squares walk down to subnormal numbers ahead of every wave, at a tenth of the speed."""
    fields = (np.full((11, 12), 100.0), np.full((11, 12), 1e-140), np.full((11, 12), 1e-100))
    step_free(dispatch, fields, np.zeros(11), G, DX, DY, DT)
    assert not fields[1][HALO:-HALO, HALO:-HALO].any()
    np.testing.assert_allclose(fields[2][HALO:-HALO, HALO:-HALO], 1e-100)


@pytest.mark.parametrize("flat", [False, True])
def test_diagnose_is_the_reference_and_counts_what_is_lost(flat):
    h, u, v = state_of(7, 9, 1, 1)
    bottom = np.zeros((0, 0)) if flat else np.random.default_rng(2).normal(size=h.shape)
    f = 1e-4 + 1e-6 * np.arange(13)
    fields, arguments = (h, u, v), (bottom, f, Physics(G, DX, DY), HALO)
    np.testing.assert_allclose(dispatch.diagnose(fields, *arguments), reference.diagnose(fields, *arguments), 1e-12)
    v[5, 6] = np.nan
    h[8, 10] = -1.0
    ours, theirs = dispatch.diagnose(fields, *arguments), reference.diagnose(fields, *arguments)
    np.testing.assert_allclose(ours, theirs, 1e-12)
    assert ours[BROKEN] > 2
    assert 0 < ours[DEPTH_MIN] < 110
    h[:] = np.nan
    np.testing.assert_array_equal(dispatch.diagnose(fields, *arguments), [0, 0, 0, 0, 0, np.inf, 63])
    np.testing.assert_array_equal(reference.diagnose(fields, *arguments), [0, 0, 0, 0, 0, np.inf, 63])


def test_what_does_not_fit_is_refused():
    h, u, v = fields = tuple(state_of(5, 6))
    with pytest.raises(TypeError, match="float32"):
        step_free(dispatch, (h.astype(np.float32), u, v), np.ones(11), G, DX, DY, DT)
    with pytest.raises(ValueError, match="one face more in dim 1"):
        step_free(dispatch, (h, np.zeros((12, 12)), v), np.ones(11), G, DX, DY, DT)
    with pytest.raises(ValueError, match="do not fit"):
        step(dispatch, fields, np.zeros((0, 0)), np.ones((5, 11)), np.ones((3, 12)), G, DX, DY, DT, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="h is"):
        step_free(dispatch, (h[:6].copy(), u, v), np.ones(6), G, DX, DY, DT)
    with pytest.raises(ValueError, match="1 to 2 steps"):
        step_free(dispatch, fields, np.ones(11), G, DX, DY, DT, 3)


@pytest.mark.nightly  # all forms are compiled anew
def test_loops_are_vectorized_without_gathers(tmp_path):
    code = (
        "import numpy as np\nfrom hpckit.kernels.shallow_water import dispatch, simd\n"
        "from hpckit.kernels.shallow_water.constants import Physics\n"
        "a, r, c = tuple(np.ones((8, 8)) for _ in range(3)), np.ones((5, 8)), np.ones((3, 8))\n"
        "dispatch.step(a, a, np.zeros((8, 8)), r, c, Physics(1.0, 1.0, 1.0), 0.1)\n"
        "dispatch.step_free(a, a, r[3].copy(), Physics(1.0, 1.0, 1.0), 0.1)\n"
        "dispatch.step_free(a, a, r[3].copy(), Physics(1.0, 1.0, 2.0), 0.1)\n"
        "for kernel in [row for rows in simd.PAIRS.values() for row in rows]:\n"
        "    print(*kernel.inspect_asm().values(), '====')\n"
    )
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    texts = done.stdout.split("====")[:-1]
    assert len(texts) == 3 * len(simd.PAIRS)
    for text in texts:
        if "%rsp" not in text:
            pytest.skip("not an x86 processor")
        assert "gather" not in text
        assert not re.search(r"\bv?divsd\b|\bv?sqrtsd\b", text)
        assert re.search(r"\bv?divpd\b", text)
