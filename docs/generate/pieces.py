"""Pieces of Markdown that several generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table; a bar that stands in no code is escaped, line breaks become spaces."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(value: object) -> str:
    parts = re.split(r"(`[^`]*`)", " ".join(str(value).split()))
    parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
    return "".join(parts)


def code(text: object) -> str:
    """A word as code; nothing where there is none."""
    return f"`{text}`" if str(text) else ""


def linked(text: str, up: str) -> str:
    """`text` with the names of other pages (docs/restart.md) as links; `up` leads from the page to docs/."""
    return re.sub(r"\bdocs/([\w-]+)\.md\b", rf"[\1]({up}\1.md)", text)
