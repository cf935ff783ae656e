"""The weather kernels, slab and box, on one core against plain C versions of the same schemes, and 2 ranks against 1.

The C versions (`c/euler2d.c`, `c/euler3d.c`, built with -O3 -march=native) have one loop nest for each operation and
pow for the pressure. The slab advances two colliding bubbles, the box one bubble in a sheared wind; fields must agree
to 1e-11 of each field's range before anything is timed. `weather_vs_c` (400 x 200), `weather_big_vs_c` (2000 x 1000)
and `euler3d_vs_c` (128^3) say how many times faster the kernels of hpckit are.

`--against CMD` (a command line, quoted) runs an external program, as the C++ miniWeather, in turn with ours: two
colliding bubbles on `--against-cells` for `--against-time` simulated seconds, at least three rounds of each.
`weather_vs_against` says how many times faster ours is in that case. The program must do the same case: for miniWeather
build with NX=400, NZ=200, SIM_TIME=50, DATA_SPEC=DATA_SPEC_COLLISION and OUT_FREQ above SIM_TIME (docs/benchmarks.md).
Cells and simulated time that are not given are read from what it prints, as miniWeather does, else they are 400x200 and
50 s. Its time is what it prints (`CPU Time: 1.23`, `1.23 sec`; `--against-pattern REGEX` with a group finds another),
else its whole wall time.

`weather_2ranks_small`, `weather_2ranks_big` and `euler3d_2ranks` are the speed-up of the apps' models, MPI included, on
2 ranks over 1: one job of 2 ranks runs both in turn. Alone runs each rank, the other asleep, and the mean counts: cores
of a shared host differ in speed, and a speed-up over one of them would tell of the cores. The same keys
with `_ceiling` are what the machine gives to 2 ranks at best, whatever the program: two runs on 1 rank each at the same
time, which share memory, cache and clock but send nothing, over one alone. Rounds in which a rank waited for its core,
as another program or another guest of the host had it, are made again (`hpckit.bench.core_wait`).

`euler3d_physics` is what turbulence and tracers add to a step of the box on one rank: `euler3d_time_with_turbulence`,
`…_with_a_tracer`, `…_with_four_tracers` are times over that of the dynamics alone.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Protocol

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, base_state
from hpckit.apps.atmosphere.profiles import profile_of
from hpckit.apps.weather.config import PRESETS, Config
from hpckit.apps.weather.setups import initial_state
from hpckit.apps.weather3d.config import Config as Config3d
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.setups import initial_state as initial_state_3d
from hpckit.bench import c_rival
from hpckit.bench.against import LEAST_ROUNDS, Rival, in_turn
from hpckit.bench.job import run_ranks
from hpckit.bench.measure import Times, interleave, machine, ratio
from hpckit.errors import InputError
from hpckit.kernels.euler.box import dispatch as box_kernels
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab import dispatch as slab_kernels
from hpckit.kernels.euler.status import new_status

NONE = np.zeros((0, 0))
NO_INFLOW = np.zeros((2, 0))
TOLERANCE = 1e-11
RANKS = 2
KEYS = (
    "weather_vs_c",
    "weather_big_vs_c",
    "euler3d_vs_c",
    "weather_2ranks_small",
    "weather_2ranks_big",
    "euler3d_2ranks",
    "euler3d_physics",
)
PLAIN = "dynamics alone"
PHYSICS: dict[str, dict[str, Any]] = {  # settings of the box
    PLAIN: {},
    "with turbulence": {"smagorinsky": {"coefficient": 0.2}},
    "with a tracer": {"tracers": [{"name": "a"}]},
    "with four tracers": {"tracers": [{"name": name} for name in "abcd"]},
}
# Case, sizes (x, (y,) z), steps a timing, rounds.
FULL = (
    ("weather_2ranks_small", (400, 200), 20, 21),
    ("weather_2ranks_big", (2000, 1000), 2, 21),
    ("euler3d_2ranks", (128, 128, 128), 2, 21),
)
QUICK = (
    ("weather_2ranks_small", (400, 200), 10, 9),
    ("weather_2ranks_big", (2000, 1000), 2, 3),
    ("euler3d_2ranks", (128, 128, 128), 2, 3),
)


class Case(Protocol):
    """A bench case on one core, for either version."""

    source: str
    title: str
    cells: int

    def restart(self) -> None:
        """Both versions back to the start."""

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""

    def run_c(self, library: ctypes.CDLL, steps: int) -> None:
        """Advance by the C version."""

    def difference(self) -> float:
        """The greatest difference between the versions, over the range of its field."""


class Slab:
    """The slab's case."""

    source = "euler2d.c"

    def __init__(self, nx: int = 400, nz: int = 200, compat: bool = False) -> None:
        settings = {**PRESETS["collision"][1], "grid": {"nx": nx, "nz": nz}, "compat": compat}
        self.config = Config.model_validate(settings)
        grid = self.config.grid
        self.title, self.cells = f"weather slab {nx} x {nz}", nx * nz
        profile = profile_of(self.config.base)
        self.base: BaseState = base_state(profile, nz, grid.dz, compat)
        self.start = initial_state(self.config, profile, self.base, np.arange(nx))
        self.dt = min(grid.dx, grid.dz) / self.config.time.max_speed * self.config.time.cfl
        self.state = np.zeros((4, nz, nx + 2 * HALO))
        self.status = new_status(self.state)
        self.c_state = np.zeros((4, nz + 4, nx + 4))
        self.restart()

    def restart(self) -> None:
        """Both versions back to the start."""
        self.state[:, :, HALO:-HALO] = self.start
        self.c_state[:, 2:-2, 2:-2] = self.start

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""
        grid, base, state = self.config.grid, self.base, self.state
        for step in range(steps):
            for direction in "xz" if step % 2 == 0 else "zx":
                if direction == "x":
                    state[:, :, :HALO] = state[:, :, -2 * HALO : -HALO]
                    state[:, :, -HALO:] = state[:, :, HALO : 2 * HALO]
                    edges, numbers = (True, True), Sweep(grid.dx, self.dt, self.config.beta, step)
                    slab_kernels.sweep_x(state, state, base.column, NONE, NO_INFLOW, *edges, numbers, self.status)
                else:
                    numbers = Sweep(grid.dz, self.dt, self.config.beta, step)
                    slab_kernels.sweep_z(state, state, base.faces, base.ghost, NONE, numbers, self.status)

    def run_c(self, library: ctypes.CDLL, steps: int) -> None:
        """Advance by the C version."""
        grid, base = self.config.grid, self.base
        arrays = (self.c_state, base.column, np.ascontiguousarray(base.faces[:3]), base.ghost)
        numbers = _doubles(grid.dx, grid.dz, self.config.beta, self.dt)
        if library.euler2d_run(*_pointers(arrays), grid.nx, grid.nz, *numbers, steps):
            raise MemoryError("the C version found no memory")

    def difference(self) -> float:
        """The greatest difference between the versions, over the range of its field."""
        return _difference(self.state[:, :, HALO:-HALO], self.c_state[:, 2:-2, 2:-2])


class Box:
    """The box's case."""

    source = "euler3d.c"

    def __init__(self, nx: int = 128, ny: int = 128, nz: int = 128) -> None:
        self.config = Config3d.model_validate({"grid": {"nx": nx, "ny": ny, "nz": nz}, "base": {"u": 10.0, "v": 5.0}})
        grid = self.config.grid
        self.title, self.cells = f"weather box {nx} x {ny} x {nz}", nx * ny * nz
        profile = column_of(self.config.base)
        self.base: BaseState = base_state(profile, nz, grid.dz)
        self.start = initial_state_3d(self.config, profile, self.base, np.arange(ny), np.arange(nx))
        self.dt = min(grid.dx, grid.dy, grid.dz) / self.config.time.max_speed * self.config.time.cfl
        self.state = np.zeros((5, nz, ny + 2 * HALO, nx + 2 * HALO))
        self.status = new_status(self.state)
        self.c_state = np.zeros((5, nz + 4, ny + 4, nx + 4))
        self.restart()

    def restart(self) -> None:
        """Both versions back to the start."""
        self.state[..., HALO:-HALO, HALO:-HALO] = self.start
        self.c_state[:, 2:-2, 2:-2, 2:-2] = self.start

    def run(self, steps: int) -> None:
        """Advance by hpckit's kernels."""
        grid, base, beta, state = self.config.grid, self.base, self.config.beta, self.state
        for step in range(steps):
            for direction in "xyz" if step % 2 == 0 else "zyx":
                if direction == "x":
                    state[..., :HALO] = state[..., -2 * HALO : -HALO]
                    state[..., -HALO:] = state[..., HALO : 2 * HALO]
                    numbers = Sweep(grid.dx, self.dt, beta, step)
                    box_kernels.sweep_x(state, state, base.column, box_kernels.NO_FLUX, numbers, self.status)
                elif direction == "y":
                    state[:, :, :HALO] = state[:, :, -2 * HALO : -HALO]
                    state[:, :, -HALO:] = state[:, :, HALO : 2 * HALO]
                    numbers = Sweep(grid.dy, self.dt, beta, step)
                    box_kernels.sweep_y(state, state, base.column, box_kernels.NO_FLUX, numbers, self.status)
                else:
                    tables, numbers = (base.faces_3d, base.ghost), Sweep(grid.dz, self.dt, beta, step)
                    box_kernels.sweep_z(state, state, *tables, box_kernels.NO_FLUX, numbers, self.status)

    def run_c(self, library: ctypes.CDLL, steps: int) -> None:
        """Advance by the C version."""
        grid, base = self.config.grid, self.base
        arrays = (self.c_state, base.column, base.faces_3d, base.ghost)
        numbers = _doubles(grid.dx, grid.dy, grid.dz, self.config.beta, self.dt)
        if library.euler3d_run(*_pointers(arrays), grid.nx, grid.ny, grid.nz, *numbers, steps):
            raise MemoryError("the C version found no memory")

    def difference(self) -> float:
        """The greatest difference between the versions, over the range of its field."""
        return _difference(self.state[..., HALO:-HALO, HALO:-HALO], self.c_state[:, 2:-2, 2:-2, 2:-2])


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options of this benchmark alone, and their names for `run`."""
    group = parser.add_argument_group("weather")
    group.add_argument("--only", metavar="KEY", action="append", choices=KEYS, help=f"one part, of: {', '.join(KEYS)}")
    group.add_argument("--against", metavar="CMD", help="time this program in turn with the slab, and nothing else")
    group.add_argument("--against-pattern", metavar="REGEX", help="its group finds the program's seconds in its output")
    group.add_argument("--against-cells", metavar="NXxNZ", help="the program's cells (as it says, else 400x200)")
    group.add_argument("--against-time", metavar="S", type=float, help="simulated time, s (as it says, else 50)")
    group.add_argument("--against-rounds", metavar="N", type=int, help=f"runs of each ({LEAST_ROUNDS})")
    return "only", "against", "against_pattern", "against_cells", "against_time", "against_rounds"


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    against: str | None = None,
    against_pattern: str | None = None,
    against_cells: str | None = None,
    against_time: float | None = None,
    against_rounds: int | None = None,
) -> dict[str, Any]:
    """Time the kernels against C, then the apps' models on 1 and 2 ranks; all, or the parts named in `only`.

    With `against` an external program alone: see above. Raises `InputError` for a program that cannot be compared with.
    """
    if against is not None:
        if only:
            raise InputError("--against times one program and nothing else", do="leave out --only")
        rounds = LEAST_ROUNDS if against_rounds is None else against_rounds
        rows, ratios = _against(Rival(against, against_pattern), against_cells, against_time, rounds)
        return {"bench": "weather", "machine": machine(), "results": rows, "ratios": ratios}
    details = {"pattern": against_pattern, "cells": against_cells, "time": against_time, "rounds": against_rounds}
    if given := [f"--against-{name}" for name, value in details.items() if value is not None]:
        raise InputError(f"{', '.join(given)}: which program is meant?", do="name it with --against CMD")
    wanted = only or KEYS
    rows, ratios = slab_rows(quick) if "weather_vs_c" in wanted else ([], {})
    cores: tuple[tuple[str, Callable[[], Case], int], ...] = (
        ("weather_big_vs_c", lambda: Slab(2000, 1000), 8),
        ("euler3d_vs_c", Box, 3),
    )
    for key, case, check_steps in cores:
        if key in wanted:
            more_rows, more_ratios = _rows(case(), key, 1, 3 if quick else 7, check_steps)
            rows += more_rows
            ratios |= more_ratios
    cases = tuple(case for case in (QUICK if quick else FULL) if case[0] in wanted)
    for one in run_ranks("hpckit.bench.weather_ranks", RANKS, cases) if cases else []:
        times: Times = one["times"]
        ratios[one["key"]] = ratio(times["1 rank"], times["all ranks"])
        ratios[f"{one['key']}_ceiling"] = ratio(times["1 rank"], times["1 rank each"], RANKS)
        work = {"1 rank": 1, "all ranks": 1, "1 rank each": RANKS}
        made = {"rounds_made": one["rounds_made"], "rounds_disturbed": one["rounds_disturbed"]}
        rows += [_row(one["key"], name, times[name], one["steps"], n * one["cells"]) | made for name, n in work.items()]
    if "euler3d_physics" in wanted:
        more_rows, more_ratios = _physics(quick)
        rows += more_rows
        ratios |= more_ratios
    return {"bench": "weather", "machine": {**machine(), "ranks": RANKS}, "results": rows, "ratios": ratios}


def _physics(quick: bool) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows of the box with and without physics, and the times with it over those without."""
    box = ("euler3d_physics", (128, 128, 128), PHYSICS, 2, 3 if quick else 9)
    (one,) = run_ranks("hpckit.bench.weather_physics", 1, (box,))
    times: Times = one["times"]
    rows = [_row(one["key"], way, times[way], one["steps"], one["cells"]) for way in PHYSICS]
    keys = {way: f"euler3d_time_{way.replace(' ', '_')}" for way in PHYSICS if way != PLAIN}
    return rows, {key: ratio(times[way], times[PLAIN]) for way, key in keys.items()}


def _against(
    rival: Rival, cells: str | None, simulated: float | None, rounds: int
) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows of the rival and of ours, and `weather_vs_against`."""
    rival.check()
    if cells is None or simulated is None:
        its_cells, its_time = rival.case()
        cells = cells or its_cells or "400x200"
        simulated = its_time or 50.0 if simulated is None else simulated
    sizes = re.fullmatch(r"(\d+)x(\d+)", cells)
    if sizes is None or int(sizes[1]) < HALO or int(sizes[2]) < 4:
        raise InputError(f"--against-cells {cells!r} is not NXxNZ, as 400x200, with NX of at least 6 and NZ of 4")
    if not 0 < simulated < math.inf:
        raise InputError(f"--against-time {simulated:g} s must be above 0")
    if rounds < LEAST_ROUNDS:
        raise InputError(f"--against-rounds {rounds} is too few to tell: at least {LEAST_ROUNDS}")
    case = Slab(int(sizes[1]), int(sizes[2]), compat=True)
    steps = math.ceil(simulated / case.dt - 1e-9)

    def ours() -> None:
        case.restart()
        case.run(steps)

    theirs, own, printed = in_turn(rival, ours, rounds)
    rows = [_row(case.title, "simd", own, steps, case.cells), _row(case.title, "against", theirs, steps, case.cells)]
    rows[1]["time"] = "as it prints" if printed else "wall, its start included"
    return rows, {"weather_vs_against": ratio(theirs, own)}


def slab_rows(quick: bool = False) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows with ns per cell-step of each version, and the ratio `weather_vs_c` where there is a C compiler."""
    steps, rounds = (4, 5) if quick else (10, 15)
    return _rows(Slab(), "weather_vs_c", steps, rounds, 20)


def _rows(
    case: Case, key: str, steps: int, rounds: int, check_steps: int
) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows with ns per cell-step of each version of a case, and their ratio where there is a C compiler."""
    candidates = {"simd": lambda: case.run(steps)}
    library = c_rival.build(case.source)
    if library is not None:
        case.run(check_steps)
        case.run_c(library, check_steps)
        if case.difference() > TOLERANCE:
            raise AssertionError(f"{case.title}: the C version differs by {case.difference():.2e} of a field's range")
        case.restart()
        candidates["C"] = lambda: case.run_c(library, steps)
    times = interleave(candidates, rounds)
    rows = [_row(case.title, name, seconds, steps, case.cells) for name, seconds in times.items()]
    return rows, {key: ratio(times["C"], times["simd"])} if library is not None else {}


def _row(case: str, candidate: str, seconds: list[float], steps: int, cells: int) -> dict[str, Any]:
    return {
        "case": case,
        "candidate": candidate,
        "milliseconds": round(median(seconds) / steps * 1e3, 3),
        "ns_per_cell_step": round(median(seconds) / steps / cells * 1e9, 2),
        "rounds": len(seconds),
    }


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    dims = tuple(range(1, ours.ndim))
    return float((np.abs(ours - theirs).max(axis=dims) / np.ptp(theirs, axis=dims)).max())


def _pointers(arrays: tuple[np.ndarray, ...]) -> list[ctypes.c_void_p]:
    return [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]


def _doubles(*values: float) -> list[ctypes.c_double]:
    return [ctypes.c_double(value) for value in values]
