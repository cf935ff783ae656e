"""A random setting: keys of an app with values at random, or a run file that was changed at random."""

from __future__ import annotations

import traceback
from pathlib import Path
from random import Random

from hpckit.cli.main import main
from hpckit.settings.apps import App, apps
from hpckit.settings.run_file import default_config, run_file_text
from hpckit.settings.schema import Schema, dotted
from tests.faults.random_text import VALUES, changed


def case(random: Random, folder: Path) -> str:
    """A dry run of a random configuration: it is done (0) or refused as bad input (2). Raises `AssertionError`."""
    app = random.choice(list(apps().values()))
    words = _run_file(random, app, folder) if random.random() < 0.3 else _words(random, app)
    if random.random() < 0.2:
        words += ["-n", str(random.choice((2, 3, 7, 64, 4096, 10**6)))]
    try:
        code = main(["run", *words, "--dry-run"])
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        raise AssertionError(f"{type(error).__name__} at {where}: {error}; hpckit run {' '.join(words)}") from error
    assert code in (0, 2), f"exit code {code}; hpckit run {' '.join(words)}"
    return f"exit code {code}"


def _words(random: Random, app: App) -> list[str]:
    """A preset or the app with some keys set."""
    presets = [f"{app.name}.{preset}" for preset in app.presets]
    keys = [dotted(path) for path in Schema(app.config).leaves()]
    given = [f"{random.choice(keys)}={_value(random)}" for _ in range(random.randint(1, 3))]
    if random.random() < 0.1:
        given.append(changed(random, random.choice(given)).replace("\n", " "))
    return [random.choice([app.name, *presets]), *(word for word in given if not word.startswith("-"))]


def _value(random: Random) -> str:
    """A number near or far, a text, a list, or no value at all."""
    kind = random.random()
    if kind < 0.4:
        return str(random.choice((1, 2, 3, 7, 13, 100)) * random.choice((1, 1, 1, 0.1, 10)))
    if kind < 0.5:
        return str([random.choice((0, 1, 5, 16, -3, 2.5, 10**7)) for _ in range(random.randint(0, 3))])
    return random.choice(VALUES)


def _run_file(random: Random, app: App, folder: Path) -> list[str]:
    """The run file of an app, changed."""
    path = folder / "changed.toml"
    text = run_file_text(app, default_config(app))
    for _ in range(random.randint(1, 3)):
        text = changed(random, text)
    path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    return [str(path)]
