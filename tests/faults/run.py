"""Faults on purpose, from a printed seed: kills, failing disks, corruptions, power loss, hangs, deaths, bad input."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hpckit.bench.measure import result
from hpckit.bench.overhead.checkpoint import checkpoint_costs
from hpckit.bench.overhead.watch import watch_costs
from hpckit.errors import InputError, SetupError
from tests.faults.corruptions import corruptions
from tests.faults.deaths import deaths
from tests.faults.figures import figures_of, missed, table
from tests.faults.hangs import hangs
from tests.faults.jobs import at_once, none_left, rows_of
from tests.faults.kills import failing, kills
from tests.faults.mutants import mutants
from tests.faults.power_loss import power_loss
from tests.faults.programs.cases import CASES, MORE
from tests.faults.run_directories import run_files, run_kills
from tests.faults.untrusted import untrusted

CHECKPOINT, WATCH = "checkpoint", "watch"  # `--only` them: what they cost, nothing broken
Row = dict[str, Any]


@dataclass(frozen=True)
class Tier:
    """How many of each; hangs: places of each kind on 2 and on 4 ranks; power_loss: states of the disk at most.

    hostile: files made to do harm; run_kills, run_files: runs that are killed, and files of a run that are changed.
    chains: of six rank-count pairs for each of `apps`; injected: rounds of changed values in them, and messages: the
    apps whose messages are changed.
    """

    kills: int
    failpoints: int
    corruptions: int
    power_loss: int
    hangs: int
    deaths: int
    configs: int
    files: int
    hostile: int
    run_kills: int
    run_files: int
    chains: int
    apps: tuple[str, ...]
    injected: int
    messages: tuple[str, ...]


MESSAGES = ("diffusion", "md", "train", "pipeline")
TIERS = {
    "T0": Tier(
        24, 75, 200, 400, 1, 12, 500, 200, 130, 4, 40, 1, tuple(CASES), 1, ("diffusion", "md", "train", "pipeline")
    ),
    "T1": Tier(
        240, 375, 5_000, 10_000, 3, 60, 20_000, 5_000, 2_000, 100, 500, 4, (*CASES, *MORE), 5, (*CASES, "pipeline")
    ),
}
QUICK = Tier(2, 6, 40, 60, 0, 1, 40, 40, 20, 1, 6, 1, ("diffusion",), 1, ("diffusion",))


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options that this benchmark has beside those of all; their names."""
    parser.add_argument("--tier", choices=sorted(TIERS), default="T0", help="T0: minutes; T1: the larger numbers")
    parser.add_argument("--seed", type=int, help="of what is random (a new one, which is printed)")
    parser.add_argument("--only", metavar="KIND", help=f"one kind of cases: {', '.join((*_KINDS, CHECKPOINT, WATCH))}")
    parser.add_argument("--cases", type=int, metavar="N", help="so many of the kind that --only names")
    parser.add_argument(
        "--keep", metavar="FILE", type=Path, help="keep here what each kind found; kinds that it has are not run again"
    )
    return "tier", "seed", "only", "cases", "keep"


# Kind -> the number of it in a tier.
_COUNTS = {
    "kill": "kills",
    "failpoint": "failpoints",
    "corruption": "corruptions",
    "config": "configs",
    "data file": "files",
    "hostile": "hostile",
    "run kill": "run_kills",
    "run file": "run_files",
    "death": "deaths",
    "hang": "hangs",
}


def run(
    quick: bool = False,
    tier: str = "T0",
    seed: int | None = None,
    only: str | None = None,
    cases: int | None = None,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Break things and count what came of it: shares of cases that went as they must (1 is right), and numbers of
    corruptions that were loaded silently or crashed, and of power failures that lost what had counted (0 is right).

    Raises `InputError` for a kind that there is not, `cases` without a kind that has a number, and a file `keep` of
    another tier or seed.
    """
    if only not in (None, CHECKPOINT, WATCH, *_KINDS):
        raise InputError(f"no kind {only!r} of faults", do=f"kinds: {', '.join((*_KINDS, CHECKPOINT, WATCH))}")
    numbers = QUICK if quick else TIERS[tier]
    if cases is not None:
        if only not in _COUNTS or cases < 1:
            raise InputError(f"{cases} cases of {only}", do=f"give --only one of {', '.join(_COUNTS)}, and 1 or more")
        numbers = replace(numbers, **{_COUNTS[only]: cases})
    kept = _Kept(keep, "quick" if quick else tier, seed)
    seed = kept.seed
    more = (f' --only "{only}"' if only else "") + (f" --cases {cases}" if cases else "")
    again = f"seed {seed}; the same again: python -m tests.faults --tier {tier} --seed {seed}{more}"
    _say(again)
    with none_left():
        for what, cases in _KINDS.items():
            if only in (None, what) and what not in kept.kinds:
                kept.add(what, *_tried(what, partial(cases, numbers, seed, Random(f"{seed} {what}"))))
        costs, ratios = _costs(quick, only)
    rows = [row for what in _KINDS for row in kept.kinds.get(what, {}).get("rows", [])]
    results = [
        {
            "what": what,
            "cases": len(found["rows"]),
            "as they must": sum(row["passed"] for row in found["rows"]),
            "seconds": found["seconds"],
        }
        for what, found in kept.kinds.items()
    ]
    misses = [{key: row[key] for key in ("what", "case", "problem")} for row in rows if not row["passed"]]
    figures = figures_of(rows) | ratios
    _say(f"{table(figures)}\n{again}")
    return result(
        "faults",
        results,
        figures,
        tier=kept.tier,
        seed=seed,
        numbers=asdict(numbers),
        misses=misses,
        costs=costs,
        missed=missed(figures),
    )


def _costs(quick: bool, only: str | None) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows and figures of what guarding against faults costs."""
    begin = time.monotonic()
    rows: list[dict[str, Any]] = []
    figures: dict[str, dict[str, float]] = {}
    try:
        if only in (None, CHECKPOINT):
            rows, figures = checkpoint_costs(quick, few=only is None)
        if only in (None, WATCH):
            figures |= watch_costs(quick)
    except SetupError as error:  # a disk or a memory too small for it: what was broken is told all the same
        if only is not None:
            raise
        _say(f"costs are not measured: {error.message}")
    if figures:
        _say(f"costs: {time.monotonic() - begin:.1f} s")
    return rows, figures


def _say(text: str) -> None:
    """On standard error."""
    print(text, file=sys.stderr, flush=True)


# What is broken -> its cases, each kind from a random stream of its own.
_KINDS: dict[str, Callable[[Tier, int, Random], Iterable[Row]]] = {
    "kill": lambda tier, seed, random: kills(random, tier.kills),
    "failpoint": lambda tier, seed, random: failing(random, tier.failpoints),
    "corruption": lambda tier, seed, random: corruptions(random, tier.corruptions),
    "power loss": lambda tier, seed, random: power_loss(tier.power_loss),
    "resize": lambda tier, seed, random: _resizes(tier, seed),
    "not finite": lambda tier, seed, random: _injected(tier, seed, "not finite", ("nan", "gate")),
    "flip": lambda tier, seed, random: _injected(tier, seed, "flip", ("flip",)),
    "message": lambda tier, seed, random: _messages(tier, seed),
    "mutant": lambda tier, seed, random: mutants(str(seed)),
    "config": lambda tier, seed, random: untrusted("config", seed, tier.configs),
    "data file": lambda tier, seed, random: untrusted("data file", seed, tier.files),
    "hostile": lambda tier, seed, random: untrusted("hostile", seed, tier.hostile),
    "run kill": lambda tier, seed, random: run_kills(random, tier.run_kills),
    "run file": lambda tier, seed, random: run_files(random, tier.run_files),
    "death": lambda tier, seed, random: deaths(random, tier.deaths),
    "hang": lambda tier, seed, random: hangs(random, tier.hangs),
}


def _resizes(tier: Tier, seed: int) -> Iterator[Row]:
    for number in range(tier.chains):
        yield from rows_of("resizing", "resize", 4, f"{seed} {number}", tier.apps)


def _injected(tier: Tier, seed: int, what: str, kinds: tuple[str, ...]) -> Iterator[Row]:
    """Changed values in the apps; those of one round go on in one job."""
    apps = [app for app in tier.apps if app in CASES]
    for number in range(tier.injected):
        yield from rows_of(
            "injecting", what, 2, f"{seed} {number}", [f"{kind}:{app}" for app in apps for kind in kinds]
        )


def _messages(tier: Tier, seed: int) -> Iterator[Row]:
    def one(number: int, app: str) -> list[Row]:
        return list(rows_of("injecting", "message", 2, f"{seed} {number}", [f"message:{app}"]))

    for rows in at_once(partial(one, number, app) for number in range(tier.injected) for app in tier.messages):
        yield from rows


def _tried(what: str, cases: Callable[[], Iterable[Row]]) -> tuple[list[Row], float]:
    """The rows of a kind and the seconds that it took; where its own tests fail, what was found until then is kept."""
    _say(f"{what} …")
    rows: list[Row] = []
    begin = time.monotonic()
    try:
        for row in cases():
            rows.append(row)
            if not row["passed"]:
                _say(f"MISS {what}: {row['case']}: {row['problem']}")
    except Exception as error:
        problem = f"the tests themselves failed: {type(error).__name__}: {error}"[:300]
        rows.append({"what": what, "case": f"after {len(rows)} cases", "passed": False, "problem": problem})
        _say(f"MISS {what}: {problem}")
    seconds = round(time.monotonic() - begin, 1)
    good = sum(row["passed"] for row in rows)
    _say(f"{what}: {good} of {len(rows)} as they must, {seconds:g} s")
    return rows, seconds


class _Kept:
    """What was found of each kind, in a file too where one is given, from which a later run goes on."""

    def __init__(self, path: Path | None, tier: str, seed: int | None) -> None:
        self._path, self.tier = path, tier
        self.kinds: dict[str, dict[str, Any]] = {}
        self.seed = secrets.randbelow(10**6) if seed is None else seed
        if path is None or not path.exists():
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            same = found["tier"] == tier and seed in (None, found["seed"])
        except (OSError, ValueError, TypeError, KeyError):
            same = False
        if not same:
            raise InputError(
                f"{path} is not what this tier and seed found", do="give another file, or leave --seed out"
            )
        self.seed, self.kinds = found["seed"], found["kinds"]

    def add(self, what: str, rows: list[Row], seconds: float) -> None:
        """Keep the rows of a kind."""
        self.kinds[what] = {"rows": rows, "seconds": seconds}
        if self._path is not None:
            record = {"tier": self.tier, "seed": self.seed, "kinds": self.kinds}
            self._path.write_text(json.dumps(record, indent=1), encoding="utf-8")
