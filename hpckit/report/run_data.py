"""The records in a run directory, read as far as they exist."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.units import with_units

Record = dict[str, Any]
ATTEMPTS = "attempts/[0-9]*"
MOST_RECORD, MOST_LINES = 64 << 20, 1 << 30  # bytes


@dataclass
class RunData:
    """The records of one run; what is missing or cannot be read is empty, and `problems` says so."""

    directory: Path
    summary: Record = field(default_factory=dict)
    provenance: Record = field(default_factory=dict)
    resolved: Record = field(default_factory=dict)
    progress: Record = field(default_factory=dict)
    failure: Record = field(default_factory=dict)
    metrics: list[Record] = field(default_factory=list)
    fields: Path | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """One of "done", "stopped" and "failed", or the status by the last progress."""
        if self.failure:
            return "failed"
        return str(self.summary.get("status") or self.progress.get("status") or "unknown")

    @property
    def title(self) -> str:
        """The title of the run, from the run file if it has one."""
        for record in (self.summary, self.resolved):
            if record.get("title"):
                return str(record["title"])
        return self.app or self.directory.name

    @property
    def app(self) -> str:
        """The name of the app."""
        return str(self.summary.get("app") or self.resolved.get("app") or "")

    @property
    def values(self) -> Record:
        """The settings of the run."""
        values = self.resolved.get("values")
        return values if isinstance(values, dict) else {}

    @property
    def periodic(self) -> tuple[str, ...]:
        """The periodic axes, as far as the summary records them."""
        record = self.summary.get("decomposition")
        names = record.get("periodic") if isinstance(record, dict) else None
        return tuple(str(name) for name in names) if isinstance(names, list) else ()

    @property
    def time_unit(self) -> str:
        """The unit of times in metrics: seconds, unless the app says another in the summary's `units`."""
        return self._unit_of("time", "s")

    @property
    def frame_unit(self) -> str:
        """The unit of the times of frames: that of metrics, unless the summary's `units` have one of `frames`."""
        return self._unit_of("frames", self.time_unit)

    def _unit_of(self, what: str, usual: str) -> str:
        for record in (self.summary, self.resolved):
            units = record.get("units")
            if isinstance(units, dict) and what in units:
                return str(units[what])
        return usual

    def tell(self, text: str) -> None:
        """Note a problem, once; the page shows it."""
        if text not in self.problems:
            self.problems.append(text)

    def series(self, name: str) -> tuple[list[float], list[float]]:
        """Times and values of a metric, where both are numbers."""
        pairs = [
            (float(line["time"]), float(line[name]))
            for line in self.metrics
            if is_number(line.get(name)) and is_number(line.get("time"))
        ]
        return [time for time, _ in pairs], [value for _, value in pairs]

    def changes(self, name: str) -> tuple[list[float], list[float]]:
        """The changes of a metric relative to its first value, and their times; none if that is 0.

        The first value is that from which the summary says that it is conserved (`since`).
        """
        since = ((self.summary.get("conserved") or {}).get(name) or {}).get("since", -math.inf)
        pairs = [(time, value) for time, value in zip(*self.series(name), strict=True) if time >= since * (1 - 1e-12)]
        times, values = [time for time, _ in pairs], [value for _, value in pairs]
        if not values or not values[0]:
            return [], []
        return times, [(value - values[0]) / abs(values[0]) for value in values]

    def whole_steps(self) -> RunData:
        """The run without metrics of unrepresentative steps: those before the first step (dt = 0), and those of steps
        shortened to end on a frame or with the run, as in the flood app.
        """
        tables = [self.values.get(name) for name in ("output", "time")]
        output, times = (table if isinstance(table, dict) else {} for table in tables)
        every, end = output.get("every"), times.get("end")
        kept, before = [], 0.0
        for line in self.metrics:
            dt, time = line.get("dt"), line.get("time")
            if is_number(dt) and is_number(time):
                frame = is_number(every) and every > 0 and abs(time / every - round(time / every)) < 1e-9
                if dt <= 0 or ((frame or time == end) and dt < before):
                    continue
                before = dt
            kept.append(line)
        return replace(self, metrics=kept)

    def metric_names(self) -> list[str]:
        """The names of all numeric metrics but step and time, in the order of the file."""
        names = dict.fromkeys(name for line in self.metrics for name, value in line.items() if is_number(value))
        return [name for name in names if name not in ("step", "time")]

    def with_unit(self, name: str, title: str = "") -> str:
        """The name of a metric, or the title given, with the metric's unit, if any: `w_max (m/s)`."""
        found = {"dt": "s"}
        for record in (self.resolved, self.summary):  # what the app says of all its runs, and of this one
            units = record.get("units")
            found |= units if isinstance(units, dict) else {}
        unit = str(found.get(name) or found.get(name.split("_")[0]) or "")
        if "{dims}" in unit:
            shape = (self.summary.get("decomposition") or {}).get("shape") or []
            unit = unit.replace("{dims}", str(len(shape))) if shape else ""
        return with_units(title or self.words(name), unit)

    def words(self, name: str) -> str:
        """The title of a metric: the app's words (`titles` in its records), else its name without underscores."""
        for record in (self.resolved, self.summary):
            titles = record.get("titles")
            if isinstance(titles, dict) and titles.get(name):
                return str(titles[name])
        return name.replace("_", " ")


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def load_run(directory: Path) -> RunData:
    """Read a run directory. Raises `InputError` if it holds no record of a run."""
    run = RunData(directory)
    for name in ("summary", "provenance", "resolved", "progress"):
        setattr(run, name, _read_record(directory / f"{name}.json", run.problems))
    attempts = sorted(directory.glob(ATTEMPTS))
    if attempts and (attempts[-1] / "failure.json").is_file():
        run.failure = _read_record(attempts[-1] / "failure.json", run.problems)
    metrics = directory / "metrics.jsonl"
    if metrics.is_file():
        run.metrics = _read_lines(metrics, run.problems)
    master = directory / "output" / "fields.h5"
    run.fields = master if master.is_file() else None
    if not (run.summary or run.provenance or run.resolved or run.failure or run.metrics or run.fields):
        raise InputError(
            f"{directory} is not a run directory",
            likely="another folder was meant",
            do="give a directory that `hpckit run` made; `hpckit ls` lists them",
        )
    return run


def _read_record(path: Path, problems: list[str]) -> Record:
    if not path.is_file():
        return {}
    try:
        record = parse_json(read_bytes(path, "the record", MOST_RECORD))
    except (InputError, ValueError) as problem:
        problems.append(f"{path.name} cannot be read: {problem}")
        return {}
    if isinstance(record, dict):
        return record
    problems.append(f"{path.name} holds no table")
    return {}


def _read_lines(path: Path, problems: list[str]) -> list[Record]:
    """The lines of a JSON-lines file; a last line that was cut off by a kill is left out silently."""
    try:
        lines = read_bytes(path, "the table", MOST_LINES).decode(errors="replace").splitlines()
    except InputError as problem:
        problems.append(str(problem))
        return []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = parse_json(line)
        except ValueError:
            if number < len(lines):
                problems.append(f"{path.name}, line {number} is not JSON")
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
