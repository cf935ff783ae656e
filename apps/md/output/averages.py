"""Means of columns over steps, as `fix ave/time` of LAMMPS takes them, and their files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from hpckit.apps.md.output.tables import TextTable
from hpckit.apps.md.settings.table import Average, Table
from hpckit.run.context import Run

Evaluate = Callable[[tuple[str, ...]], list[float]]  # the values of columns


@dataclass
class Mean:
    """The state of a mean. since: the step in which it began; after: that of its last sample; sums: of the samples of a
    period so far; periods: the means of the last ones, or of all their sum and number. now: the last mean of each
    column; kept: all of them, where they are wanted.
    """

    since: int
    after: int = -1
    sums: list[float] = field(default_factory=list)
    periods: list[list[float]] = field(default_factory=list)
    count: int = 0
    now: list[float] = field(default_factory=list)
    kept: list[list[float]] = field(default_factory=list)

    def add(self, given: Average, number: int, values: list[float]) -> bool:
        """Take a sample after a step; whether it ends a period."""
        self.sums, self.after = _added(self.sums, values), number
        if number != given.ends(number):
            return False
        period, self.sums = [value / given.repeat for value in self.sums], []
        if given.last:
            self.periods = [*self.periods, period][-given.last :]
            whole, self.count = [sum(column) for column in zip(*self.periods, strict=True)], len(self.periods)
        else:
            whole, self.count = _added(self.periods[0] if self.periods else [], period), self.count + 1
            self.periods = [whole]
        self.now = [value / self.count for value in whole]
        if given.kept:
            self.kept.append(self.now)
        return True


class Averages:
    """The means of a stage; they last from stage to stage as long as these name them. Steps are those of columns."""

    def __init__(self) -> None:
        self.given: tuple[Average, ...] = ()
        self.means: dict[str, Mean] = {}

    def enter(self, table: Table, step: int) -> None:
        """Begin a stage after a step: means that are the same as before go on."""
        kept = {each.name: self.means[each.name] for each in self.given if each in table.averages}
        self.given = table.averages
        self.means = {each.name: kept.get(each.name, Mean(step)) for each in self.given}

    def due(self, number: int) -> list[Average]:
        """Those that have a sample after this step: of a mean whose first one was not before it began."""
        found = []
        for each in self.given:
            mean, end = self.means[each.name], each.ends(number)
            if end >= 0 and each.begins(end) >= mean.since:
                found.append(each)
        return found

    def sample(self, number: int, evaluate: Evaluate) -> Iterable[Average]:
        """Take the samples that are due, once a step; those whose mean is new now."""
        due = [each for each in self.due(number) if number > self.means[each.name].after]
        return [each for each in due if self.means[each.name].add(each, number, evaluate(each.columns))]

    def named(self, name: str) -> Average:
        """The one of this name."""
        return next(each for each in self.given if each.name == name)

    def value(self, name: str, part: int) -> float:
        """The last mean of a column, from 1; 0 before the first."""
        now = self.means[name].now
        return now[part - 1] if now else 0.0

    def of_all(self, name: str, part: int, how: str) -> float:
        """`trap` or `slope` of all means of a column, from 1, as functions of their number; nan before they have it."""
        values = [row[part - 1] for row in self.means[name].kept]
        if how == "trap":
            return math.fsum([*values, -0.5 * values[0], -0.5 * values[-1]]) if values else math.nan
        away = [k - 0.5 * (len(values) - 1) for k in range(len(values))]
        above = math.fsum(k * value for k, value in zip(away, values, strict=True))
        return above / math.fsum(k * k for k in away) if len(values) > 1 else math.nan

    def saved(self) -> dict[str, Any]:
        """Its state, as plain values."""
        return {name: asdict(mean) for name, mean in self.means.items()}

    def restore(self, values: dict[str, Any], table: Table) -> None:
        """Set the saved state, in a stage with this table."""
        self.given = table.averages
        self.means = {name: Mean(**each) for name, each in values.items()}


class AverageFiles:
    """The files of all means of a run, in the form of LAMMPS; on rank 0, and cut back when a run resumes."""

    def __init__(self, run: Run, tables: Iterable[Table]) -> None:
        self.files: dict[str, TextTable] = {}
        for given in (each for table in tables for each in table.averages):
            if given.file and run.rank == 0 and given.file not in self.files:
                head = f"# Time-averaged data for fix {given.name}\n# TimeStep {' '.join(given.columns)}\n"
                self.files[given.file] = TextTable(run, given.file, head)

    def write(self, given: Average, number: int, values: list[float]) -> None:
        """Append the mean of a period."""
        if given.file in self.files:
            self.files[given.file].add(" ".join([str(number), *(f"{value:.15g}" for value in values)]) + "\n")

    def close(self) -> None:
        """Close all files."""
        for file in self.files.values():
            file.close()


def _added(before: list[float], more: list[float]) -> list[float]:
    return [a + b for a, b in zip(before, more, strict=True)] if before else more
