"""Slab kernels: simd against the reference, bits over splits, walls, inflow, conservation, symmetry, status."""

from __future__ import annotations

import itertools
import platform
import subprocess
import sys

import numpy as np
import pytest

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral, stable
from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler import constants, numerics
from hpckit.kernels.euler.constants import HALO, NOT_FINITE, OUT_OF_RANGE, RHO, RHO_THETA, RHO_U, RHO_W, Sweep
from hpckit.kernels.euler.slab import dispatch, reference
from hpckit.kernels.euler.status import new_status, read_status
from hpckit.kernels.euler.sweeps import lines, ring
from hpckit.kernels.parts import INNER, OUTER, WHOLE

DX, DZ, DT, BETA = 50.0, 60.0, 0.12, 0.05
NONE, NO_INFLOW = np.zeros((0, 0)), np.zeros((2, 0))
SIZES = (0.004, 2.0, 2.0, 1.0)  # of deviations in rho, rho u, rho w, rho theta


def base_of(nz: int, wind: float = 12.0):
    return base_state(stable(300.0, 0.012, wind), nz, DZ)


def wrap(owned: np.ndarray) -> np.ndarray:
    """A periodic state with its halo."""
    return np.concatenate([owned[..., -HALO:], owned, owned[..., :HALO]], axis=-1)


def random_state(nx: int, nz: int, seed: int = 0, size: float = 1.0) -> np.ndarray:
    """Noise on top of something smooth, [4, nz, nx] without halo."""
    rng = np.random.default_rng(seed)
    smooth = np.cos(2 * np.pi * np.arange(nx) / nx)
    noise = rng.normal(size=(4, nz, nx)) * 0.5 + smooth
    return noise * size * np.array(SIZES)[:, None, None]


def force_of(nx: int, nz: int) -> np.ndarray:
    return 1e-2 * np.random.default_rng(5).normal(size=(nz, nx))


def inflow_of(nz: int) -> np.ndarray:
    rows = np.zeros(nz)
    rows[nz // 2 : nz // 2 + 2] = 1.0
    return np.array([50.0 * rows, 298.0 * rows])


def sweep_x(kernels, state, column, dx, dt, beta, *driven, part=WHOLE, seams=dispatch.NO_SEAMS, out=None) -> int:
    """In place, or to `out`; returns the status."""
    status = new_status(state)
    out = state if out is None else out
    kernels.sweep_x(state, out, column, *driven, Sweep(dx, dt, beta, 3), status, part, seams)
    return told(status)


def sweep_z(kernels, state, faces, ghost, dz, dt, beta, source, lines=None, out=None) -> int:
    status = new_status(state)
    lines, out = lines or (0, state.shape[2] - 2 * HALO), state if out is None else out
    kernels.sweep_z(state, out, faces, ghost, source, Sweep(dz, dt, beta, 3), status, lines)
    return told(status)


def told(status: np.ndarray) -> int:
    seen, step = read_status(status)
    assert step == (3 if seen & NOT_FINITE else None)
    return seen


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Field by field, against the greatest value of the field."""
    for field in range(4):
        difference = np.abs(actual[field] - expected[field]).max()
        assert difference <= tolerance * np.abs(expected[field]).max(), f"field {field}: {difference:.3e}"


@pytest.mark.parametrize("driven", [False, True])
@pytest.mark.parametrize("nx", [6, 7, 37, *(lines.TILE + more for more in (-1, 0, 1, 3)), 2 * lines.TILE + 7])
def test_x_sweep_is_the_reference(nx, driven):
    nz = 7
    base = base_of(nz)
    force, inflow = (wrap(force_of(nx, nz)), inflow_of(nz)) if driven else (NONE, NO_INFLOW)
    expected = wrap(random_state(nx, nz))
    actual = expected.copy()
    arguments = (base.column, DX, DT, BETA, force, inflow, True, True)
    assert sweep_x(reference, expected, *arguments) == sweep_x(dispatch, actual, *arguments) == 0
    assert_close(actual[..., HALO:-HALO], expected[..., HALO:-HALO], 1e-13)
    np.testing.assert_array_equal(actual[..., :HALO], expected[..., :HALO])


@pytest.mark.parametrize("driven", [False, True])
@pytest.mark.parametrize("nx", [6, ring.STRIP - 1, ring.STRIP, ring.STRIP + 1, 2 * ring.STRIP + 33])
@pytest.mark.parametrize("nz", [4, 5, 13])
def test_z_sweep_is_the_reference(nx, nz, driven):
    base = base_of(nz)
    expected = wrap(random_state(nx, nz))
    actual = expected.copy()
    arguments = (base.faces, base.ghost, DZ, DT, BETA, wrap(force_of(nx, nz)) if driven else NONE)
    assert sweep_z(reference, expected, *arguments) == sweep_z(dispatch, actual, *arguments) == 0
    assert_close(actual, expected, 1e-13)


@pytest.mark.parametrize("direction", ["x", "z"])
def test_beyond_the_series_the_pressure_is_pow(direction):
    """A few rows with |e| up to 0.8 among calm ones: equal to the reference, and the status tells."""
    nx, nz = 300, 9
    base = base_of(nz)
    owned = random_state(nx, nz)
    owned[RHO_THETA, 3:5] += 0.6 * base.column[1, 3:5, None] * np.cos(2 * np.pi * np.arange(nx) / nx)
    expected = wrap(owned)
    actual = expected.copy()
    if direction == "x":
        arguments = (base.column, DX, 0.05, BETA, NONE, NO_INFLOW, True, True)
        status = sweep_x(reference, expected, *arguments), sweep_x(dispatch, actual, *arguments)
    else:
        arguments = (base.faces, base.ghost, DZ, 0.05, BETA, NONE)
        status = sweep_z(reference, expected, *arguments), sweep_z(dispatch, actual, *arguments)
    assert status == (OUT_OF_RANGE, OUT_OF_RANGE)
    assert_close(actual[..., HALO:-HALO], expected[..., HALO:-HALO], 1e-12)


def test_series_is_good_to_its_range():
    @jit
    def both(e):
        return numerics.power(e, False), numerics.power(e, True), numerics.outside(e)

    for e in np.concatenate([np.linspace(-0.1249, 0.1249, 301), [1e-12, -1e-300, 0.0]]):
        exact = np.expm1(constants.GAMMA * np.log1p(e))
        assert both(e)[0] == pytest.approx(exact, rel=3e-14, abs=0)
        assert both(e)[1] == both(e)[0]
    for e in (-0.9, -0.1251, 0.1251, 3.0):
        assert both(e)[1] == pytest.approx((1 + e) ** constants.GAMMA - 1, rel=1e-14)
        assert both(e)[2] == 1
    assert both(np.nan)[2] == 1
    assert np.isnan(both(-1.5)[1])


def advance(parts: list[np.ndarray], nz: int, steps: int, driven: bool, dt: float = DT) -> np.ndarray:
    """Both sweeps of blocks [4, nz, n] of one periodic domain, halos copied by hand; the domain at the end."""
    base = base_of(nz)
    nx = sum(part.shape[-1] for part in parts)
    ends = np.cumsum([part.shape[-1] for part in parts])
    starts = ends - [part.shape[-1] for part in parts]
    force = wrap(force_of(nx, nz))
    inflow = inflow_of(nz) if driven else NO_INFLOW
    blocks = [np.zeros((4, nz, part.shape[-1] + 2 * HALO)) for part in parts]
    for block, part in zip(blocks, parts, strict=True):
        block[..., HALO:-HALO] = part
    for direction in "xzzx" * (steps // 2):
        whole = wrap(np.concatenate([block[..., HALO:-HALO] for block in blocks], axis=-1))
        for block, start, end in zip(blocks, starts, ends, strict=True):
            window = np.ascontiguousarray(force[:, start : end + 2 * HALO]) if driven else NONE
            if direction == "x":
                block[:] = whole[..., start : end + 2 * HALO]
                sweep_x(dispatch, block, base.column, DX, dt, BETA, window, inflow, start == 0, end == nx)
            else:
                sweep_z(dispatch, block, base.faces, base.ghost, DZ, dt, BETA, window)
    return np.concatenate([block[..., HALO:-HALO] for block in blocks], axis=-1)


def splits(nx: int) -> list[tuple[int, ...]]:
    """All cuts into two blocks of at least 6 cells, and into three and four with uneven ends."""
    two = [(cut,) for cut in range(6, nx - 5)]
    three = [(a, b) for a, b in itertools.combinations(range(6, nx - 5), 2) if b - a >= 6]
    four = [(6, 12, 18), (6, nx - 12, nx - 6), (7, 15, 22)]
    return two + three[:: max(1, len(three) // 25)] + four


@pytest.mark.parametrize("driven", [False, True])
def test_any_split_has_the_same_bits(driven):
    nx, nz = 31, 9
    owned = random_state(nx, nz)
    whole = advance([owned], nz, 4, driven)
    assert np.isfinite(whole).all()
    for cuts in splits(nx):
        np.testing.assert_array_equal(advance(np.split(owned, cuts, axis=-1), nz, 4, driven), whole, err_msg=str(cuts))


@pytest.mark.parametrize("cuts", [(6,), (100, 106), (lines.TILE,), (ring.STRIP + 1, lines.TILE + 1), (515,)])
def test_splits_across_tiles_have_the_same_bits(cuts):
    nx, nz = 521, 7
    owned = random_state(nx, nz)
    whole = advance([owned], nz, 2, True)
    np.testing.assert_array_equal(advance(np.split(owned, cuts, axis=-1), nz, 2, True), whole)


def test_splits_beyond_the_series_have_the_same_bits():
    """Whether a row is computed again with pow depends on the split; the bits of its cells do not."""
    nx, nz = 64, 9
    owned = random_state(nx, nz)
    owned[RHO_THETA, :, 20:30] += 0.3 * base_of(nz).column[1, :, None]
    whole = advance([owned], nz, 2, False, dt=0.05)
    for cuts in [(6,), (17,), (19,), (20,), (25,), (31,), (40,), (58,), (12, 50)]:
        np.testing.assert_array_equal(advance(np.split(owned, cuts, axis=-1), nz, 2, False, dt=0.05), whole)


@pytest.mark.parametrize("nx", [2 * lines.TILE, 2 * lines.TILE + 1, 3 * lines.TILE + 5])
def test_a_sweep_in_parts_has_the_same_bits(nx):
    """X without the halo, then the rest; z in pieces of columns, in any order; to another array at once. With force and
    inflow.
    """
    nz, base = 7, base_of(7)
    force, whole = wrap(force_of(nx, nz)), wrap(random_state(nx, nz))
    driven, parts, seams = (force, inflow_of(nz), True, True), whole.copy(), np.full((nz, 4, 2, HALO), np.nan)
    first, second = np.zeros_like(whole), np.zeros_like(whole)
    sweep_x(dispatch, whole, base.column, DX, DT, BETA, *driven, out=first)
    sweep_x(dispatch, whole, base.column, DX, DT, BETA, *driven)
    sweep_z(dispatch, first, base.faces, base.ghost, DZ, DT, BETA, force, out=second)
    sweep_z(dispatch, whole, base.faces, base.ghost, DZ, DT, BETA, force)
    np.testing.assert_array_equal(second[..., HALO:-HALO], whole[..., HALO:-HALO])
    halo = parts[..., :HALO].copy(), parts[..., -HALO:].copy()
    parts[..., :HALO], parts[..., -HALO:] = np.nan, np.nan  # on its way still
    before = parts.copy()
    assert sweep_x(dispatch, parts, base.column, DX, DT, BETA, *driven, part=INNER, seams=seams) == 0
    assert (parts != before)[..., HALO:-HALO].any() == dispatch.has_inner(nx)
    parts[..., :HALO], parts[..., -HALO:] = halo
    assert sweep_x(dispatch, parts, base.column, DX, DT, BETA, *driven, part=OUTER, seams=seams) == 0
    for begin, end in ((nx - 64, nx), (0, 64), (64, nx - 64)):
        assert sweep_z(dispatch, parts, base.faces, base.ghost, DZ, DT, BETA, force, (begin, end)) == 0
    np.testing.assert_array_equal(parts[..., HALO:-HALO], whole[..., HALO:-HALO])


def test_inflow_overwrites_the_ghosts_of_every_stage():
    """Against the plain way: fill two cells on either side before each stage, and overwrite the left ones."""
    nx, nz = 23, 8
    base, inflow = base_of(nz), inflow_of(nz)
    owned = random_state(nx, nz)
    rows = np.flatnonzero(inflow[1])
    stage = owned
    for fraction in (1 / 3, 1 / 2, 1.0):
        ghosts = np.concatenate([stage[..., -2:], stage, stage[..., :2]], axis=-1)
        rho = ghosts[RHO, rows, :2] + base.column[0, rows, None]
        ghosts[RHO_U, rows, :2] = rho * 50.0
        ghosts[RHO_THETA, rows, :2] = rho * 298.0 - base.column[1, rows, None]
        tendency, _ = reference._tendency_x(ghosts, base.column, DX, BETA * DX / (16 * DT * fraction))
        stage = owned + DT * fraction * tendency
    for kernels in (reference, dispatch):
        state = wrap(owned)
        sweep_x(kernels, state, base.column, DX, DT, BETA, NONE, inflow, True, True)
        assert_close(state[..., HALO:-HALO], stage, 1e-13)


def test_rest_and_the_base_wind_stay():
    """At rest nothing moves, exactly; a sheared wind stays to rounding, hyperviscosity or not."""
    nx, nz = 19, 12
    base = base_state(neutral(300.0), nz, DZ)
    state = np.zeros((4, nz, nx + 2 * HALO))
    for _ in range(10):
        sweep_x(dispatch, state, base.column, DX, DT, BETA, NONE, NO_INFLOW, True, True)
        sweep_z(dispatch, state, base.faces, base.ghost, DZ, DT, BETA, NONE)
    assert not state.any()
    profile = neutral(300.0)
    base = base_state(type(profile)(profile.theta, profile.pressure, lambda z: 20 * np.sin(z / 150), 1e4, ""), nz, DZ)
    state[RHO_U] = (base.column[0] * base.wind)[:, None]
    start = state.copy()
    for _ in range(50):
        sweep_x(dispatch, state, base.column, DX, DT, BETA, NONE, NO_INFLOW, True, True)
        state[..., :HALO], state[..., -HALO:] = state[..., HALO : HALO + 1], state[..., HALO : HALO + 1]
        sweep_z(dispatch, state, base.faces, base.ghost, DZ, DT, BETA, NONE)
    np.testing.assert_allclose(state[..., HALO:-HALO], start[..., HALO:-HALO], rtol=0, atol=1e-12)


def test_mirrored_start_has_the_mirrored_bits():
    nx, nz = 150, 9
    owned = random_state(nx, nz)
    mirror = owned[..., ::-1].copy()
    mirror[RHO_U] *= -1
    base = base_of(nz, wind=0.0)
    ends = []
    for start in (owned, mirror):
        state = wrap(start)
        for _ in range(3):
            sweep_x(dispatch, state, base.column, DX, DT, BETA, NONE, NO_INFLOW, True, True)
            sweep_z(dispatch, state, base.faces, base.ghost, DZ, DT, BETA, NONE)
            state = wrap(state[..., HALO:-HALO])
        ends.append(state)
    ends[1][RHO_U] *= -1
    np.testing.assert_array_equal(ends[1][..., ::-1], ends[0])


def test_sweeps_conserve_what_they_must():
    """The x sweep keeps all four sums. The z sweep keeps mass; hyperviscosity carries a little heat through a wall."""
    nx, nz = 61, 15
    base = base_of(nz)
    state = wrap(random_state(nx, nz))
    before = state[..., HALO:-HALO].sum(axis=(1, 2))
    sweep_x(dispatch, state, base.column, DX, DT, BETA, NONE, NO_INFLOW, True, True)
    between = state[..., HALO:-HALO].sum(axis=(1, 2))
    size = np.abs(state[..., HALO:-HALO]).sum(axis=(1, 2))
    assert (np.abs(between - before) < 1e-13 * size).all()
    sweep_z(dispatch, state, base.faces, base.ghost, DZ, DT, BETA, NONE)
    after = state[..., HALO:-HALO].sum(axis=(1, 2))
    assert abs(after - between)[RHO] < 1e-13 * size[RHO]
    assert abs(after[RHO_W] - between[RHO_W]) > 1e-6 * size[RHO_W]  # gravity and the walls push


@pytest.mark.parametrize("field", [RHO, RHO_U, RHO_W, RHO_THETA])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_told_within_a_step(field, value):
    """By one sweep at least: the momentum along does not reach the pressure in a sweep across it."""
    nx, nz = 40, 8
    base = base_of(nz)
    for kernels in (reference, dispatch):
        state = wrap(random_state(nx, nz))
        state[field, 3, 17] = value
        status = sweep_x(kernels, state, base.column, DX, DT, BETA, NONE, NO_INFLOW, True, True)
        status |= sweep_z(kernels, state, base.faces, base.ghost, DZ, DT, BETA, NONE)
        assert status & NOT_FINITE


def test_diagnose_is_the_reference():
    nx, nz = 43, 9
    base = base_of(nz)
    state = wrap(random_state(nx, nz))
    expected = reference.diagnose(state, base.column, base.height)
    np.testing.assert_allclose(dispatch.diagnose(state, base.column, base.height), expected, rtol=1e-12, atol=1e-12)
    assert expected[9] == 0
    state[RHO_W, 2, 11] = np.nan
    state[RHO, 5, 20] = -2.0
    expected = reference.diagnose(state, base.column, base.height)
    np.testing.assert_allclose(dispatch.diagnose(state, base.column, base.height), expected, rtol=1e-12, atol=1e-12)
    assert expected[9] == 2
    state[:] = np.nan
    assert list(dispatch.diagnose(state, base.column, base.height)) == [0] * 9 + [nx * nz]
    assert list(reference.diagnose(state, base.column, base.height)) == [0] * 9 + [nx * nz]


def test_sound_wave_converges_in_third_order():
    """A smooth, weak sound wave along x at a fixed Courant number: three stages are third order for linear waves, the
    interpolation is fourth, the hyperviscosity (whose coefficient goes with dx / dt) third.
    """
    width, end = 2000.0, 2.0
    base = base_state(neutral(300.0), 4, DZ)
    sound = np.sqrt(constants.GAMMA * base.column[2] / base.column[0])

    def run(nx: int) -> np.ndarray:
        dx = width / nx
        edges = np.arange(nx + 1) * dx
        # cell means of a sine, exactly
        shape = -np.diff(np.cos(2 * np.pi * edges / width)) * width / (2 * np.pi * dx)
        rho = 1e-7 * base.column[0][:, None] * shape
        state = np.array([rho, rho * sound[:, None], 0 * rho, rho * base.theta[:, None]])
        steps = round(end / (0.8 * dx / 347))
        for _ in range(steps):
            state = wrap(state)
            sweep_x(dispatch, state, base.column, dx, end / steps, BETA, NONE, NO_INFLOW, True, True)
            state = state[..., HALO:-HALO]
        return state

    def error(nx: int) -> float:
        """Against the sine, moved."""
        dx = width / nx
        edges = (np.arange(nx + 1) * dx)[None] - sound[:, None] * end
        exact = -np.diff(np.cos(2 * np.pi * edges / width)) * width / (2 * np.pi * dx) * 1e-7 * base.column[0][:, None]
        return float(np.abs(run(nx)[RHO] - exact).max())

    errors = [error(nx) for nx in (20, 40, 80)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 2.8).all(), (errors, orders)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="looks at x86 instructions")
def test_inner_loops_are_vectorized(tmp_path):
    """Packed divisions, and no gathers, which signed indices would bring. Loops whose products may be fused take LANES
    cells at a time or less: a scalar tail could fuse others.
    """
    program = """
import re
import numpy as np
from hpckit.kernels.euler.sweeps import crossing, lines, ring
line, rows, u = np.ones(8 * lines.PITCH), [np.ones(9 * 4 * ring.PITCH) for _ in range(6)], np.uint64
lines._cross(line, line.copy(), line.copy(), u(8), u(32), 1.0, 300.0, 0.1)
lines._push(line, line.copy(), line.copy(), line.copy(), u(8), u(32), 0.1, 1e5)
lines._carry(line, line.copy(), line.copy(), 3, u(8), u(32), 0.0, 0.1)
lines._update(line, line.copy(), line.copy(), 3, u(8), u(32))
places = [u(0)] * 6
ring._cross(*rows[:3], *places[:4], u(32), 1.0, 300.0, 0.1)
ring._push(*rows, *places, u(32), 0.1, 1e5, 0.1)
ring._carry(*rows[:5], 3, *places, u(32), 0.0, 0.1, 0.1)
wanted = {"_cross": "divpd", "_push": "mulpd", "_carry": "mulpd", "_update": "subpd"}
for module in (lines, ring):
    for name, instruction in wanted.items():
        if hasattr(module, name):
            text = "".join(getattr(module, name).inspect_asm().values())
            assert instruction in text and "gather" not in text, (module, name)
            code = "".join(getattr(module, name).inspect_llvm().values())
            steps = list(map(int, re.findall(r"%index\\.next\\S* = add\\D* i64 %\\S+ (\\d+)", code)))
            assert steps and (name == "_update" or max(steps) <= crossing.LANES), (module, name, steps)
"""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=360)


def test_dispatch_refuses_what_the_kernels_cannot_take():
    base = base_of(5)
    state = wrap(random_state(8, 5))
    with pytest.raises(TypeError, match="float32"):
        sweep_z(dispatch, state.astype(np.float32), base.faces, base.ghost, DZ, DT, BETA, NONE)
    with pytest.raises(TypeError, match="C-contiguous"):
        sweep_z(dispatch, state[..., ::2], base.faces, base.ghost, DZ, DT, BETA, NONE)
    with pytest.raises(ValueError, match="at least 6"):
        dispatch.diagnose(np.zeros((4, 5, 17)), base.column, base.height)
