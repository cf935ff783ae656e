"""Plans as pictures: a text table of the messages, and an SVG of ranks by time."""

from __future__ import annotations

import colorsys
from html import escape
from typing import Protocol

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.machine.machine import Machine
from hpckit.plan.machine.timeline import MessageTime, timeline
from hpckit.plan.protocol import Plan, Steps, require_plan

# Above these a picture says nothing any more, and a table fills screens.
MOST_RANKS = 64
MOST_MESSAGES = 8192
ROW, LEFT, TOP, WIDTH = 26, 70, 46, 900


class Drawn(Protocol):
    """What is no plan and has pictures of its own, as the graph of a traced model."""

    def drawing(self) -> str:
        """Its text."""

    def drawing_svg(self) -> str:
        """Its picture."""


def draw(plan: Plan | Drawn) -> str:
    """A table, one line per step and one column per rank: `2>3` means that the rank sends its cell 2 to rank 3, `2-5>3`
    cells 2 to 5. Plans may have other labels: in a halo exchange, `2x16>3` is a box of 2 x 16 cells. Data of `+` steps
    is added by the receiver; `m` steps run in shared memory. It lists the nodes and exchanges of a traced model's
    graph, too.

    Raises `InputError` for more ranks or messages than a table can show.
    """
    if hasattr(plan, "drawing"):
        return plan.drawing()
    require_plan(plan)
    ranks = check_size(plan)
    said: dict[tuple[int, int], list[str]] = {}
    for event in timeline(plan, None):
        text = event.text if event.work else f"{event.text}>{event.receiver}"
        said.setdefault((event.number, event.sender), []).append(text)
    rows = [
        [
            f"{number + 1}{'+' if step.add else ''}{'m' if step.place == 'memory' else ''} {step.name}".rstrip(),
            *(",".join(said.get((number, rank), ".")) for rank in range(ranks)),
        ]
        for number, step in enumerate(plan.steps())
    ]
    head = ["step", *(f"rank {rank}" for rank in range(ranks))]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join([plan.title(), *lines])


def draw_svg(plan: Plan | Drawn, machine: Machine | None = None, nbytes: float = 0.0, itemsize: float = 8) -> str:
    """An SVG picture: a row a rank, time to the right (of the machine, or a step a unit), a color a cell.

    A bar in the upper half of a row leaves the rank, one in the lower half arrives; one of the whole height is work.
    Raises `InputError` as `draw`.
    """
    if hasattr(plan, "drawing_svg"):
        return plan.drawing_svg()
    require_plan(plan)
    parts, height = timeline_parts(plan, machine, nbytes, itemsize)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="22" font-size="15">{escape(plan.title())}</text>',
    ]
    return "\n".join([*head, *parts]) + "</svg>"


def timeline_parts(
    plan: Plan, machine: Machine | None = None, nbytes: float = 0.0, itemsize: float = 8
) -> tuple[list[str], int]:
    """The SVG elements of `draw_svg` below its title, and the height of the picture, px."""
    ranks = check_size(plan)
    events = list(timeline(plan, machine, nbytes, itemsize))
    end = max((event.end for event in events), default=1.0) or 1.0
    height = TOP + ROW * ranks + 34
    unit = "a step a unit" if machine is None else f"{_time(end)} on {escape(machine.name)}"
    parts = []
    for rank in range(ranks):
        y = TOP + ROW * rank
        parts.append(f'<text x="10" y="{y + 17}">rank {rank}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y + ROW - 1}" y2="{y + ROW - 1}" stroke="#ddd"/>')
    named = any(step.name for step in plan.steps())  # then a color a step
    colors = 1 + max((event.number if named else event.first for event in events), default=0)
    for event in events:
        parts += _bars(event, end, color_of(event.number if named else event.first, colors))
    said = f"time: {unit}; upper bar leaves, lower bar arrives; a color a {'step' if named else 'cell'}"
    parts.append(f'<text x="{LEFT}" y="{height - 12}">{said}</text>')
    return parts, height


def _time(seconds: float) -> str:
    """`16.4 ms`."""
    unit, scale = next(
        ((unit, scale) for unit, scale in (("s", 1.0), ("ms", 1e3)) if seconds * scale >= 1), ("us", 1e6)
    )
    return f"{seconds * scale:.3g} {unit}"


def _bars(event: MessageTime, end: float, color: str) -> list[str]:
    x, width = LEFT + WIDTH * event.begin / end, max(WIDTH * (event.end - event.begin) / end, 1.0)
    verb = "adds" if event.add else "stores"
    text = f"step {event.number + 1}: rank {event.sender} sends {event.text}, rank {event.receiver} {verb} it"
    places = [(event.sender, 0.0, ROW / 2 - 3, 1.0), (event.receiver, ROW / 2 - 1, ROW / 2 - 3, 0.55)]
    if event.work:
        text, places = f"rank {event.sender}: {event.text}", [(event.sender, 0.0, ROW - 4, 1.0)]
    return [
        f'<rect x="{x:.2f}" y="{TOP + ROW * rank + 1 + below:.1f}" width="{width:.2f}" height="{high:.1f}" '
        f'fill="{color}" fill-opacity="{opacity}"><title>{escape(text)}</title></rect>'
        for rank, below, high, opacity in places
    ]


def color_of(number: int, count: int) -> str:
    """One of so many colors, as `#rrggbb`."""
    red, green, blue = colorsys.hls_to_rgb((number % max(count, 1)) / max(count, 1), 0.5, 0.6)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def check_size(plan: Plan) -> int:
    """The ranks of a plan; raises `InputError` for more ranks or messages than a drawing can show."""
    ranks, steps = plan.ranks, plan.steps()
    count = steps.length if isinstance(steps, Steps) else sum(1 for _ in steps)
    if ranks > MOST_RANKS or count * max(np.log2(max(ranks, 2)), 1) > MOST_MESSAGES:
        raise InputError(
            f"a plan of {ranks} ranks and {count} steps is too large to draw",
            do=f"draw it for at most {MOST_RANKS} ranks",
        )
    return ranks
