"""The step of all axes on one time axis: computations, the messages of each axis, and between them waits."""

from __future__ import annotations

from collections import defaultdict
from html import escape

import numpy as np

from hpckit.plan.machine.machine import Machine
from hpckit.plan.machine.timeline import MessageTime, timeline
from hpckit.plan.training.step import TrainingStep

COLORS = {
    "F": "#3b6fb6",
    "I": "#5aa469",
    "W": "#9bc995",
    "B": "#5aa469",
    "end": "#8a8a8a",
    "tp": "#d1495b",
    "cp": "#edae49",
    "ep": "#8f5aa4",
    "etp": "#c77dba",
    "pp": "#30638e",
    "dp": "#444444",
}
NAMES = {"F": "forward", "I": "gradient of inputs", "W": "gradient of weights", "end": "optimizer"}
ROW, LEFT, TOP, WIDTH = 22, 150, 60, 1000
MOST_ROWS = 64


def draw_step(step: TrainingStep, machine: Machine) -> str:
    """An SVG picture of a plan of a few replicas: a row a rank, or one a stage where there are many.

    The upper half of a row shows what a rank computes, the lower half what it sends, a color an axis: the messages of a
    rank along an axis that leave together are one bar.
    """
    it = step.strategy
    shown = np.arange(step.ranks) if step.ranks <= MOST_ROWS else step.rank_of[:MOST_ROWS, 0]
    row_of = {int(rank): row for row, rank in enumerate(shown)}
    drawn: dict[tuple[int, int, str, str], list[MessageTime]] = defaultdict(list)
    for event in timeline(step, machine, itemsize=1, shown=shown):
        if event.end > event.begin:
            drawn[event.number, event.sender, _key(event), event.text if event.work else ""].append(event)
    end = max((event.end for events in drawn.values() for event in events), default=1.0)
    bars = []
    for (_, rank, key, text), events in drawn.items():
        begin, stop = min(event.begin for event in events), max(event.end for event in events)
        x, width = LEFT + WIDTH * begin / end, max(WIDTH * (stop - begin) / end, 0.4)
        y = TOP + ROW * row_of[rank] + (0 if text else ROW / 2)
        to = f"rank {events[0].receiver}" if len(events) == 1 else f"{len(events)} ranks"
        bars.append(
            f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{ROW / 2 - 2:.1f}" fill="{COLORS[key]}">'
            f"<title>rank {rank}: {escape(text or f'{key} to {to}')}, {1e3 * (stop - begin):.4g} ms</title></rect>"
        )
    height = TOP + ROW * len(shown) + 30
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" '
        'font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(step.title())}: {end:.4g} s</text>',
    ]
    place = 10
    for key, color in COLORS.items():
        if key == "B":
            continue
        head.append(f'<rect x="{place}" y="32" width="12" height="12" fill="{color}"/>')
        name = NAMES.get(key, f"{key} messages")
        head.append(f'<text x="{place + 16}" y="42">{name}</text>')
        place += 30 + 7 * len(name)
    for rank, row in row_of.items():
        _, p, c, t = np.unravel_index(rank, (step.dp, it.pp, it.cp, it.tp))
        y = TOP + ROW * row + 14
        head.append(f'<text x="10" y="{y}">rank {rank}: pp {p} cp {c} tp {t}</text>')
    axis = (
        f'<text x="{LEFT}" y="{height - 10}">0</text><text x="{LEFT + WIDTH - 40}" y="{height - 10}">{end:.4g} s</text>'
    )
    return "\n".join([*head, *bars, axis]) + "</svg>"


def _key(event: MessageTime) -> str:
    """The kind of a computation, or the axis of a message."""
    if not event.work:
        return event.text
    kind = event.text.split()[0].lstrip("0123456789")[:1]
    return kind if kind in COLORS else "end"
