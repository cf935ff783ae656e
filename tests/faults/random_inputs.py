"""Settings and data files at random: what bad disks, bad editors and bad people leave, given to what reads them."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hpckit.cli.main import main
from hpckit.errors import HpckitError
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.settings.apps import App, apps
from hpckit.settings.run_file import default_config, run_file_text
from hpckit.settings.schema import Schema, dotted

LONG = "9223372036854775808"  # one more than 64 bits hold
VALUES = (
    *("0", "-1", "1", "1e-300", "1e300", "-1e308", "1e999", "nan", "inf", "-inf", "0.1", LONG, "1" * 400),
    *('""', '"x"', "x", "true", "false", "[]", "[1]", "[[1], [2]]", "{}", "{a = 1}", "2026-01-01"),
    *("'", '"', "\\", "%s%n", "/", "../..", "/dev/null", "/etc/passwd", "~", "none", "a" * 5000),
    *("\u00e9\u4e2d\U0001f600", "\x00", "\x1b[31m"),
)
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


def changed(random: Random, text: str) -> str:
    """One change: a number, a line, a character or the end of the text."""
    lines = text.split("\n")
    at = random.randrange(len(lines))
    kind = random.randrange(8)
    if kind <= 2:
        numbers = list(NUMBER.finditer(text))
        if numbers:
            found = random.choice(numbers)
            return text[: found.start()] + random.choice(VALUES) + text[found.end() :]
    if kind == 3:
        del lines[at]
    elif kind == 4:
        lines.insert(at, random.choice(lines))
    elif kind == 5:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 6:
        return text[: random.randrange(len(text) + 1)]
    else:
        place = random.randrange(len(text) + 1)
        return (
            text[:place]
            + random.choice((*VALUES, "=", "[", "]", "#", "\t", "\r", " "))
            + text[place + random.randint(0, 2) :]
        )
    return "\n".join(lines)


def changed_bytes(random: Random, data: bytes) -> bytes:
    """One change: a bit, some bytes, or the end."""
    kind, at = random.randrange(4), random.randrange(max(len(data), 1))
    if kind == 0 and data:
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + random.randbytes(random.randint(1, 16)) + data[at:]
    return data[:at] + random.randbytes(min(16, len(data) - at)) + data[at + 16 :]


def random_config(random: Random, folder: Path) -> str:
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


SOUNDING = "1000.0 300.0 14.0\n0.0 300.0 14.0 -1.0 2.0\n500.0 301.0 12.5 0.0 2.0\n12000.0 345.0 0.1 20.0 3.0\n"
WYOMING = """\
-----------------------------------------------------------------------------
   PRES   HGHT   TEMP   DWPT   RELH   MIXR   DRCT   SKNT   THTA   THTE   THTV
    hPa     m      C      C      %    g/kg    deg   knot     K      K      K
-----------------------------------------------------------------------------
 1000.0    345   27.0   22.0     74  17.00    160     12  300.2  350.0  303.0
  925.0   1040   22.0   18.0     78  14.00    180     20  301.8  344.0  304.0
  850.0   1770   18.0   12.0     68  10.00    200     28  305.0  336.0  307.0
  500.0   5900   -9.0  -20.0     40   1.50    240     45  322.0  327.0  322.0
"""


def random_file(random: Random, folder: Path) -> str:
    """A changed file is read, or refused with a code. Raises `AssertionError`."""
    name = random.choice(sorted(_samples(folder)))
    sample, read = _samples(folder)[name]
    data = sample.read_bytes()
    for _ in range(random.randint(1, 3)):
        if sample.suffix in (".npy", ".h5") or random.random() < 0.3:
            data = changed_bytes(random, data)
        else:
            text = changed(random, data.decode("utf-8", "surrogateescape"))
            data = text.encode("utf-8", "surrogateescape")
    path = folder / f"changed-{sample.name}"
    path.write_bytes(data)
    try:
        read(path)
    except HpckitError as error:
        if error.code == HpckitError.code:
            raise AssertionError(f"{name}: an error without a code: {error.message}") from error
        return f"{name}: refused with {error.code}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        raise AssertionError(f"{name}: {type(error).__name__} at {where}: {error}") from error
    return f"{name}: read"


@cache
def _samples(folder: Path) -> dict[str, tuple[Path, Callable[[Path], Any]]]:
    """Name -> (a good file, what reads it)."""
    from hpckit.apps.atmosphere.sounding import read_sounding
    from hpckit.collectives.table import SHIPPED, parse
    from hpckit.io.particles.lammps_data import read_lammps_data, write_lammps_data
    from hpckit.io.particles.lammps_dump import DumpWriter, read_lammps_dump
    from hpckit.io.particles.lammps_table import PairTable, read_lammps_table, write_lammps_table
    from hpckit.plan.machine.machine import machine_of, toml_of
    from hpckit.plan.pipeline.schedules import one_f_one_b
    from hpckit.plan.pipeline.table import read_schedule, write_schedule

    kept = folder / "samples"
    kept.mkdir(exist_ok=True)
    names = ("atoms.data", "atoms.dump", "pair.table", "stages.csv", "machine.toml", "wrf.txt", "wyoming.txt")
    data, dump, table, stages, machine, wrf, wyoming = (kept / name for name in names)
    write_lammps_data(data, _atoms())
    with DumpWriter(dump) as writer:
        writer.write(_atoms())
        writer.write(_atoms())
    r = np.linspace(0.8, 2.5, 6)
    write_lammps_table(table, PairTable(r, r**-12, 12 * r**-13))
    write_schedule(one_f_one_b(3, 4), stages)
    machine.write_text(toml_of(machine_of("infiniband")), encoding="utf-8")
    wrf.write_text(SOUNDING, encoding="utf-8")
    wyoming.write_text(WYOMING, encoding="utf-8")
    collectives, ground = kept / "collectives.json", kept / "ground.npy"
    collectives.write_bytes(SHIPPED.read_bytes()[:600].rpartition(b"},")[0] + b"}]")
    np.save(ground, np.linspace(0.0, 1.0, 20).reshape(4, 5))
    return {
        "LAMMPS data": (data, read_lammps_data),
        "LAMMPS dump": (dump, lambda path: list(read_lammps_dump(path))),
        "LAMMPS table": (table, read_lammps_table),
        "schedule": (stages, read_schedule),
        "machine": (machine, machine_of),
        "WRF sounding": (wrf, read_sounding),
        "Wyoming sounding": (wyoming, read_sounding),
        "table of collectives": (collectives, lambda path: parse(_decoded(path), path.name)),
        "topography": (ground, _read_topography),
    }


def _atoms() -> Snapshot:
    count = 5
    return Snapshot(
        np.zeros(3),
        np.full(3, 4.0),
        (True, True, True),
        np.arange(1, count + 1),
        np.arange(count) % 2,
        np.linspace(0.1, 3.9, 3 * count).reshape(count, 3),
        np.zeros((count, 3), np.int32),
        velocities=np.full((count, 3), 0.5),
        masses=np.array([1.0, 2.0]),
    )


def _decoded(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _read_topography(path: Path) -> None:
    from hpckit.apps.flood import setups
    from hpckit.apps.flood.config import Config

    grid = {"nx": 5, "ny": 4}
    setups.read_heights(Config.model_validate({"grid": grid, "bottom": {"kind": "file", "file": str(path)}}))
