"""A halo exchange as a picture: the blocks of the grid with their halos, and the messages by time below them."""

from __future__ import annotations

import itertools
import math
from html import escape

import numpy as np

from hpckit.plan.drawing import LEFT, WIDTH, check_size, color_of, timeline_parts
from hpckit.plan.grid.halo import HaloPlan
from hpckit.plan.machine.machine import Machine

# In px; strips of halo are as wide as can be seen, not to scale.
STRIP, GAP, LEAST = 12, 9, 30
TOP, HIGHEST = 62, 760
ARROW = 5  # half of a message's mark
# Whose cells are held, by the side of each dim: -1 low, 0 the block itself, +1 high.
Owners = dict[tuple[int, ...], int]


def draw_halo_svg(plan: HaloPlan, machine: Machine | None = None, itemsize: int = 8) -> str:
    """An SVG picture of a plan on a grid of 1 or 2 dims; of more, a plane for each place of ranks in the first ones.

    Above: a block a rank, a color a rank. The strips around a block are its halo, in the color of the rank whose cells
    they hold, corners too; empty ones are beyond walls. Marks are messages across a face; those around a periodic end
    name their sender. Below: ranks by time, as of `draw_svg`; machine and itemsize as there. Raises `InputError` for
    more ranks than a picture can show.
    """
    ranks = check_size(plan)
    owners = held_from(plan)
    names, sizes = plan.decomposition.topology.names, plan.decomposition.topology.sizes
    rows, columns = _extents(plan, -2, HIGHEST), _extents(plan, -1, WIDTH)
    parts: list[str] = []
    y = float(TOP)
    for place in itertools.product(*(range(n) for n in sizes[:-2])):
        if place:
            where = ", ".join(f"{name} {i}" for name, i in zip(names[:-2], place, strict=True))
            parts.append(f'<text x="10" y="{y + 14:.0f}">{where}</text>')
            y += 20
        first = int(np.ravel_multi_index((*place, *(0 for _ in sizes[-2:])), sizes))
        for number in range(math.prod(sizes[-2:])):
            row, column = divmod(number, sizes[-1])
            box = (LEFT + columns[column][0], y + rows[row][0], columns[column][1], rows[row][1])
            parts += _block(plan, first + number, owners[first + number], box, ranks, itemsize)
        y += rows[-1][0] + rows[-1][1] + STRIP + GAP
    timeline, height = timeline_parts(plan, machine, itemsize=itemsize)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {y + height:.0f}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="10" y="22" font-size="15">{escape(plan.title())}</text>',
            f'<text x="10" y="42">{_legend(plan)}</text>',
            *parts,
            f'<g transform="translate(0 {y:.0f})">',
            '<text x="10" y="32">messages by time, a color a step</text>',
            *timeline,
            "</g>",
            "</svg>",
        ]
    )


def held_from(plan: HaloPlan) -> list[Owners]:
    """For each rank: the owners of the cells in its halo after the exchange, by the side in each dim; -1 for none.

    Found by following the messages phase by phase: a message carries the cells that its sender held before the phase.
    """
    dec = plan.decomposition
    sides = [(-1, 0, 1) if width else (0,) for width in dec.halo]
    empty = {place: -1 for place in itertools.product(*sides)}
    held = [{**empty, (0,) * dec.ndim: rank} for rank in range(dec.topology.size)]
    for steps in plan.phases():
        before = [dict(each) for each in held]
        for step in (step for step in steps if step.field == 0):
            for rank in map(int, np.flatnonzero(step.recv_from >= 0)):
                source = before[step.recv_from[rank]]
                for place in empty:
                    if place[step.dim] == -step.side:  # what leaves low arrives in the high halo
                        held[rank][place] = source[(*place[: step.dim], 0, *place[step.dim + 1 :])]
    return held


def _extents(plan: HaloPlan, dim: int, room: float) -> list[tuple[float, float]]:
    """Of each block along a dim where it begins and how long it is, px; a dim that is not there has one block."""
    dec = plan.decomposition
    if dec.ndim < -dim:
        return [(0.0, 2.0 * LEAST)]
    between = (2 * STRIP if dec.halo[dim] else 0) + GAP
    cells = [dec.owned(rank)[dim] for rank in _line(plan, dim)]
    wide = room - between * len(cells)
    if dim == -2 and dec.ndim > 1:  # as high as the columns make it, within what a page can hold
        wide = min(wide, WIDTH * dec.shape[-2] / dec.shape[-1], 2 * LEAST * len(cells) + room / 3)
    extents, at = [], STRIP if dec.halo[dim] else 0.0
    for n in cells:
        length = max(wide * n / sum(cells), LEAST)
        extents.append((at, length))
        at += length + between
    return extents


def _line(plan: HaloPlan, dim: int) -> list[int]:
    """The ranks along an axis from rank 0 on."""
    sizes = plan.decomposition.topology.sizes
    stride = math.prod(sizes[dim:][1:])
    return [i * stride for i in range(sizes[dim])]


def _block(
    plan: HaloPlan, rank: int, owners: Owners, box: tuple[float, float, float, float], ranks: int, itemsize: int
) -> list[str]:
    """A block, its halo within the plane, and its number; halos from other planes are given as text."""
    dec = plan.decomposition
    x, y, wide, high = box
    owned, before = dec.owned(rank), (0,) * max(dec.ndim - 2, 0)
    told = f"rank {rank}: {' x '.join(map(str, owned))} cells, sends {plan.nbytes(rank, itemsize)} bytes"
    parts = [_rect(x, y, wide, high, f'fill="{color_of(rank, ranks)}" fill-opacity="0.45" stroke="#555"', told)]
    for place, owner in owners.items():
        side_y, side_x = ((0, *place) if dec.ndim == 1 else place)[-2:]
        if place[: len(before)] != before or not (side_x or side_y):
            continue
        left, length = _strip(x, wide, side_x)
        top, tall = _strip(y, high, side_y)
        if owner < 0:
            parts.append(_rect(left, top, length, tall, 'fill="none" stroke="#ccc" stroke-dasharray="2 2"', "a wall"))
            continue
        layers = [width if side else n for side, n, width in zip(place, owned, dec.halo, strict=True)]
        told = f"halo of rank {rank}: {' x '.join(map(str, layers))} cells of rank {owner}"
        parts.append(_rect(left, top, length, tall, f'fill="{color_of(owner, ranks)}" fill-opacity="0.85"', told))
        if not (side_x and side_y):
            parts += _mark(plan, rank, owner, (side_y, side_x), (left + length / 2, top + tall / 2))
    label = [f"{rank}", *_beside(plan, owners, before)]
    size = max(min(12.0, wide / 3, (high - 4) / len(label)), 5.0)
    for number, text in enumerate(label):
        baseline = y + high / 2 + size * (0.36 + 1.1 * (number - (len(label) - 1) / 2))
        parts.append(f'<text x="{x + wide / 2:.1f}" y="{baseline:.1f}" text-anchor="middle" font-size="{size:.1f}">')
        parts[-1] += f"{text}</text>"
    return parts


def _strip(at: float, length: float, side: int) -> tuple[float, float]:
    """Where the halo of a side begins along a dim, and how long it is, px."""
    return (at, length) if side == 0 else (at - STRIP if side < 0 else at + length, STRIP)


def _mark(plan: HaloPlan, rank: int, owner: int, side: tuple[int, int], center: tuple[float, float]) -> list[str]:
    """What arrives by a face: an arrow from the block beside it, the number of a sender that stands elsewhere."""
    x, y = center
    name = plan.decomposition.topology.names[-1 if side[1] else -2]
    if _wraps(plan, rank, side):
        return [f'<text x="{x:.1f}" y="{y + 3.5:.1f}" text-anchor="middle" font-size="10">{owner}</text>']
    dx, dy = -side[1], -side[0]  # the way that the message goes
    tip, tail = (x + ARROW * dx, y + ARROW * dy), (x - 3 * ARROW * dx, y - 3 * ARROW * dy)
    wing = [(tip[0] - ARROW * dx + s * ARROW * dy * 0.7, tip[1] - ARROW * dy + s * ARROW * dx * 0.7) for s in (-1, 1)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in (tip, *wing))
    # Both directions of a face stand beside each other.
    shift = f'transform="translate({8 * dy},{8 * -dx})"'
    return [
        f'<g {shift} stroke="#222" fill="#222"><title>{name}: rank {owner} sends to rank {rank}</title>'
        f'<line x1="{tail[0]:.1f}" y1="{tail[1]:.1f}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}"/>'
        f'<polygon points="{points}"/></g>'
    ]


def _wraps(plan: HaloPlan, rank: int, side: tuple[int, int]) -> bool:
    """Whether the neighbor on that side stands at the other end of the axis."""
    topology = plan.decomposition.topology
    dim = -1 if side[1] else -2
    at = topology.coords(rank)[dim] + (side[1] or side[0])
    return not 0 <= at < topology.sizes[dim]


def _beside(plan: HaloPlan, owners: Owners, before: tuple[int, ...]) -> list[str]:
    """The senders from other planes."""
    lines = []
    for dim in range(len(before)):
        around = [(*before[:dim], side, *before[dim + 1 :], 0, 0) for side in (-1, 1)]
        senders = [str(owners[place]) for place in around if owners.get(place, -1) >= 0]
        if senders:
            lines.append(f"{plan.decomposition.topology.names[dim]}: {', '.join(senders)}")
    return lines


def _rect(x: float, y: float, wide: float, high: float, style: str, told: str) -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
    return f"<rect {at} {style}><title>{told}</title></rect>"


def _legend(plan: HaloPlan) -> str:
    told = "a color a rank; strips: halo, in the color of whose cells it holds; dashed: beyond walls; arrows: messages"
    if plan.decomposition.ndim > 2:
        return f"{told}; z: 3, 7: halo along z comes from ranks 3 and 7"
    return told
