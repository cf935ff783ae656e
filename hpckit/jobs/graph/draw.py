"""Pictures of a graph of tasks: text for a terminal, SVG for a report, its attempts on a time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any
from xml.sax.saxutils import escape

from hpckit.jobs.graph.graph import TaskGraph

LEAST_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 150, 40, 60, 18, 16
TIMELINE, CORE_HEIGHT = 1000, 20
SIGN_WIDTH = 7.5  # of a letter of the name, with some room
COLORS = {
    "done": "#7bb77b",
    "running": "#f2c14e",
    "failed": "#d9695f",
    "ready": "#9ec5e8",
    "waiting": "#e3e3e3",
    "changed": "#e8c9a0",
    "skipped": "#c9b3b3",
}


def columns(graph: TaskGraph) -> list[list[str]]:
    """The tasks by the length of the longest path to them, ordered by their parents, so that few arrows cross."""
    depth: dict[str, int] = {}
    for name in graph.order:
        depth[name] = 1 + max((depth[parent] for parent in graph.parents[name]), default=-1)
    place: dict[str, float] = {}
    found = []
    for level in range(max(depth.values()) + 1):
        names = [name for name in graph.order if depth[name] == level]
        middle = {name: mean([place[parent] for parent in graph.parents[name]] or [0.0]) for name in names}
        names.sort(key=middle.__getitem__)
        place |= {name: (i + 0.5) / len(names) for i, name in enumerate(names)}
        found.append(names)
    return found


def draw_text(graph: TaskGraph, states: Mapping[str, str]) -> str:
    """A line for each task, parents first: its state, and the tasks that it waits for."""
    width = max(map(len, graph.order))
    lines = []
    for level in columns(graph):
        for name in level:
            parents = ", ".join(graph.parents[name])
            lines.append(f"{name:{width}}  {states.get(name, ''):8}" + (f"  after {parents}" if parents else ""))
    return "\n".join(line.rstrip() for line in lines)


def draw_svg(graph: TaskGraph, states: Mapping[str, str]) -> str:
    """Boxes from left to right, an arrow for each edge, titled with its files."""
    place: dict[str, tuple[float, float]] = {}
    levels = columns(graph)
    tallest = max(map(len, levels))
    box = max(LEAST_WIDTH, round(SIGN_WIDTH * max(map(len, graph.order))) + 16)
    for x, level in enumerate(levels):
        offset = (tallest - len(level)) * (BOX_HEIGHT + GAP_Y) / 2
        for y, name in enumerate(level):
            place[name] = (MARGIN + x * (box + GAP_X), MARGIN + offset + y * (BOX_HEIGHT + GAP_Y))
    width: float = 2 * MARGIN + len(levels) * (box + GAP_X) - GAP_X
    height: float = 2 * MARGIN + tallest * (BOX_HEIGHT + GAP_Y) - GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
    ]
    for name in graph.order:
        for parent in graph.parents[name]:
            parts.append(_arrow((place[parent][0] + box, place[parent][1]), place[name], _files(graph, parent, name)))
    for name, (left, top) in place.items():
        state = states.get(name, "waiting")
        middle = left + box / 2
        parts.append(
            f'<rect x="{left:g}" y="{top:g}" width="{box}" height="{BOX_HEIGHT}" rx="6" fill="{COLORS[state]}" '
            f'stroke="#555"/><text x="{middle:g}" y="{top + 17:g}" text-anchor="middle">{escape(name)}</text>'
            f'<text x="{middle:g}" y="{top + 32:g}" text-anchor="middle" font-size="10">{state}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def draw_timeline(journal: Sequence[Mapping[str, Any]]) -> str:
    """The attempts of a journal as bars over time, a group of rows a host, as high as their cores are many."""
    begin, end = min(row["started"] for row in journal), max(row["ended"] for row in journal)
    scale = TIMELINE / max(end - begin, 1e-9)
    parts, top = [], MARGIN
    for host in sorted({row["host"] for row in journal}):
        parts.append(f'<text x="0" y="{top + 10}" font-weight="600">{escape(host)}</text>')
        rows = _packed([row for row in journal if row["host"] == host])
        top += MARGIN
        for first, row in rows:
            left, width = (row["started"] - begin) * scale, max((row["ended"] - row["started"]) * scale, 1.0)
            color = COLORS["done" if row["how"] == "done" else "failed" if "failed" in row["how"] else "skipped"]
            y, height = top + first * CORE_HEIGHT, row["slots"] * CORE_HEIGHT - 2
            about = f"{row['task']}: {row['how']}, {row['ended'] - row['started']:.1f} s on {row['slots']} cores"
            name = escape(row["task"]) if len(row["task"]) * SIGN_WIDTH < width else ""
            parts.append(
                f'<g><title>{escape(about)}</title><rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{height}" '
                f'fill="{color}" stroke="#555"/><text x="{left + 4:.1f}" y="{y + 14}">{name}</text></g>'
            )
        top += CORE_HEIGHT * max(first + row["slots"] for first, row in rows) + MARGIN
    for part in range(5):
        x, seconds = TIMELINE * part / 4, (end - begin) * part / 4
        place = "start" if part == 0 else "end" if part == 4 else "middle"
        parts.append(f'<path d="M{x:g} {MARGIN}V{top}" stroke="#bbb" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{x:g}" y="{top + 14}" text-anchor="{place}" fill="#64727f">{seconds:.4g} s</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {TIMELINE + 4} {top + 20}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="attempts over time">' + "\n".join(parts) + "</svg>\n"
    )


def _packed(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Attempts with the first of their cores, such that no core has two at a time."""
    free: list[float] = []  # the time from which each core is idle
    found = []
    for row in sorted(rows, key=lambda row: row["started"]):
        slots, first = row["slots"], 0
        while any(until > row["started"] for until in free[first : first + slots]):
            first += 1
        free += [0.0] * (first + slots - len(free))
        free[first : first + slots] = [row["ended"]] * slots
        found.append((first, row))
    return found


def _arrow(start: tuple[float, float], end: tuple[float, float], title: str) -> str:
    """From the right upper corner of one box to the left upper corner of another, at half their height."""
    x0, y0 = start[0], start[1] + BOX_HEIGHT / 2
    x1, y1 = end[0], end[1] + BOX_HEIGHT / 2
    half = GAP_X / 2
    return (
        f'<path d="M{x0:g} {y0:g}C{x0 + half:g} {y0:g} {x1 - half:g} {y1:g} {x1:g} {y1:g}" fill="none" stroke="#555" '
        f'marker-end="url(#end)"><title>{escape(title)}</title></path>'
    )


def _files(graph: TaskGraph, parent: str, name: str) -> str:
    return ", ".join(path for path in graph.tasks[name].reads if graph.maker.get(path) == parent) or "after"
