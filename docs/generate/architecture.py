"""The picture of the floors on the page of the architecture, drawn from the imports of the code as it stands."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
HOMES = {"hpckit": ROOT / "hpckit", "hpckit.kernels": ROOT / "kernels", "hpckit.apps": ROOT / "apps"}
WIDTH, BAND, BOX, TOP = 960, 78, (118, 42), 8  # px


def floors() -> dict[int, list[str]]:
    """Floor -> its rooms, read from the table of the page; the tests hold the code against the same table."""
    rows = re.findall(r"^\| (\d) \| ((?:`\w+`,? ?)+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    return {int(number): re.findall(r"`(\w+)`", rooms) for number, rooms in rows}


def callers_of_mpi() -> set[str]:
    """The files and rooms that may call MPI, read from the table of the page, as `grid/phases`."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(r"^## Who calls MPI$(.*?)^## ", text, re.M | re.S)
    rows = re.findall(r"^\| ((?:`[\w/]+`,? ?)+) \|", section[1] if section else "", re.M)
    return {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}


def modules() -> dict[str, Path]:
    """Every module of hpckit by its installed name."""
    found = {}
    for package, folder in HOMES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def imports() -> dict[str, set[str]]:
    """Module -> the modules of hpckit that it imports, anywhere in its file; a package only where its own names are."""
    known = modules()
    found = {}
    for module, path in known.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= whole if whole <= set(known) else (whole & set(known)) | {node.module}
        found[module] = (names & set(known)) - {module}
    return found


def room(module: str) -> str:
    """The room below hpckit that a module stands in; "" for hpckit itself."""
    return module.split(".")[1] if "." in module else ""


def filled(text: str) -> str:
    """A page with `<!-- floors -->` replaced by the picture."""
    return text.replace("<!-- floors -->", picture()) if "<!-- floors -->" in text else text


def picture() -> str:
    """An SVG: a band a floor, a box a room with its number of files, a line for what a room imports of another."""
    table, edges = floors(), imports()
    files = Counter(room(module) for module in edges)
    between = Counter(
        (room(module), room(name))
        for module, names in edges.items()
        for name in names
        if room(module) and room(name) and room(module) != room(name)
    )
    place: dict[str, tuple[float, float]] = {}
    parts, height = [], TOP + BAND * len(table)
    for number, rooms in table.items():
        y = TOP + BAND * (max(table) - number)
        parts.append(
            f'<rect x="0" y="{y}" width="{WIDTH}" height="{BAND - 6}" rx="6" fill="#888" fill-opacity="0.08"/>'
        )
        parts.append(f'<text x="14" y="{y + BAND / 2}" font-size="18" fill="#888">{number}</text>')
        there = [name for name in rooms if files[name]]
        for i, name in enumerate(there):
            place[name] = 40 + (WIDTH - 40) * (i + 0.5) / len(there), y + (BAND - 6) / 2
    for (upper, lower), count in sorted(between.items()):
        (x, y), (u, v) = place[upper], place[lower]
        bend = BAND * 0.5 if v > y else -BAND * 0.45
        parts.append(
            f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v:.0f}" fill="none" '
            f'stroke="#0a7" stroke-opacity="0.35" stroke-width="{min(1 + count / 12, 6):.1f}">'
            f"<title>{upper} imports {lower}: {count}</title></path>"
        )
    for name, (x, y) in place.items():
        width, tall = BOX
        parts.append(
            f'<g><rect x="{x - width / 2:.0f}" y="{y - tall / 2:.0f}" width="{width}" height="{tall}" rx="5" '
            f'fill="#fff" stroke="#087"/>'
            f'<text x="{x:.0f}" y="{y - 2:.0f}" text-anchor="middle" font-size="15" fill="#222">{name}</text>'
            f'<text x="{x:.0f}" y="{y + 14:.0f}" text-anchor="middle" font-size="11" fill="#666">'
            f"{files[name]} file{'s' * (files[name] != 1)}</text></g>"
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" font-family="sans-serif" '
        f'aria-label="The floors of hpckit: rooms, and what they import">{"".join(parts)}</svg>'
    )


if __name__ == "__main__":
    print(picture())
