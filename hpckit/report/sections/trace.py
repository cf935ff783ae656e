"""Some steps of the timeline of a run (`hpckit run --trace`): the phases of each rank, and its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.draw.charts import phase_colors
from hpckit.report.page import caption, section
from hpckit.report.style import INK, MUTED, pyplot, to_svg

FILE = "trace.json"
MOST_BYTES = 1 << 28
DRAWN = 24  # phases of a rank
RARE = ("output", "diagnostics")
ROWS = 16  # ranks that are drawn
ARROWS = 200


def trace_section(directory: Path) -> str:
    """The section; '' where the run kept no timeline."""
    path = directory / FILE
    if not path.is_file():
        return ""
    try:
        events = parse_json(read_bytes(path, "the timeline", MOST_BYTES))["traceEvents"]
        window = _window(events)
        picture = _draw(events, *window)
    except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        return section("Timeline", caption(f"{FILE} cannot be drawn: {error}"))
    return section(
        "Timeline",
        picture,
        caption(
            "Typical steps of the run; dark lines are messages from departure to arrival."
            f" The whole timeline is in {FILE}: open it in Perfetto (ui.perfetto.dev) or chrome://tracing."
        ),
    )


def _window(events: list[dict[str, Any]]) -> tuple[float, float]:
    """Begin and end, in µs, of some typical phases of rank 0, without output if possible."""
    spans = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in events
        if event.get("cat") == "phase" and event["pid"] == 0
    )
    if not spans:
        raise ValueError("it holds no phases")
    cuts = [spans[first : first + DRAWN] for first in range(0, max(1, len(spans) - DRAWN + 1), DRAWN)]
    calm = [cut for cut in cuts if not any(name in RARE for _, _, name in cut)] or cuts
    calm.sort(key=lambda cut: cut[-1][1] - cut[0][0])
    chosen = calm[len(calm) // 2]
    return chosen[0][0], max(chosen[-1][1], chosen[0][0] + 1.0)


def _draw(events: list[dict[str, Any]], begin: float, end: float) -> str:
    shown = [
        event
        for event in events
        if event["ph"] == "X" and event["ts"] < end and event["ts"] + event["dur"] > begin and event["pid"] < ROWS
    ]
    rows = 1 + max((event["pid"] for event in shown), default=0)
    figure, axes = pyplot().subplots(figsize=(7.6, 0.8 + 0.34 * rows), layout="constrained")
    names = list(dict.fromkeys(event["name"] for event in shown if event["cat"] == "phase"))
    colors = phase_colors([*names, "wait"])
    for name in names:
        axes.barh(0, 0, color=colors[name], label=name)
    axes.barh(0, 0, color=colors["wait"], label="wait")
    for event in shown:
        waiting = event["cat"] == "message"
        if event["cat"] == "action" or (waiting and not event["name"].startswith("wait")):
            continue  # actions of a pipeline have names of their own, within the phase that is drawn
        left, right = max(event["ts"], begin), min(event["ts"] + event["dur"], end)
        color = colors["wait" if waiting else event["name"]]
        place = {"left": (left - begin) / 1e3, "color": color, "linewidth": 0}
        axes.barh(event["pid"], (right - left) / 1e3, height=0.4 if waiting else 0.72, **place)
    for (source, sent), (target, got) in _arrows(events, begin, end):
        axes.plot([(sent - begin) / 1e3, (got - begin) / 1e3], [source, target], color=INK, linewidth=0.5, alpha=0.7)
    axes.set_yticks(range(rows), [f"rank {rank}" for rank in range(rows)])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.set_xlabel("ms")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), labelcolor=MUTED, handlelength=1.0)
    return f'<div class="pan">{to_svg(figure, "timeline of some steps", "wide")}</div>'


def _arrows(
    events: list[dict[str, Any]], begin: float, end: float
) -> list[tuple[tuple[int, float], tuple[int, float]]]:
    """Messages within the window, as ((rank, µs) sent, (rank, µs) there)."""
    sent = {event["id"]: (event["pid"], event["ts"]) for event in events if event["ph"] == "s"}
    got = [(event["id"], (event["pid"], event["ts"])) for event in events if event["ph"] == "f"]
    pairs = [(sent[number], there) for number, there in got if number in sent]
    inside = [pair for pair in pairs if begin <= pair[0][1] and pair[1][1] <= end]
    return [pair for pair in inside if pair[0][0] < ROWS and pair[1][0] < ROWS][:ARROWS]
