"""One scaling study: an app, how its problem goes with the ranks, its runs, and what they say."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.apps.common.scaling import Load
from hpckit.bench.measure import CALM, MOST, Turns, calmest
from hpckit.bench.ranks import started
from hpckit.bench.scaling.fit import Estimate, bootstrap, efficiency, karp_flatt, serial_fraction, speedups, undisturbed
from hpckit.bench.scaling.model import Curve, curve
from hpckit.errors import InputError
from hpckit.launch import mpiexec
from hpckit.launch.launcher import check_plan
from hpckit.plan.machine.machine import Machine
from hpckit.settings.config import Configuration, load
from hpckit.settings.schema import repr_toml

PILOT_STEPS = 8
LEAST_STEPS = 2
MARGIN = 1.5  # of steps, for apps whose step is not always as long
Record = dict[str, Any]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """target: an app, preset or run file; settings on top of it; counts: numbers of ranks, ascending.

    weak: the problem grows with the ranks. launcher: words that start ranks, before `-n RANKS`; empty: mpiexec.
    """

    target: str
    settings: tuple[str, ...]
    counts: tuple[int, ...]
    weak: bool
    gpu: bool = False
    launcher: str = ""

    @cached_property
    def base(self) -> Configuration:
        """The settings on one rank. Raises `InputError`."""
        return load(self.target, list(self.settings))

    @property
    def title(self) -> str:
        """The preset or run file."""
        return f"{self.base.app.name}/{self.base.title}" if self.base.title else self.base.app.name

    @cached_property
    def module(self) -> ModuleType:
        """What the app tells of itself. Raises `InputError` for an app that tells nothing."""
        found = self.base.app.scaling_module
        if found is None:
            raise InputError(
                f"the app {self.base.app.name} has no scaling studies",
                do="give it a module `scaling` (apps/common/scaling.py says what is in it)",
            )
        return found

    def configuration(self, ranks: int, steps: int | None = None) -> Configuration:
        """The settings on so many ranks, of so many steps. Raises `InputError`."""
        more: dict[str, Any] = self.module.grown(self.base.config, ranks) if self.weak and ranks > 1 else {}
        larger = load(self.target, words_with(self.settings, more)) if more else self.base
        if steps is None:
            return larger
        return load(self.target, words_with(self.settings, {**more, **self.module.stepped(larger.config, steps)}))

    def load(self, ranks: int) -> Load:
        """What the ranks have to do in a step. Raises `InputError` where there are too many of them."""
        return self.module.load(self.configuration(ranks).config, ranks)

    def check(self) -> None:
        """Raise `InputError` for what cannot be run on one of the numbers of ranks."""
        for ranks in self.counts:
            made = self.configuration(ranks, LEAST_STEPS)
            problems = made.app.device_problems(made.config, self.gpu)
            if problems:
                raise InputError("\n".join(problems))
            check_plan(made.app, made.config, ranks)

    def run(
        self, folder: Path, steps: int, rounds: int, most: int, apart: Sequence[int] = (), over: Sequence[int] = ()
    ) -> Record:
        """All runs, in one job, `rounds` turns of so many steps each, and up to `most` where other programs disturb
        them; what `hpckit.bench.scaling.ranks.case` returns.

        apart: numbers of ranks on which the run on one rank is also made by each at once; over: those that share cores.
        """
        turns = (most + 1) * (1 + len(apart))
        total = math.ceil(MARGIN * turns * 2 * (steps + 1)) + 1  # as many go before the clock
        values = {n: self.configuration(n, total).values() for n in self.counts}
        case = {
            "app": self.base.app.name,
            "package": self.base.app.package,
            "gpu": self.gpu,
            "counts": self.counts,
            "apart": list(apart),
            "crowded": list(over),
            "rounds": rounds,
            "most": most,
            "steps": steps,
            "values": values,
            "folder": str(folder.absolute()),
        }
        ranks = max(self.counts)
        # Apps run in threads: with more arenas than one these would get their memory otherwise than a program does.
        environment = mpiexec.rank_environment(ranks, ours=not self.launcher) | {"MALLOC_ARENA_MAX": "1"}
        with tempfile.TemporaryDirectory(dir=folder) as shared:
            return started("hpckit.bench.scaling.ranks", ranks, [[case]], shared, environment, self.launcher)[0]


def words_with(words: Sequence[str], more: Settings) -> list[str]:
    """`key=value` words, with others on top of them."""
    kept = [word for word in words if word.partition("=")[0].strip() not in more]
    return [*kept, *(f"{key}={repr_toml(value)}" for key, value in more.items())]


def studied(
    study: Study, folder: Path, rounds: int, seconds: float, steps: int | None, ceiling: bool
) -> tuple[int, Record]:
    """The pilot, which compiles and tells how many steps take `seconds` on the fewest ranks, and the study: the steps
    of a turn, and what its ranks say.
    """
    pilot = study.run(folder, PILOT_STEPS, 1, 1)
    places = pilot["places"]
    if steps is None:
        first = min(each["seconds"] for each in pilot["runs"] if each["ranks"] == study.counts[0])
        steps = max(LEAST_STEPS, round(seconds / first))
    over = [n for n in study.counts if crowded(places, n)]
    alone = study.counts[0] == 1 and ceiling
    apart = [n for n in study.counts if n > 1 and alone and n not in over]
    made = study.run(folder, steps, rounds, MOST * rounds, apart, over)
    return steps, made


def evaluated(study: Study, made: Record, rounds: int, machine: Machine | None) -> Record:
    """Points, fits and model of a study, as plain values, from so many of its rounds: those disturbed least."""
    places = made["places"]
    over = {n: crowded(places, n) for n in study.counts}
    shares = calmest(made["runs"], rounds, [n for n in over if over[n]])
    runs = [each for each in made["runs"] if each["turn"] in shares]
    times, apart = times_of(runs, "together"), times_of(runs, "apart")
    fair = {n: each for n, each in times.items() if not over[n]}
    base = min(times)
    # One alone over as many at once: what the cores leave of each other.
    halves = {n: [a / b for a, b in zip(times[base], each, strict=True)] for n, each in apart.items()}
    medians = {n: _median(each) for n, each in times.items()}
    model: Curve | None = None
    cores = sum({place["host"]: len(place["cores"]) for place in places}.values())
    if machine is not None:
        slower = {n: _median([1 / ratio for ratio in each]) for n, each in halves.items()}
        model = curve(study.load, {n: medians[n] for n in fair} or medians, slower, machine, cores)
    speed = speedups(times, study.weak)
    points = []
    for n in times:
        point: Record = {
            "ranks": n,
            "oversubscribed": over[n],
            "work": study.load(n).work * n,
            "seconds": asdict(medians[n]),
            "speedup": asdict(_median(speed[n])),
            "efficiency": asdict(efficiency(times, n, study.weak)),
            "phases": _phases(made["phases"][str(n)], medians[n].value),
        }
        if n > base:
            point["karp_flatt"] = asdict(karp_flatt(times, n, study.weak))
            point["undisturbed"] = undisturbed(times, n, study.weak)
        if n in halves:
            point["ceiling"] = asdict(_median(halves[n]))
        points.append(point)
    fit = serial_fraction(fair, study.weak) if base in fair else None
    return {
        "app": study.base.app.name,
        "title": study.title,
        "target": study.target,
        "settings": list(study.settings),
        "kind": "weak" if study.weak else "strong",
        "unit": study.module.UNIT,
        "cores": cores,
        "hosts": len({place["host"] for place in places}),
        "points": points,
        "fit": None if fit is None else {"law": "Gustafson" if study.weak else "Amdahl", "serial": asdict(fit)},
        "model": None if model is None else _plain(model),
        "rounds": len(shares),
        "rounds_made": 1 + max(each["turn"] for each in made["runs"]),
        "rounds_disturbed": sum(share > CALM for share in shares.values()),
        "disturbance": max(shares.values()),
        "runs": [{**each, "used": each["turn"] in shares} for each in made["runs"]],
    }


def _plain(model: Curve) -> Record:
    machine = {"name": model.machine.name, "source": model.machine.source, "measured": bool(model.machine.measured)}
    return {
        "machine": machine,
        "missed": model.missed,
        "ends": model.ends,
        "points": [asdict(each) for each in model.points],
    }


def _median(values: npt.ArrayLike) -> Estimate:
    each = np.asarray(values)
    return bootstrap(len(each), lambda rounds: float(np.median(each[rounds])))


def _phases(phases: Mapping[str, Sequence[float]], seconds: float) -> Record:
    """Seconds of a step in each phase: the mean over ranks, the least and the largest of them."""
    rows: Record = {
        name: {"mean": float(np.mean(each)), "least": min(each), "most": max(each)} for name, each in phases.items()
    }
    rest = max(0.0, seconds - sum(row["mean"] for row in rows.values()))
    return {**rows, "other": {"mean": rest, "least": rest, "most": rest}}


def times_of(turns: Turns, kind: str) -> dict[int, list[float]]:
    """Seconds a step by the number of ranks, in the order of the rounds."""
    found: dict[int, list[float]] = {}
    for each in sorted(turns, key=lambda one: (one["ranks"], one["turn"])):
        if each["kind"] == kind:
            found.setdefault(each["ranks"], []).append(each["seconds"])
    return found


def crowded(places: Turns, ranks: int) -> bool:
    """Whether the first so many ranks are more than the cores that they may use, on any host."""
    hosts: dict[str, list[set[int]]] = {}
    for place in places[:ranks]:
        hosts.setdefault(place["host"], []).append(set(place["cores"]))
    return any(len(sets) > len(set().union(*sets)) for sets in hosts.values())
