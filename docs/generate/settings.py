"""The pages of all settings: one an app, made from the schema that `hpckit run` checks run files with."""

from __future__ import annotations

from typing import Any

from pieces import code, linked, table

from hpckit.run.settings import COMMON
from hpckit.settings.apps import App, apps
from hpckit.settings.run_file import default_config
from hpckit.settings.schema import Schema, dotted, repr_toml

Path = tuple[str | int, ...]

HEAD = """# Settings of the apps

A run file names its app and any of the settings below. [Run files](../../run-files.md) says how files, environment and
command line combine. `hpckit init APP my.toml` writes a file that explains all settings; `hpckit run my.toml
--show-config` prints the value and origin of each.

"""


def index() -> str:
    """The apps, and the sections that all of them have."""
    rows = [
        (f"[{name}]({file_name(name)})", app.summary, ", ".join(map(code, app.presets))) for name, app in apps().items()
    ]
    common = ", ".join(f"`[{name}]`" for name in COMMON)
    return (
        HEAD
        + table(("app", "what it is", "presets"), rows)
        + f"\nEvery app has {common} and `time.limit` beside its own.\n"
    )


def file_name(app: str) -> str:
    """The file of an app's page."""
    return app.replace("/", "-") + ".md"


def page(app: App) -> str:
    """Every key of one app: default, what it may be, meaning; and its presets with what they change."""
    schema = Schema(app.config)
    defaults = default_config(app).model_dump(mode="json")
    text = f"# {app.name}\n\n{_capital(app.summary)}.\n\n"
    if app.presets:
        text += table(("preset", "what it shows", "settings"), (_preset(app, name) for name in app.presets)) + "\n"
    return text + _section(schema, (), defaults)


def _preset(app: App, name: str) -> tuple[str, str, str]:
    words, values = app.presets[name]
    return code(name), words, " ".join(code(f"{key}={value}") for key, value in _flat(values))


def _flat(values: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted keys with their TOML values."""
    found = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, f"{path}{key}.")
        else:
            found.append((f"{path}{key}", repr_toml(value)))
    return found


def _section(schema: Schema, path: Path, defaults: Any) -> str:
    """One table of the run file, then the tables in it."""
    keys = [name for name in schema.keys(path) if (*path, name) != ("app",)]
    inner = [name for name in keys if schema.keys((*path, name))]
    listed = [name for name in keys if name not in inner and schema.keys((*path, name, 0))]
    text = ""
    if path:
        marks = f"[[{dotted(path[:-1])}]]" if path[-1] == 0 else f"[{dotted(path)}]"
        text += f"## {marks}\n\n{linked(_capital(_description(schema, path)), '../../')}\n\n"
    rows = [_row(schema, (*path, name), defaults) for name in keys if name not in inner]
    text += table(("key", "default", "may be", "meaning"), rows) + "\n" if rows else ""
    for name in inner:
        text += _section(schema, (*path, name), defaults.get(name) if isinstance(defaults, dict) else None)
    for name in listed:
        text += _section(schema, (*path, name, 0), None)
    return text


def _row(schema: Schema, path: Path, defaults: Any) -> tuple[str, str, str, str]:
    value = defaults.get(path[-1]) if isinstance(defaults, dict) else None
    default = "" if value is None else code(repr_toml(value))
    return code(path[-1]), default, schema.allowed(path), linked(_description(schema, path), "../../")


def _description(schema: Schema, path: Path) -> str:
    """What the schema says of a key; an entry of a list of tables has none of its own beside that of its type."""
    if path[-1] == 0:
        return next((node["description"] for node in schema.at(path) if "description" in node), "")
    return schema.description(path)  # type: ignore[arg-type]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
