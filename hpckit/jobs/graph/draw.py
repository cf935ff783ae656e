"""Pictures of a graph of tasks: text for a terminal, SVG for a report."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from xml.sax.saxutils import escape

from hpckit.jobs.graph.graph import Graph

LEAST_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 150, 40, 60, 18, 16
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


def columns(graph: Graph) -> list[list[str]]:
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


def draw_text(graph: Graph, states: Mapping[str, str]) -> str:
    """A line for each task, parents first: its state, and the tasks that it waits for."""
    width = max(map(len, graph.order))
    lines = []
    for level in columns(graph):
        for name in level:
            parents = ", ".join(graph.parents[name])
            lines.append(f"{name:{width}}  {states.get(name, ''):8}" + (f"  after {parents}" if parents else ""))
    return "\n".join(line.rstrip() for line in lines)


def draw_svg(graph: Graph, states: Mapping[str, str]) -> str:
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


def _arrow(start: tuple[float, float], end: tuple[float, float], title: str) -> str:
    """From the right upper corner of one box to the left upper corner of another, at half their height."""
    x0, y0 = start[0], start[1] + BOX_HEIGHT / 2
    x1, y1 = end[0], end[1] + BOX_HEIGHT / 2
    half = GAP_X / 2
    return (
        f'<path d="M{x0:g} {y0:g}C{x0 + half:g} {y0:g} {x1 - half:g} {y1:g} {x1:g} {y1:g}" fill="none" stroke="#555" '
        f'marker-end="url(#end)"><title>{escape(title)}</title></path>'
    )


def _files(graph: Graph, parent: str, name: str) -> str:
    return ", ".join(path for path in graph.tasks[name].reads if graph.maker.get(path) == parent) or "after"
