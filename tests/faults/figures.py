"""What the rows of `python -m tests.faults` come to: figures, what each must be, and the table that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpckit.bench.measure import spread

# Key -> kinds of cases: the share of them that went as they must.
SHARES = {
    "kills_bitwise": ("kill", "failpoint", "run kill"),
    "files_noticed": ("run file",),
    "resize_bitwise": ("resize",),
    "hangs_named": ("hang",),
    "deaths_clean": ("death",),
    "lost_named": ("not finite",),
    "flips_named": ("flip", "message"),
    "untrusted_refused": ("config", "data file", "hostile"),
    "mutants_killed": ("mutant",),
}


@dataclass(frozen=True)
class Bar:
    """What a figure must be: `least` to `most`; a cost is told and not judged, as another program may slow it."""

    least: float | None = None
    most: float | None = None
    is_cost: bool = False

    def holds(self, value: float) -> bool:
        """Whether a figure is what it must be."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.least:g}"
        return f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"


BARS = {
    **{key: Bar(1.0, 1.0) for key in SHARES},
    "mutants_killed": Bar(least=0.95),
    **{key: Bar(0.0, 0.0) for key in ("corrupt_silent", "corrupt_crash", "powerloss_lost")},
    "ckpt_vs_raw": Bar(least=0.9, is_cost=True),
    "ckpt_stall": Bar(most=2.5, is_cost=True),
    "watch_cost": Bar(most=0.005, is_cost=True),
    "watch_call_us": Bar(most=1.5, is_cost=True),
}


def figures_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The figures of the kinds that were run."""
    figures = {}
    for key, kinds in SHARES.items():
        them = [row for row in rows if row["what"] in kinds]
        if them:
            figures[key] = spread([sum(row["passed"] for row in them) / len(them)], len(them))
    changed = [row for row in rows if row["what"] == "corruption"]
    if changed:
        for ending in ("silent", "crash"):
            count = sum(row.get("ending", "crash") == ending for row in changed)
            figures[f"corrupt_{ending}"] = spread([count], len(changed))
    failures = [row for row in rows if row["what"] == "power loss"]
    if failures:
        figures["powerloss_lost"] = spread([sum(not row["passed"] for row in failures)], len(failures))
    return figures


def missed(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The figures that are not what they must be; costs are none of them."""
    return [
        key
        for key, it in figures.items()
        if key in BARS and not BARS[key].is_cost and not BARS[key].holds(it["median"])
    ]


def table(figures: Mapping[str, Mapping[str, float]]) -> str:
    """A line for each figure: what was found, what it must be, and whether it is."""
    lines = [f"{'figure':18} {'found':>10}  must be"]
    for key, it in figures.items():
        bar = BARS.get(key)
        verdict = "" if bar is None or bar.holds(it["median"]) else "  SLOWER" if bar.is_cost else "  MISSED"
        lines.append(f"{key:18} {it['median']:10.4g}  {'' if bar is None else bar}{verdict}")
    return "\n".join(lines)
