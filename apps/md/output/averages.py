"""What is taken from columns over steps: `fix ave/time`, `ave/chunk`, `ave/correlate`, `ave/histo` of LAMMPS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from hpckit.apps.md.output.tables import TextTable
from hpckit.apps.md.settings.averages import Average, Correlation, Histogram, Profile, Sampled
from hpckit.apps.md.settings.table import Table
from hpckit.run.context import Run

RESULTS = "series.json"
Evaluate = Callable[[Sampled], list[float]]  # the values of a sample
Finish = Callable[[Average, list[float]], list[float]]  # the means of a period, from the sums of its samples


@dataclass
class Mean:
    """The state of a mean. since: the step in which it began; after: that of its last sample; sums: of the samples of a
    period so far; periods: the means of the last ones, or of all their sum and number. now: the last mean of each
    column, of all rows of the first column before those of the second; kept: all of them, where they are wanted. box:
    the ends of the box, low and high, at the first sample of a period.
    """

    since: int
    after: int = -1
    sums: list[float] = field(default_factory=list)
    periods: list[list[float]] = field(default_factory=list)
    count: int = 0
    now: list[float] = field(default_factory=list)
    kept: list[list[float]] = field(default_factory=list)
    box: list[list[float]] = field(default_factory=list)

    def add(self, given: Average, number: int, values: list[float], finish: Finish) -> bool:
        """Take a sample after a step; whether it ends a period."""
        self.sums, self.after = _added(self.sums, values), number
        if number != given.ends(number):
            return False
        period, self.sums = finish(given, self.sums), []
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

    @property
    def has_result(self) -> bool:
        """Whether a period is over."""
        return bool(self.now)

    def column(self, given: Average, part: int) -> list[float]:
        """The rows of a column of the last mean, from 1; of one number all that were kept."""
        if not given.has_rows:
            return [row[part - 1] for row in self.kept]
        rows = len(self.now) // given.width
        return self.now[(part - 1) * rows : part * rows]

    def value(self, given: Average, row: int, part: int) -> float:
        """A number of the last mean, from 1; 0 before the first one, nan where there is no such row."""
        if not self.now:
            return 0.0
        if not given.has_rows:
            return self.now[max(row, 1) - 1]
        return _at(self.column(given, max(part, 1)), row)


@dataclass
class Correlated:
    """The state of a correlation: values of the last samples, and of each lag the number of products and the sums of
    those of each pair. rows: the last result.
    """

    since: int
    after: int = -1
    values: list[list[float]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sums: list[list[float]] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)

    def add(self, given: Correlation, number: int, values: list[float], finish: Finish) -> bool:
        """Take a sample after a step; whether there is a result."""
        if not self.counts:
            self._empty(given)
        self.values, self.after = [*self.values, values][-given.lags :], number
        self._multiply(given)
        if number % given.period:
            return False
        self.rows = [
            [float(lag * given.every), float(count), *(given.factor * value / max(count, 1) for value in sums)]
            for lag, (count, sums) in enumerate(zip(self.counts, self.sums, strict=True))
        ]
        if not given.running:
            self._empty(given)
            self.values = self.values[-1:]
            self._multiply(given)
        return True

    def _empty(self, given: Correlation) -> None:
        self.counts, self.sums = [0] * given.lags, [[0.0] * len(given.pairs) for _ in range(given.lags)]

    def _multiply(self, given: Correlation) -> None:
        """Add the products of the last sample with those before it."""
        last = self.values[-1]
        for lag, before in enumerate(reversed(self.values)):
            self.counts[lag] += 1
            for k, (a, b) in enumerate(given.pairs):
                self.sums[lag][k] += before[a] * last[b]

    @property
    def has_result(self) -> bool:
        """Whether a period is over."""
        return bool(self.rows)

    def column(self, given: Correlation, part: int) -> list[float]:
        """A column of the last result, from 1."""
        return [row[part - 1] for row in self.rows] or [0.0] * given.lags

    def value(self, given: Correlation, row: int, part: int) -> float:
        """A number of the last result, from 1; 0 before the first one, nan where there is no such row."""
        return _at(self.column(given, part), row)


@dataclass
class Counted(Mean):
    """The state of a histogram. sums, periods, now: the counts of the bins and of what is beyond them, the least and
    the largest value.
    """

    def add(self, given: Histogram, number: int, values: list[float], finish: Finish) -> bool:
        """Take a sample after a step; whether it ends a period."""
        self.sums, self.after = _merged(self.sums, values), number
        if number != given.ends(number):
            return False
        period, self.sums = self.sums, []
        self.periods = [*self.periods, period][-given.last :]
        self.now = []
        for each in self.periods:
            self.now = _merged(self.now, each)
        if not given.last:
            self.periods = [self.now]
        return True

    def column(self, given: Histogram, part: int) -> list[float]:
        """Places of bins, counts, or their shares of all counts."""
        counts = self.now[:-3]
        if part == 1:
            step, ends = (given.high - given.low) / given.number, given.beyond == "extra"
            middles = [given.low + (k + 0.5) * step for k in range(given.number)]
            return [given.low, *middles, given.high] if ends else middles
        return counts if part == 2 else [count / max(sum(counts), 1.0) for count in counts]

    def value(self, given: Histogram, row: int, part: int) -> float:
        """A number of a row, or what is in the bins, beyond them, the least and the largest value; 0 before all."""
        if part == 1 or (part and self.now):
            return _at(self.column(given, part), row)
        return self.told[row - 1] if self.now else 0.0

    @property
    def told(self) -> list[float]:
        """What is in the bins, beyond them, and the least and the largest value."""
        return [sum(self.now[:-3]), *self.now[-3:]]


class Averages:
    """The series of a stage; they last from stage to stage as long as these name them. Steps are those of columns."""

    def __init__(self) -> None:
        self.given: tuple[Sampled, ...] = ()
        self.states: dict[str, Any] = {}  # a Mean or Correlated of each

    def enter(self, table: Table, step: int) -> None:
        """Begin a stage after a step: series that are the same as before go on."""
        kept = {each.name: self.states[each.name] for each in self.given if each in table.sampled}
        self.given = table.sampled
        self.states = {each.name: kept.get(each.name) or _state_of(each)(step) for each in self.given}

    def due(self, number: int) -> list[Sampled]:
        """Those that have a sample after this step."""
        return [each for each in self.given if each.is_due(number, self.states[each.name].since)]

    def sample(self, number: int, evaluate: Evaluate, finish: Finish) -> Iterable[Sampled]:
        """Take the samples that are due, once a step; those whose result is new now."""
        due = [each for each in self.due(number) if number > self.states[each.name].after]
        return [each for each in due if self.states[each.name].add(each, number, evaluate(each), finish)]

    def named(self, name: str) -> Sampled:
        """The one of this name."""
        return next(each for each in self.given if each.name == name)

    def value(self, name: str, row: int, part: int) -> float:
        """A number of the last result: [row] of a mean of numbers, [row][part] of one with rows; 0 before the first."""
        found: float = self.states[name].value(self.named(name), row, part)
        return found

    def of_all(self, name: str, part: int, how: str) -> float:
        """`trap` or `slope` of all means of a column, from 1, or of its rows, as functions of their number; nan before
        they have it.
        """
        values: list[float] = self.states[name].column(self.named(name), part)
        if how == "trap":
            return math.fsum([*values, -0.5 * values[0], -0.5 * values[-1]]) if values else math.nan
        away = [k - 0.5 * (len(values) - 1) for k in range(len(values))]
        above = math.fsum(k * value for k, value in zip(away, values, strict=True))
        return above / math.fsum(k * k for k in away) if len(values) > 1 else math.nan

    def result(self, name: str) -> tuple[list[list[float]], list[float]]:
        """The rows of the last result, and what LAMMPS tells beside their number."""
        given, state = self.named(name), self.states[name]
        if not given.has_rows:
            return [state.now], []
        columns = [state.column(given, part) for part in range(1, given.width + 1)]
        beside = state.told if isinstance(state, Counted) else []
        if isinstance(given, Profile):
            beside = [sum(columns[len(given.bins.along)]) * state.count]
        return [[*row] for row in zip(*columns, strict=True)], beside

    def told(self) -> dict[str, Any]:
        """The last results with many rows, by name: what they are, the titles of their columns, and the rows."""
        return {
            each.name: {
                "kind": type(each).__name__.lower(),
                "columns": _titles(each),
                "rows": self.result(each.name)[0],
            }
            for each in self.given
            if each.has_rows and self.states[each.name].has_result
        }

    def saved(self) -> dict[str, Any]:
        """Its state, as plain values."""
        return {name: asdict(state) for name, state in self.states.items()}

    def restore(self, values: dict[str, Any], table: Table) -> None:
        """Set the saved state, in a stage with this table."""
        self.given = table.sampled
        self.states = {each.name: _state_of(each)(**values[each.name]) for each in self.given if each.name in values}


def _state_of(given: Sampled) -> type[Mean] | type[Correlated]:
    if isinstance(given, Correlation):
        return Correlated
    return Counted if isinstance(given, Histogram) else Mean


class AverageFiles:
    """The files of all series of a run, in the form of LAMMPS; on rank 0, and cut back when a run resumes."""

    def __init__(self, run: Run, tables: Iterable[Table]) -> None:
        self.run, self.files = run, dict[str, TextTable]()
        for table in tables:
            for given in table.sampled:
                if given.file and run.rank == 0 and given.file not in self.files:
                    self.files[given.file] = TextTable(run, given.file, _head(given))

    def write(self, given: Sampled, number: int, rows: list[list[float]], beside: list[float]) -> None:
        """Append a result; beside: what is told beside the number of its rows."""
        if given.file not in self.files:
            return
        lines = [" ".join(f"{value:.15g}" for value in row) for row in rows]
        if given.has_rows:
            head = " ".join([str(number), str(len(rows)), *(f"{value:.15g}" for value in beside)])
            lines = [head, *(f"{k} {line}" for k, line in enumerate(lines, 1))]
        else:
            lines = [f"{number} {lines[0]}"]
        self.files[given.file].add("\n".join(lines) + "\n")

    def finish(self, averages: Averages) -> None:
        """Close all files, and write the last results with many rows into output/series.json."""
        for file in self.files.values():
            file.close()
        if self.run.rank == 0 and (found := averages.told()):
            self.run.directory.write_json(f"output/{RESULTS}", found)


def _titles(given: Sampled) -> list[str]:
    """What LAMMPS calls the columns."""
    if isinstance(given, Correlation):
        return ["TimeDelta", "Ncount", *(f"{given.columns[a]}*{given.columns[b]}" for a, b in given.pairs)]
    if isinstance(given, Histogram):
        return ["Coord", "Count", "Count/Total"]
    places = [f"Coord{k + 1}" for k in range(len(given.bins.along))] if isinstance(given, Profile) else []
    return [*places, *(["Ncount"] if isinstance(given, Profile) else []), *given.columns]


def _head(given: Sampled) -> str:
    """What LAMMPS has at the head of such a file."""
    titles = " ".join(_titles(given))
    if isinstance(given, Correlation):
        rows = f"# Timestep Number-of-time-windows\n# Index {titles}\n"
        return f"# Time-correlated data for fix {given.name}\n{rows}"
    if isinstance(given, Profile):
        rows = f"# Timestep Number-of-chunks Total-count\n# Chunk {titles}\n"
        return f"# Chunk-averaged data for fix {given.name} and group {given.group}\n{rows}"
    if isinstance(given, Histogram):
        rows = f"# TimeStep Number-of-bins Total-counts Missing-counts Min-value Max-value\n# Bin {titles}\n"
        return f"# Histogrammed data for fix {given.name}\n{rows}"
    words = "# TimeStep Number-of-rows\n# Row" if given.has_rows else "# TimeStep"
    return f"# Time-averaged data for fix {given.name}\n{words} {titles}\n"


def _at(column: list[float], row: int) -> float:
    """The number of a row, from 1; nan where there is none."""
    return column[row - 1] if row <= len(column) else math.nan


def _added(before: list[float], more: list[float]) -> list[float]:
    return [a + b for a, b in zip(before, more, strict=True)] if before else more


def _merged(before: list[float], more: list[float]) -> list[float]:
    """The counts of both, and the least and the largest value."""
    if not before:
        return more
    return [*_added(before[:-2], more[:-2]), min(before[-2], more[-2]), max(before[-1], more[-1])]
