"""Stencils on one core: the heat equation against a plain copy and against C, stars against C, the slab against C.

heat3d: one explicit step, 640^3 double (320^3 with `quick` or where memory is short), t_eff = 24 bytes a cell with a
coefficient field, 16 with a number, over the time, divided by t_eff of a copy (16 bytes) of arrays of the same size in
the same run. The copy is a compiled loop with plain stores, as a program has them that does not bypass the cache;
`numpy.copyto`, which leaves the choice to the C library, is in the rows for comparison. C: the same loop, -O3
-march=native. "two steps": two in one pass, 48 bytes counted, which is what two passes move.

star: radius 2 and 4, 4000^2 double, against C with -O3 -march=native -ffast-math and the radius as a constant.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.measure import Ratios, Rows, Times, interleave, ratio, result, timed
from hpckit.bench.rivals import c
from hpckit.bench.weather.verb import slab_rows
from hpckit.comm.device import HOST
from hpckit.comm.observe.timer import t_eff
from hpckit.kernels import stencil
from hpckit.kernels.peaks.simd import copy
from hpckit.kernels.stencil import reference

VARIABLE, CONSTANT, COPY = 24, 16, 16  # bytes that must move per cell
STAR_SIZE, STAR_RADII = 4000, (2, 4)
Result = tuple[Rows, Ratios]


def run(quick: bool = False) -> dict[str, Any]:
    """Measure all, and return rows and ratios (keys as in the README's table); without a C compiler none against C."""
    rows, ratios = heat3d(quick)
    for more_rows, more_ratios in (*(star(radius, quick) for radius in STAR_RADII), slab_rows(quick)):
        rows += more_rows
        ratios |= more_ratios
    if c.compiler() is None:
        rows.append({"note": "no C compiler found (gcc, cc, clang or CC): the ratios against C are left out"})
    return result("stencil", rows, ratios)


def heat3d(quick: bool) -> Result:
    """Rows and ratios of the heat equation: variable and constant coefficient, copies, C."""
    n = 320 if quick else _largest(640, 512, 320)
    rng = np.random.default_rng(0)
    *pair, coefficient = (HOST.zeros((n, n, n)) for _ in range(3))  # as fields have them
    pair[0][...] = pair[1][...] = rng.random((n, n, n))
    coefficient[...] = 0.5 + 0.5 * pair[0]
    dt, spacing = 0.15, 1.0

    def forward(step: Callable[[np.ndarray, np.ndarray], object]) -> Callable[[], None]:
        def call() -> None:
            step(pair[1], pair[0])
            pair.reverse()

        return call

    candidates = {
        # First, because it leaves nothing of its output in the cache, which the next one would miss.
        "numpy.copyto": forward(np.copyto),
        "copy": forward(lambda out, field: copy(out.reshape(-1), field.reshape(-1), 1)),
        "variable": forward(lambda out, field: stencil.diffuse(out, field, coefficient, dt, spacing)),
        "two steps": forward(lambda out, field: stencil.diffuse_twice(out, field, coefficient, dt, spacing)),
        "constant": forward(lambda out, field: stencil.diffuse(out, field, 0.8, dt, spacing)),
    }
    c_step = _c_heat3d(coefficient, dt / spacing**2)
    if c_step is not None:
        candidates["C"] = forward(c_step)
    _check_heat(pair, coefficient, dt, spacing, c_step)
    times = interleave(candidates, rounds=13 if quick else 25)
    nbytes = {"variable": VARIABLE, "C": VARIABLE, "constant": CONSTANT, "two steps": 2 * VARIABLE}
    rows = [_row(f"heat3d {n}^3", name, seconds, nbytes.get(name, COPY) * n**3) for name, seconds in times.items()]
    ratios = {
        "heat3d_var_vs_copy": ratio(times["copy"], times["variable"], VARIABLE / COPY),
        "heat3d_two_steps_vs_copy": ratio(times["copy"], times["two steps"], 2 * VARIABLE / COPY),
        "heat3d_const_vs_copy": ratio(times["copy"], times["constant"], CONSTANT / COPY),
    }
    return rows, ratios | _against_c("heat3d_vs_c", times, "variable")


def star(radius: int, quick: bool) -> Result:
    """Rows and ratio of the star of a radius."""
    n = STAR_SIZE
    field, out = np.random.default_rng(0).random((n, n)), np.zeros((n, n))
    candidates: dict[str, Callable[[], object]] = {"hpckit": lambda: stencil.star(out, field, radius)}
    library = c.build("star.c", "-ffast-math", f"-DR={radius}")
    if library is not None:
        candidates["C"] = lambda: library.star(*c.pointers(out, field), ctypes.c_long(n))
        ours = _once(candidates["hpckit"], out)
        np.testing.assert_allclose(_once(candidates["C"], out), ours, rtol=0, atol=1e-13)
    times = interleave(candidates, rounds=15 if quick else 41)
    rows = [_row(f"star{radius} {n}^2", name, seconds, 24 * n * n) for name, seconds in times.items()]
    return rows, _against_c(f"star{radius}_vs_c", times, "hpckit")


def _largest(*edges: int) -> int:
    """The first edge whose three cubes of double fit into half of the free memory, else the last."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return next((n for n in edges if 3 * 8 * n**3 < free / 2), edges[-1])


def _row(case: str, name: str, seconds: list[float], nbytes: int) -> dict[str, Any]:
    return timed(case, name, seconds, t_eff_GB_per_s=round(t_eff(nbytes, median(seconds)), 2))


def _against_c(key: str, times: Times, ours: str) -> dict[str, dict[str, float]]:
    return {key: ratio(times["C"], times[ours])} if "C" in times else {}


def _once(call: Callable[[], object], out: np.ndarray) -> np.ndarray:
    """What one call adds to zeros."""
    out[...] = 0
    call()
    return out.copy()


def _c_heat3d(coefficient: np.ndarray, factor: float) -> Callable[[np.ndarray, np.ndarray], object] | None:
    library = c.build("heat3d.c")
    if library is None:
        return None
    numbers = ctypes.c_double(factor), ctypes.c_long(len(coefficient))
    return lambda out, field: library.heat3d(*c.pointers(out, field, coefficient), *numbers)


def _check_heat(
    pair: list[np.ndarray], coefficient: np.ndarray, dt: float, spacing: float, c_step: Callable | None
) -> None:
    """Hold ours and C against NumPy on three planes (the C compiler may fuse products and sums: a few ulp)."""
    field, out = pair
    factor = reference.factors(dt, (spacing,) * 3, field.dtype)
    expected = {}
    for plane in (1, len(field) // 2, len(field) - 2):
        three = np.s_[plane - 1 : plane + 2]
        slab = field[three].copy()
        box = (1, 1, 1), (2, field.shape[1] - 1, field.shape[2] - 1)
        reference.diffuse(slab, field[three], coefficient[three], factor, box)
        expected[plane] = slab[1]
    stencil.diffuse(out, field, coefficient, dt, spacing)
    for plane, values in expected.items():
        np.testing.assert_array_equal(out[plane], values)
    single = out[:8].copy(), np.empty_like(out[:8])
    stencil.diffuse(single[1], single[0], coefficient[:8], dt, spacing)
    stencil.diffuse_twice(out, field, coefficient, dt, spacing)
    np.testing.assert_array_equal(out[3, 2:-2, 2:-2], single[1][3, 2:-2, 2:-2])
    if c_step is not None:
        c_step(out, field)
        for plane, values in expected.items():
            np.testing.assert_allclose(out[plane], values, rtol=1e-14, atol=1e-15)
