"""Where each key of a TOML file stands: `tomllib` forgets the lines, an error message needs them."""

from __future__ import annotations

import re
import tomllib

Key = tuple[str | int, ...]

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
# A string that ends on its line, or the marks that open one which does not.
_STRING = re.compile(
    r'"{3}(?:[^\\]|\\.)*?"{3}|(?P<open>"{3})|"(?:[^"\\]|\\.)*"|' r"'{3}.*?'{3}|(?P<open_literal>'{3})|'[^']*'"
)


def key_lines(text: str) -> dict[Key, int]:
    """The line (from 1) of every key and table of `text`, which is valid TOML.

    Keys inside an inline table or a list of tables in one value are not found: look up the key that holds them.
    """
    lines: dict[Key, int] = {}
    table: Key = ()
    count: dict[Key, int] = {}  # of [[name]] so far
    depth = 0  # of brackets left open by a value
    closing = ""  # of a string over several lines
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            if closing not in line:
                continue
            line = line.split(closing, 1)[1]
            closing = ""
        elif depth == 0:
            if header := _HEADER.match(line):
                table = _parts(header[2])
                if header[1] == "[[":
                    count[table] = count.get(table, -1) + 1
                    table = (*table, count[table])
                _note(lines, table, number)
                continue
            if assignment := _ASSIGNMENT.match(line):
                key = (*table, *_parts(assignment[1]))
                _note(lines, key, number)
                line = line[assignment.end() :]
        bare = _STRING.sub(lambda found: found["open"] or found["open_literal"] or "", line).split("#", 1)[0]
        for mark in ('"""', "'''"):
            if mark in bare:
                closing = mark
                bare = bare.split(mark, 1)[0]
        depth += sum(map(bare.count, "[{")) - sum(map(bare.count, "]}"))
    return lines


def line_of(lines: dict[Key, int], key: Key) -> int | None:
    """The line of `key`, or of the nearest table that holds it; None where there is neither."""
    while key:
        if key in lines:
            return lines[key]
        key = key[:-1]
    return None


def _note(lines: dict[Key, int], key: Key, number: int) -> None:
    """Remember the line of `key`, and that of the tables which it brings into being."""
    for length in range(1, len(key)):
        lines.setdefault(key[:length], number)
    lines[key] = number


def _parts(dotted: str) -> Key:
    """`a."b c".d` as its parts."""
    parts = re.findall(_PART, dotted)
    return tuple(str(tomllib.loads(f"v = {part}")["v"]) if part[0] in "\"'" else part for part in parts)
