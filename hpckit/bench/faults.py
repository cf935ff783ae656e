"""Faults on purpose, from a printed seed: kills, failing disks, corruptions, power loss, hangs, deaths, bad input."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from hpckit.bench.fault_cases.corruptions import corruptions
from hpckit.bench.fault_cases.deaths import deaths
from hpckit.bench.fault_cases.hangs import hangs
from hpckit.bench.fault_cases.kills import failing, kills
from hpckit.bench.fault_cases.mutants import mutants
from hpckit.bench.fault_cases.power_loss import power_loss
from hpckit.bench.fault_cases.untrusted import untrusted
from hpckit.bench.faults_checkpoint import checkpoint_costs
from hpckit.bench.measure import machine

CHECKPOINT = "checkpoint"  # `--only` it: what checkpoints cost, nothing broken


@dataclass(frozen=True)
class Tier:
    """How many of each; hangs: places of each kind on 2 and on 4 ranks; power_loss: states of the disk at most."""

    kills: int
    failpoints: int
    corruptions: int
    power_loss: int
    hangs: int
    deaths: int
    configs: int
    files: int


TIERS = {
    "T0": Tier(24, 50, 200, 400, 1, 12, 500, 200),
    "T1": Tier(240, 70, 5_000, 10_000, 3, 60, 20_000, 5_000),
}
QUICK = Tier(2, 6, 40, 60, 0, 1, 40, 40)
# Key -> kinds of cases: the share of them that went as they must.
SHARES = {
    "kills_bitwise": ("kill", "failpoint"),
    "hangs_named": ("hang",),
    "deaths_clean": ("death",),
    "untrusted_refused": ("config", "data file"),
    "mutants_killed": ("mutant",),
}


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options that this benchmark has beside those of all; their names."""
    parser.add_argument("--tier", choices=sorted(TIERS), default="T0", help="T0: minutes; T1: the larger numbers")
    parser.add_argument("--seed", type=int, help="of what is random (a new one, which is printed)")
    parser.add_argument("--only", metavar="KIND", help="one kind of cases, as in the column `what`")
    return "tier", "seed", "only"


def run(quick: bool = False, tier: str = "T0", seed: int | None = None, only: str | None = None) -> dict[str, Any]:
    """Break things and count what came of it: shares of cases that went as they must (1 is right), and numbers of
    corruptions that were loaded silently or crashed, and of power failures that lost what had counted (0 is right).
    """
    seed = secrets.randbelow(10**6) if seed is None else seed
    print(f"seed {seed}; the same again: hpckit bench faults --tier {tier} --seed {seed}", file=sys.stderr, flush=True)
    rows: list[dict[str, Any]] = []
    for row in _rows(QUICK if quick else TIERS[tier], seed, only):
        rows.append(row)
        if not row["passed"]:
            print(f"MISS {row['what']}: {row['case']}: {row['problem']}", file=sys.stderr, flush=True)
    passed = Counter(row["what"] for row in rows if row["passed"])
    kinds = Counter(row["what"] for row in rows)
    results = [{"what": what, "cases": count, "as they must": passed[what]} for what, count in kinds.items()]
    misses = [{key: row[key] for key in ("what", "case", "problem")} for row in rows if not row["passed"]]
    costs, ratios = checkpoint_costs(quick) if only in (None, CHECKPOINT) else ([], {})
    return {
        "bench": "faults",
        "machine": machine(),
        "tier": "quick" if quick else tier,
        "seed": seed,
        "results": results,
        "misses": misses,
        "costs": costs,
        "ratios": _figures(rows) | ratios,
    }


def _rows(tier: Tier, seed: int, only: str | None) -> Iterator[dict[str, Any]]:
    """All cases, each kind from a random stream of its own."""
    kinds = {
        "kill": lambda random: kills(random, tier.kills),
        "failpoint": lambda random: failing(random, tier.failpoints),
        "corruption": lambda random: corruptions(random, tier.corruptions),
        "power loss": lambda random: power_loss(tier.power_loss),
        "mutant": lambda random: mutants(),
        "config": lambda random: untrusted("config", seed, tier.configs),
        "data file": lambda random: untrusted("data file", seed, tier.files),
        "death": lambda random: deaths(random, tier.deaths),
        "hang": lambda random: hangs(random, tier.hangs),
    }
    for what, cases in kinds.items():
        if only in (None, what):
            print(f"{what} …", file=sys.stderr, flush=True)
            yield from cases(Random(f"{seed} {what}"))


def _figures(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The figures of the kinds that were run."""
    figures = {}
    for key, kinds in SHARES.items():
        them = [row for row in rows if row["what"] in kinds]
        if them:
            figures[key] = _figure(sum(row["passed"] for row in them) / len(them), len(them))
    changed = [row for row in rows if row["what"] == "corruption"]
    if changed:
        for ending in ("silent", "crash"):
            figures[f"corrupt_{ending}"] = _figure(sum(row["ending"] == ending for row in changed), len(changed))
    failures = [row for row in rows if row["what"] == "power loss"]
    if failures:
        figures["powerloss_lost"] = _figure(sum(not row["passed"] for row in failures), len(failures))
    return figures


def _figure(value: float, cases: int) -> dict[str, float]:
    return {"median": value, "low": value, "high": value, "rounds": cases}
