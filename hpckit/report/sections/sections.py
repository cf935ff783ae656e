"""The parts of the report, from top to bottom; each is a function of the numbers, '' without content."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

from hpckit.report.draw import charts
from hpckit.report.numbers import NOT_COMPUTE, compute_imbalance, flatten
from hpckit.report.page import caption, escape, folded, grid, section, table
from hpckit.report.run_data import RunData
from hpckit.report.sections.findings import Finding
from hpckit.report.units import counted, duration, number, percent, scaled, time_scale

Record = dict[str, Any]
ROUNDING = 1e-12  # relative: of sums of many numbers
TIMES = "\u00d7"
MOST_CARDS = 7  # in a row


def header(run: RunData, numbers: Record) -> str:
    """What ran, when, and how it ended."""
    provenance = numbers["provenance"] or {}
    when = provenance.get("start") or provenance.get("started") or ""
    kicker = " · ".join(str(part) for part in (numbers["app"], numbers["run"], when) if part)
    status = escape(numbers["status"])
    return (
        f'<header><p class="kicker">{escape(kicker)}</p>'
        f'<h1>{escape(run.title)}<span class="status {status}">{status}</span></h1>'
        f'<p class="verdict">{escape(verdict(numbers))}</p></header>'
    )


def verdict(numbers: Record) -> str:
    """The run in a sentence or two."""
    parts = []
    simulated = _simulated(numbers)
    if simulated and "wall_seconds" in numbers:
        ranks = numbers.get("ranks")
        on = f" on {ranks} rank{'s' if ranks != 1 else ''}" if ranks else ""
        parts.append(f"{simulated} simulated in {duration(numbers['wall_seconds'])} of wall time{on}.")
    for name, record in numbers["conserved"].items():
        change = record.get("relative_change")
        if change is not None:
            parts.append(f"{name.capitalize()} {_changed(change)}.")
    if numbers["cfl"]:
        parts.append(f"CFL at most {number(numbers['cfl']['max'], 3)}.")
    if numbers.get("result"):
        parts.append(str(numbers["result"]))
    otherwise = {"failed": "The run failed before it had results.", "done": "All steps are done."}
    return " ".join(parts) or otherwise.get(numbers["status"], "No results yet.")


def _changed(change: float) -> str:
    """A relative change in words."""
    if not change:
        return "is the same to the last bit"
    if abs(change) < ROUNDING:
        return f"is conserved to rounding ({number(abs(change), 2)})"
    return f"changed by {number(100 * change, 2)} %"


def failure(numbers: Record) -> str:
    """The first failure of the run, above all else."""
    record = numbers["failure"]
    if not record:
        return ""
    error = record.get("error") or {}
    place = error.get("where") or ", ".join(
        f"{name} {record[name]}" for name in ("rank", "host", "step") if record.get(name) is not None
    )
    said = " ".join(str(error.get(name, "")) for name in ("code", "title")).strip() or str(record.get("kind", ""))
    rows = (("where", place), ("likely", error.get("likely")), ("do", error.get("do")))
    parts = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text)
    trace = record.get("traceback") or ""
    text = "".join(trace) if isinstance(trace, list) else str(trace)
    return (
        f'<div class="failure"><h2>{escape(said or "failure")}</h2><p>{escape(error.get("message", ""))}</p>'
        f"<dl>{parts}</dl>{folded('traceback', f'<pre>{escape(text)}</pre>') if text else ''}</div>"
    )


def headline(numbers: Record) -> str:
    """The figures of the run as cards, those that the app puts first (`headline` in its summary) before the others."""
    cards = [_card(str(value), str(what)) for what, value in (numbers.get("headline") or {}).items()]
    if "cell_steps_per_second" in numbers:
        cards.append(_card(scaled(numbers["cell_steps_per_second"], ""), "cell-steps/s"))
    if "t_eff" in numbers:
        cards.append(_card(f"{number(numbers['t_eff'], 3)} GB/s", "t_eff"))
    if "wall_seconds" in numbers:
        cards.append(_card(duration(numbers["wall_seconds"]), "wall time of the time loop"))
    if "atom_steps_per_second" in numbers:
        cards.insert(0, _card(scaled(numbers["atom_steps_per_second"], ""), "atom-steps/s"))
    if simulated := _simulated(numbers):
        cards.append(_card(simulated, "simulated"))
    for name, what in (("cells", "cells"), ("particles", "particles"), ("steps", "steps"), ("ranks", "ranks")):
        if name in numbers:
            cards.append(_card(number(numbers[name]), what))
    if len(cards) < 3:  # a run that ended before it had figures
        return ""
    formula = _formula(numbers) if "t_eff" in numbers else ""
    columns = math.ceil(len(cards) / math.ceil(len(cards) / MOST_CARDS))
    shown = f'<div class="cards" style="--columns: {columns}">{"".join(cards)}</div>'
    return shown + (f'<p class="formula">{escape(formula)}</p>' if formula else "")


def findings(found: Sequence[Finding]) -> str:
    """Warnings and notes, each with what to do."""
    items = "".join(
        f'<li class="{finding.level}">{escape(finding.text)}'
        + (f"<em>{escape(finding.do)}</em>" if finding.do else "")
        + "</li>"
        for finding in found
    )
    return f'<ul class="findings">{items}</ul>' if items else ""


def conservation(run: RunData, numbers: Record) -> str:
    """The conserved quantities and their changes."""
    rows = [
        (
            run.with_unit(name),
            number(record.get("initial"), 8),
            number(record.get("final"), 8),
            number(record.get("relative_change"), 3),
            number(record.get("largest_relative_change"), 3),
        )
        for name, record in numbers["conserved"].items()
    ]
    head = ("quantity", "initial", "final", "relative change", "largest change")
    pictures = [charts.relative_change(run, name) for name in numbers["conserved"]]
    return section("Conservation", grid(pictures), table(head, rows, (1, 2, 3, 4)))


def history(run: RunData, numbers: Record, drawn: Collection[str] = ()) -> str:
    """The time step and its CFL number, extremes, and the app's other metrics; those in `drawn` are in other charts."""
    names = [name for name in numbers["metrics"] if name not in numbers["conserved"]]
    first = [name for name in ("cfl", "dt") if name in names]
    groups = charts.metric_groups(first + [name for name in names if name not in first])
    titles = {"cfl": "CFL number", "dt": "time step"}
    steps = run.whole_steps()
    pictures = []
    for title, members in groups.items():
        lines = {name: (steps if name in titles else run).series(name) for name in members}
        if not all(name in drawn or _constant(values) for name, (_, values) in lines.items()):
            one = run.words(title) if len(members) == 1 else title.replace("_", " ")
            named = run.with_unit(members[0], titles.get(title, one))
            ends = {"_min": "least", "_max": "largest"}
            if title.endswith(", least and largest"):
                lines = {ends[name[-4:]]: line for name, line in lines.items()}
            pictures.append(charts.over_time(named, lines, unit=run.time_unit))
    rows = [
        (
            run.with_unit(name),
            *(number((numbers["metrics"][name] or {}).get(key)) for key in ("first", "last", "min", "max")),
        )
        for members in groups.values()
        for name in members
    ]
    numbers_table = table(("quantity", "first", "last", "least", "largest"), rows, (1, 2, 3, 4))
    short = sum(line.get("dt") != 0 for line in run.metrics) - len(steps.metrics)
    said = "The charts of the CFL number and the time step leave out steps that were shortened to end on a frame;"
    return section(
        "CFL and extremes" if numbers["cfl"] else "Metrics over time",
        grid(pictures),
        caption(f"{said} the table has them." if short else ""),
        numbers_table,
    )


def phases(numbers: Record) -> str:
    """The time per phase, over ranks."""
    rows = numbers["phases"]
    if not rows:
        return ""
    colors = charts.phase_colors(list(rows))
    body = "".join(
        f'<tr><td class="name"><span class="swatch" style="background:{colors[name]}"></span>{escape(name)}</td>'
        + "".join(f'<td class="n">{escape(text)}</td>' for text in phase_texts(row))
        + "</tr>"
        for name, row in rows.items()
    )
    head = "".join(f'<th class="n">{text}</th>' for text in ("min (s)", "mean (s)", "max (s)", "imbalance", "share"))
    computing = [name for name in rows if name not in (*NOT_COMPUTE, "other")]
    text = "Seconds over ranks; imbalance is max / mean \u2212 1, share is of the wall time."
    if computing:
        text += f" The compute phases together: imbalance {percent(compute_imbalance(rows))}."
    return section(
        "Time by phase",
        f'<div class="pan">{charts.phase_bars(rows)}</div>',
        f'<div class="scroll"><table><thead><tr><th>phase</th>{head}</tr></thead><tbody>{body}</tbody></table></div>',
        caption(text),
        caption(waits_text(numbers.get("waits"))),
    )


def phase_texts(row: Record) -> tuple[str, ...]:
    """Least, mean and largest seconds of a phase over ranks, its imbalance and its share, as texts."""
    share = "" if row["share"] is None else percent(row["share"])
    return (*(number(row[key], 3) for key in ("min", "mean", "max")), percent(row["imbalance"]), share)


def waits_text(waits: Record | None) -> str:
    """The waiting times in a sentence; '' if there are none."""
    if not waits:
        return ""
    text = (
        f"Waiting took {number(waits['seconds'], 3)} s a rank, in whatever phase: {number(waits['late'], 3)} s for"
        f" late peers, {number(waits['transfer'], 3)} s for the messages themselves."
    )
    if waits["worst"] is not None:
        text += f" Most waited for: rank {waits['worst']}, which cost the others {number(waits['by_worst'], 3)} s."
    return text


def decomposition(numbers: Record) -> str:
    """The blocks of the ranks and their hosts."""
    record = numbers["decomposition"] or {}
    picture = charts.decomposition_picture(record)
    if not picture:
        return ""
    blocks = record["blocks"]
    hosts: dict[str, int] = {}
    for block in blocks:
        hosts[block.get("host", "")] = hosts.get(block.get("host", ""), 0) + 1
    rows = [
        (str(block["rank"]), block.get("host", ""), _list(block["start"]), _times(block["shape"]))
        for block in blocks[:16]
    ]
    axes = ", ".join(
        f"{name} {size}" for name, size in zip(record.get("axes") or [], record.get("sizes") or [], strict=False)
    )
    said = (
        f"{_times(record['shape'])} cells over {counted(len(blocks), 'rank')} ({axes}) on {counted(len(hosts), 'host')}"
    )
    more = caption(f"… and {len(blocks) - 16} ranks more") if len(blocks) > 16 else ""
    listing = table(("rank", "host", "start", "cells"), rows, (0,)) + more
    return section("Decomposition", caption(said), f'<div class="side">{picture}<div>{listing}</div></div>')


def provenance(numbers: Record) -> str:
    """The recorded versions, hosts and command of the run."""
    flat = flatten({k: v for k, v in (numbers["provenance"] or {}).items() if k != "placement"})
    rows = [(name, _plain(value)) for name, value in flat.items() if value not in (None, "", [], {})]
    places = [
        (
            str(place.get("rank")),
            str(place.get("host")),
            _ranges(place.get("cores") or []),
            str(place.get("threads") or ""),
        )
        for place in ((numbers["provenance"] or {}).get("placement") or [])[:64]
    ]
    bound = table(("rank", "host", "cores allowed", "threads"), places, (0,))
    return section(
        "Provenance", table(("what", "value"), rows, long=True), folded("cores and threads of each rank", bound)
    )


def configuration(numbers: Record) -> str:
    """Every setting and where it was set; settings that differ from their default come first."""
    settings = sorted(numbers["configuration"], key=lambda item: item["origin"] in ("default", ""))
    rows = [(item["key"], _plain(item["value"]), item["origin"]) for item in settings]
    chosen = [row for row in rows if row[2] not in ("default", "")]
    head = ("setting", "value", "from")
    if not chosen:
        return section("Configuration", table(head, rows, long=True))
    rest = rows[len(chosen) :]
    return section(
        "Configuration",
        table(head, chosen, long=True),
        folded(f"{len(rest)} settings at their defaults", table(head, rest, long=True)),
    )


def _formula(numbers: Record) -> str:
    """The definition of t_eff, and its numbers where all are known."""
    product = f" {TIMES} ".join
    text = f"t_eff = {product(('cells', 'steps', 'bytes per cell and step'))} / wall time"
    parts = [numbers.get(name) for name in ("cells", "steps", "bytes_per_cell_step", "wall_seconds")]
    if None not in parts:
        cells, steps, size, wall = (number(part) for part in parts)
        text += f" = {product((cells, steps, size + ' B'))} / {wall} s = {number(numbers['t_eff'])} GB/s"
    return text + ": the memory traffic that the algorithm cannot avoid, over the time taken."


def _card(value: str, what: str) -> str:
    head, _, unit = (value, "", "") if value.count(" ") > 1 else value.partition(" ")
    shown = f"{escape(head)} <small>{escape(unit)}</small>" if unit else escape(head)
    return f'<div class="card"><b>{shown}</b><span>{escape(what)}</span></div>'


def _simulated(numbers: Record) -> str:
    """The simulated time in words, in seconds or the app's own unit; '' if unknown."""
    if "simulated_seconds" in numbers:
        return duration(numbers["simulated_seconds"])
    if "simulated_time" not in numbers:
        return ""
    scale, unit = time_scale(numbers["simulated_time"], numbers["time_unit"])
    return f"{number(numbers['simulated_time'] / scale)} {unit}"


def _constant(values: Sequence[float]) -> bool:
    """Whether values stay equal but for rounding, and need no chart."""
    low, high = (end((value for value in values if math.isfinite(value)), default=0.0) for end in (min, max))
    return high - low <= 1e-9 * max(abs(high), abs(low))


def _times(sizes: Sequence[int]) -> str:
    return f" {TIMES} ".join(str(size) for size in sizes)


def _plain(value: Any) -> str:
    if isinstance(value, float):  # as it may be typed
        return repr(int(value) if value.is_integer() and abs(value) < 1e6 else value)
    if isinstance(value, list) and all(isinstance(item, (str, int)) for item in value):
        return _list(value)
    return value if isinstance(value, str) else json.dumps(value)


def _list(items: Sequence[Any]) -> str:
    return ", ".join(str(item) for item in items)


def _ranges(cores: Sequence[int]) -> str:
    """Core numbers as ranges: 0-3, 8."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
