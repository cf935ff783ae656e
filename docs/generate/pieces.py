"""Pieces of Markdown that several generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table; a bar inside a cell is escaped, line breaks become spaces."""
    lines = [list(head)]
    lines += [[" ".join(str(cell).replace("|", "\\|").split()) for cell in row] for row in rows]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(text: object) -> str:
    """A word as code; nothing where there is none. A bar inside would end the cell of a table: it is written out."""
    return f"`{text}`" if str(text) else ""


def linked(text: str, up: str) -> str:
    """`text` with the names of other pages (docs/restart.md) as links; `up` leads from the page to docs/."""
    return re.sub(r"\bdocs/([\w-]+)\.md\b", rf"[\1]({up}\1.md)", text)
