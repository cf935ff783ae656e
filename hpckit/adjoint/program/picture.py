"""Graphs as pictures: a box an operation, an arrow a value with the offset at which it is read; exchanges in color."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from xml.sax.saxutils import escape

from hpckit.errors import InputError
from hpckit.kernels.graph.nodes import ARRAYS, SIGNS, Node, Offset, ordered

MOST_NODES = 300
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 84, 34, 56, 14, 16
COLORS = {"field": "#bfe3bf", "number": "#e3e3e3", "constant": "#f4f4f4", "hold": "#f7cf8f", "fold": "#f7cf8f"}
PLAIN, SUM, EXCHANGED = "#cfe0f5", "#e2cdf2", "#d9480f"


def draw_graph(
    title: str, outputs: Sequence[Node], halo: Mapping[Node, Offset], exchanged: Sequence[Node], notes: Sequence[str]
) -> str:
    """An SVG picture of what leads to some nodes, from left to right; shifts are the words at arrows.

    halo: cells of each array that is filled before it is read. exchanged: arrays with messages. notes: lines below.
    Raises `InputError` for more nodes than a picture shows.
    """
    nodes = [node for node in ordered(outputs) if node.op != "shift"]
    if len(nodes) > MOST_NODES:
        raise InputError(
            f"a graph of {len(nodes)} nodes is too large to draw", do="print it: str(graph) has a line a node"
        )
    place = _places(nodes)
    wide = 2 * MARGIN + max(x for x, _ in place.values()) + WIDTH
    base = 2 * MARGIN + 24 + max(y for _, y in place.values()) + HEIGHT
    high, wide = base + 17 * (len(notes) + 1), max(wide, 2 * MARGIN + 7 * max(map(len, [title, *notes])))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" height="{high:g}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{MARGIN}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for node in nodes:
        for k, arg in enumerate(node.args):
            offset = arg.value if arg.op == "shift" else ()
            source = arg.args[0] if arg.op == "shift" else arg
            port = HEIGHT * (k + 1) / (len(node.args) + 1)
            parts.append(_arrow(place[source], place[node], port, offset, source in exchanged))
    ends = set(outputs)
    for node in nodes:
        words = f"exchange {halo[node]}" if node in exchanged else "result" if node in ends else ""
        parts.append(_box(node, place[node], words, node in exchanged, node in ends))
    parts += [
        f'<text x="{MARGIN}" y="{base + 17 * (k + 1):g}" fill="#333">{escape(note)}</text>'
        for k, note in enumerate(notes)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(nodes: Sequence[Node]) -> dict[Node, tuple[float, float]]:
    """Columns by the longest path to a node; within them in the order of what they read, so that few arrows cross."""
    depth: dict[Node, int] = {}
    behind = {node: [arg.args[0] if arg.op == "shift" else arg for arg in node.args] for node in nodes}
    for node in nodes:
        depth[node] = 1 + max((depth[each] for each in behind[node]), default=-1)
    for node in reversed(nodes):  # leaves beside what reads them first
        users = [depth[other] for other in nodes if node in behind[other]]
        if node.op in ("constant", "number") and users:
            depth[node] = min(users) - 1
    order: dict[Node, float] = {}
    columns = [[node for node in nodes if depth[node] == column] for column in range(max(depth.values()) + 1)]
    tallest = max(map(len, columns))
    found: dict[Node, tuple[float, float]] = {}
    for column, members in enumerate(columns):
        middle = {node: mean([order.get(each, 0.5) for each in behind[node]] or [0.5]) for node in members}
        members.sort(key=middle.__getitem__)
        for row, node in enumerate(members):
            order[node] = (row + 0.5) / len(members)
            shift = (tallest - len(members)) * (HEIGHT + GAP_Y) / 2
            found[node] = MARGIN + column * (WIDTH + GAP_X), 34 + shift + row * (HEIGHT + GAP_Y)
    return found


def _box(node: Node, at: tuple[float, float], words: str, exchanged: bool, result: bool) -> str:
    left, top = at
    name = {"constant": f"{node.value:.6g}" if node.op == "constant" else "", "number": str(node.value)}.get(node.op)
    name = name or (node.value[0] if node.op == "field" else SIGNS.get(node.op, node.op))
    color = COLORS.get(node.op, SUM if node.op == "sum" else PLAIN)
    edge, thick = (EXCHANGED, 2) if exchanged else ("#333", 2) if result else ("#777", 1)
    middle = left + WIDTH / 2
    line = top + (14 if words else 21)
    small = f'<text x="{middle:g}" y="{top + 28:g}" text-anchor="middle" font-size="9">{escape(words)}</text>'
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{WIDTH}" height="{HEIGHT}" rx="{2 if node.op in ARRAYS else 9}" '
        f'fill="{color}" stroke="{edge}" stroke-width="{thick}"><title>{escape(node.line or node.op)}</title></rect>'
        f'<text x="{middle:g}" y="{line:g}" text-anchor="middle">{escape(name)}</text>{small if words else ""}'
    )


def _arrow(
    source: tuple[float, float], target: tuple[float, float], port: float, offset: Offset, exchanged: bool
) -> str:
    x, y = source[0] + WIDTH, source[1] + HEIGHT / 2
    to, down = target[0], target[1] + port
    color = EXCHANGED if exchanged and offset else "#888"
    words = ", ".join(f"{step:+d}" if step else "0" for step in offset)
    label = (
        f'<text x="{to - 5:g}" y="{down - 2:g}" text-anchor="end" font-size="9" fill="{color}">{words}</text>'
        if offset
        else ""
    )
    bend = (to - x) / 2
    return (
        f'<path d="M{x:g} {y:g}C{x + bend:g} {y:g} {to - bend:g} {down:g} {to:g} {down:g}" fill="none" '
        f'stroke="{color}" marker-end="url(#end)"/>{label}'
    )
