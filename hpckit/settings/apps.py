"""The apps: those of hpckit, and those that other packages bring by an entry point of the group `hpckit.apps`."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from hpckit.errors import InputError, did_you_mean
from hpckit.run.settings import with_common

if TYPE_CHECKING:
    from hpckit.run.context import DryRun

ENTRY_POINTS = "hpckit.apps"
OURS = "hpckit.apps."  # what the names of our packages begin with


@dataclass(frozen=True)
class App:
    """A program that `hpckit run` starts: `package` holds the modules `config` (schema, presets) and `run`.

    home: the folder that holds the package, if it is not installed.
    """

    name: str
    package: str
    home: str = ""

    def _module(self, name: str) -> ModuleType:
        make_importable(self.home)
        return importlib.import_module(f"{self.package}.{name}")

    def _optional_module(self, name: str) -> ModuleType | None:
        make_importable(self.home)
        found = importlib.util.find_spec(f"{self.package}.{name}")
        return self._module(name) if found else None

    @property
    def config_module(self) -> ModuleType:
        """The module with `Config`, `PRESETS` and `SUMMARY`."""
        return self._module("config")

    @property
    def run_module(self) -> ModuleType:
        """The module with `run`; importing it may load kernels."""
        return self._module("run")

    def dry_run(self, config: BaseModel, ranks: int) -> DryRun:
        """The cost of `run` on that many ranks, as `dry_run` finds it: in its module `layout`, which loads no kernels,
        or else in `run`. Raises the errors that `run` would raise before its start.
        """
        found = getattr(self._optional_module("layout"), "dry_run", None) or self.run_module.dry_run
        return found(config, ranks)

    @property
    def report_module(self) -> ModuleType | None:
        """The module with what it adds to reports (`hpckit.report.extension`), None for an app without one."""
        return self._optional_module("report")

    @property
    def script_module(self) -> ModuleType | None:
        """The module that reads inputs of another program as settings, with `reads` and `settings_of`: the one that
        `SCRIPTS` in its `config` names; None without that.
        """
        name = getattr(self.config_module, "SCRIPTS", None)
        return self._module(name) if name else None

    @property
    def scaling_module(self) -> ModuleType | None:
        """The module that tells scaling studies of it (`hpckit.apps.common.scaling`), None for an app without one."""
        return self._optional_module("scaling")

    @property
    def config(self) -> type[BaseModel]:
        """The schema of its settings: its own, and those that every app has."""
        return with_common(self.config_module.Config)

    @property
    def presets(self) -> dict[str, tuple[str, dict]]:
        """Preset name -> (one-line description, settings)."""
        return self.config_module.PRESETS

    def may_have(self, preset: str) -> bool:
        """Whether its modules have this word as a key, as those of hpckit do if it is one of their presets; True for
        others, whose presets may be made by a program.

        To know more they are imported, which takes much longer than to look at their text.
        """
        if not self.package.startswith(OURS):
            return True
        make_importable(self.home)
        found = importlib.util.find_spec(self.package)
        places = (found.submodule_search_locations or ()) if found else ()
        files = (path for place in places for path in Path(place).glob("*.py"))
        key = re.compile(rf"""["']{re.escape(preset)}["']:\s*\(""")  # name: (description, settings)
        return any(key.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)

    @property
    def summary(self) -> str:
        """One line about it."""
        return self.config_module.SUMMARY

    @property
    def units(self) -> dict[str, str]:
        """The unit of each of its metrics, for reports, as far as its `config` says: `METRICS`."""
        return getattr(self.config_module, "METRICS", {})

    @property
    def has_gpu_form(self) -> bool:
        """Whether its fields can live on a GPU: `GPU = True` in its `config`."""
        return bool(getattr(self.config_module, "GPU", False))

    def device_problems(self, config: BaseModel, gpu: bool) -> list[str]:
        """What of these settings it cannot do on a GPU, or cannot do without: `device_problems` in its `config`."""
        tell = getattr(self.config_module, "device_problems", None)
        found = list(tell(config, gpu)) if tell else []
        checks = getattr(config, "checks", None)
        if gpu and checks is not None and checks.messages:
            found.append("checks.messages = true takes fields on the host: leave it out, or --gpu")
        return found

    @property
    def folder(self) -> Path:
        """Where its modules and data files are."""
        return Path(str(self.config_module.__file__)).parent


@cache
def apps() -> dict[str, App]:
    """All apps by name, in alphabetical order. An app in the folder of another is called OUTER/INNER."""
    folders = [Path(folder) for folder in importlib.import_module("hpckit.apps").__path__]
    found = {}
    for outer in pkgutil.iter_modules([str(folder) for folder in folders]):
        inner = pkgutil.iter_modules([str(folder / outer.name) for folder in folders])
        for name in (outer.name, *(f"{outer.name}/{module.name}" for module in inner if module.ispkg)):
            if any((folder / name / "config.py").exists() for folder in folders):
                found[name] = App(name, f"{OURS}{name.replace('/', '.')}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(entry.name, App(entry.name, entry.value))
    return dict(sorted(found.items()))


def make_importable(home: str) -> None:
    """Put the folder of an app that is not installed on Python's path."""
    if home and home not in sys.path:
        sys.path.insert(0, home)


def app_in(folder: Path) -> App | None:
    """The app in a folder that holds its modules, None for another folder.

    Raises `InputError` if the folder's name is none of Python's, or if another package of this name is in the way.
    """
    if not all((folder / name).is_file() for name in ("config.py", "run.py")):
        return None
    folder = folder.resolve()
    spec = importlib.util.find_spec(folder.name) if folder.name.isidentifier() else None
    places = [Path(place).resolve() for place in (spec.submodule_search_locations or [])] if spec else []
    if not folder.name.isidentifier() or (spec is not None and folder not in places):
        why = "is in the way" if spec else "cannot be: take letters, digits and _"
        raise InputError(f"{folder} holds an app, but a package called {folder.name!r} {why}", do="rename the folder")
    return App(folder.name, folder.name, str(folder.parent))


def app_of(record: Mapping[str, Any]) -> App:
    """The app of a run, from its `resolved.json`; raises `InputError` if it is not there any more."""
    found = app_in(Path(record["home"], record["package"])) if record.get("home") else None
    return found or find_app(str(record["app"]))


def find_app(name: str, folder: Path = Path()) -> App:
    """The app called `name`, or that in the folder of this name in `folder`; raises `InputError` with the nearest
    name.
    """
    found = apps().get(name) or app_in(folder / name)
    if found is not None:
        return found
    raise InputError(f"no app {name!r}", likely=did_you_mean(name, apps()), do=f"apps: {', '.join(apps())}")


def in_folder(name: str) -> tuple[App, str] | None:
    """The app that is not installed and the preset that a path means: FOLDER or FOLDER/PRESET; None for others."""
    path = Path(name)
    if name in apps() or path.parent.as_posix() in apps():
        return None
    if (app := app_in(path)) is not None:
        return app, ""
    app = app_in(path.parent) if "/" in name else None
    if app is None or path.suffix in (".py", ".toml") or path.exists():
        return None
    if path.name in app.presets:
        return app, path.name
    raise InputError(
        f"the app {app.name} has no preset {path.name!r}",
        likely=did_you_mean(path.name, app.presets),
        do=f"it has {', '.join(app.presets) or 'none'}",
    )


def find_preset(name: str) -> tuple[App, str]:
    """The app and preset that `name` means: a preset of any app, `APP/PRESET` or `APP.PRESET`, or an app alone (its
    defaults, "").

    An app that is not installed is meant by the path of its folder: FOLDER or FOLDER/PRESET.

    Raises `InputError` with the nearest name, or where two apps have the preset.
    """
    if (found := in_folder(name)) is not None:
        return found
    if name in apps():
        return apps()[name], ""
    named = [(apps()[outer], last) for outer, _, last in map(name.rpartition, "/.") if outer in apps()]
    for app, preset in named:
        if preset in app.presets:
            return app, preset
    if named:
        app, preset = named[0]
        elsewhere = [f"{other.name}/{preset}" for other in apps().values() if preset in other.presets]
        inner = [other.rpartition("/")[2] for other in apps() if other.startswith(f"{app.name}/")]
        raise InputError(
            f"the app {app.name} has no preset {preset!r}",
            likely=f"did you mean {' or '.join(elsewhere)}?"
            if elsewhere
            else did_you_mean(preset, [*app.presets, *inner]),
            do=f"it has {', '.join([*app.presets, *inner]) or 'none'}",
        )
    likely = [app for app in apps().values() if app.may_have(name) and name in app.presets]
    owners = likely or [app for app in apps().values() if name in app.presets]
    if len(owners) == 1:
        return owners[0], name
    if owners:
        choices = ", ".join(f"{app.name}/{name}" for app in owners)
        raise InputError(f"the preset {name!r} is in several apps", do=f"say which: {choices}")
    known = [*apps(), *(preset for app in apps().values() for preset in app.presets)]
    raise InputError(
        f"{name!r} is not a file, preset or app",
        likely=did_you_mean(name, known),
        do="hpckit init lists apps and presets",
    )
