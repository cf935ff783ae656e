"""Writing run files: TOML with a comment for each key, made from the schema."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from hpckit.settings.apps import App
from hpckit.settings.schema import Schema, dotted, repr_toml

COMMENT: Any = {"initial_indent": "# ", "subsequent_indent": "# ", "break_long_words": False}


def run_file_text(app: App, config: BaseModel) -> str:
    """`config` as a commented run file: description, allowed values and default of every key."""
    schema = Schema(app.config)
    values = config.model_dump(mode="json")
    defaults = default_config(app).model_dump(mode="json")
    head = [
        f"# {app.name}: {app.summary}",
        "#",
        f"# Run it:               hpckit run FILE -n RANKS       (presets: hpckit init {app.name} lists them)",
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
