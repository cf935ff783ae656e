"""`hpckit export wrf DIR [FILE]`: the fields of a run in a file as other programs have it."""

from __future__ import annotations

import json
from pathlib import Path

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.products.wrf import EPOCH, start_of, write_wrfout
from hpckit.errors import InputError
from hpckit.io.fields.frames import require_sources
from hpckit.io.fields.reader import find_fields
from hpckit.io.probe import require_intact
from hpckit.run.directory import RunDirectory
from hpckit.run.settings import with_common
from hpckit.settings.table import Parser, bytes_text

FORMATS = ("wrf",)


def main(arguments: list[str]) -> int:
    """The verb `export`."""
    it = Parser(
        prog="hpckit export",
        description="Write the fields of a weather3d run as a wrfout file (netCDF-4): names, units and staggering of"
        " WRF, all frames in one file.",
    )
    it.add_argument("format", metavar="FORMAT", help="wrf")
    it.add_argument("directory", type=Path, metavar="DIR", help="a run directory")
    it.add_argument("file", nargs="?", type=Path, metavar="FILE", help="what to write (DIR/wrfout_d01_DATE)")
    it.add_argument("--start", metavar="DATE", default=EPOCH, help=f"when the run begins ({EPOCH})")
    it.add_argument("--lat", type=float, default=0.0, metavar="DEGREES", help="latitude of the middle of the box (0)")
    it.add_argument("--lon", type=float, default=0.0, metavar="DEGREES", help="longitude of the middle of the box (0)")
    given = it.parse_args(arguments)
    if given.format not in FORMATS:
        raise InputError(
            f"{given.format!r} is not a format that can be written", do=f"give one of {', '.join(FORMATS)}"
        )
    if not (-90 <= given.lat <= 90 and -180 <= given.lon <= 180):
        raise InputError(
            f"latitude {given.lat:g} and longitude {given.lon:g} are not on the globe",
            do="give --lat from -90 to 90 and --lon from -180 to 180",
        )
    record = RunDirectory(given.directory, foreign=True).read_json("resolved.json") or {}
    values = record.get("values") or {}
    if values.get("app") != "weather3d":
        raise InputError(
            f"{given.directory} holds a run of {values.get('app') or 'no app'}, which WRF has no file for",
            do="give the directory of a weather3d run",
        )
    fields = find_fields(given.directory)
    require_sources(fields)
    require_intact([fields])
    start = start_of(given.start)
    path = given.file or given.directory / f"wrfout_d01_{start:%Y-%m-%d_%H:%M:%S}"
    config = with_common(Config).model_validate_json(json.dumps(values), strict=True)
    assert isinstance(config, Config)
    frames = write_wrfout(fields, config, path, start, (given.lat, given.lon))
    print(f"{path}: {frames} frames, {bytes_text(path.stat().st_size)}")
    return 0
