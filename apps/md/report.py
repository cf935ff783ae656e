"""The molecular dynamics sections of a report: state, columns of the table, what was measured, and a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import ValidationError

from hpckit.apps.common.validation import Check
from hpckit.apps.md.config import Config
from hpckit.apps.md.free_energy.report import free_energy_sections
from hpckit.apps.md.output.analysis import FILE, from_files, last_frame
from hpckit.apps.md.output.argon import beside_rahman
from hpckit.apps.md.output.averages import RESULTS
from hpckit.apps.md.output.charts import lines, picture
from hpckit.apps.md.output.observed import observed, symbols
from hpckit.apps.md.settings.table import TITLES, Table
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.extension import ReportSection
from hpckit.report.page import caption, grid, table
from hpckit.report.run_data import RunData, is_number
from hpckit.report.units import number, signs, time_scale, with_error
from hpckit.run.settings import with_common

PRESSURES = tuple(f"pressure_{ab}" for ab in ("xx", "yy", "zz", "xy", "xz", "yz"))
LEAST_DRAWN = 30  # temperatures of which a distribution is drawn
LEAST_CURVE = 3  # values of a curve; a run that has fewer after its means begin is drawn whole
MOST_DRAWN = 12  # columns of one's own with a chart
BLOCKS = 8  # parts of a series whose spread gives the error of its mean


def sections(run: RunData) -> Iterator[Iterator[Any]]:
    """The sections with something to show."""
    try:
        given = {key: value for key, value in run.values.items() if key != "title"}
        config: Any = with_common(Config).model_validate(given)
    except ValidationError:
        run.tell("the settings of the run cannot be read: no observables")
        return
    config = _of_last_stage(run, config)
    names = symbols(run.summary.get("units") or {})
    yield _state(run, config, names)
    yield _own_columns(run, config, names)
    yield _series(run, config, names)
    yield free_energy_sections(run.directory / "output", names)
    yield _measured(run, config)
    yield _at_the_end(run, config, names)


def _of_last_stage(run: RunData, config: Config) -> Config:
    """The settings of the last stage, whose means and observables count from its steps on."""
    begins, last = (run.summary.get("stages") or {}).get("begins") or [0], config.staged[-1]
    if len(begins) < 2:
        return last
    settled = int(begins[-1]) + int(last.averaged_from)
    return last.model_copy(update={"analysis": last.analysis.model_copy(update={"after": settled})})


def _time_after(run: RunData, config: Config, step: int) -> float:
    """The time of the first metrics from a step on, a little less for comparisons."""
    at = [float(line["time"]) for line in run.metrics if line.get("step", 0) >= step and "time" in line]
    return (at[0] if at else step * config.time.dt) * (1 - 1e-12)


def _measured(run: RunData, config: Config) -> Iterator[ReportSection | Iterator[ReportSection]]:
    found = _found(run, config)
    yield from observed(found, config.system.units)
    checks = beside_rahman(config, mean_after(run, config, "temperature")[0], found)
    if checks:
        yield _published(checks)


def _at_the_end(run: RunData, config: Config, names: dict[str, str]) -> Iterator[ReportSection]:
    end = last_frame(config, run.directory / "output")
    if end is not None:
        drawn, said = picture(end, config, names.get("length", ""))
        yield ReportSection("picture", "The particles at the end", drawn + caption(said), after="headline")


def _found(run: RunData, config: Config) -> dict[str, Any]:
    """The results of the run, else those from its files."""
    output = run.directory / "output"
    path = output / FILE
    if path.is_file():
        return dict(parse_json(read_bytes(path, "the results")))
    return from_files(config, output)


def mean_after(run: RunData, config: Config, name: str) -> tuple[float, float]:
    """Mean of a metric from `Config.averaged_from` on, and its error from means over blocks."""
    late = [line for line in run.metrics if line.get("step", 0) >= config.averaged_from]
    values = [float(line[name]) for line in late if is_number(line.get(name))]
    if not values:
        return float("nan"), float("nan")
    if len(values) < 2 * BLOCKS:
        return float(np.mean(values)), float("nan")
    means = [float(part.mean()) for part in np.array_split(np.array(values), BLOCKS)]
    return float(np.mean(values)), float(np.std(means, ddof=1) / np.sqrt(BLOCKS))


class OverTime:
    """The metrics of a run over its time, in a unit that suits its length."""

    def __init__(self, run: RunData, config: Config, names: dict[str, str]) -> None:
        self.run, times = run, run.series("energy")[0]
        self.scale, self.time = time_scale(times[-1], names.get("time", ""))
        begin, self.averaged = (_time_after(run, config, step) for step in (config.settled, config.averaged_from))
        self.begin = begin if np.sum(np.array(times) >= begin) >= LEAST_CURVE else 0.0

    def over(self, name: str, per: float = 1.0) -> tuple[Any, Any]:
        """A metric, from where charts begin."""
        at, values = (np.array(each) for each in self.run.series(name))
        return at[at >= self.begin] / self.scale, values[at >= self.begin] / per

    def with_mean(self, name: str) -> dict[str, tuple[Any, Any]]:
        """A metric, and its mean so far, from where means begin."""
        at, values = self.over(name)
        counted = at * self.scale >= self.averaged
        so_far = np.cumsum(values[counted]) / np.arange(1, counted.sum() + 1)
        return {"at the time": (at, values), "mean so far": (at[counted], so_far)}


def _own_columns(run: RunData, config: Config, names: dict[str, str]) -> Iterator[ReportSection]:
    """What the table has beyond LAMMPS's keywords: computed, by formulas, and means."""
    own = [name for name in config.table.columns if name not in TITLES and len(run.series(name)[0]) > 1]
    if not own:
        return
    curves = OverTime(run, config, names)
    settled = curves.averaged / curves.scale
    drawn = [lines(name, curves.with_mean(name), f"time ({curves.time})", settled=settled) for name in own[:MOST_DRAWN]]
    rows, numbers = [], dict[str, Any]()
    for name in own:
        value, error = mean_after(run, config, name)
        rows.append((name, *with_error(value, error), _meaning(config.table, name)))
        numbers[name] = {"mean": _known(value), "error": _known(error)}
    said = f"Means from step {config.averaged_from} on; errors from the spread over {BLOCKS} blocks of time"
    said += "." if any(row[2] for row in rows) else f": they need {2 * BLOCKS} values."
    listing = table(("column", "mean", "error", "what it is"), rows, (1, 2))
    shown = grid(drawn) + listing + caption(said)
    yield ReportSection("columns", "Columns of the table", shown, numbers, "headline", tuple(own))


def _series(run: RunData, config: Config, names: dict[str, str]) -> Iterator[ReportSection]:
    """The last profiles along one dim, correlations in time, and tables over distances."""
    path = run.directory / "output" / RESULTS
    if not path.is_file():
        return
    drawn, numbers = list[str](), dict[str, Any]()
    for name, found in parse_json(read_bytes(path, "the series")).items():
        titles, rows = found["columns"], np.array(found["rows"], float)
        numbers[name] = found
        along, first, label = rows[:, 0], 1, titles[0]
        if found["kind"] == "correlation":
            along, label = along * config.time.dt, f"lag ({names.get('time', '')})"
        elif found["kind"] == "profile":
            given = next((each for each in config.table.profiles if each.name == name), None)
            if given is None or len(given.bins.along) != 1:
                continue
            unit = "share of the box" if given.bins.reduced else names.get("length", "")
            label = f"{given.bins.along[0]} ({unit})"
        elif found["kind"] == "histogram":
            label = "value"
        elif not titles[0].endswith("[1]"):
            along, first, label = np.arange(1.0, len(rows) + 1), 0, "row"
        first += found["kind"] != "average"  # numbers of particles, of products, and counts
        drawn += [lines(f"{name}: {titles[k]}", {"": (along, rows[:, k])}, label) for k in range(first, len(titles))]
    if drawn:
        said = "The last results with many rows; output/series.json has them, and those in several dims."
        shown = grid(drawn[:MOST_DRAWN]) + caption(said)
        yield ReportSection("series", "Profiles and correlations", shown, numbers, "headline")


def _meaning(given: Table, name: str) -> str:
    """What a column of one's own is."""
    key, known = name.partition("[")[0], list[tuple[str, str]]()
    known += [(f"c_{each.name}", f"{each.kind} of {each.group}") for each in given.computed]
    known += [(f"v_{each.name}", each.formula) for each in given.formulas]
    known += [(f"f_{each.name}", f"mean of {', '.join(each.columns)}") for each in given.averages]
    known += [(f"f_{each.name}", f"means of {', '.join(each.columns)} in bins") for each in given.profiles]
    known += [(f"f_{each.name}", f"histogram of {', '.join(each.columns)}") for each in given.histograms]
    known += [(f"f_{each.name}", f"correlations of {', '.join(each.columns)}") for each in given.correlations]
    return dict(known).get(key, "")


def _state(run: RunData, config: Config, names: dict[str, str]) -> Iterator[ReportSection]:
    count = int(run.summary.get("particles") or 0)
    times, total = run.series("energy")
    if not count or len(times) < 2:
        return
    energy, held = names.get("energy", ""), config.barostat
    resizes, holds = config.resizes, held.kind != "none"
    units = {"volume": f"{names.get('length', '')}³", "density": f"1/{names.get('length', '')}³"}
    curves = OverTime(run, config, names)
    over, with_mean, scale, time = curves.over, curves.with_mean, curves.scale, curves.time

    each = {name: over(name, count) for name in ("kinetic", "potential", "energy")}
    late = np.array([line.get("step", 0) >= config.averaged_from for line in run.metrics if "energy" in line])
    if late.sum() < LEAST_CURVE:
        late[:] = True
    kept = np.array(total)[late]
    drift = {"total energy": (np.array(times)[late] / scale, (kept - kept[0]) / count)}
    settled = curves.averaged / scale
    drawn = [
        lines("energy per particle", each, f"time ({time})", energy),
        lines("total energy per particle, change", drift, f"time ({time})", energy),
        lines(
            "temperature",
            with_mean("temperature"),
            f"time ({time})",
            names.get("temperature", ""),
            level=config.target,
            level_name="asked for",
            settled=settled,
        ),
        lines(
            "pressure",
            with_mean("pressure"),
            f"time ({time})",
            names.get("pressure", ""),
            level=held.pressure if holds else None,
            level_name="asked for",
            settled=settled,
        ),
    ]
    if resizes:
        length = names.get("length", "")
        drawn.append(lines("density", with_mean("mass_density"), f"time ({time})", names.get("mass_density", "")))
        edges = {axis: over(f"length_{axis}") for axis in "xyz"}
        drawn.append(lines("edges of the box", edges, f"time ({time})", length))
    drawn += _canonical(run, config, count, names.get("temperature", ""))
    rows, numbers = [], dict[str, Any]()
    for name in ("temperature", "pressure", *PRESSURES, *(("volume", "density", "mass_density") if resizes else ())):
        value, error = mean_after(run, config, name)
        unit = names.get(name, names.get(name.split("_")[0], units.get(name, "")))
        rows.append((name.replace("_", " "), *with_error(value, error), unit))
        numbers[name] = {"mean": _known(value), "error": _known(error)}
    value, error = mean_after(run, config, "potential")
    rows.append(("potential energy per particle", *with_error(value / count, error / count), energy))
    numbers["potential_per_particle"] = {"mean": _known(value / count), "error": _known(error / count)}
    slope, spread = (float("nan"),) * 2
    if config.dynamics.kind == "nve" and not resizes:
        slope, spread = _drift(run, config, count)
    if np.isfinite(slope):
        rows.append(("drift of the total energy per particle", number(slope * scale, 3), "", f"{energy}/{time}"))
        rows.append(("its fluctuation about that, root mean square", number(spread, 3), "", energy))
        numbers |= {"drift": slope, "fluctuation": spread}
    said = f"Means from step {config.averaged_from} on"
    if not np.isfinite(value):
        said = f"No means: they count from step {config.averaged_from}, which the run did not reach."
        listing = ""
    elif any(row[2] for row in rows):
        said += f"; errors from the spread over {BLOCKS} blocks of time."
        listing = table(("quantity", "mean", "error", "unit"), rows, (1, 2))
    else:
        said += f"; no errors: they need {2 * BLOCKS} values."
        listing = table(("quantity", "mean", "unit"), [(row[0], row[1], row[3]) for row in rows], (1,))
    pair = config.interaction
    if config.dynamics.kind == "nve" and not resizes and pair.kind == "lennard_jones" and not pair.shift:
        said += (
            " The potential ends in a step at the cutoff (shift = false): pairs that cross it change the total energy."
        )
    if curves.begin:
        said += f" The charts begin at step {config.settled}; what was before is in metrics.jsonl."
    if config.target:
        what = "temperature and the pressure that were" if holds else "temperature that was"
        said += f" Gray lines: the {what} asked for." if holds else f" Gray line: the {what} asked for."
    shown = grid(drawn) + listing + caption(said)
    metrics = ("temperature", "pressure", "kinetic", "potential", *PRESSURES)
    yield ReportSection("state", "Energies, temperature and pressure", shown, numbers, "headline", metrics)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _canonical(run: RunData, config: Config, count: int, unit: str) -> list[str]:
    """The distribution of the temperature beside the canonical one, where a thermostat holds it; [] elsewhere.

    Of f = 3 N - 3 degrees of freedom (in a plane 2 N - 2) the kinetic energy has a gamma distribution: T a mean of T0
    and a variance of 2 T0**2 / f.
    """
    if config.dynamics.kind not in ("langevin", "bussi", "nose_hoover") or not config.target:
        return []
    found = np.array([line["temperature"] for line in run.metrics if line.get("step", 0) >= config.averaged_from])
    if len(found) < LEAST_DRAWN:
        return []
    half = max(config.system.dims * (count - 1), 1) / 2
    density, edges = np.histogram(found, bins=max(8, min(40, len(found) // 8)), density=True)
    middles = (edges[1:] + edges[:-1]) / 2
    width = 4 * config.target / half**0.5
    u = np.linspace(max(config.target - width, 1e-9 * config.target), config.target + width, 200) / config.target
    exact = (
        half / config.target * np.exp(half * np.log(half) - math.lgamma(half + 1) + (half - 1) * np.log(u) - half * u)
    )
    both = {"measured": (middles, density), "canonical": (u * config.target, exact)}
    return [lines("distribution of the temperature", both, f"T ({unit})", f"1/{unit}" if unit else "", dots=True)]


def _drift(run: RunData, config: Config, count: int) -> tuple[float, float]:
    """Slope of the total energy per particle over time, and its spread about the line."""
    late = [line for line in run.metrics if line.get("step", 0) >= config.averaged_from]
    times, energy = np.array([[line["time"], line["energy"] / count] for line in late]).reshape(-1, 2).T
    if len(times) < 3:
        return float("nan"), float("nan")
    line = np.polyfit(times - times[0], energy, 1)
    return float(line[0]), float((energy - np.polyval(line, times - times[0])).std())


def _published(checks: list[Check]) -> ReportSection:
    rows = [
        (
            "pass" if one.passed else "MISSES",
            one.quantity,
            number(one.ours),
            signs(one.allowed),
            one.unit,
            one.source,
        )
        for one in checks
    ]
    head = ("", "quantity", "ours", "should be", "unit", "source")
    said = "Rahman's run took 780 steps of 10 fs; repetitions find a few percent more diffusion, as their errors allow."
    return ReportSection(
        "published",
        "Beside Rahman's liquid argon",
        table(head, rows, (2,)) + caption(said),
        {"checks": [one.to_dict() for one in checks]},
    )
