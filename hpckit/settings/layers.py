"""The layers of settings, each with its origin: defaults < user file < run file < environment < command line."""

from __future__ import annotations

import copy
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_toml, read_text
from hpckit.settings.run_file import Key, key_lines, line_of
from hpckit.settings.schema import Schema, dotted, repr_toml

ENVIRONMENT_PREFIX = "HPCKIT_"
RESERVED = {"HPCKIT_CONFIG", "HPCKIT_SITE"}  # variables of that prefix that are not settings
MOST_BYTES = 1 << 20  # of a run file
PLACE = re.compile("[0-9]{1,6}")  # of a table in a list
USER_FILE = Path("~/.config/hpckit/config.toml")


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with the settings: where it was said, and what would be right."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


@dataclass(frozen=True)
class SettingsLayer:
    """Settings from one source: `tree` is nested tables, `base` the folder that its file names are relative to; `notes`
    go to the head of the run file.
    """

    source: str
    tree: dict[str, Any]
    base: Path
    lines: dict[Key, int] = field(default_factory=dict)
    text: str = ""
    notes: tuple[str, ...] = ()

    def origin(self, path: Key) -> str:
        """Where the value at `path` was said: `weather.toml:12`."""
        line = line_of(self.lines, path)
        return f"{self.source}:{line}" if line else self.source


@dataclass
class Settings:
    """The layers merged into one tree of values, and for each leaf the layer that said it."""

    tree: dict[str, Any] = field(default_factory=dict)
    owner: dict[Key, SettingsLayer] = field(default_factory=dict)

    def add(self, layer: SettingsLayer) -> list[Mistake]:
        """Lay `layer` over what is there; returns the mistakes in its form."""
        return list(self._merge(self.tree, layer.tree, layer, ()))

    def _merge(
        self, below: dict[str, Any], above: Mapping[str, Any], layer: SettingsLayer, path: Key
    ) -> Iterator[Mistake]:
        for name, value in above.items():
            here = (*path, name)
            old = below.get(name, value)
            if isinstance(old, list) and isinstance(value, dict) and value and all(map(PLACE.fullmatch, value)):
                below[name] = old = copy.deepcopy(old)  # a preset's list stays as it is
                self.owner[here] = layer
                yield from self._merge_list(old, value, layer, here)
            elif isinstance(old, dict) != isinstance(value, dict):
                if isinstance(value, dict):
                    said = f": a table here and a value in {self.origin(here)}"
                else:
                    known = f", as in {dotted((*here, next(iter(old))))}" if old else ""
                    said = f" = {repr_toml(value)}: expected a table{known}"
                yield Mistake(layer.origin(here), dotted(here) + said)
            elif isinstance(value, dict):
                yield from self._merge(below.setdefault(name, {}), value, layer, here)
                if not value:
                    self.owner[here] = layer
            else:
                below[name] = value
                self.owner[here] = layer

    def _merge_list(
        self, below: list[Any], above: Mapping[str, Any], layer: SettingsLayer, path: Key
    ) -> Iterator[Mistake]:
        """`bubbles.0.x = 5` changes a table of a list, all of which belongs to `layer` then."""
        for number, value in above.items():
            here = (*path, number)
            if int(number) >= len(below):
                known = f"0 to {len(below) - 1}" if below else "none"
                yield Mistake(layer.origin(here), f"{dotted(here)}: {dotted(path)} has {known}; give the whole list")
            elif isinstance(below[int(number)], dict) and isinstance(value, dict):
                yield from Settings(below[int(number)])._merge(below[int(number)], value, layer, here)
            else:
                below[int(number)] = value

    def origin(self, path: Key) -> str:
        """Where the value at `path` was set; `default` if it was not."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.owner:
                return self.owner[path[:length]].origin(path)
        return "default"

    def place(self, path: Key) -> str:
        """Where a mistake at `path` was made: its own place, else that of a key inside it, else of its table."""
        while path:
            if path in self.owner:
                return self.owner[path].origin(path)
            inside = [layer for key, layer in self.owner.items() if key[: len(path)] == path]
            if inside:
                return inside[-1].origin(path)
            path = path[:-1]
        return ""

    def leaves(self) -> Iterator[tuple[Key, Any, SettingsLayer]]:
        """(path, value, layer) of everything that was said."""
        for path, layer in self.owner.items():
            yield path, self._table(path)[path[-1]], layer

    def resolve_files(self, schema: Schema) -> None:
        """Make the names of input files absolute, each relative to the folder of its layer."""
        for path, value, layer in self.leaves():
            if schema.is_input_file(path) and isinstance(value, str) and value:
                self._table(path)[path[-1]] = str(layer.base / Path(value).expanduser())

    def _table(self, path: Key) -> Any:
        """The table that holds the last part of `path`."""
        table: Any = self.tree
        for part in path[:-1]:
            table = table[part]
        return table


def read_toml(path: Path, shown: str) -> SettingsLayer:
    """The layer of a TOML file, shown to the user as `shown`.

    Raises `InputError` with the line if it cannot be read or is not TOML.
    """
    do = "hpckit init APP FILE writes a run file to start from"
    if path.is_dir():
        inner = path / "run.toml"
        if inner.exists():
            again, on = shlex.quote(str(inner)), shlex.quote(shown)
            raise InputError(f"{shown} is a folder, that of a run", do=f"hpckit resume {on}, or hpckit run {again}")
        do = f"hpckit init --app NAME makes an app of your own; {do}"
        raise InputError(f"{shown} is a folder without an app's config.py", do=do)
    if not path.exists():
        raise InputError(f"there is no file {shown}", do=do)
    text = read_text(path, "the run file", MOST_BYTES, do)
    try:
        tree = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, text, shown) from None
    except ValueError as error:  # beyond the limits
        raise InputError(f"{shown} is not read: {error}", do=do) from None
    return SettingsLayer(shown, tree, path.absolute().parent, key_lines(text), text)


def environment_layer(environment: Mapping[str, str], schema: Schema) -> tuple[SettingsLayer, list[Mistake]]:
    """`HPCKIT_GRID__NX=100` as `grid.nx = 100`; the origin names the variable."""
    tree: dict[str, Any] = {}
    mistakes = []
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in RESERVED:
            path = tuple(variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
            if not _put(tree, path, _value(environment[variable], schema, path)):
                mistakes.append(Mistake(f"environment {variable}", f"another variable gives {dotted(path)} a value"))
    return _EnvironmentLayer("environment", tree, Path.cwd()), mistakes


class _EnvironmentLayer(SettingsLayer):
    """Names the variable instead of a line."""

    def origin(self, path: Key) -> str:
        names = "__".join(part for part in path if isinstance(part, str))
        return f"{self.source} {ENVIRONMENT_PREFIX}{names.upper()}"


def refuse_dashes(words: Iterable[str]) -> None:
    """Raise `InputError` for settings that are given as options: `--grid.nx=400`."""
    wrong = [word for word in words if re.fullmatch(r"--?[A-Za-z_]\w*(\.\w+)+(=.*)?", word, re.DOTALL)]
    if wrong:
        meant = " ".join(word.lstrip("-") if "=" in word else f"{word.lstrip('-')}=VALUE" for word in wrong)
        raise InputError(f"{', '.join(wrong)}: settings go without dashes", do=f"give {meant}")


def command_line_layer(words: list[str], schema: Schema) -> tuple[SettingsLayer, list[Mistake]]:
    """`key=value` words as a layer; values are TOML, and bare words are texts."""
    tree: dict[str, Any] = {}
    mistakes = []
    for number, word in enumerate(words):
        key, equals, text = word.partition("=")
        path = tuple(key.split("."))
        if not equals and number and _apart(words[number - 1], word, schema):
            continue  # told with the key before it
        if not equals and number + 1 < len(words) and _apart(word, words[number + 1], schema):
            value = words[number + 1]
            mistakes.append(Mistake("command line", f"'{word} {value}': did you mean {word}={value}?"))
        elif not equals or not all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in path):
            mistakes.append(Mistake("command line", f"{word!r}: expected key=value, as in grid.nx=100"))
        elif not _put(tree, path, _value(text, schema, path)):
            others = [repr(other) for other in words[:number] if other.partition("=")[0] == key]
            given = ", ".join(others) or "another word"
            part = "" if others else " or a part of it"
            mistakes.append(Mistake("command line", f"{word!r}: {given} gives {key}{part} a value"))
    return SettingsLayer("command line", tree, Path.cwd()), mistakes


def _apart(key: str, value: str, schema: Schema) -> bool:
    """Whether two words are a setting and its value without the = between them: `grid.nx 400`."""
    return "=" not in key + value and bool(schema.at(key.split("."))) and not schema.at(value.split("."))


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> bool:
    """Set the value at `path`; False where another value already stands in the way."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            return False
    kept = tree.setdefault(path[-1], value)
    return kept is value or kept == value


def _value(text: str, schema: Schema, path: Key) -> Any:
    """`text` as a TOML value, or unchanged if it is not TOML or the schema wants text."""
    try:
        value = parse_toml(f"v = {text}")["v"]
    except ValueError:
        return text
    return text if not isinstance(value, str) and schema.is_text(path) else value


def _syntax_error(error: tomllib.TOMLDecodeError, text: str, shown: str) -> InputError:
    """The place and the line of a mistake that ends the reading of the file."""
    reason, _, place = str(error).partition(" (at ")
    found = re.match(r"line (\d+), column (\d+)", place)
    lines = text.splitlines()
    number = int(found[1]) if found else len(lines)
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return InputError(
        f"{shown}:{number}: {reason}" + (f", in: {line}" if line else ""),
        likely="a text without quotes, or a bracket or quote left open" if "value" in reason.lower() else "",
        do='lines are `key = value`, sections `[name]`, texts stand in "quotes" (https://toml.io)',
    )
