"""From what the user said to a checked configuration: every mistake in one pass, each with its place."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hpckit.errors import InputError, did_you_mean
from hpckit.settings.apps import App, app_in, apps, find_preset, in_folder
from hpckit.settings.layers import (
    USER_FILE,
    Mistake,
    Settings,
    SettingsLayer,
    command_line_layer,
    environment_layer,
    read_toml,
)
from hpckit.settings.run_file import Key, run_file_text
from hpckit.settings.schema import Schema, dotted, known_as, repr_toml

MOST_MISTAKES = 100  # that are looked into
# Names that other programs give to what is an option here.
OPTIONS = {
    **dict.fromkeys(
        ("directory", "dir", "folder", "outdir", "output_dir", "output_directory", "run_dir"),
        "the folder of a run is an option: --directory DIR",
    ),
    **dict.fromkeys(("np", "nprocs", "n_ranks", "num_ranks", "nranks"), "the number of ranks is an option: -n RANKS"),
}
BEYOND = "these settings lead to numbers that the computer cannot hold"


@dataclass(frozen=True)
class Configuration:
    """What a run is to do: the checked settings of an app, where each value comes from, and the run file's text."""

    app: App
    config: BaseModel
    title: str
    origins: dict[str, str]
    run_file: str

    def values(self) -> dict[str, Any]:
        """The settings as nested plain values."""
        return self.config.model_dump(mode="json")

    def leaves(self) -> Iterator[tuple[str, Any, str]]:
        """(key, value, origin) of every setting, in the order of the schema."""
        for path in Schema(self.app.config).leaves():
            value: Any = self.values()
            for part in path:
                value = value.get(part) if isinstance(value, dict) else None
            yield dotted(path), value, self.origins.get(dotted(path), "default")


def load(target: str, words: list[str], environment: Mapping[str, str] | None = None) -> Configuration:
    """The configuration that `target` (a run file, a preset or an app) and `key=value` words ask for.

    Raises `InputError` that lists every mistake with its file, line and key.
    """
    environment = os.environ if environment is None else environment
    app, base, text, title = _base_layer(target)
    schema = Schema(app.config)
    settings = Settings()
    command_line, mistakes = command_line_layer(words, schema)
    variables, wrong_variables = environment_layer(environment, schema)
    mistakes += wrong_variables
    for layer in (_user_layer(environment, app), base, variables, command_line):
        mistakes += settings.add(layer)
    settings.resolve_files(schema)
    endless = {
        dotted(path): layer.origin(path)
        for path, value, layer in settings.leaves()
        if isinstance(value, int | float) and not _is_finite(value)
    }
    config, wrong = None, list[Mistake]()
    try:
        config = check(app.config, settings.tree)
    except ValidationError as error:
        wrong = mistakes_of(error, schema, settings, base.source)
        wrong += _contradictions(app.config, error, schema, settings, base.source)
        wrong = [each for each in wrong if not each.text.startswith(tuple(f"{key} = " for key in endless))]
    except ArithmeticError as error:
        wrong = [Mistake(base.source, f"{BEYOND}: {error.args[-1] if error.args else error}")]
    unknown = [key for key in endless if any(each.text.startswith(f"{key}: unknown key") for each in wrong)]
    mistakes += [Mistake(where, f"{key}: must be finite") for key, where in endless.items() if key not in unknown]
    mistakes += wrong
    if config is None or mistakes:
        raise _listed(mistakes)
    origins = {dotted(path): settings.origin(path) for path in schema.leaves()}
    head = "".join(f"# {note}\n" for note in base.notes)
    return Configuration(app, config, title, origins, text or head + run_file_text(app, config))


def _is_finite(value: float) -> bool:
    """Whether floating point has a finite number near it: an integer of 400 digits would become infinite."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check(config: type[BaseModel], tree: Mapping[str, Any]) -> BaseModel:
    """`tree` as `config`: strictly, so that a text is not a number and true is not 1.

    Raises pydantic's `ValidationError`.
    """
    return config.model_validate_json(json.dumps(tree, default=str), strict=True)


def is_run_file(target: str) -> bool:
    """`target` is meant as a file, not as the name of a preset, as APP/PRESET, or as the folder of an app."""
    if in_folder(target) is not None:
        return False
    named = target.rpartition("/")[0] in apps() or target in apps()
    return target.endswith(".toml") or Path(target).exists() or ("/" in target and not named)


def mistakes_of(error: ValidationError, schema: Schema, settings: Settings, source: str) -> list[Mistake]:
    """Pydantic's errors as sentences with key, value given and values allowed; `source` where a mistake has no key and
    its sentence names none.
    """
    return [
        Mistake(settings.place(path) or _named_place(sentence, settings) or source, sentence)
        for entry in error.errors(include_url=False)[:MOST_MISTAKES]
        for path in [_path_in(entry["loc"], settings.tree, schema)]
        for sentence in _sentence(entry, path, schema).splitlines()  # a check of all settings may tell several
    ]


def _named_place(sentence: str, settings: Settings) -> str:
    """Where the first setting that a sentence names was said, or the list that holds it; empty if none was."""
    for name in re.findall(r"[a-z]\w*(?:\.\w+)+", sentence):
        place = settings.origin(tuple(int(part) if part.isdigit() else part for part in name.split(".")))
        if place != "default":
            return place
    return ""


def _contradictions(
    config: type[BaseModel], error: ValidationError, schema: Schema, settings: Settings, source: str
) -> list[Mistake]:
    """What the check of all settings together finds once the values that `error` refuses are left at their defaults.

    Pydantic makes that check only where every value by itself is good.
    """
    tree = copy.deepcopy(settings.tree)
    dropped: list[str] = []
    for _ in range(4):  # a table whose values are good now may contradict itself
        paths = [_path_in(entry["loc"], tree, schema) for entry in error.errors(include_url=False)]
        if () in paths:
            found = [entry for entry, path in zip(error.errors(include_url=False), paths, strict=True) if not path]
            condition = f" (with {' and '.join(dict.fromkeys(dropped))} as by default)" if dropped else ""
            lines = [line for entry in found for line in _sentence(entry, (), schema).splitlines()]
            said = [Mistake(_named_place(line, settings) or source, line + condition) for line in lines]
            return said if dropped else []
        dropped += [dotted(gone) for path in paths if (gone := _drop(tree, path))]
        try:
            check(config, tree)
        except ValidationError as next_error:
            error = next_error
        except ArithmeticError:
            return []
        else:
            return []
    return []


def _drop(tree: dict[str, Any], path: Key) -> Key:
    """Take the value at a path out of a tree, with the list that it is in or is missing in; returns the path of what is
    gone, empty where it was gone before.
    """
    table: Any = tree
    outer: tuple[dict[Any, Any], Key] | None = None  # the table of the last list on the way, and the list's path
    for depth, part in enumerate(path[:-1]):
        inside = part in table if isinstance(table, dict) else isinstance(table, list) and int(part) < len(table)
        if not inside:
            return ()
        if isinstance(table[part], list):
            outer = table, path[: depth + 1]
        table = table[part]
    if isinstance(table, dict) and path[-1] in table:
        del table[path[-1]]
        return path
    if outer is None:
        return ()
    del outer[0][outer[1][-1]]
    return outer[1]


def _base_layer(target: str) -> tuple[App, SettingsLayer, str, str]:
    """App, layer, text and title of a run file or preset; the text is empty for a preset."""
    if not is_run_file(target):
        app, preset = find_preset(target)
        tree = {"app": app.name, **(app.presets[preset][1] if preset else {})}
        return app, SettingsLayer(f"preset {preset}" if preset else f"app {app.name}", tree, app.folder), "", preset
    path = Path(target)
    if path.suffix != ".toml" and path.is_file():
        for app in apps().values():
            if (script := app.script_module) is not None and script.reads(path):
                found = script.settings_of(path)
                notes = (f"made from {path.name}", *found.notes)
                return app, SettingsLayer(target, found.tree, path.parent, found.lines, notes=notes), "", _title(path)
    same = [f"{app.name}/{target}" for app in apps().values() if path.is_dir() and target in app.presets]
    try:
        layer = read_toml(path, target)
    except InputError as problem:
        problem.likely = problem.likely or (f"the preset was meant, which is {' or '.join(same)}" if same else "")
        raise
    name = layer.tree.get("app")
    if name is None:
        raise InputError(f"{target} does not say which app it is for", do=f'add app = "…": {", ".join(apps())}')
    other = apps().get(str(name)) or app_in(path.parent / str(name))
    if other is None:
        where = layer.origin(("app",))
        near = did_you_mean(str(name), apps())
        raise InputError(f"{where}: no app {name!r}", likely=near, do=f"apps: {', '.join(apps())}")
    return other, layer, layer.text, path.stem


def _title(script: Path) -> str:
    """The title of a run from an input of another program: in.eam is eam."""
    return script.name.removeprefix("in.") if script.name.startswith("in.") else script.stem


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of what hpckit measured or made for this user: below XDG_CACHE_HOME, else ~/.cache."""
    return Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "hpckit"


def _user_layer(environment: Mapping[str, str], app: App) -> SettingsLayer:
    """The table of `app` in the user file: `[weather.output]` there is `[output]` here."""
    given = environment.get("HPCKIT_CONFIG", "")
    path = Path(given) if given else USER_FILE.expanduser()
    if given == os.devnull or (not given and not path.exists()):
        return SettingsLayer("user file", {}, Path.cwd())
    layer = read_toml(path, str(path))
    unknown = [name for name in layer.tree if name not in (*apps(), app.name)]
    if unknown:
        raise InputError(
            f"{layer.origin((unknown[0],))}: no app {unknown[0]!r}; the user file has one table for each app",
            likely=did_you_mean(unknown[0], apps()),
            do=f"write [{app.name}.SECTION] and the keys below it",
        )
    tree = layer.tree.get(app.name, {})
    if not isinstance(tree, dict):
        raise InputError(f"{layer.origin((app.name,))}: {app.name} is a table here", do=f"write [{app.name}.SECTION]")
    lines = {key[1:]: line for key, line in layer.lines.items() if key[0] == app.name and key[1:]}
    return SettingsLayer(str(path), tree, layer.base, lines)


def _path_in(loc: tuple[int | str, ...], tree: Any, schema: Schema) -> Key:
    """Pydantic's location without the names of union members, which are not keys."""
    path: list[int | str] = []
    for part in loc:
        known = isinstance(tree, dict) and part in tree
        known = known or (isinstance(tree, list) and isinstance(part, int) and part < len(tree))
        if known or bool(schema.at([*path, part])):
            path.append(part)
            tree = tree[part] if known else None
    if loc and not path:
        path = [loc[0]]
    return tuple(path)


def _sentence(entry: Any, path: Key, schema: Schema) -> str:
    """What is wrong with the value at `path`."""
    key = dotted(path)
    given = entry["input"]
    shown = repr_toml(given) if not isinstance(given, (dict, BaseModel)) and given is not None else ""
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    kind = entry["type"]
    if kind == "extra_forbidden":
        if option := OPTIONS.get(str(path[-1])):
            return f"{key}: unknown key; {option}"
        near = schema.nearest(path)
        hint = f"did you mean {near}?" if near else f"known here: {', '.join(schema.keys(path[:-1]))}"
        return f"{key}: unknown key; {hint}"
    if kind == "missing":
        return f"{key}: missing; give {schema.allowed(path)}"
    if kind == "value_error":
        reason = str(entry["ctx"]["error"])
        return f"{key} = {shown}: {reason}" if shown else f"{key}: {reason}" if key else reason
    allowed = schema.allowed(path)
    message = entry["msg"].replace("Input should be", "must be")
    text = f"{f'{key} = {shown}' if shown else key}: {message if not allowed else 'expected ' + allowed}"
    choices = _choices(schema, path)
    if isinstance(given, str) and (meant := known_as(given, choices)):
        return f"{text}; {given} of other programs is {' or '.join(map(repr, meant))}"
    close = did_you_mean(given, choices) if isinstance(given, str) else ""
    return f"{text}; {close}" if close else text


def _choices(schema: Schema, path: Key) -> list[str]:
    """The texts that a key with a fixed choice may have."""
    nodes = schema.at(path)
    return [
        str(value) for node in nodes for value in [*node.get("enum", []), *([node["const"]] if "const" in node else [])]
    ]


def _listed(mistakes: list[Mistake]) -> InputError:
    """One error that lists all mistakes."""
    lines = list(dict.fromkeys(str(mistake) for mistake in mistakes))
    if len(lines) == 1:
        return InputError(lines[0])
    return InputError("\n".join([f"{len(lines)} mistakes", *(f"  {line}" for line in lines)]))
