"""The weather kernels, slab and box, on one core against plain C versions of the same schemes, and 2 ranks against 1.

The C versions (`hpckit.bench.weather.cases`, built with -O3 -march=native) have one loop nest for each operation and
pow for the pressure. The slab advances two colliding bubbles, the box one bubble in a sheared wind; fields must agree
to 1e-11 of each field's range before anything is timed. `weather_vs_c` (400 x 200), `weather_big_vs_c` (2000 x 1000)
and `euler3d_vs_c` (128^3) say how many times faster the kernels of hpckit are, `hevi_vs_c` those of the split dynamics
(HEVI, 64 x 64 x 40 cells of 1000 m x 500 m, steps of 6 s; C solves its columns one by one).

`--against CMD` (a command line, quoted) runs an external program, as the C++ miniWeather, in turn with ours: two
colliding bubbles on `--against-cells` for `--against-time` simulated seconds, at least three rounds of each.
`weather_vs_against` says how many times faster ours is in that case. The program must do the same case: for miniWeather
build with NX=400, NZ=200, SIM_TIME=50, DATA_SPEC=DATA_SPEC_COLLISION and OUT_FREQ above SIM_TIME (docs/benchmarks.md).
Cells and simulated time that are not given are read from what it prints, as miniWeather does, else they are 400x200 and
50 s. Its time is what it prints (`CPU Time: 1.23`, `1.23 sec`; `--against-pattern REGEX` with a group finds another),
else its whole wall time.

`weather_2ranks_small`, `weather_2ranks_big`, `euler3d_2ranks` and `hevi_2ranks` are the speed-up of the apps' models,
MPI included, on 2 ranks over 1: one job of 2 ranks runs both in turn. Alone runs each rank, the other asleep, and the
mean counts: cores of a shared host differ in speed, and a speed-up over one of them would tell of the cores. The same
keys with `_ceiling` are what the machine gives to 2 ranks at best, whatever the program: two runs on 1 rank each at the
same time, which share memory, cache and clock but send nothing, over one alone. Rounds in which a rank waited for its
core, as another program or another guest of the host had it, are made again (`hpckit.bench.measure`).

`euler3d_physics` is what turbulence and tracers add to a step of the box on one rank: `euler3d_time_with_turbulence`,
`…_with_a_tracer`, `…_with_four_tracers` are times over that of the dynamics alone.

Split dynamics (HEVI) on one rank: `hevi_gain` says how many times as many seconds they simulate a second as the
explicit ones with the same turbulence and three tracers, on 1000 m x 500 m, `hevi_gain_thin` on 1000 m x 100 m,
`hevi_gain_shallow` on 100 m x 40 m, at steps that the flow allows. `moist_time` is the time of a step of a storm
(vapor, cloud, rain, turbulence) over that of its dry dynamics, `tracer_time` what each of four tracers adds to it.

`sphere_vs_plane` is the time of a step of shallow water on a cubed sphere of 6 x 256 x 256 cells, halos and seams
included, over that of the same scheme on as many cells of periodic planes.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from hpckit.bench.command import add_only
from hpckit.bench.measure import Ratios, Rows, interleave, ratio, result, speed_up, timed
from hpckit.bench.ranks import run_ranks
from hpckit.bench.rivals import c
from hpckit.bench.rivals.program import LEAST_ROUNDS, Rival, in_turn
from hpckit.bench.weather.cases import TOLERANCE, BoxCase, SlabCase, SplitCase, WeatherCase
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import HALO

RANKS = 2
KEYS = (
    "weather_vs_c",
    "weather_big_vs_c",
    "euler3d_vs_c",
    "hevi_vs_c",
    "weather_2ranks_small",
    "weather_2ranks_big",
    "euler3d_2ranks",
    "hevi_2ranks",
    "euler3d_physics",
    "hevi_gain",
    "moist_time",
    "sphere_vs_plane",
)
PLAIN = "dynamics alone"
PHYSICS: dict[str, dict[str, Any]] = {  # settings of the box
    PLAIN: {},
    "with turbulence": {"smagorinsky": {"coefficient": 0.2}},
    "with a tracer": {"tracers": [{"name": "a"}]},
    "with four tracers": {"tracers": [{"name": name} for name in "abcd"]},
}
WATERY: dict[str, Any] = {
    "smagorinsky": {"coefficient": 0.2},
    "tracers": [{"name": name, "shape": "uniform"} for name in "abc"],
}
# Of the split dynamics: sizes (x, y, z), extents (x, y, z) in m and the large step in s that the flow allows: a storm,
# the same on thin levels with 33 m/s of updraft, shallow cumulus.
GAINS: dict[str, tuple[tuple[int, int, int], tuple[float, float, float], float]] = {
    "hevi_gain": ((64, 64, 40), (64e3, 64e3, 20e3), 6.0),
    "hevi_gain_thin": ((64, 64, 64), (64e3, 64e3, 6.4e3), 3.0),
    "hevi_gain_shallow": ((64, 64, 75), (6.4e3, 6.4e3, 3e3), 3.0),
}
STORM: dict[str, Any] = {
    "grid": {"width": 64e3, "length": 64e3, "height": 20e3},
    "dynamics": {"kind": "hevi"},
    "base": {"kind": "stable"},
    "bubbles": [{"x": 32e3, "y": 32e3, "z": 1500.0, "radius_x": 10e3, "radius_y": 10e3, "radius_z": 1500.0}],
}
MOIST = {
    **STORM,
    "base": {"kind": "weisman_klemp", "shear": 30.0, "u": -15.0},
    "moisture": {"kind": "kessler"},
    "smagorinsky": {"coefficient": 0.2},
}
MOIST_WAYS: dict[str, dict[str, Any]] = {
    PLAIN: STORM,
    "with four tracers": {**STORM, "tracers": PHYSICS["with four tracers"]["tracers"]},
    "moist, with turbulence": MOIST,
}
# Case, sizes (x, (y,) z), steps a timing, rounds.
FULL: tuple[tuple[Any, ...], ...] = (
    ("weather_2ranks_small", (400, 200), 20, 21),
    ("weather_2ranks_big", (2000, 1000), 2, 21),
    ("euler3d_2ranks", (128, 128, 128), 2, 21),
    ("hevi_2ranks", (128, 128, 40), 2, 21),
)
QUICK = (("weather_2ranks_small", (400, 200), 10, 9), *((*case[:3], 3) for case in FULL[1:]))


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options of this benchmark alone, and their names for `run`."""
    group = parser.add_argument_group("weather")
    only = add_only(group, KEYS)
    group.add_argument("--against", metavar="CMD", help="time this program in turn with the slab, and nothing else")
    group.add_argument("--against-pattern", metavar="REGEX", help="its group finds the program's seconds in its output")
    group.add_argument("--against-cells", metavar="NXxNZ", help="the program's cells (as it says, else 400x200)")
    group.add_argument("--against-time", metavar="S", type=float, help="simulated time, s (as it says, else 50)")
    group.add_argument("--against-rounds", metavar="N", type=int, help=f"runs of each ({LEAST_ROUNDS})")
    return *only, "against", "against_pattern", "against_cells", "against_time", "against_rounds"


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
        return result("weather", rows, ratios)
    details = {"pattern": against_pattern, "cells": against_cells, "time": against_time, "rounds": against_rounds}
    if given := [f"--against-{name}" for name, value in details.items() if value is not None]:
        raise InputError(f"{', '.join(given)}: which program is meant?", do="name it with --against CMD")
    wanted = only or KEYS
    rows, ratios = slab_rows(quick) if "weather_vs_c" in wanted else ([], {})
    cores: tuple[tuple[str, Callable[[], WeatherCase], int], ...] = (
        ("weather_big_vs_c", lambda: SlabCase(2000, 1000), 8),
        ("euler3d_vs_c", BoxCase, 3),
        ("hevi_vs_c", SplitCase, 3),
    )
    for key, case, check_steps in cores:
        if key in wanted:
            more = _rows(case(), key, 1, 3 if quick else 7, check_steps)
            rows, ratios = rows + more[0], ratios | more[1]
    cases = tuple(case for case in (QUICK if quick else FULL) if case[0] in wanted)
    for one in run_ranks("hpckit.bench.weather.ranks", RANKS, cases) if cases else []:
        times = one["times"]
        ratios |= speed_up(one["key"], times, RANKS)
        work = {"1 rank": 1, "all ranks": 1, "1 rank each": RANKS}
        made = {"rounds_made": one["rounds_made"], "rounds_disturbed": one["rounds_disturbed"]}
        rows += [_row(one["key"], name, times[name], one["steps"], n * one["cells"]) | made for name, n in work.items()]
    if "euler3d_physics" in wanted:
        more = _physics(quick)
        rows, ratios = rows + more[0], ratios | more[1]
    for key, timed_rows in (("hevi_gain", _gains), ("moist_time", _moist)):
        if key in wanted:
            found = timed_rows(quick)
            rows, ratios = rows + found[0], ratios | found[1]
    if "sphere_vs_plane" in wanted:
        found = _sphere(quick)
        rows, ratios = rows + found[0], ratios | found[1]
    return result("weather", rows, ratios, about={"ranks": RANKS})


def _sphere(quick: bool) -> tuple[Rows, Ratios]:
    """Rows of a step on a sphere and on planes, and the time of the first over that of the second."""
    from hpckit.bench.weather.sphere import PlanetSteps  # starts MPI in this process

    steps = 2 if quick else 4
    both = PlanetSteps(256)
    times = interleave(both.ways(steps), 5 if quick else 15)
    rows = [_row("sphere_vs_plane", way, times[way], steps, both.cells) for way in times]
    return rows, {"sphere_vs_plane": ratio(times["sphere"], times["planes"])}


def _physics(quick: bool) -> tuple[Rows, Ratios]:
    """Rows of the box with and without physics, and the times with it over those without."""
    box = ("euler3d_physics", (128, 128, 128), PHYSICS, 2, 3 if quick else 9)
    (one,) = run_ranks("hpckit.bench.weather.ranks", 1, (box,))
    times = one["times"]
    rows = [_row(one["key"], way, times[way], one["steps"], one["cells"]) for way in PHYSICS]
    keys = {way: f"euler3d_time_{way.replace(' ', '_')}" for way in PHYSICS if way != PLAIN}
    return rows, {key: ratio(times[way], times[PLAIN]) for way, key in keys.items()}


def _gains(quick: bool) -> tuple[Rows, Ratios]:
    """Rows and simulated seconds a second of split over explicit dynamics, with turbulence and three tracers."""
    rows: Rows = []
    ratios: Ratios = {}
    for key, (sizes, extents, step) in GAINS.items():
        grid = dict(zip(("width", "length", "height"), extents, strict=True))
        common = {**WATERY, "grid": grid, "bubbles": []}
        ways = {"explicit": common, "split": {**common, "dynamics": {"kind": "hevi", "step": step}}}
        (one,) = run_ranks("hpckit.bench.weather.ranks", 1, ((key, sizes, ways, 2, 3 if quick else 7),))
        times, dt = one["times"], one["dt"]
        rows += [_row(key, way, times[way], one["steps"], one["cells"]) | {"dt": dt[way]} for way in ways]
        each = {way: [seconds / dt[way] for seconds in times[way]] for way in ways}
        ratios[key] = ratio(each["explicit"], each["split"])
    return rows, ratios


def _moist(quick: bool) -> tuple[Rows, Ratios]:
    """Rows of a storm and of its dry dynamics, and the times over those: moist physics, and one of four tracers."""
    one_case = ("moist_time", (64, 64, 40), MOIST_WAYS, 2, 3 if quick else 9)
    (one,) = run_ranks("hpckit.bench.weather.ranks", 1, (one_case,))
    times = one["times"]
    rows = [_row("moist_time", way, times[way], one["steps"], one["cells"]) for way in MOIST_WAYS]
    each = [(all_four - none) / 4 for all_four, none in zip(times["with four tracers"], times[PLAIN], strict=True)]
    ratios = {"moist_time": ratio(times["moist, with turbulence"], times[PLAIN])}
    return rows, ratios | {"tracer_time": ratio(each, times[PLAIN])}


def _against(rival: Rival, cells: str | None, simulated: float | None, rounds: int) -> tuple[Rows, Ratios]:
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
    case = SlabCase(int(sizes[1]), int(sizes[2]), compat=True)
    steps = math.ceil(simulated / case.dt - 1e-9)

    def ours() -> None:
        case.restart()
        case.run(steps)

    theirs, own, printed = in_turn(rival, ours, rounds)
    rows = [_row(case.title, "simd", own, steps, case.cells), _row(case.title, "against", theirs, steps, case.cells)]
    rows[1]["time"] = "as it prints" if printed else "wall, its start included"
    return rows, {"weather_vs_against": ratio(theirs, own)}


def slab_rows(quick: bool = False) -> tuple[Rows, Ratios]:
    """Rows with ns per cell-step of each version, and the ratio `weather_vs_c` where there is a C compiler."""
    steps, rounds = (4, 5) if quick else (10, 15)
    return _rows(SlabCase(), "weather_vs_c", steps, rounds, 20)


def _rows(case: WeatherCase, key: str, steps: int, rounds: int, check_steps: int) -> tuple[Rows, Ratios]:
    """Rows with ns per cell-step of each version of a case, and their ratio where there is a C compiler."""
    candidates = {"simd": lambda: case.run(steps)}
    library = c.build(case.source)
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
    return timed(case, candidate, seconds, steps, ns_per_cell_step=round(median(seconds) / steps / cells * 1e9, 2))
