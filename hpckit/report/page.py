"""HTML from plain values; every text that comes from a run is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hpckit.report.css import CSS


def escape(value: Any) -> str:
    """A value as text that means nothing to HTML."""
    return html.escape(str(value))


def section(title: str, *parts: str) -> str:
    """A titled part of the page, '' when nothing is in it."""
    content = "".join(part for part in parts if part)
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def caption(text: str) -> str:
    """A line of explanation in gray, '' for none."""
    return f'<p class="caption">{escape(text)}</p>' if text else ""


def grid(pictures: Iterable[str]) -> str:
    """Pictures beside one another as the width allows, '' for none."""
    content = "".join(pictures)
    return f'<div class="grid">{content}</div>' if content else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = (), long: bool = False) -> str:
    """A table of texts (escaped here); the columns numbered in `numeric` are set to the right.

    `long`: of names with dots and underscores, and values such as paths, which break where the page is narrow.
    """
    sides = ['class="n"' if column in numeric else "" for column in range(len(head))]

    def texts(row: Sequence[str]) -> list[str]:
        first, *rest = map(escape, row)
        return [re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", first) if long else first, *rest]

    top = "".join(f"<th {side}>{escape(text)}</th>" for text, side in zip(head, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {side}>{text}</td>" for text, side in zip(texts(row), sides, strict=True)) + "</tr>"
        for row in rows
    )
    opening = '<table class="long">' if long else "<table>"
    return (
        f'<div class="scroll">{opening}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>' if body else ""
    )


def folded(summary: str, content: str) -> str:
    """Content that opens on a click, '' for none."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def page(title: str, *parts: str) -> str:
    """The whole document."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )
