"""HTML from plain values, with its style sheet (narrow, printable); every text that comes from a run is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any


def escape(value: Any) -> str:
    """A value as text, escaped for HTML."""
    return html.escape(str(value))


def section(title: str, *parts: str) -> str:
    """A titled part of the page, which the table of contents lists; '' when nothing is in it."""
    content = "".join(part for part in parts if part)
    place = re.sub(r"\W+", "-", title.lower()).strip("-")
    return f'<section id="{place}"><h2>{escape(title)}</h2>{content}</section>' if content else ""


def caption(text: str) -> str:
    """A line of explanation in gray, '' for none."""
    return f'<p class="caption">{escape(text)}</p>' if text else ""


def grid(pictures: Iterable[str], alike: bool = False, flat: bool = False) -> str:
    """Pictures beside one another as the width allows, in rows that are full; '' for none.

    A wide window has three in a row; where that leaves one or two over, the last rows have two. alike: pictures that
    are compared with each other keep one size where rows of both lengths would be needed. flat: two in a row at most.
    """
    shown = [picture for picture in pictures if picture]
    if len(shown) < 2:
        return f'<div class="grid two">{shown[0]}</div>' if shown else ""
    if flat:
        return f'<div class="grid alike flat two">{"".join(shown)}</div>'
    pairs = (-len(shown)) % 3  # rows of two at the end
    cut = len(shown) - 2 * pairs
    if alike and cut and pairs:
        return f'<div class="grid alike">{"".join(shown)}</div>'
    rows = [shown[i : i + 3] for i in range(0, cut, 3)] + [shown[i : i + 2] for i in range(cut, len(shown), 2)]
    return "".join(f'<div class="grid{" two" * (len(row) < 3)}">{"".join(row)}</div>' for row in rows)


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
    """The whole document, with a table of contents below its header."""
    shown = [part for part in parts if part]
    found = [each for part in shown for each in re.findall(r'<section id="([^"]*)"><h2>(.*?)</h2>', part)]
    if len(found) > 2 and shown[0].startswith("<header>"):
        links = "".join(f'<a href="#{place}">{title}</a>' for place, title in found)
        shown.insert(1, f'<nav aria-label="contents">{links}</nav>')
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(shown)
        + "\n</main></body></html>\n"
    )


CSS = """
:root { --ink: #1f2933; --muted: #64727f; --line: #e3e7eb; --accent: #0f6674; --paper: #fff; --wash: #f6f8f9; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 28px 64px; }
header { border-bottom: 1px solid var(--line); padding-bottom: 22px; margin-bottom: 26px; }
.kicker { color: var(--muted); font-size: 13px; margin: 0 0 4px; overflow-wrap: anywhere; }
h1 { font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; margin: 0 0 8px; }
h2 { font-size: 19px; font-weight: 650; letter-spacing: -0.005em; margin: 44px 0 6px; }
h3 { font-size: 15px; font-weight: 600; margin: 22px 0 2px; }
h3 span, .caption { color: var(--muted); font-weight: 400; }
p { margin: 0 0 10px; max-width: 78ch; }
.caption { font-size: 13px; }
.verdict { font-size: 16px; margin: 0; }
.status { display: inline-block; padding: 1px 10px; border-radius: 99px; font-size: 13px; font-weight: 600;
  vertical-align: 5px; margin-left: 10px; background: #eef1f3; color: #44515c; letter-spacing: 0; }
.status.done { background: #e0f0ee; color: #0b5a52; }
.status.failed { background: #fae3dd; color: #96331a; }
.status.stopped { background: #fbf0d9; color: #7a5510; }
.cards { display: flex; flex-wrap: wrap; gap: 1px; background: var(--line);
  border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.card { background: var(--paper); padding: 13px 16px 12px; flex: 1 0 calc(100% / var(--columns, 5) - 1px); }
.card b { display: block; font-size: 21px; line-height: 1.25; font-weight: 600; letter-spacing: -0.01em; }
.card b small { font-size: 13.5px; font-weight: 500; color: var(--muted); letter-spacing: 0; }
.card span { color: var(--muted); font-size: 13px; }
.formula { color: var(--muted); font-size: 13px; margin: 9px 0 0; max-width: none; }
ul.findings { list-style: none; margin: 22px 0 0; padding: 0; }
ul.findings li { border-left: 3px solid #b8c2cb; background: var(--wash); padding: 8px 14px; margin: 0 0 6px;
  border-radius: 0 6px 6px 0; }
ul.findings li.warning { border-color: #d9a441; background: #fdf8ec; }
ul.findings li.error { border-color: #c8502f; background: #fdf1ed; }
ul.findings em { font-style: normal; color: var(--muted); display: block; font-size: 14px; }
.failure { border: 1px solid #efc4b7; background: #fdf5f2; border-radius: 8px; padding: 16px 20px; margin: 0 0 24px; }
.failure h2 { margin: 0 0 6px; color: #96331a; }
.failure dl { display: grid; grid-template-columns: 5.5em 1fr; gap: 2px 10px; margin: 8px 0 0; }
.failure dt { color: var(--muted); } .failure dd { margin: 0; overflow-wrap: anywhere; }
.grid { display: flex; flex-wrap: wrap; gap: 8px 18px; margin-top: 8px; align-items: flex-start; }
.grid > * { flex: 1 1 300px; min-width: 0; }
.alike > * { flex: 0 1 calc(100% / 3 - 12px); min-width: 260px; }
.flat > * { flex-basis: calc(100% / 2 - 9px); }
@media (min-width: 1000px) { .two { --text: 0.76; } } /* larger pictures, the letters of those in rows of three */
figure { margin: 0; } figure:has(> .wide) { max-width: 820px; } figure:has(> .chart) { max-width: 520px; }
.data { display: inline-block; margin: 4px 14px 0 0; font-size: 12px; line-height: 1.2; color: var(--muted); }
.data { text-decoration: none; } .data:hover { text-decoration: underline; }
.grid > .panel:only-child, .grid > .chart:only-child { max-width: 520px; }
nav { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: 14px; margin: -12px 0 24px; }
nav a { color: var(--accent); text-decoration: none; } nav a:hover { text-decoration: underline; }
svg { display: block; width: 100%; height: auto; }
.bar { max-width: 380px; margin: 6px 0 2px; }
.chart { max-width: 520px; }
.wide { max-width: 820px; } .roof { max-width: 620px; }
.film label { display: block; color: var(--muted); font-size: 13px; margin: 4px 0 8px; }
.film img { max-width: 100%; height: auto; }
.film .strip { display: none; grid-template-columns: repeat(2, 1fr); gap: 6px; max-width: 900px; }
.film .strip img { width: 100%; }
.film:has(input:checked) .motion { display: none; } .film:has(input:checked) .strip { display: grid; }
@media (prefers-reduced-motion: reduce) {
  .film .motion, .film label { display: none; } .film .strip { display: grid; }
}
.side { display: grid; grid-template-columns: minmax(280px, 400px) 1fr; gap: 12px 36px; align-items: center; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; margin: 8px 0 4px; }
th { text-align: left; font-weight: 500; color: var(--muted); font-size: 13px; border-bottom: 1px solid #c5ced6; }
th, td { padding: 4px 22px 4px 0; vertical-align: top; }
td { border-bottom: 1px solid var(--line); }
.long td:first-child { white-space: nowrap; }
.long td + td { overflow-wrap: anywhere; }
.n { text-align: right; white-space: nowrap; }
.name { white-space: nowrap; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 8px; }
details { margin-top: 10px; } summary { cursor: pointer; color: var(--accent); }
pre { background: var(--wash); padding: 12px 14px; border-radius: 6px; overflow-x: auto; font-size: 12.5px;
  line-height: 1.45; white-space: pre-wrap; overflow-wrap: anywhere; }
footer { margin-top: 52px; border-top: 1px solid var(--line); padding-top: 12px; color: var(--muted); font-size: 13px; }
@media (max-width: 640px) {
  main { padding: 20px 16px 40px; } h1 { font-size: 24px; } .side { grid-template-columns: 1fr; }
  .grid > * { flex-basis: 100%; } .alike > * { flex-grow: 1; }
  .card { flex-basis: calc(50% - 1px); }
  th, td { padding-right: 9px; font-size: 13px; } .long td:first-child { white-space: normal; }
  .pan, figure:has(> .wide) { overflow-x: auto; } .pan svg, figure > .wide { width: 680px; }
}
@media print {
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } h2 { break-after: avoid; }
  .film .motion, .film label { display: none; } .film .strip { display: grid; }
  nav, .data { display: none; } .grid > * { flex-basis: 30%; }
  svg, .film, tr, li, .card, .failure { break-inside: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
