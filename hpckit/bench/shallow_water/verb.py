"""Shallow water, 2048 x 2048 cells: fused stages against a plain copy and against jitted JAX, 2 ranks against 1.

t_eff of a tendency evaluation is 48 bytes a cell (h, u and v read once and written once) over a third of the time of a
step; the copy is a compiled loop with plain stores over as many bytes in the same run. `shallow_water_vs_copy` above 1
means that fusing the stages moves less than an unfused scheme must. Two steps are taken at once, as by the app. The
rows also have single steps, two steps with all terms (topography, walls, friction, wind), and ns for each cell and
evaluation.

With JAX installed (extra `bench`) the same scheme as array expressions, jitted, double precision, on one core, is run
in turn; its fields must agree to 1e-10 of each field's range before the timing (`shallow_water_vs_jax`). A thread of
JAX goes on for some 30 ms after its result is there, on the core that both share, so every round of JAX is followed by
a pause that counts for neither.

`shallow_water_2ranks` is the speed-up of the app's model, MPI included, over the mean of each rank alone;
`shallow_water_2ranks_ceiling` what the machine gives 2 ranks at best, whatever the program: two runs on 1 rank each at
the same time. `--only` takes some of all.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.command import add_only
from hpckit.bench.measure import Ratios, Rows, Times, interleave, ratio, result, speed_up, timed
from hpckit.bench.ranks import run_ranks
from hpckit.bench.rivals.jax import PAUSE, jax_on_one_core, one_core
from hpckit.comm.observe.timer import t_eff
from hpckit.kernels.peaks.simd import copy
from hpckit.kernels.shallow_water.constants import AT_ONCE, HALO, STRESS, F, Physics
from hpckit.kernels.shallow_water.dispatch import step, step_free

SIZE = 2048
STAGES = 3
EVALUATION = 48  # bytes a cell: three fields read and written
GRAVITY, CORIOLIS, SPACING, DT = 9.81, 1e-4, 1000.0, 2.0
TOLERANCE = 1e-10
KEYS = "shallow_water_vs_copy", "shallow_water_vs_jax", "shallow_water_2ranks"
RANKS = 2


class Basin:
    """The case of the bench: smooth waves in a doubly periodic basin of n x n cells, h, u and v with their halo.

    at_once: steps that a call takes; the halo is as many times as wide.
    """

    def __init__(self, n: int, at_once: int = 1) -> None:
        self.n, self.at_once, self.halo = n, at_once, at_once * HALO
        angle = 2 * np.pi * (np.arange(n + 2 * self.halo) - self.halo) / n
        y, x = angle[:, None], angle[None, :]
        self.h = 100.0 + np.sin(x) * np.cos(2 * y)
        self.u = 0.5 * np.sin(2 * x) * np.cos(3 * y)
        self.v = 0.5 * np.cos(x) * np.sin(2 * y)
        self.bottom = 5.0 * np.cos(x) * np.cos(y)
        self.rows, self.columns = np.ones((5, angle.size)), np.ones((3, angle.size))
        self.rows[F], self.rows[STRESS] = CORIOLIS, 1e-6

    def fill(self) -> None:
        """The halo of a periodic basin."""
        w = self.halo
        for field in (self.h, self.u, self.v):
            field[:, :w], field[:, -w:] = field[:, -2 * w : -w], field[:, w : 2 * w]
            field[:w], field[-w:] = field[-2 * w : -w], field[w : 2 * w]

    def step(self) -> None:
        """The steps of a call, of the equations alone."""
        self.fill()
        fields = self.h, self.u, self.v
        step_free(fields, fields, self.rows[F], Physics(GRAVITY, SPACING, SPACING), DT, self.at_once)

    def step_with_all_terms(self) -> None:
        """The same with topography, factors of walls, viscosity, drag and wind."""
        self.fill()
        fields, tables = (self.h, self.u, self.v), (self.bottom, self.rows, self.columns)
        step(fields, fields, *tables, Physics(GRAVITY, SPACING, SPACING, 1.0, 1e-7, 1e-3), DT, self.at_once)

    def owned(self) -> list[np.ndarray]:
        """The three fields without halo."""
        owned = slice(self.halo, -self.halo)
        return [field[owned, owned] for field in (self.h, self.u, self.v)]


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options of this benchmark alone, and their names for `run`."""
    return add_only(parser.add_argument_group("shallow_water"), KEYS)


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure all, or the parts named in `only`; without JAX none against it. One core: JAX has no say in it."""
    wanted = only or KEYS
    rows: Rows = []
    ratios: Ratios = {}
    with one_core():
        if "shallow_water_vs_copy" in wanted:
            times = interleave(_copy_and_steps(), 9 if quick else 25)
            ratios["shallow_water_vs_copy"] = ratio(times["copy"], times["two steps"], AT_ONCE * STAGES)
            rows += _rows(times)
        if "shallow_water_vs_jax" in wanted and importlib.util.find_spec("jax") is None:
            rows.append({"note": "jax is not installed: the ratio against it is left out"})
        elif "shallow_water_vs_jax" in wanted:
            ours = {"two steps": Basin(SIZE, AT_ONCE).step}
            in_turn = {**ours, "jax": _jax_steps(SIZE), "pause": lambda: time.sleep(PAUSE)}
            times = interleave(in_turn, 5 if quick else 9)
            del times["pause"]
            ratios["shallow_water_vs_jax"] = ratio(times["jax"], times["two steps"], AT_ONCE)
            rows += _rows(times)
    if "shallow_water_2ranks" in wanted:
        more_rows, more_ratios = _ranks(quick)
        rows += more_rows
        ratios |= more_ratios
    return result("shallow_water", rows, ratios)


def _ranks(quick: bool) -> tuple[Rows, Ratios]:
    """The app's model on 2 ranks, on one, and on one each at once."""
    key, (calls, rounds) = "shallow_water_2ranks", (1, 3) if quick else (3, 9)
    (found,) = run_ranks("hpckit.bench.shallow_water.ranks", RANKS, ((key, SIZE, calls, rounds),))
    times: Times = found["times"]
    made = {name: found[name] for name in ("rounds_made", "rounds_disturbed")}
    title = f"shallow water {SIZE}^2, the app"
    rows = [timed(title, name, seconds, found["steps"], **made) for name, seconds in times.items()]
    return rows, speed_up(key, times, RANKS)


def _copy_and_steps() -> dict[str, Callable[[], object]]:
    source, target = np.ones(STAGES * SIZE**2), np.ones(STAGES * SIZE**2)
    return {
        "copy": lambda: copy(target, source, 1),
        "two steps": Basin(SIZE, AT_ONCE).step,
        "step": Basin(SIZE).step,
        "two steps with all terms": Basin(SIZE, AT_ONCE).step_with_all_terms,
    }


def _rows(times: Times) -> Rows:
    rows: Rows = []
    for name, seconds in times.items():
        steps = AT_ONCE if name.startswith("two") else 1
        evaluation = median(seconds) / (1 if name == "copy" else STAGES * steps)
        rate = round(t_eff(EVALUATION * SIZE**2, evaluation), 2)
        each = {"ns_per_cell_evaluation": round(evaluation / SIZE**2 * 1e9, 2), "t_eff_GB_per_s": rate}
        rows.append(timed(f"shallow water {SIZE}^2", name, seconds, steps, **each))
    return rows


def _jax_steps(n: int) -> Callable[[], None]:
    """A step of the same scheme in JAX, held against ours on a small basin first."""
    jax = jax_on_one_core()
    advance = jax.jit(_step_of(jax.numpy))
    small = Basin(64, AT_ONCE)
    state = tuple(jax.numpy.asarray(field) for field in small.owned())
    for _ in range(5):
        small.step()
        for _ in range(AT_ONCE):
            state = advance(*state)
    for ours, theirs in zip(small.owned(), state, strict=True):
        if np.abs(ours - np.asarray(theirs)).max() > TOLERANCE * np.ptp(ours):
            raise AssertionError("the JAX version computes something else")
    now = [tuple(jax.numpy.asarray(field) for field in Basin(n).owned())]

    def call() -> None:
        now[0] = advance(*now[0])
        jax.block_until_ready(now[0])

    return call


def _step_of(xp: Any) -> Callable[..., tuple]:
    """The scheme as array expressions of `xp` (numpy or jax.numpy) on periodic arrays without halo."""

    def tendency(h: Any, u: Any, v: Any) -> tuple:
        west, east = (lambda a: xp.roll(a, 1, 1)), (lambda a: xp.roll(a, -1, 1))
        south, north = (lambda a: xp.roll(a, 1, 0)), (lambda a: xp.roll(a, -1, 0))
        flux_u, flux_v = 0.5 * (h + west(h)) * u, 0.5 * (h + south(h)) * v
        zeta = (v - west(v) - u + south(u)) / SPACING
        q = (CORIOLIS + zeta) / (0.25 * (h + west(h) + south(h) + south(west(h))))
        energy = GRAVITY * h + 0.25 * (u * u + east(u) ** 2 + v * v + north(v) ** 2)
        across_u, across_v = q * (flux_v + west(flux_v)), q * (flux_u + south(flux_u))
        du = 0.25 * (across_u + north(across_u)) - (energy - west(energy)) / SPACING
        dv = -0.25 * (across_v + east(across_v)) - (energy - south(energy)) / SPACING
        return -(east(flux_u) - flux_u + north(flux_v) - flux_v) / SPACING, du, dv

    def advance(h: Any, u: Any, v: Any) -> tuple:
        start = now = (h, u, v)
        for old, new in ((0.0, 1.0), (0.75, 0.25), (1 / 3, 2 / 3)):
            changes = tendency(*now)
            now = tuple(old * a + new * (b + DT * c) for a, b, c in zip(start, now, changes, strict=True))
        return now

    return advance
