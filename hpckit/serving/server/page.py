"""The page of a serving run: queue, batch, tokens, blocks and latencies on one time axis, from its record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpckit import __version__
from hpckit.errors import CorruptDataError, write_error
from hpckit.io.files import replace_file
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.data import with_data
from hpckit.report.page import caption, escape, page, section, table
from hpckit.report.style import SERIES, pyplot, to_svg
from hpckit.report.units import duration, few_ticks, number, percent, time_scale
from hpckit.serving.server.record import ABOUT, COUNTS, FILE, LATENCIES

Record = dict[str, Any]
MOST_LINES = 1 << 28  # bytes of a record
NEEDED = ("time", "seconds", "waiting", "running", "blocks_used", "rows", "texts", "steps", *COUNTS)


def build_page(folder: Path) -> Path:
    """Write `report/index.html` and `report/report.json` of the run in a folder; returns the path of the page.

    Raises `CorruptDataError` for a file that is not a record, `SetupError` without matplotlib (extra `analysis`) or if
    nothing can be written.
    """
    about, lines = read_record(folder)
    numbers = _numbers(about, lines)
    target = folder / "report"
    try:
        target.mkdir(exist_ok=True)
        replace_file(target / "report.json", json.dumps(numbers, indent=1).encode())
        replace_file(target / "index.html", _text(about, lines, numbers).encode())
    except OSError as problem:
        raise write_error(problem, target) from problem
    return target / "index.html"


def read_record(folder: Path) -> tuple[Record, list[Record]]:
    """The run in all, and its stretches of time; a last line that was cut off is left out."""
    try:
        about = parse_json(read_bytes(folder / ABOUT, "the record"))
        rows = read_bytes(folder / FILE, "the record", MOST_LINES).decode().splitlines()
        lines = []
        for number_of, row in enumerate(rows):
            try:
                lines.append(json.loads(row))
            except ValueError:
                if number_of < len(rows) - 1:
                    raise
        good = isinstance(about, dict) and all(
            isinstance(line, dict) and all(isinstance(line.get(name), int | float) for name in NEEDED) for line in lines
        )
    except ValueError:
        good = False
    if not good:
        raise CorruptDataError(
            f"{folder / FILE} is not a record of a serving run", do="give the folder of `hpckit serve --record`"
        )
    return about, lines


def _numbers(about: Record, lines: Sequence[Record]) -> Record:
    """The figures of the page; those of a run that has not ended come from its lines."""
    totals: Record = {name: sum(line[name] for line in lines) for name in COUNTS}
    seconds = lines[-1]["time"] if lines else 0.0
    asked = totals["prompt_tokens"] + totals["found_tokens"]
    totals |= {
        "seconds": seconds,
        "steps": sum(line["steps"] for line in lines),
        "written_per_second": totals["written_tokens"] / seconds if seconds else 0.0,
        "found_share": totals["found_tokens"] / asked if asked else 0.0,
        "most_blocks": max((line["blocks_used"] for line in lines), default=0),
        "most_waiting": max((line["waiting"] for line in lines), default=0),
        "accepted_share": totals["accepted"] / totals["drafts"] if totals["drafts"] else None,
    }
    return {**about, **totals, "ended": "latencies" in about}


def _text(about: Record, lines: Sequence[Record], numbers: Record) -> str:
    name, blocks = str(about.get("model", "a model")), max(1, int(about.get("blocks", 1)))
    state = "done" if numbers["ended"] else "stopped"
    words = {"done": "ended", "stopped": "has not ended"}
    ranks, replicas = int(about.get("ranks", 1)), int(about.get("replicas", 1))
    where = f"{ranks} rank{'s' if ranks > 1 else ''}" + (f", {replicas} replicas" if replicas > 1 else "")
    head = (
        f'<header><p class="kicker">{escape(about.get("started", ""))}, {escape(where)}</p><h1>{escape(name)}'
        f'<span class="status {state}">{words[state]}</span></h1><p class="verdict">'
        f"{number(numbers['finished'])} texts of {escape(about.get('weights', ''))} weights in"
        f" {duration(numbers['seconds'])}; at most {number(numbers['most_waiting'])} waited.</p></header>"
    )
    cards = {
        "tokens written": number(numbers["written_tokens"]),
        "of them a second": number(numbers["written_per_second"], 3),
        "of prompts found there": percent(numbers["found_share"]),
        "blocks in use at most": percent(numbers["most_blocks"] / blocks),
        "times a text lost its blocks": number(numbers.get("preemptions", 0)),
    }
    if numbers["accepted_share"] is not None:
        cards["of guesses right"] = percent(numbers["accepted_share"])
    shown = "".join(f'<div class="card"><b>{value}</b><span>{what}</span></div>' for what, value in cards.items())
    rows = [
        (told.upper(), LATENCIES[told], *(_seconds(each[f"p{q}"]) for q in (50, 95, 99)), number(each["count"]))
        for told, each in (about.get("latencies") or {}).items()
        if told in LATENCIES
    ]
    return page(
        f"{name}: serving",
        head,
        f'<div class="cards" style="--columns: {math.ceil(len(cards) / math.ceil(len(cards) / 5))}">{shown}</div>',
        section("The run", _picture(lines, blocks), caption(CAPTION)),
        section(
            "Latencies", table(("", "seconds", "half below", "95 % below", "99 % below", "of"), rows, (2, 3, 4, 5))
        ),
        f"<footer>Written by hpckit {__version__}. The same numbers: report.json; the record: ../{FILE}.</footer>",
    )


CAPTION = (
    "Each point is the end of a stretch of time. Queue: texts at its end. Batch: means over its steps. A hit is a token"
    " of a prompt whose keys and values were there. Blocks in use have an owner; others that are known may be found."
    " Latencies are those of texts that began (TTFT) or ended (TPOT) in it."
)


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def _alone(values: Sequence[float]) -> list[bool]:
    """Which values have no neighbor, so that no line shows them."""
    there = [False, *(not math.isnan(value) for value in values), False]
    return [there[n] and not (there[n - 1] or there[n + 1]) for n in range(1, len(there) - 1)]


def _picture(lines: Sequence[Record], blocks: int) -> str:
    """Five charts below one another."""
    if not lines:
        return ""
    scale, unit = time_scale(lines[-1]["time"])
    at = [line["time"] / scale for line in lines]
    each: dict[str, dict[str, list[float]]] = {
        "queue (texts)": {name: [line[name] for line in lines] for name in ("running", "waiting")},
        "batch (of a step)": {"tokens": [line["rows"] for line in lines], "texts": [line["texts"] for line in lines]},
        "tokens a second": {
            told: [line[name] / max(line["seconds"], 1e-9) for line in lines]
            for told, name in (("written", "written_tokens"), ("computed", "prompt_tokens"), ("hits", "found_tokens"))
        },
        "blocks (%)": {
            "in use": [100 * line["blocks_used"] / blocks for line in lines],
            "known": [100 * line.get("blocks_known", 0) / blocks for line in lines],
        },
        "latency (ms)": {
            f"{name.upper()} {told}": [1000 * line.get(f"{name}_p{q}", math.nan) for line in lines]
            for name in ("ttft", "tpot")
            for q, told in ((50, "half"), (95, "95 %"))
        },
    }
    figure, rows = pyplot().subplots(len(each), 1, figsize=(7.6, 7.4), layout="constrained", sharex=True)
    for axes, (title, series) in zip(rows, each.items(), strict=True):
        for (name, values), color in zip(series.items(), SERIES, strict=False):
            if all(math.isnan(value) for value in values):
                continue
            marked = [len(at) < 40 or alone for alone in _alone(values)]
            drawn = "default" if title.startswith("latency") else "steps-pre"  # a stretch without work is empty
            way = {"color": color, "label": name, "drawstyle": drawn}
            axes.plot(at, values, **way, linewidth=1.2, marker="o", markevery=marked, markersize=2)
        axes.set_title(title)
        axes.grid(axis="y")
        axes.margins(x=0.01)
        if title.startswith("latency"):
            axes.set_yscale("log")
            few_ticks(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
            axes.locator_params(axis="y", nbins=4)
            axes.ticklabel_format(axis="y", style="plain")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)
    rows[-1].set_xlabel(f"time ({unit})")
    columns = {"time (s)": [line["time"] for line in lines]}
    for title, series in each.items():
        columns |= {f"{title.partition(' (')[0]}: {name}": values for name, values in series.items()}
    return with_data(to_svg(figure, "queue, batch, tokens, blocks and latencies over time", "wide"), "serving", columns)
