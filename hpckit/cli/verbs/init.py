"""`hpckit init APP|PRESET [FILE] [key=value …]`: a run file with every setting; without a name the apps and presets."""

from __future__ import annotations

import importlib.util
import os
import shlex
from pathlib import Path

from hpckit.errors import InputError, SetupError
from hpckit.settings.apps import apps, find_preset
from hpckit.settings.config import load
from hpckit.settings.table import Parser

EXAMPLE = "gray_scott"  # the app that `init --app` copies
NO_LAYERS = {"HPCKIT_CONFIG": os.devnull}  # an environment without settings, and an empty user file


def main(arguments: list[str]) -> int:
    """Run the verb."""
    it = Parser(prog="hpckit init", description="Write a commented run file with every setting.")
    it.add_argument("name", nargs="?", metavar="APP|PRESET", help="whose settings; left out: list apps and presets")
    it.add_argument("--app", metavar="NAME", help="write a small app in full into the folder NAME, to start yours from")
    it.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the file to make (NAME.toml)")
    it.epilog = "settings to change in it may follow as key=value, as for `hpckit run`"
    settings = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    options = it.parse_args([argument for argument in arguments if argument not in settings])
    if options.app is not None:
        write_app(options.app)
        return 0
    if options.name is None:
        list_presets()
        return 0
    app, preset = find_preset(options.name)
    path = options.file or Path(f"{preset or app.name.replace('/', '-')}.toml")
    write_new(path, load(options.name, settings, NO_LAYERS).run_file)
    print(f"wrote {path}; run it:  hpckit run {shlex.quote(str(path))} -n 2")
    return 0


def write_app(name: str) -> None:
    """Write the app that `hpckit.apps.gray_scott` is, under another name: config, run, report and test.

    Raises `InputError` for a name that no package can have, or that is taken.
    """
    if not name.isidentifier() or name in apps() or importlib.util.find_spec(name) is not None:
        why = "is taken" if name.isidentifier() else "is not a valid name of a Python package"
        raise InputError(f"--app {name}: the name {why}", do="take another, of letters, digits and _")
    for path in sorted(apps()[EXAMPLE].folder.glob("*.py")):
        text = path.read_text(encoding="utf-8").replace(f"hpckit.apps.{EXAMPLE}", name).replace(EXAMPLE, name)
        write_new(Path(name, path.name), text)
    print(f"wrote the app {name}; run it:  hpckit run ./{name} -n 2    (presets: hpckit init ./{name} FILE)")


def list_presets() -> None:
    """Print every app with its presets."""
    for app in apps().values():
        print(f"{app.name}: {app.summary}")
        width = max(map(len, app.presets), default=0)
        for preset, (description, _) in app.presets.items():
            print(f"  {preset:{width}}  {description}")
    print("\nhpckit init APP|PRESET writes a run file; hpckit run PRESET -n RANKS runs it as it is")


def write_new(path: Path, text: str) -> None:
    """Write `path`, which must not exist, and make the folders above it that are missing.

    Raises `InputError` if it exists, `SetupError` if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists", do="give another file name; nothing was overwritten") from None
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}", do="give a file in a folder of yours") from None
