"""Columns of ERA5: soundings from netCDF files of pressure levels, as the Climate Data Store gives them.

Variables are found by their short or standard names: temperature, specific or relative humidity, both winds,
geopotential or its height. The column is interpolated linearly in latitude and longitude, at the time in the file that
is closest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hpckit.apps.atmosphere.sounding import Sounding
from hpckit.errors import InputError, SetupError
from hpckit.kernels.euler.constants import CP, GRAVITY, P0, RD

MAGIC = (b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05")  # how netCDF files begin
EARTH = 9.80665  # m/s2: ERA5's geopotential over height
VARIABLES = {  # names of the Climate Data Store, of NCAR (in capitals), of Zarr stores; standard names
    "temperature": ("t", "temperature", "air_temperature"),
    "humidity": ("q", "specific_humidity"),
    "u": ("u", "u_component_of_wind", "eastward_wind"),
    "v": ("v", "v_component_of_wind", "northward_wind"),
    "geopotential": ("z", "geopotential"),
}
HEIGHT = ("gh", "geopotential_height")  # as cfgrib has it of GFS and others: in place of the geopotential
RELATIVE = ("r", "relative_humidity")  # in place of the specific humidity
SPEEDS, METERS = ("m/s", "ms-1"), ("m", "gpm", "meter", "meters", "metre", "metres")
UNITS = {  # without blanks, * and ^: what they are in ours. A variable without units has the first ones.
    "temperature": {"K": 1.0, "kelvin": 1.0},
    "humidity": {"kg/kg": 1.0, "kgkg-1": 1.0, "1": 1.0, "g/kg": 1e-3, "gkg-1": 1e-3},
    "relative humidity": {"%": 0.01, "percent": 0.01, "1": 1.0},
    "u": dict.fromkeys(SPEEDS, 1.0),
    "v": dict.fromkeys(SPEEDS, 1.0),
    "geopotential": {"m2/s2": 1.0, "m2s-2": 1.0, **dict.fromkeys(METERS, EARTH)},
    "height": dict.fromkeys(METERS, EARTH),
}
LIKELY = {"temperature": (100.0, 400.0), "humidity": (-0.01, 0.1), "u": (-200.0, 200.0), "v": (-200.0, 200.0)}
DEEPER = 1.2  # a column so many times as deep as its temperatures make it has another unit
# Saturation after ECMWF, IFS documentation part IV: over water, over ice, and between them from ICY to WATERY.
TRIPLE, WATERY, ICY = 611.21, 273.16, 250.16  # Pa, K, K
VAPOR_OVER_DRY = 0.622  # molar masses
OVER_WATER, OVER_ICE = (17.502, 32.19), (22.587, -0.7)
LEVELS, TIMES = ("pressure_level", "level", "isobaricInhPa", "plev"), ("valid_time", "time")
PLACES = {"lat": ("latitude", "lat"), "lon": ("longitude", "lon")}
MOST_HPA = 1100.0
TO_PASCAL = {"Pa": 1.0, "hPa": 100.0, "millibars": 100.0, "mbar": 100.0, "mb": 100.0}
EXPECTED = "give ERA5 on pressure levels (netCDF) with temperature, humidity, geopotential, u and v"


def is_netcdf(path: Path) -> bool:
    """Whether a file begins as netCDF files do; one that cannot be read does not."""
    try:
        with path.open("rb") as file:
            return file.read(8).startswith(MAGIC)
    except OSError:
        return False


def read_levels(path: Path, lat: float | None, lon: float | None, time: str | None, ground: float) -> Sounding:
    """The column at a latitude and longitude (degrees) and a time (ISO 8601; None: the only one), as a sounding.

    ground: height of the model's ground over the sea, m: levels below it are left out, heights count from it. Theta and
    vapor at the ground are interpolated between levels, or those of the lowest level if that is higher. Raises
    `InputError` for what is not in the file, `SetupError` without xarray (extra `analysis`).
    """
    try:
        import xarray
    except ImportError as problem:
        raise SetupError(
            "reading netCDF files needs xarray",
            likely="hpckit was installed without the extra `analysis`",
            do="pip install 'hpckit[analysis]'",
        ) from problem
    try:
        file = xarray.open_dataset(path)
    except (OSError, ValueError) as problem:
        _refuse(path, f"it cannot be read: {problem}")
    with file, xarray.set_options(keep_attrs=True):
        column = _at_time(file, path, time)
        for name, given in (("lat", lat), ("lon", lon)):
            column = _at_place(column, path, name, given)
        pressure, rows = _rows(column, path)
    theta = rows["temperature"] * (P0 / pressure) ** (RD / CP)
    height = rows["geopotential"] / EARTH - ground
    mixing = rows["humidity"] / (1 - rows["humidity"])
    return _above_ground(path, height, pressure, theta, np.maximum(mixing, 0.0), rows["u"], rows["v"])


def _refuse(path: Path, reason: str, do: str = EXPECTED) -> NoReturn:
    raise InputError(reason, where=str(path), do=do)


def _first(names: Iterable[str], there: Iterable[Any]) -> str | None:
    known = set(map(str, there))
    return next((name for name in names if name in known), None)


def _at_time(file: Any, path: Path, time: str | None) -> Any:
    name = _first(TIMES, file.dims)
    if name is None:
        return file
    times = np.atleast_1d(file[name].values)
    told = f"from {np.datetime_as_string(times[0], 'm')} to {np.datetime_as_string(times[-1], 'm')}"
    if time is None:
        if len(times) > 1:
            _refuse(path, f"it has {len(times)} times, {told}", f'choose one: base.time = "{times[0]!s:.16}"')
        return file.isel({name: 0})
    try:
        wanted = np.datetime64(re.sub(r"(Z|\+00:00)$", "", time).replace("_", "T"))
    except ValueError:
        _refuse(path, f"base.time = {time!r} is not a date", 'give one such as "2011-05-24T20:00"')
    if not times.min() <= wanted <= times.max():
        _refuse(path, f"base.time = {time!r} is not in the file, which is {told}", "choose a time in it")
    return file.isel({name: int(np.abs(times - wanted).argmin())})


def _at_place(file: Any, path: Path, name: str, given: float | None) -> Any:
    """The file at a latitude or longitude, between its two neighbors."""
    dim = _first(PLACES[name], file.dims)
    if dim is None:
        return file
    points = np.asarray(file[dim].values, np.float64)
    columns = np.arange(len(points))
    if given is None:
        if len(points) > 1:
            low, high = points.min(), points.max()
            _refuse(path, f"it has {len(points)} points of {dim}, {low:g} to {high:g}", f"choose one: base.{name} = …")
        return file.isel({dim: 0})
    if name == "lon":  # 0 to 360 or -180 to 180
        span = np.ptp(points)
        if len(points) > 2 and abs(span * len(points) / (len(points) - 1) - 360) < 0.01:  # around the globe
            columns = np.append(columns, points.argmin())
            points = np.append(points, points.min() + 360)
        given = next(
            (each for each in (given, given + 360, given - 360) if points.min() <= each <= points.max()), given
        )
    if not points.min() <= given <= points.max():
        _refuse(
            path,
            f"base.{name} = {given:g} is outside the file, whose {dim} is {points.min():g} to {points.max():g}",
            f"choose base.{name} in between, or ask for a larger area",
        )
    order = np.argsort(points)
    place = float(np.interp(given, points[order], np.arange(len(points))))
    low = min(int(place), max(len(points) - 2, 0))
    share = place - low
    sides = [file.isel({dim: int(columns[order[at]])}) for at in (low, min(low + 1, len(points) - 1))]
    return sides[0].drop_vars(dim) * (1 - share) + sides[1].drop_vars(dim) * share if share else sides[0]


def _rows(column: Any, path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pressure (Pa) and variables from the ground up, float64[levels] each."""
    level = _first(LEVELS, column.dims)
    if level is None:
        _refuse(path, f"it has no pressure levels: its dims are {', '.join(map(str, column.dims)) or 'none'}")
    values = np.asarray(column[level].values, np.float64)
    units = str(column[level].attrs.get("units") or ("Pa" if values.max() > MOST_HPA else "hPa"))
    if units not in TO_PASCAL:
        _refuse(path, f"its levels are in {units!r}", f"pressure is read in {', '.join(TO_PASCAL)}")
    order = np.argsort(-values)
    pressure = values[order] * TO_PASCAL[units]
    if len(pressure) < 2:
        _refuse(path, "it has a single level")

    def named(names: Iterable[str]) -> Any:
        given = {str(each).lower(): each for each in column.data_vars}
        standard = {column[each].attrs.get("standard_name"): each for each in column.data_vars}
        return next((there[name] for name in names for there in (given, standard) if name in there), None)

    rows, missing = {}, []
    for name, names in VARIABLES.items():
        found, kind = named(names), name
        if found is None and name == "geopotential":
            found, kind = named(HEIGHT), "height"
        if found is None and name == "humidity":
            found, kind = named(RELATIVE), "relative humidity"
        if found is None:
            missing.append(f"{name} ({names[0]})")
            continue
        row = column[found].isel({dim: 0 for dim, n in column[found].sizes.items() if n == 1})
        if row.dims != (level,):
            _refuse(path, f"{found} has dims {column[found].dims}: a column has levels alone")
        rows[name] = _scaled(path, str(found), kind, row)[order]
        if kind == "relative humidity":  # the temperature comes first
            rows[name] = specific_humidity(rows[name], rows["temperature"], pressure)
    if missing:
        _refuse(path, f"it has no {', '.join(missing)}")
    _require_depth(path, pressure, rows)
    return pressure, rows


def _scaled(path: Path, found: str, kind: str, row: Any) -> np.ndarray:
    """The values of a variable in K, kg/kg, m/s or m2/s2; refuses other units, and values that have others."""
    known, given = UNITS[kind], str(row.attrs.get("units", "")).strip()
    unit = re.sub(r"[\s*^]", "", given) or next(iter(known))
    unit = unit if unit in known else unit.lower()
    if unit not in known:
        _refuse(path, f"{found} is in {given!r}", f"{kind} is read in {', '.join(known)}")
    values = known[unit] * np.asarray(row.values, np.float64)
    if not np.isfinite(values).all():
        _refuse(
            path, f"{found} is missing on some levels of the column", "take these levels out, or choose another place"
        )
    low, high = LIKELY.get(kind, (-np.inf, np.inf))
    wrong = values[(values < low) | (values > high)]
    if wrong.size:
        _refuse(
            path, f"{found} of {wrong[0]:g} is not possible in {next(iter(known))}", "correct the values or their units"
        )
    return values


def _require_depth(path: Path, pressure: np.ndarray, rows: dict[str, np.ndarray]) -> None:
    """Refuse a geopotential that the hypsometric equation contradicts, as one in other units than it says."""
    virtual = rows["temperature"] * (1 + 0.61 * rows["humidity"])
    depth = RD * float((0.5 * (virtual[1:] + virtual[:-1]) * -np.diff(np.log(pressure))).sum())
    given = float(rows["geopotential"][-1] - rows["geopotential"][0])
    if not depth / DEEPER < given < depth * DEEPER:
        _refuse(
            path,
            f"its levels lie {given / EARTH:.0f} m apart, where their temperatures make {depth / EARTH:.0f} m",
            "correct the units of geopotential, temperature or pressure: m2 s-2 (or m), K, hPa (or Pa)",
        )


def specific_humidity(relative: np.ndarray, temperature: np.ndarray, pressure: np.ndarray) -> np.ndarray:
    """Of air with this relative humidity (a share), temperature (K) and pressure (Pa), kg/kg.

    Relative humidity as ECMWF has it: over water above the triple point, over ice below -23 C, between them by the
    square of the distance. Vapor is at most a tenth of the air, which keeps thin warm air above 5 hPa finite.
    """
    above = temperature - WATERY
    water, ice = (TRIPLE * np.exp(a * above / (temperature - b)) for a, b in (OVER_WATER, OVER_ICE))
    liquid = np.clip((temperature - ICY) / (WATERY - ICY), 0.0, 1.0) ** 2
    vapor = np.minimum(np.maximum(relative, 0.0) * (liquid * water + (1 - liquid) * ice), 0.1 * pressure)
    return VAPOR_OVER_DRY * vapor / (pressure - (1 - VAPOR_OVER_DRY) * vapor)


def _above_ground(
    path: Path,
    height: np.ndarray,
    pressure: np.ndarray,
    theta: np.ndarray,
    mixing: np.ndarray,
    u: np.ndarray,
    v: np.ndarray,
) -> Sounding:
    """The sounding from the ground (height 0) up."""
    if (np.diff(height) <= 0).any():
        _refuse(path, "its geopotential does not grow with height")
    above = height > 0
    if above.sum() < 2:
        _refuse(path, f"only {above.sum()} levels are above the ground", "lower base.ground")
    if height[0] > 0:  # down from the lowest level in hydrostatic balance, with its theta
        virtual = theta[0] * (1 + 0.61 * mixing[0])
        exner = (pressure[0] / P0) ** (RD / CP) + GRAVITY * height[0] / (CP * virtual)
        surface = P0 * exner ** (CP / RD)
    else:
        surface = float(np.exp(np.interp(0.0, height, np.log(pressure))))
    rows = [np.append(np.interp(0.0, height, each), each[above]) for each in (theta, mixing, u, v)]
    return Sounding(float(surface), np.append(0.0, height[above]), *rows)
