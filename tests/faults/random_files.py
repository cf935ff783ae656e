"""A random data file: one that hpckit reads, changed at random, and given to its reader."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hpckit.errors import HpckitError
from hpckit.plan.particles.snapshot import Snapshot
from tests.faults.random_text import changed, changed_bytes

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


def case(random: Random, folder: Path) -> str:
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
        "table of collectives": (collectives, lambda path: parse(_text(path), path.name)),
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


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _read_topography(path: Path) -> None:
    from hpckit.apps.flood import setups
    from hpckit.apps.flood.config import Config

    grid = {"nx": 5, "ny": 4}
    setups.read_heights(Config.model_validate({"grid": grid, "bottom": {"kind": "file", "file": str(path)}}))
