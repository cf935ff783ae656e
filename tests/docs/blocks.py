"""The code blocks of a page of Markdown, with the marks above them: comments that readers do not see."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^\n`]*\n(?P<text>.*?)^(?P=indent)(?P=ticks) *$", re.M | re.S
)
MARK = re.compile(r"<!-- (\w+)(?:: (\S.*?))?(?: -->)?")  # left open above a block that readers do not see
SHELL = ("sh", "bash", "console", "shell")


@dataclass(frozen=True)
class Block:
    """One block: its language, its text, the line it begins on, and its marks (`<!-- needs: gpu -->` above it)."""

    language: str
    text: str
    line: int
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def is_shell(self) -> bool:
        return self.language in SHELL


def pages() -> list[Path]:
    """The README and every page of the docs."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """How a page is called: its path below docs/, or README.md."""
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT))


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"],
            dedent(found["text"]) if found["indent"] else found["text"],
            text.count("\n", 0, found.start()) + 1,
            _marks(text[: found.start()]),
        )
        for found in FENCE.finditer(text)
    ]


def _marks(before: str) -> dict[str, str]:
    """The comments on the lines right above a block."""
    marks: dict[str, str] = {}
    for line in reversed(before.rstrip(" ").splitlines()):
        found = MARK.fullmatch(line.strip())
        if not found:
            break
        marks[found[1]] = found[2] or ""
    return marks
