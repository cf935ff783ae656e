"""Stencils: the compiled form has the bits of the reference, in pieces and whole, and the physics of the heat equation.

`simd` against `reference` is exact equality, 0 ulp: both do the same operations in the same order under IEEE rules.
"""

from __future__ import annotations

import itertools
import math
import platform

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels import stencil
from hpckit.kernels.compile import jit as options
from hpckit.kernels.stencil import reference, simd
from hpckit.kernels.stencil.region import boxes

SHAPES = [(7,), (41,), (5, 7), (11, 37), (3, 3, 3), (7, 9, 35), (5, 66, 13)]
LONG = [
    (3, 4, simd.LONG + 1),
    (5, 6, simd.LONG + 2),
    (6, 7, simd.LONG + 13),
]  # rows below and above the length from which on lines count
WIDE = [(23,), (13, 37), (11, 13, 19)]
LAPLACIAN_4 = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)  # order 8 (Fornberg 1988, table 2)


def fields(shape: tuple[int, ...], dtype=np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A field, a positive coefficient and an `out` that shows which cells were written."""
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(dtype), rng.uniform(0.1, 1, shape).astype(dtype), np.full(shape, 7, dtype)


def calls(shape: tuple[int, ...], coefficient: np.ndarray):
    """Every operation as name, radius and arguments after (out, field)."""
    spacing = (0.7, 1.1, 0.9)[: len(shape)]
    yield "diffuse", 1, (0.3, 0.05, spacing)
    yield "diffuse", 1, (coefficient, 0.05, spacing)
    yield "diffuse_flux", 1, (coefficient, 0.05, spacing)
    yield "star", 1, (1,)
    yield "star_laplacian", 1, ((-2.0, 1.0),)
    if min(shape) >= 5:
        yield "diffuse_twice", 2, (coefficient, 0.05, spacing)
    if min(shape) >= 9:
        yield "star", 4, (4,)
        yield "star_laplacian", 4, (LAPLACIAN_4,)


def strided(array: np.ndarray) -> np.ndarray:
    """A view with the same values that is not contiguous, so that it takes the reference."""
    room = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    room[..., ::2] = array
    return room[..., ::2]


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.nightly), np.float64])
@pytest.mark.parametrize("shape", by_day(map(list, SHAPES + WIDE + LONG), [7], [11, 37], [5, 66, 13], list(LONG[2])))
def test_simd_has_the_bits_of_the_reference(shape, dtype):
    shape = tuple(shape)
    field, coefficient, out = fields(shape, dtype)
    for name, _, arguments in calls(shape, coefficient):
        got, expected = out.copy(), strided(out)
        getattr(stencil, name)(got, field, *arguments)
        getattr(stencil, name)(expected, field, *arguments)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, expected, err_msg=f"{name} {arguments[0]}")
        assert not np.array_equal(got, out)


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.nightly), np.float64])
@pytest.mark.parametrize(
    "shape",
    [pytest.param((41,), marks=pytest.mark.nightly), (13, 37), pytest.param((9, 11, 35), marks=pytest.mark.nightly)],
)
def test_pieces_equal_the_whole_bit_by_bit(shape, dtype):
    field, coefficient, out = fields(shape, dtype)
    rng = np.random.default_rng(1)
    for name, radius, arguments in calls(shape, coefficient):
        whole = out.copy()
        getattr(stencil, name)(whole, field, *arguments)
        for _ in range(3):
            cuts = [np.unique([radius, n - radius, *rng.integers(radius, n - radius + 1, 3)]).tolist() for n in shape]
            spans = [[slice(a, b) for a, b in itertools.pairwise(cut)] for cut in cuts]
            pieces = [(part,) for part in spans[0]]
            for more in spans[1:]:
                pieces = [(*piece, part) for piece in pieces for part in more]
            got = out.copy()
            getattr(stencil, name)(got, field, *arguments, region=pieces)
            np.testing.assert_array_equal(got, whole, err_msg=f"{name} {cuts}")


def test_weights_that_both_precisions_hold_keep_their_precision():
    for dtype in (np.float64, np.float32):
        field, _, out = fields((13, 37), dtype)
        expected = strided(out)
        stencil.star(out, field, (0.25, 0.125))
        stencil.star(expected, field, (0.25, 0.125))
        np.testing.assert_array_equal(out, expected)


def test_planes_taken_in_strips_have_the_bits_of_the_reference(monkeypatch):
    field, coefficient, out = fields((6, 45, 31))
    expected = strided(out)
    stencil.diffuse(expected, field, coefficient, 0.05, 1.0)
    monkeypatch.setattr(simd, "WHOLE", 100)
    monkeypatch.setattr(simd, "STRIP", 31 * 10)
    stencil.diffuse(out, field, coefficient, 0.05, 1.0)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("variable", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_streams_and_strips_of_long_rows_have_the_bits_of_the_reference(monkeypatch, variable):
    """Wherever a row starts within a line of the cache, all rows alike or not; nothing beside the region is written."""
    monkeypatch.setattr(simd, "STREAMED", 1)
    for place, cells in enumerate((9, 10, 11, 16)):
        shape = 7, 29, simd.LONG + cells
        field, coefficient, out = fields(shape)
        got = np.full(out.size + 8, 7.0)[place : place + out.size].reshape(shape)
        region = slice(2, -2), slice(2, -3), slice(2, -3 - place)
        for name, size in (("diffuse", "STRIP"), ("diffuse_twice", "TWICE")):
            expected = strided(out)
            got[...] = 7.0
            monkeypatch.setattr(simd.lines, size, 9 * shape[2])
            monkeypatch.setattr(simd, "WHOLE", 1)
            for each in (got, expected):
                getattr(stencil, name)(each, field, coefficient if variable else 0.3, 0.05, (0.7, 1.1, 0.9), region)
            np.testing.assert_array_equal(got, expected, err_msg=f"{name} {place}")


def test_only_the_region_is_written():
    field, _, out = fields((9, 11, 13))
    region = (slice(2, 5), slice(1, -1), slice(3, 12))
    stencil.diffuse(out, field, 0.1, 0.1, 1.0, region)
    written = np.zeros(out.shape, bool)
    written[region] = True
    assert (out[~written] == 7).all()
    assert (out[written] != 7).all()
    before = out.copy()
    for empty in ((slice(3, 3), slice(1, 2), slice(1, 2)), [], (slice(5, 2), slice(0, 0), slice(0, 0))):
        stencil.diffuse(out, field, 0.1, 0.1, 1.0, empty)
    stencil.diffuse(np.ones((2, 9)), np.ones((2, 9)), 0.1, 0.1, 1.0)
    np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_fourier_mode_decays_by_its_exact_discrete_factor(ndim):
    shape, modes, spacing, steps = (12, 10, 15)[:ndim], (2, 3, 4)[:ndim], (0.5, 0.25, 0.4)[:ndim], 20
    angle = sum(
        2 * math.pi * m * np.arange(n).reshape([-1 if d == e else 1 for e in range(ndim)]) / n
        for d, (n, m) in enumerate(zip(shape, modes, strict=True))
    )
    dt = 0.4 * stencil.largest_step(0.8, spacing)
    start = field = np.cos(angle)
    for _ in range(steps):
        padded = np.pad(field, 1, mode="wrap")
        out = np.zeros_like(padded)
        stencil.diffuse(out, padded, 0.8, dt, spacing)
        field = out[(slice(1, -1),) * ndim]
    eigenvalue = sum(
        (2 - 2 * math.cos(2 * math.pi * m / n)) / h**2 for m, n, h in zip(modes, shape, spacing, strict=True)
    )
    np.testing.assert_allclose(field, (1 - 0.8 * dt * eigenvalue) ** steps * start, rtol=0, atol=1e-14)


def test_at_the_stability_limit_the_shortest_wave_keeps_its_size():
    field = np.pad((-1.0) ** np.add.outer(np.arange(8), np.arange(8)), 1, mode="wrap")
    out = np.zeros_like(field)
    stencil.diffuse(out, field, 0.3, stencil.largest_step(0.3, (0.5, 0.2)), (0.5, 0.2))
    np.testing.assert_allclose(out[1:-1, 1:-1], -field[1:-1, 1:-1], rtol=1e-14)


@pytest.mark.parametrize("shape", [(17,), (9, 14), (6, 7, 11)])
def test_the_flux_form_conserves_heat_in_a_periodic_box(shape):
    rng = np.random.default_rng(2)
    field, conductivity = rng.random(shape), np.pad(rng.uniform(0.1, 1, shape), 1, mode="wrap")
    total, start = math.fsum(field.ravel()), field
    for _ in range(50):
        padded = np.pad(field, 1, mode="wrap")
        out = np.zeros_like(padded)
        stencil.diffuse_flux(out, padded, conductivity, 0.1, 1.0)
        field = out[(slice(1, -1),) * len(shape)]
    assert math.fsum(field.ravel()) == pytest.approx(total, rel=1e-14)
    assert field.std() < 0.5 * start.std()


def test_equal_conductivity_makes_both_forms_agree():
    field, _, out = fields((9, 10, 11))
    flux = out.copy()
    stencil.diffuse(out, field, 0.5, 0.1, (1.0, 0.8, 1.2))
    stencil.diffuse_flux(flux, field, np.full(field.shape, 0.5), 0.1, (1.0, 0.8, 1.2))
    np.testing.assert_allclose(flux, out, rtol=1e-13, atol=1e-14)


def test_stars_are_exact_on_polynomials():
    x = np.arange(21.0) - 10
    plane = np.add.outer(x**2, 3 * x**4)
    out = np.zeros_like(plane)
    stencil.star_laplacian(out, plane, (-5.0, 4 / 3, -1 / 12))
    inner = (slice(2, -2), slice(2, -2))
    np.testing.assert_allclose(out[inner], np.add.outer(np.full(21, 2.0), 36 * x**2)[inner], rtol=1e-11, atol=1e-9)
    slope = np.add.outer(2 * x, 3 * x)
    for radius in (1, 2, 3, 4):  # each pair at distance k adds w_k 2 k (2 + 3), w_k = 1 / (2 k radius)
        out = np.ones_like(slope)
        stencil.star(out, slope, radius)
        np.testing.assert_allclose(out[4:-4, 4:-4], 6.0, rtol=1e-13)


def hot_kernels():
    f = np.dtype(np.float64).type
    yield "diffuse", lambda: simd.diffuse_kernel.__wrapped__(3, False), 0.1, (0.1,) * 3
    yield "diffuse, variable", lambda: simd.diffuse_kernel.__wrapped__(3, True), None, (0.1,) * 3
    yield "flux", lambda: simd.flux_kernel.__wrapped__(3), None, (0.1,) * 3
    for radius in (2, 4):
        weights = tuple(f(weight) for weight in reference.prk_weights(radius))
        yield f"star {radius}", lambda w=weights: simd.star_kernel.__wrapped__(2, w[0].dtype, w, False), 0, ()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
@pytest.mark.parametrize(
    ("name", "make", "coefficient", "factor"),
    by_day(hot_kernels(), *(each for each in hot_kernels() if each[0] in ("diffuse", "star 2"))),
    ids=lambda x: str(x)[:20],
)
def test_hot_kernels_are_vector_code_without_gathers(monkeypatch, name, make, coefficient, factor):
    monkeypatch.setattr(options, "_keep_on_disk", lambda *_: None)
    kernel = make()
    flat = np.ones(1331)
    third = np.ones(1331) if coefficient is None else coefficient
    kernel(np.zeros(1331), flat, third, factor, (11, 11, 11), (4, 4, 4), (7, 7, 7), 8)
    assembly = next(iter(kernel.inspect_asm().values()))
    assert "gather" not in assembly
    assert "mulpd" in assembly, f"{name} is not vectorized"


def test_what_does_not_fit_is_refused():
    a, b, c = np.zeros((5, 6)), np.ones((5, 6)), np.ones((5, 7))
    with pytest.raises(TypeError, match="CuPy arrays, not list"):
        stencil.diffuse(a, [[1.0]], 0.1, 0.1, 1.0)
    with pytest.raises(TypeError, match="two arrays of float64 or two of float32, not float64 and float32"):
        stencil.star(a, b.astype(np.float32), 2)
    with pytest.raises(TypeError, match="int64"):
        stencil.diffuse(a.astype(int), b.astype(int), 0.1, 0.1, 1.0)
    with pytest.raises(ValueError, match=r"\(5, 6\) and \(5, 7\)"):
        stencil.diffuse(a, c, 0.1, 0.1, 1.0)
    with pytest.raises(ValueError, match="1 to 3 dims"):
        stencil.diffuse(np.zeros((3,) * 4), np.zeros((3,) * 4), 0.1, 0.1, 1.0)
    with pytest.raises(ValueError, match="share memory"):
        stencil.diffuse(a, a, 0.1, 0.1, 1.0)
    with pytest.raises(ValueError, match="share memory"):
        stencil.diffuse(a, b, a, 0.1, 1.0)
    with pytest.raises(TypeError, match="not float"):
        stencil.diffuse_flux(a, b, 0.1, 0.1, 1.0)
    with pytest.raises(ValueError, match="coefficient has the shape"):
        stencil.diffuse(a, b, c, 0.1, 1.0)
    with pytest.raises(TypeError, match="coefficient has the dtype float32"):
        stencil.diffuse(a, b, b.astype(np.float32), 0.1, 1.0)
    for bad in ((1.0,), 0.0, (1.0, -1.0)):
        with pytest.raises(ValueError, match="spacing"):
            stencil.diffuse(a, b, 0.1, 0.1, bad)
    with pytest.raises(ValueError, match="at least 1"):
        stencil.star(a, b, ())
    with pytest.raises(ValueError, match="radius of at least 1"):
        stencil.star(a, b, 0)


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ((slice(0, 3), slice(1, 5)), "cells 0 to 2 in dim 0 of 5 lack neighbors"),
        ((slice(1, 4), slice(1, 6)), "cells 1 to 5 in dim 1 of 6 lack neighbors"),
        ((slice(1, 4),), "1 slices does not fit"),
        ((slice(1, 4, 2), slice(1, 5)), "step 2"),
        ([(slice(1, 2), slice(1, 5)), (slice(2, 5), slice(1, 5))], "cells 2 to 4 in dim 0"),
    ],
)
def test_a_region_outside_is_refused_before_anything_is_written(region, message):
    out = np.zeros((5, 6))
    with pytest.raises(ValueError, match=message):
        stencil.diffuse(out, np.arange(30.0).reshape(5, 6), 0.1, 0.1, 1.0, region)
    assert not out.any()


def test_boxes_of_a_region_may_count_from_the_end():
    assert boxes((9, 9), (slice(1, -1), slice(-3, -1)), 1) == [((1, 6), (8, 8))]
    assert boxes((9, 9), None, 2) == [((2, 2), (7, 7))]
