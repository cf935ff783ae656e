"""Run files: TOML with a comment for each key, made from the schema, and the line of each key in one.

`tomllib` forgets the lines, and an error message needs them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from hpckit.settings.apps import App
from hpckit.settings.schema import Schema, dotted, repr_toml

COMMENT: Any = {"initial_indent": "# ", "subsequent_indent": "# ", "break_long_words": False}
Key = tuple[str | int, ...]
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
# A string that ends on its line, or the marks that open one which does not.
_STRING = re.compile(
    r'"{3}(?:[^\\]|\\.)*?"{3}|(?P<open>"{3})|"(?:[^"\\]|\\.)*"|' r"'{3}.*?'{3}|(?P<open_literal>'{3})|'[^']*'"
)


def run_file_text(app: App, config: BaseModel) -> str:
    """`config` as a commented run file: description, allowed values and default of every key."""
    schema = Schema(app.config)
    values = config.model_dump(mode="json")
    defaults = default_config(app).model_dump(mode="json")
    head = [
        f"# {app.name}: {app.summary}",
        "#",
        "# Run it:               hpckit run FILE -n RANKS       (`hpckit init` lists presets)",
        "# What it would take:   hpckit run FILE -n RANKS --dry-run",
        "# One value changed:    hpckit run FILE section.key=value",
    ]
    return "\n".join([*head, "", *_table(schema, (), values, defaults)]).rstrip("\n") + "\n"


def default_config(app: App) -> BaseModel:
    """The configuration with nothing but the app's name said."""
    return app.config.model_validate({"app": app.name})


def _table(schema: Schema, path: tuple[str, ...], values: dict[str, Any], defaults: Any) -> Iterator[str]:
    """The lines of one table: first its own keys, then the tables in it."""
    tables = []
    for name in schema.keys(path):
        here = (*path, name)
        if schema.keys(here):
            tables.append(here)
        else:
            default = defaults.get(name) if isinstance(defaults, dict) else None
            yield from _key(schema, here, values.get(name), default)
    for here in tables:
        inner = values.get(here[-1])
        yield ""
        if description := schema.description(here):
            yield from wrap(description, 110, **COMMENT)
        if inner is None:
            yield f"# [{dotted(here)}]  (not given)"
        else:
            yield f"[{dotted(here)}]"
            yield from _table(schema, here, inner, defaults.get(here[-1]) if isinstance(defaults, dict) else None)


def _key(schema: Schema, path: tuple[str, ...], value: Any, default: Any) -> Iterator[str]:
    """Comment and assignment of one key; a value of None is a key that is not given."""
    if path != ("app",):
        notes = [schema.allowed(path)]
        if default != value:
            notes.append(f"default {'none' if default is None else repr_toml(default)}")
        yield from wrap(f"{schema.description(path)} ({'; '.join(notes)})".strip(), 110, **COMMENT)
    yield f"# {path[-1]} =" if value is None else f"{path[-1]} = {repr_toml(value)}"
    if path == ("app",):
        yield ""


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
