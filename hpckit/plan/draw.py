"""Plans as pictures: a text table of who sends what to whom, and an SVG of ranks by time (pipelines: gantt.py)."""

from __future__ import annotations

import colorsys
import functools
from html import escape
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.grid.halo import HaloPlan
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.machine.timeline import Flight, flight_count, flights, ranks_of
from hpckit.plan.pipeline.draw import draw_measured, draw_measured_svg, draw_schedule, draw_schedule_svg
from hpckit.plan.pipeline.measured_step import MeasuredStep
from hpckit.plan.pipeline.schedule import Schedule
from hpckit.plan.price import Event, timeline

# Above these a picture says nothing any more, and a table fills screens.
MOST_RANKS = 64
MOST_MESSAGES = 8192
# Without a machine every step takes one unit of time.
STEPS = Machine("steps", (Level("all", 0, 0.0, 1.0),), 0.0, float("inf"))
ROW, LEFT, TOP, WIDTH = 26, 70, 46, 900


@functools.singledispatch
def draw(plan: object, *arguments: Any, **options: Any) -> str:
    """A plan as text: a `CollectivePlan` or `HaloPlan` by `draw_messages`, a `Schedule` by `draw_schedule`.

    Also a `MeasuredStep` of a pipeline.
    """
    raise InputError(f"a halo plan, a collective plan or a pipeline's schedule can be drawn, not {type(plan).__name__}")


@draw.register(CollectivePlan)
@draw.register(HaloPlan)
def draw_messages(plan: CollectivePlan | HaloPlan) -> str:
    """A table, a line a step and a column a rank: `2>3` says that the rank sends its slot 2 to rank 3, `2-5>3` slots 2
    to 5; of a halo plan: `2x16>3` sends a box of 2 x 16 cells. `+` steps are added where they arrive.

    Raises `InputError` for more ranks or messages than a table can show.
    """
    ranks = check_size(plan)
    rows = []
    for number, flight in enumerate(flights(plan, 1.0, 1)):
        cells = dict(zip(map(int, flight.sender), _cells(plan, number, flight), strict=True))
        rows.append([_step_name(plan, number, flight), *(cells.get(rank, ".") for rank in range(ranks))])
    head = ["step", *(f"rank {rank}" for rank in range(ranks))]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join([title(plan), *lines])


@functools.singledispatch
def draw_svg(plan: object, *arguments: Any, **options: Any) -> str:
    """A plan as an SVG picture: by `draw_messages_svg`, or `draw_schedule_svg`; they name the arguments."""
    raise InputError(f"a halo plan, a collective plan or a pipeline's schedule can be drawn, not {type(plan).__name__}")


@draw_svg.register(CollectivePlan)
@draw_svg.register(HaloPlan)
def draw_messages_svg(
    plan: CollectivePlan | HaloPlan, machine: Machine | None = None, nbytes: float = 0.0, itemsize: int = 8
) -> str:
    """An SVG picture: a row a rank, time to the right (of the machine, or a step a unit), a color a slot.

    A bar in the upper half of a row leaves the rank, one in the lower half arrives. Raises `InputError` as `draw`.
    """
    parts, height = timeline_parts(plan, machine, nbytes, itemsize)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="22" font-size="15">{escape(title(plan))}</text>',
    ]
    return "\n".join([*head, *parts]) + "</svg>"


def timeline_parts(
    plan: CollectivePlan | HaloPlan, machine: Machine | None = None, nbytes: float = 0.0, itemsize: int = 8
) -> tuple[list[str], int]:
    """What `draw_messages_svg` draws below its title, as SVG elements, and how high all of it is, px."""
    ranks = check_size(plan)
    if machine is None:
        events = [
            Event(number, int(s), int(d), int(slot), 0.0, number, number + 0.9, flight.reduce)
            for number, flight in enumerate(flights(plan, 1.0, 1))
            for s, d, slot in zip(flight.sender, flight.receiver, flight.slot, strict=True)
        ]
    else:
        events = list(timeline(plan, machine, nbytes, itemsize))
    end = max((event.end for event in events), default=1.0) or 1.0
    height = TOP + ROW * ranks + 34
    unit = "a step a unit" if machine is None else f"{_time(end)} on {escape(machine.name)}"
    parts = []
    for rank in range(ranks):
        y = TOP + ROW * rank
        parts.append(f'<text x="10" y="{y + 17}">rank {rank}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y + ROW - 1}" y2="{y + ROW - 1}" stroke="#ddd"/>')
    slots = plan.slots if isinstance(plan, CollectivePlan) else 2 * len(plan.order)
    for event in events:
        parts += _bars(event, end, slots, isinstance(plan, HaloPlan))
    said = f"time: {unit}; upper bar leaves, lower bar arrives" + "; a color a slot" * isinstance(plan, CollectivePlan)
    parts.append(f'<text x="{LEFT}" y="{height - 12}">{said}</text>')
    return parts, height


draw.register(Schedule, draw_schedule)
draw.register(MeasuredStep, draw_measured)
draw_svg.register(Schedule, draw_schedule_svg)
draw_svg.register(MeasuredStep, draw_measured_svg)


def title(plan: CollectivePlan | HaloPlan) -> str:
    """What a plan is, in a few words."""
    if isinstance(plan, HaloPlan):
        return f"halo exchange of {plan.decomposition.shape} cells on {ranks_of(plan)} ranks, {len(plan.order)} phases"
    counts = ", ".join(_count(*one) for one in ((plan.ranks, "rank"), (plan.length, "step"), (plan.slots, "slot")))
    return f"{plan.operation} by {plan.algorithm}: {counts}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _time(seconds: float) -> str:
    """`16.4 ms`."""
    unit, scale = next(
        ((unit, scale) for unit, scale in (("s", 1.0), ("ms", 1e3)) if seconds * scale >= 1), ("us", 1e6)
    )
    return f"{seconds * scale:.3g} {unit}"


def _bars(event: Event, end: float, slots: int, by_step: bool) -> list[str]:
    x, width = LEFT + WIDTH * event.begin / end, max(WIDTH * (event.end - event.begin) / end, 1.0)
    color = color_of(event.number if by_step else event.slot, slots)
    verb = "adds" if event.reduce else "stores"
    text = f"step {event.number + 1}: rank {event.sender} sends slot {event.slot}, rank {event.receiver} {verb} it"
    bars = []
    for rank, half in ((event.sender, 0), (event.receiver, 1)):
        y = TOP + ROW * rank + 1 + half * (ROW / 2 - 1)
        bars.append(
            f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{ROW / 2 - 3:.1f}" fill="{color}" '
            f'fill-opacity="{0.55 if half else 1}"><title>{text}</title></rect>'
        )
    return bars


def color_of(slot: int, slots: int) -> str:
    """The color of one of so many slots, as `#rrggbb`."""
    red, green, blue = colorsys.hls_to_rgb((slot % max(slots, 1)) / max(slots, 1), 0.5, 0.6)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _step_name(plan: CollectivePlan | HaloPlan, number: int, flight: Flight) -> str:
    """`3+`, or of a halo plan `3 x high`: the axis and the side by which messages leave."""
    if isinstance(plan, HaloPlan):
        name = plan.decomposition.topology.names[plan.order[number // 2]]
        return f"{number + 1} {name} {('low', 'high')[number % 2]}"
    return f"{number + 1}{'+' if flight.reduce else ' '}"


def _cells(plan: CollectivePlan | HaloPlan, number: int, flight: Flight) -> list[str]:
    """What each sender of a flight does."""
    if isinstance(plan, HaloPlan):
        dim, dec = plan.order[number // 2], plan.decomposition
        boxes = [list(dec.local_shape(int(sender))) for sender in flight.sender]
        for box in boxes:
            box[dim] = dec.halo[dim]
        return [f"{'x'.join(map(str, box))}>{to}" for box, to in zip(boxes, flight.receiver, strict=True)]
    step = plan.step(number)
    ends = (step.send[1][flight.sender] - 1) % plan.slots
    return [
        f"{first}>{to}" if first == last else f"{first}-{last}>{to}"
        for first, last, to in zip(flight.slot, ends, flight.receiver, strict=True)
    ]


def check_size(plan: CollectivePlan | HaloPlan) -> int:
    """The ranks of a plan; raises `InputError` for more ranks or messages than a drawing can show."""
    ranks = ranks_of(plan)
    if ranks > MOST_RANKS or flight_count(plan) * max(np.log2(max(ranks, 2)), 1) > MOST_MESSAGES:
        raise InputError(
            f"a plan of {ranks} ranks and {flight_count(plan)} steps is too large to draw",
            do=f"draw it for at most {MOST_RANKS} ranks",
        )
    return ranks
