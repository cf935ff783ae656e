"""Columns of ERA5: soundings from netCDF files of pressure levels, as the Climate Data Store gives them.

Variables are found by their short or standard names: temperature, specific or relative humidity, both winds,
geopotential or its height. The column is interpolated linearly in latitude and longitude, at the time in the file that
is closest.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hpckit.apps.atmosphere.sounding import Sounding
from hpckit.errors import InputError, SetupError
from hpckit.kernels.euler.constants import CP, GRAVITY, P0, RD

MAGIC = (b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05")  # how netCDF files begin
EARTH = 9.80665  # m/s2: ERA5's geopotential over height
VARIABLES = {
    "temperature": ("t", "air_temperature"),
    "humidity": ("q", "specific_humidity"),
    "u": ("u", "eastward_wind"),
    "v": ("v", "northward_wind"),
    "geopotential": ("z", "geopotential"),
}
HEIGHT = ("gh", "geopotential_height")  # m, as cfgrib has it of GFS and others: in place of the geopotential
METERS = ("m", "gpm")
RELATIVE = ("r", "relative_humidity")  # in place of the specific humidity
SHARES = {"%": 0.01, "percent": 0.01, "1": 1.0}
# Saturation after ECMWF, IFS documentation part IV: over water, over ice, and between them from ICY to WATERY.
TRIPLE, WATERY, ICY = 611.21, 273.16, 250.16  # Pa, K, K
VAPOR_OVER_DRY = 0.622  # molar masses
OVER_WATER, OVER_ICE = (17.502, 32.19), (22.587, -0.7)
LEVELS, TIMES = ("pressure_level", "level", "isobaricInhPa", "plev"), ("valid_time", "time")
PLACES = {"lat": ("latitude", "lat"), "lon": ("longitude", "lon")}
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
    with file:
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
        wanted = np.datetime64(time.removesuffix("Z"))
    except ValueError:
        _refuse(path, f"base.time = {time!r} is no date", 'give one such as "2011-05-24T20:00"')
    if not times.min() <= wanted <= times.max():
        _refuse(path, f"base.time = {time!r} is not in the file, which is {told}", "choose a time in it")
    return file.isel({name: int(np.abs(times - wanted).argmin())})


def _at_place(file: Any, path: Path, name: str, given: float | None) -> Any:
    """The file at a latitude or longitude, between its two neighbors."""
    dim = _first(PLACES[name], file.dims)
    if dim is None:
        return file
    points = np.asarray(file[dim].values, np.float64)
    if given is None:
        if len(points) > 1:
            low, high = points.min(), points.max()
            _refuse(path, f"it has {len(points)} points of {dim}, {low:g} to {high:g}", f"choose one: base.{name} = …")
        return file.isel({dim: 0})
    if name == "lon":  # 0 to 360 or -180 to 180
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
    sides = [file.isel({dim: int(order[at])}) for at in (low, min(low + 1, len(points) - 1))]
    return sides[0].drop_vars(dim) * (1 - share) + sides[1].drop_vars(dim) * share if share else sides[0]


def _rows(column: Any, path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pressure (Pa) and variables from the ground up, float64[levels] each."""
    level = _first(LEVELS, column.dims)
    if level is None:
        _refuse(path, f"it has no pressure levels: its dims are {', '.join(map(str, column.dims)) or 'none'}")
    units = str(column[level].attrs.get("units", "hPa"))
    if units not in TO_PASCAL:
        _refuse(path, f"its levels are in {units!r}", f"pressure is read in {', '.join(TO_PASCAL)}")
    pressure = np.asarray(column[level].values, np.float64) * TO_PASCAL[units]
    order = np.argsort(-pressure)
    rows, missing = {}, []

    def named(short: str, standard: str) -> Any:
        return next(
            (each for each in column.data_vars if each == short or column[each].attrs.get("standard_name") == standard),
            None,
        )

    for name, given in VARIABLES.items():
        short, found, unit = given[0], named(*given), 1.0
        if name == "geopotential" and (found is None or column[found].attrs.get("units") in METERS):
            found, unit = found or named(*HEIGHT), EARTH
        if relative := name == "humidity" and found is None:
            found = named(*RELATIVE)
        if found is None:
            missing.append(f"{name} ({short})")
            continue
        if relative:
            units = str(column[found].attrs.get("units", "%"))
            if units not in SHARES:
                _refuse(path, f"{found} is in {units!r}", f"relative humidity is read in {', '.join(SHARES)}")
            unit = SHARES[units]
        rows[name] = unit * np.asarray(column[found].values, np.float64).squeeze()[order]
        if rows[name].shape != pressure.shape:
            _refuse(path, f"{found} has dims {column[found].dims}: a column has levels alone")
        if relative:  # the temperature comes first
            rows[name] = specific_humidity(rows[name], rows["temperature"], pressure[order])
    if missing:
        _refuse(path, f"it has no {', '.join(missing)}")
    if len(pressure) < 2 or not all(np.isfinite(row).all() for row in rows.values()):
        _refuse(path, "the column has fewer than two levels, or values that are missing")
    return pressure[order], rows


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
