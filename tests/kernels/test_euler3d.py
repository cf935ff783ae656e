"""Kernels of the box: simd against the reference, the slab, rotation, bits over splits, conservation, status."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral, stable
from hpckit.kernels.euler.box import dispatch, reference
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import CLOSED, HALO, NOT_FINITE, OUT_OF_RANGE, Sweep
from hpckit.kernels.euler.slab import dispatch as slab
from hpckit.kernels.euler.slab.dispatch import has_inner
from hpckit.kernels.euler.status import new_status, read_status
from hpckit.kernels.euler.sweeps import lines, ring
from hpckit.kernels.parts import INNER, OUTER, WHOLE

DX, DY, DZ, DT, BETA = 50.0, 45.0, 60.0, 0.1, 0.05
SIZES = (0.004, 2.0, 2.0, 2.0, 1.0)  # of deviations in rho, rho u, rho v, rho w, rho theta
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))


def base_of(nz: int, wind: float = 12.0):
    profile = stable(300.0, 0.012)
    winds = (lambda z: wind + 0.01 * z, lambda z: 0.5 * wind - 0.02 * z)
    return base_state(type(profile)(profile.theta, profile.pressure, winds[0], 1e4, "", winds[1]), nz, DZ)


def wrap(owned: np.ndarray) -> np.ndarray:
    """A periodic state with its halo."""
    return np.pad(owned, ((0, 0), (0, 0), (HALO, HALO), (HALO, HALO)), mode="wrap")


def random_state(nz: int, ny: int, nx: int, seed: int = 0) -> np.ndarray:
    """Noise on top of something smooth, [5, nz, ny, nx] without halo."""
    rng = np.random.default_rng(seed)
    smooth = np.cos(2 * np.pi * np.arange(nx) / nx) + np.sin(2 * np.pi * np.arange(ny) / ny)[:, None]
    return (0.5 * rng.normal(size=(FIELDS, nz, ny, nx)) + smooth) * np.array(SIZES)[:, None, None, None]


def sweep(
    kernels, direction, state, base, dt=DT, mass_flux=dispatch.NO_FLUX, lines=None, part=WHOLE, out=None, **more
) -> int:
    """In place, or to `out`; returns the status."""
    status, numbers = new_status(state), Sweep({"x": DX, "y": DY, "z": DZ}[direction], dt, BETA, 3)
    lines = lines or (0, state.shape[3 if direction == "y" else 2] - 2 * HALO)
    tables, out = (base.faces_3d, base.ghost) if direction == "z" else (base.column,), state if out is None else out
    if direction != "z":
        nothing = {"seams": dispatch.NO_SEAMS} if direction == "x" else {}
        more = {"part": part, **nothing, **more}
    getattr(kernels, f"sweep_{direction}")(state, out, *tables, mass_flux, numbers, status, lines=lines, **more)
    seen, step = read_status(status)
    assert step == (3 if seen & NOT_FINITE else None)
    return seen


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Field by field, against the greatest value of the field."""
    for field in range(len(expected)):
        difference = np.abs(actual[field] - expected[field]).max()
        assert difference <= tolerance * np.abs(expected[field]).max(), f"field {field}: {difference:.3e}"


SHAPES = [
    (4, 6, 6),
    (7, 9, 37),
    (13, 7, ring.STRIP + 1),
    (5, 6, lines.TILE),
    (4, 7, lines.TILE + 1),
    (5, 6, 2 * lines.TILE + 7),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("direction", ["x", "y", "z"])
def test_sweep_is_the_reference(direction, shape):
    base = base_of(shape[0])
    expected = wrap(random_state(*shape))
    actual = expected.copy()
    assert sweep(reference, direction, expected, base) == sweep(dispatch, direction, actual, base) == 0
    assert_close(actual[OWNED], expected[OWNED], 1e-13)
    halo = np.ones(actual.shape[2:], bool)
    halo[OWNED[1:]] = False
    np.testing.assert_array_equal(actual[..., halo], expected[..., halo])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("direction", ["x", "y", "z"])
def test_mass_flux_is_the_reference_and_what_changes_the_density(direction, shape):
    base, dim = base_of(shape[0]), "zyx".index(direction)
    faces = tuple(n + (d == dim) for d, n in enumerate(shape))
    start = wrap(random_state(*shape))
    expected, flux, plain = start.copy(), np.full(faces, np.nan), start.copy()
    sweep(dispatch, direction, plain, base)
    assert sweep(dispatch, direction, start, base, mass_flux=flux) == 0
    np.testing.assert_array_equal(start, plain)
    before, own = expected[OWNED][RHO].copy(), np.empty(faces)
    sweep(reference, direction, expected, base, mass_flux=own)
    np.testing.assert_allclose(flux, own, rtol=0, atol=1e-13 * np.abs(own).max())
    change = -DT / (DZ, DY, DX)[dim] * np.diff(flux, axis=dim)
    np.testing.assert_allclose(start[OWNED][RHO] - before, change, rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="the mass flux of this sweep is"):
        sweep(dispatch, direction, start, base, mass_flux=np.zeros(shape))


@pytest.mark.parametrize("direction", ["x", *(pytest.param(each, marks=pytest.mark.nightly) for each in "yz")])
def test_beyond_the_series_the_pressure_is_pow(direction):
    base = base_of(8)
    owned = random_state(8, 9, 150)
    owned[RHO_THETA, 3:5] += 0.6 * base.column[1, 3:5, None, None] * np.cos(2 * np.pi * np.arange(150) / 150)
    expected = wrap(owned)
    actual = expected.copy()
    assert sweep(reference, direction, expected, base, 0.04) == OUT_OF_RANGE
    assert sweep(dispatch, direction, actual, base, 0.04) == OUT_OF_RANGE
    assert_close(actual[OWNED], expected[OWNED], 1e-12)


def advance(owned: np.ndarray, base, orders: list[str], angle: float = 0.0) -> np.ndarray:
    """The sweeps of a periodic box in the given orders, one string a step."""
    for order in orders:
        for direction in order:
            state = wrap(owned)
            if direction == "c":
                dispatch.turn(state, base.column, np.array([base.wind, base.wind_v]), angle)
            else:
                sweep(dispatch, direction, state, base)
            owned = state[OWNED]
    return owned


def test_uniform_in_y_it_is_the_slab():
    nz, nx = 9, 140
    base = base_state(stable(300.0, 0.012, 12.0), nz, DZ)
    box = random_state(nz, 1, nx)
    box[RHO_V] = 0.0
    flat = box[[RHO, RHO_U, RHO_W, RHO_THETA], :, 0]
    none, no_inflow = np.zeros((0, 0)), np.zeros((2, 0))
    for step in range(30):
        for direction in "xz" if step % 2 == 0 else "zx":
            state = np.pad(flat, ((0, 0), (0, 0), (HALO, HALO)), mode="wrap")
            if direction == "x":
                numbers = Sweep(DX, DT, BETA, step)
                slab.sweep_x(state, state, base.column, none, no_inflow, True, True, numbers, new_status(state))
            else:
                numbers = Sweep(DZ, DT, BETA, step)
                slab.sweep_z(state, state, base.faces, base.ghost, none, numbers, new_status(state))
            flat = state[..., HALO:-HALO]
    box = advance(np.repeat(box, 7, axis=2), base, ["xyz", "zyx"] * 15)
    assert not np.ptp(box, axis=2).any()
    assert not box[RHO_V].any()
    assert_close(box[[RHO, RHO_U, RHO_W, RHO_THETA], :, 0], flat, 1e-13)


def test_rotated_start_with_rotated_order_has_the_rotated_bits(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "DY", DX)
    n = 150
    start = random_state(7, n, n)
    base = base_state(stable(300.0, 0.012), 7, DZ)
    plain = advance(start, base, ["xyz", "zyx"])
    rotated = advance(start[[RHO, RHO_V, RHO_U, RHO_W, RHO_THETA]].swapaxes(2, 3), base, ["yxz", "zxy"])
    np.testing.assert_array_equal(rotated[[RHO, RHO_V, RHO_U, RHO_W, RHO_THETA]].swapaxes(2, 3), plain)


def test_mirrored_start_has_the_mirrored_bits():
    start = random_state(6, 31, 140)
    base = base_state(stable(300.0, 0.012), 6, DZ)
    plain = advance(start, base, ["xyz", "zyx"])
    for dim, momentum in ((3, RHO_U), (2, RHO_V)):
        mirror = np.flip(start, dim).copy()
        mirror[momentum] *= -1
        mirror = advance(mirror, base, ["xyz", "zyx"])
        mirror[momentum] *= -1
        np.testing.assert_array_equal(np.flip(mirror, dim), plain)


@pytest.mark.parametrize(
    ("shape", "cuts_y", "cuts_x"),
    [
        ((6, 25, 31), (6,), (25,)),
        ((6, 25, 31), (7, 13), (6, 19)),
        ((5, 13, 300), (7,), (lines.TILE, lines.TILE + 13)),
        ((5, 13, 300), (), (ring.STRIP + 1,)),
    ],
)
def test_any_split_has_the_same_bits(shape, cuts_y, cuts_x):
    base = base_of(shape[0])
    start = random_state(*shape)
    start[RHO_THETA, 2, 5:9, 3:20] += 0.2 * base.column[1, 2]  # some of it beyond the series
    whole = parts = start
    for order in ("xyz", "zyx"):
        for direction in order:
            state, padded = wrap(whole), wrap(parts)
            sweep(dispatch, direction, state, base, 0.04)
            whole, parts = state[OWNED], parts.copy()
            for top, bottom in zip((0, *cuts_y), (*cuts_y, shape[1]), strict=True):
                for left, right in zip((0, *cuts_x), (*cuts_x, shape[2]), strict=True):
                    block = padded[:, :, top : bottom + 2 * HALO, left : right + 2 * HALO].copy()
                    sweep(dispatch, direction, block, base, 0.04)
                    parts[:, :, top:bottom, left:right] = block[OWNED]
            np.testing.assert_array_equal(parts, whole, err_msg=f"{order}, {direction}")
    assert np.isfinite(whole).all()


def test_halos_of_other_directions_are_not_used():
    base = base_of(6)
    start = wrap(random_state(6, 9, 20))
    for direction, halo in (("x", np.s_[:, :, :HALO]), ("y", np.s_[..., -HALO:]), ("z", np.s_[..., :HALO])):
        expected, actual = start.copy(), start.copy()
        actual[halo] = np.nan
        assert sweep(dispatch, direction, expected, base) == sweep(dispatch, direction, actual, base) == 0
        np.testing.assert_array_equal(actual[OWNED], expected[OWNED])


def test_turn_is_the_reference_and_keeps_the_energy():
    base = base_of(7)
    wind = np.array([base.wind, base.wind_v])
    start = random_state(7, 9, 11)
    rho = start[RHO] + base.column[0][:, None, None]
    start[RHO_U] += rho * wind[0][:, None, None]
    start[RHO_V] += rho * wind[1][:, None, None]
    expected, actual = wrap(start), wrap(start)
    reference.turn(expected, base.column, wind, 0.3)
    dispatch.turn(actual, base.column, wind, 0.3)
    assert_close(actual[OWNED], expected[OWNED], 1e-14)
    before, after = (
        np.array([state[RHO_U] - rho * wind[0][:, None, None], state[RHO_V] - rho * wind[1][:, None, None]])
        for state in (start, actual[OWNED])
    )
    np.testing.assert_allclose((after**2).sum(axis=0), (before**2).sum(axis=0), rtol=1e-12)
    # To the right of the motion on the northern hemisphere.
    np.testing.assert_allclose(after[1], np.cos(0.3) * before[1] - np.sin(0.3) * before[0], atol=1e-12)


def test_diffusion_is_the_reference():
    base = base_of(7)
    calm = np.array([base.wind, base.wind_v, 0 * base.wind, base.theta])
    expected = wrap(random_state(7, 9, 13))
    actual, start = expected.copy(), expected.copy()
    for kernels, state in ((reference, expected), (dispatch, actual)):
        kernels.diffuse(state, base.column, calm, (DX, DY, DZ), 300.0, np.empty_like(state))
    assert_close((actual - start)[OWNED][1:], (expected - start)[OWNED][1:], 1e-10)
    np.testing.assert_array_equal(actual[RHO], start[RHO])
    change = (actual - start)[OWNED].sum(axis=(1, 2, 3))
    change[RHO_W] = 0.0  # the walls take it up
    assert (np.abs(change) < 1e-12 * np.abs((actual - start)[OWNED]).sum(axis=(1, 2, 3)).max()).all()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_diffusion_damps_a_wave_by_the_factor_of_the_scheme(dim):
    """1 - 4 K dt / d2 sin2(k d / 2) for each field at constant density; between walls cosines, of w a sine."""
    shape, amount = (8, 9, 11), 200.0
    base = base_state(neutral(300.0), 8, DZ)
    column, calm = base.column.copy(), np.zeros((4, 8))
    column[0], calm[3] = 1.25, column[1] / 1.25
    n, width = shape[dim - 1], {1: DZ, 2: DY, 3: DX}[dim]
    phase = (np.pi if dim == 1 else 2 * np.pi) * 2 / n
    wave = np.cos(phase * (np.arange(n) + 0.5)).reshape([-1 if d == dim else 1 for d in (1, 2, 3)])
    start = np.zeros((FIELDS, *shape))
    start[1:] = wave
    start[RHO_W] = np.sin(phase * (np.arange(n) + 0.5))[:, None, None] if dim == 1 else 0.0  # what the walls leave
    state = wrap(start)
    dispatch.diffuse(state, column, calm, (DX, DY, DZ), amount, np.empty_like(state))
    factor = 1 - 4 * amount / width**2 * np.sin(phase / 2) ** 2
    np.testing.assert_allclose(state[OWNED], factor * start, rtol=0, atol=1e-12)


def test_rest_and_the_base_wind_stay():
    """At rest nothing moves, exactly; a sheared wind stays to rounding, under the Coriolis force too."""
    base = base_state(neutral(300.0), 12, DZ)
    assert not advance(np.zeros((FIELDS, 12, 7, 9)), base, ["xyzc", "czyx"] * 5, 0.1).any()
    base = base_of(12)
    start = np.zeros((FIELDS, 12, 7, 9))
    start[RHO_U], start[RHO_V] = ((base.column[0] * wind)[:, None, None] for wind in (base.wind, base.wind_v))
    np.testing.assert_allclose(advance(start, base, ["xyzc", "czyx"] * 25, 0.1), start, rtol=0, atol=1e-12)


def test_sweeps_conserve_what_they_must():
    base = base_of(9)
    start = random_state(9, 13, 61)
    size = np.abs(start).sum(axis=(1, 2, 3))
    for direction in "xyz":
        end = advance(start, base, [direction])
        change = np.abs(end.sum(axis=(1, 2, 3)) - start.sum(axis=(1, 2, 3))) / size
        assert change[RHO] < 1e-13
        if direction != "z":
            assert (change < 1e-13).all()
        else:
            assert change[RHO_W] > 1e-6  # gravity and the walls push


@pytest.mark.parametrize("field", range(FIELDS))
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_told_within_a_step(field, value):
    base = base_of(8)
    for kernels in (reference, dispatch):
        state = wrap(random_state(8, 9, 40))
        state[field, 3, HALO + 2, 17] = value
        status = 0
        for direction in "xyz":
            status |= sweep(kernels, direction, state, base)
        assert status & NOT_FINITE


def test_diagnose_is_the_reference():
    base = base_of(7)
    state = wrap(random_state(7, 9, 13))
    for broken in (0, 2, 7 * 9 * 13):
        if broken == 2:
            state[RHO_V, 2, 8, 11] = np.nan
            state[RHO, 5, 10, 12] = -2.0
        elif broken:
            state[:] = np.nan
        expected = reference.diagnose(state, base.column, base.height)
        actual = dispatch.diagnose(state, base.column, base.height)
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
        assert expected[10] == broken


def in_parts(direction: str, state: np.ndarray, base, cuts: list[int], mass_flux: np.ndarray) -> int:
    """A sweep in pieces of independent lines, the last piece first; along x in inner and outer tiles too."""
    pieces, status = list(itertools.pairwise(cuts))[::-1], 0
    for begin, end in pieces:
        if direction != "x":
            status |= sweep(dispatch, direction, state, base, DT, mass_flux, (begin, end))
        else:
            ny = state.shape[2] - 2 * HALO
            seams, outer = np.full((state.shape[1], ny, FIELDS, 2, HALO), np.nan), state[..., OWNED[2]].copy()
            halo = [state[..., :HALO].copy(), state[..., -HALO:].copy()]
            state[..., :HALO], state[..., -HALO:] = np.nan, np.nan  # on its way still
            status |= sweep(dispatch, "x", state, base, DT, mass_flux, (begin, end), INNER, seams=seams)
            moved = (state[..., OWNED[2]] != outer).any()
            assert moved == (has_inner(state.shape[3] - 2 * HALO) and end > begin)
            state[..., :HALO], state[..., -HALO:] = halo
            status |= sweep(dispatch, "x", state, base, DT, mass_flux, (begin, end), OUTER, seams=seams)
    return status


@pytest.mark.parametrize("nx", [13, 2 * lines.TILE, 2 * lines.TILE + 1, 3 * lines.TILE + 5])
@pytest.mark.parametrize("direction", ["x", "y", "z"])
def test_a_sweep_in_parts_has_the_same_bits(direction, nx):
    shape, base = (5, 8, nx), base_of(5)
    across = nx if direction == "y" else 8
    cuts = [0, 3, 3, across - 2, across]
    faces = tuple(n + (name == direction) for name, n in zip("zyx", shape, strict=True))
    whole, flux = wrap(random_state(*shape)), np.full(faces, np.nan)
    parts, own = whole.copy(), np.full(faces, np.nan)
    assert sweep(dispatch, direction, whole, base, mass_flux=flux) == 0
    assert in_parts(direction, parts, base, cuts, own) == 0
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(own, flux)


@pytest.mark.parametrize("nx", [6, 31, lines.TILE, 2 * lines.TILE + 1, 3 * lines.TILE])
def test_rows_that_close_on_themselves_need_no_halo(nx):
    shape, base = (5, 8, nx), base_of(5)
    whole, flux = wrap(random_state(*shape)), np.full((5, 8, nx + 1), np.nan)
    closed, own = whole.copy(), np.full_like(flux, np.nan)
    closed[..., :HALO], closed[..., -HALO:] = np.nan, np.nan
    assert sweep(dispatch, "x", whole, base, mass_flux=flux) == 0
    for begin, end in ((3, 8), (0, 3)):
        assert sweep(dispatch, "x", closed, base, DT, own, (begin, end), CLOSED) == 0
    np.testing.assert_array_equal(closed[OWNED], whole[OWNED])
    np.testing.assert_array_equal(own, flux)
    np.testing.assert_array_equal(flux[..., 0], flux[..., -1])


def test_a_sweep_in_y_takes_a_few_columns_at_a_time():
    shape, base = (5, 8, 2 * ring.STRIP + 5), base_of(5)
    whole = wrap(random_state(*shape))
    parts = whole.copy()
    assert sweep(dispatch, "y", whole, base) == 0
    for begin, end in ((shape[2] - 7, shape[2]), (0, shape[2] - 7)):
        assert sweep(dispatch, "y", parts, base, lines=(begin, end)) == 0
    np.testing.assert_array_equal(parts[OWNED], whole[OWNED])


def test_parts_that_cannot_be_are_refused():
    state, base = wrap(random_state(5, 8, 8)), base_of(5)
    with pytest.raises(ValueError, match="within 0 and 8, not from 3 to 9"):
        sweep(dispatch, "y", state, base, lines=(3, 9))
    with pytest.raises(ValueError, match="the seams of a sweep in parts are"):
        sweep(dispatch, "x", state, base, part=INNER)
    with pytest.raises(ValueError, match="the result of a sweep is"):
        sweep(dispatch, "x", state, base, out=state[:, :4].copy())


@pytest.mark.parametrize("direction", ["x", "y", "z"])
def test_the_reference_takes_lines_and_parts_as_the_kernels_do(direction):
    shape, base = (5, 8, 9), base_of(5)
    start, across = wrap(random_state(*shape)), (2, 7)
    for more in ({"part": CLOSED}, {"part": INNER}, {"part": OUTER}) if direction == "x" else ({},):
        ends = []
        for kernels in (reference, dispatch):
            state, flux = (
                start.copy(),
                np.zeros([n + (name == direction) for name, n in zip("zyx", shape, strict=True)]),
            )
            given = dict(more)
            if "part" in more and more["part"] == CLOSED:
                state[..., :HALO] = np.nan
            if "part" in more and more["part"] != CLOSED:
                given["seams"] = np.zeros((5, 8, FIELDS, 2, HALO))
            out = np.zeros_like(state)
            assert sweep(kernels, direction, state, base, DT, flux, across, out=out, **given) == 0
            ends.append((out, flux))
        assert_close(ends[1][0], ends[0][0], 1e-13)
        np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=0, atol=1e-12)


def test_dispatch_refuses_what_the_kernels_cannot_take():
    base = base_of(5)
    state = wrap(random_state(5, 8, 8))
    with pytest.raises(TypeError, match="float32"):
        sweep(dispatch, "y", state.astype(np.float32), base)
    with pytest.raises(TypeError, match="C-contiguous"):
        sweep(dispatch, "z", state[..., ::2], base)
    with pytest.raises(ValueError, match="at least 6"):
        dispatch.diagnose(np.zeros((5, 5, 17, 30)), base.column, base.height)
