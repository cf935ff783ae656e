"""Stencils on one core: the heat equation against a plain copy and against C, stars against C, the slab against C.

heat3d: one explicit step, 640^3 double (512^3 or 320^3 where memory is short, 320^3 with `quick`), t_eff = 24 bytes a
cell with a coefficient field, 16 with a number, over the time, divided by t_eff of a copy (16 bytes) in the same run.
All are timed in turn for one slab of 64 planes, then for the next: on a shared host the memory is another from second
to second. The copy is a compiled loop with plain stores, as a program has them that does not bypass the cache;
`numpy.copyto`, which leaves the choice to the C library, is in the rows for comparison. C: the same loop, -O3
-march=native. "two steps": two in one pass, 48 bytes counted, which is what two passes move.

star: radius 2 and 4, 4000^2 double, against C with -O3 -march=native -ffast-math and the radius as a constant.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.measure import (
    Ratios,
    Rows,
    Times,
    in_turn,
    interleave,
    ratio,
    result,
    seconds_of,
    timed,
    uncollected,
)
from hpckit.bench.rivals import c
from hpckit.bench.weather.verb import slab_rows
from hpckit.comm.device import HOST
from hpckit.comm.observe.timer import t_eff
from hpckit.kernels import stencil
from hpckit.kernels.peaks.simd import copy
from hpckit.kernels.stencil import reference
from hpckit.launch.memory import available_bytes

VARIABLE, CONSTANT, COPY = 24, 16, 16  # bytes that must move per cell
SLAB = 64  # planes of a cube that are timed at once
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
    field, out, coefficient = (HOST.zeros((n, n, n)) for _ in range(3))  # as fields have them
    field[...] = out[...] = rng.random((n, n, n))
    coefficient[...] = 0.5 + 0.5 * field
    dt, spacing = 0.15, 1.0
    c_step = _c_heat3d(coefficient, dt / spacing**2)
    _check_heat([field, out], coefficient, dt, spacing, c_step)

    def step(function: Callable[..., None], k: Any, radius: int) -> Callable[[slice], None]:
        inner = slice(radius, n - radius)
        return lambda planes: function(out, field, k, dt, spacing, (planes, inner, inner))

    candidates: dict[str, Callable[[slice], object]] = {
        "numpy.copyto": lambda planes: np.copyto(out[planes], field[planes]),
        "copy": lambda planes: copy(out[planes].reshape(-1), field[planes].reshape(-1), 1),
        "variable": step(stencil.diffuse, coefficient, 1),
        "two steps": step(stencil.diffuse_twice, coefficient, 2),
        "constant": step(stencil.diffuse, 0.8, 1),
    }
    if c_step is not None:
        candidates["C"] = lambda planes: c_step(out, field, planes)
    times = _by_slabs(candidates, n, rounds=5 if quick else 9)
    nbytes = {"variable": VARIABLE, "C": VARIABLE, "constant": CONSTANT, "two steps": 2 * VARIABLE}
    cells = SLAB * n * n
    rows = [_row(f"heat3d {n}^3", name, seconds, nbytes.get(name, COPY) * cells) for name, seconds in times.items()]
    ratios = {
        "heat3d_var_vs_copy": ratio(times["copy"], times["variable"], VARIABLE / COPY),
        "heat3d_two_steps_vs_copy": ratio(times["copy"], times["two steps"], 2 * VARIABLE / COPY),
        "heat3d_const_vs_copy": ratio(times["copy"], times["constant"], CONSTANT / COPY),
    }
    return rows, ratios | _against_c("heat3d_vs_c", times, "variable")


def _by_slabs(candidates: dict[str, Callable[[slice], object]], n: int, rounds: int) -> Times:
    """Seconds of each candidate for `SLAB` planes of n^3 cells: all in turn for one slab, then for the next.

    Between two calls on one slab all others are read, so none is in a cache. The planes beside a slab are read with it.
    """
    times: Times = {name: [] for name in candidates}
    slabs = [slice(first, first + SLAB) for first in range(2, n - 1 - SLAB, SLAB)]
    for candidate in candidates.values():
        candidate(slabs[0])
    with uncollected():
        for turn in range(rounds * len(slabs)):
            for name in in_turn(list(candidates), turn):
                times[name].append(seconds_of(partial(candidates[name], slabs[turn % len(slabs)])))
    return times


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
    return next((n for n in edges if 3 * 8 * n**3 < available_bytes() / 2), edges[-1])


def _row(case: str, name: str, seconds: list[float], nbytes: int) -> dict[str, Any]:
    return timed(case, name, seconds, t_eff_GB_per_s=round(t_eff(nbytes, median(seconds)), 2))


def _against_c(key: str, times: Times, ours: str) -> dict[str, dict[str, float]]:
    return {key: ratio(times["C"], times[ours])} if "C" in times else {}


def _once(call: Callable[[], object], out: np.ndarray) -> np.ndarray:
    """What one call adds to zeros."""
    out[...] = 0
    call()
    return out.copy()


def _c_heat3d(coefficient: np.ndarray, factor: float) -> Callable[[np.ndarray, np.ndarray, slice], None] | None:
    library = c.build("heat3d.c")
    if library is None:
        return None
    numbers = ctypes.c_double(factor), ctypes.c_long(len(coefficient))

    def step(out: np.ndarray, field: np.ndarray, planes: slice) -> None:
        stated = ctypes.c_long(planes.start), ctypes.c_long(planes.stop)
        library.heat3d(*c.pointers(out, field, coefficient), *numbers, *stated)

    return step


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
        c_step(out, field, slice(1, len(field) - 1))
        for plane, values in expected.items():
            np.testing.assert_allclose(out[plane], values, rtol=1e-14, atol=1e-15)
