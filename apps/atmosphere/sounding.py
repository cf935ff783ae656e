"""Soundings: observed or idealized columns of the atmosphere, read from the text forms in common use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.euler.constants import CP, P0, RD
from hpckit.plan.inputs.text import read_bytes

KNOT = 1852 / 3600  # m s-1
MOST_IN_KG = 0.05  # kg/kg: more is nowhere, and as g/kg it would be less than warm air ever has near the ground
WARM = 260.0  # K: theta of ground below which air may be that dry, as over ice sheets
ZERO_CELSIUS = 273.15  # K
LARGEST = 1 << 22  # bytes: no sounding is longer
LIMITS = {  # plausible range of a quantity; values outside suggest wrong units or columns
    "pressure": (1e-2, 1100.0, "hPa"),
    "height": (-500.0, 1e5, "m"),
    "theta": (150.0, 5000.0, "K"),
    "mixing ratio": (0.0, 60.0, "g/kg"),
    "wind": (-200.0, 200.0, "m/s"),
    "temperature": (-150.0, 70.0, "C"),
    "speed": (0.0, 200.0, "m/s"),
    "speed in knots": (0.0, 400.0, "knot"),
    "direction": (0.0, 360.0, "degrees"),
}
LISTING = {  # columns of a listing of the University of Wyoming that are used; it gives knots or, since 2025, m/s
    "PRES": "pressure",
    "HGHT": "height",
    "THTA": "theta",
    "MIXR": "mixing ratio",
    "DRCT": "direction",
    "SKNT": "speed in knots",
    "SPED": "speed",
}
CSV = {  # the same in its comma-separated form
    "pressure_hPa": "pressure",
    "geopotential height_m": "height",
    "temperature_C": "temperature",
    "mixing ratio_g/kg": "mixing ratio",
    "wind direction_degree": "direction",
    "wind speed_m/s": "speed",
}
EXPECTED = (
    "give an input_sounding of WRF or CM1 (p theta qv, then lines of z theta qv u v), a listing or CSV file of the"
    " University of Wyoming, or ERA5 on pressure levels (netCDF)"
)
TO_NETCDF = "xarray.open_dataset(path, engine='cfgrib').to_netcdf('column.nc'), or cdo -f nc4 copy in.grib column.nc"


@dataclass(frozen=True)
class Sounding:
    """A column: surface pressure (Pa) and levels from the ground up, float64[levels] each.

    height: m above the surface, the first 0. theta: K. mixing_ratio: kg/kg. wind, wind_v: the components toward east
    and toward north, m/s; nan on levels without a wind.
    """

    surface_pressure: float
    height: np.ndarray
    theta: np.ndarray
    mixing_ratio: np.ndarray
    wind: np.ndarray
    wind_v: np.ndarray

    @property
    def theta_v(self) -> np.ndarray:
        """Virtual potential temperature, K: the theta of dry air with the density of the moist air."""
        return self.theta * (1 + 0.61 * self.mixing_ratio)


@dataclass(frozen=True)
class _Line:
    """A line of the file, and its error report."""

    path: Path
    number: int
    text: str

    def refuse(self, reason: str, do: str = EXPECTED) -> NoReturn:
        raise InputError(reason, where=f"{self.path}, line {self.number}: {self.text.strip()[:80]!r}", do=do)

    def number_of(self, word: str, quantity: str) -> float:
        """The value of a word (Fortran's 1.0D3, too), checked against the range of the quantity."""
        try:
            value = float(re.sub("[dD]", "e", word))
        except ValueError:
            self.refuse(f"{word!r} is not a number ({quantity})")
        low, high, unit = LIMITS[quantity]
        if not low <= value <= high:  # also nan and inf
            self.refuse(f"a {quantity} of {word} {unit} is not possible; {low:g} to {high:g} {unit} is allowed")
        return value


def read_sounding(path: Path) -> Sounding:
    """The sounding in a text file, whose format is detected.

    WRF `input_sounding`: a surface line (pressure in hPa, theta in K, mixing ratio in g/kg), then levels of z (m above
    the surface), theta, mixing ratio, u and v (m/s). University of Wyoming listing: a header with PRES HGHT … THTV,
    levels with values in the header's columns, wind as SKNT (knots) or SPED (m/s). University of Wyoming CSV: a header
    with pressure_hPa,geopotential height_m,temperature_C, theta from these. In both, lines without pressure, height or
    theta (below the ground, or not observed) and lines that repeat the last height or pressure (dense ascents,
    rounded) are skipped, a missing mixing ratio counts as dry, a missing wind is nan.

    Raises `InputError` with file, line number and reason for other formats, damaged lines and levels that do not rise.
    """
    lines = _lines(path)
    for index, line in enumerate(lines):
        if {"PRES", "HGHT", "THTA"} <= set(line.text.split()):
            return _observed(lines, _listing(lines, index))
        if {"pressure_hPa", "geopotential height_m", "temperature_C"} <= set(_split(line)):
            return _observed(lines, _csv(lines, index))
    return _wrf(lines)


def _lines(path: Path) -> list[_Line]:
    """The lines that are not blank, decoded."""
    if read_bytes(path, "the sounding", 4, do=EXPECTED, whole=False) == b"GRIB":
        raise InputError("this is a GRIB file", where=str(path), do=f"make it netCDF: {TO_NETCDF}")
    data = read_bytes(path, "the sounding", LARGEST, do=EXPECTED)
    binary = re.search(rb"[\x00-\x08\x0e-\x1f]", data)
    if binary:
        number = data.count(b"\n", 0, binary.start()) + 1
        raise InputError("this is a binary file, not text", where=f"{path}, line {number}", do=EXPECTED)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"byte {data[error.start]:#x} is not UTF-8 text", where=f"{path}, line {number}", do="save it as UTF-8"
        ) from error
    lines = [_Line(path, number, words) for number, words in enumerate(text.splitlines(), 1) if words.strip()]
    if not lines:
        raise InputError("the sounding is empty", where=str(path), do=EXPECTED)
    return lines


def _wrf(lines: list[_Line]) -> Sounding:
    """The format of WRF's idealized cases, as Fortran reads it: commas are blanks; what follows ! or # is a comment."""
    told = [(line, re.split("[!#]", line.text)[0].replace(",", " ").split()) for line in lines]
    told = [(line, words) for line, words in told if words] or [(lines[0], [])]
    first, words = told[0]
    if len(words) != 3:
        first.refuse(f"this is not a sounding: its first line has {len(words)} words, not surface p, theta and qv")
    pressure = first.number_of(words[0], "pressure")
    if pressure < 300:
        first.refuse(f"a surface pressure of {words[0]} hPa is not possible; 300 to 1100 hPa is allowed")
    surface = (first.number_of(words[1], "theta"), first.number_of(words[2], "mixing ratio"))
    rows: list[list[float]] = []
    for line, words in told[1:]:
        if len(words) != 5:
            line.refuse(f"{len(words)} words where a level has 5: z theta qv u v")
        kinds = ("height", "theta", "mixing ratio", "wind", "wind")
        row = [line.number_of(word, kind) for word, kind in zip(words, kinds, strict=True)]
        if row[0] < 0:
            line.refuse(f"a level at {words[0]} m is below the surface")
        if rows and row[0] <= rows[-1][0]:
            line.refuse(f"the levels must rise: {words[0]} m follows {rows[-1][0]:g} m")
        rows.append(row)
    if rows and rows[0][0] > 0:
        rows.insert(0, [0.0, *surface, rows[0][3], rows[0][4]])
    _require_levels(lines, len(rows))
    height, theta, mixing_ratio, u, v = np.array(rows).T
    greatest = max(float(mixing_ratio.max()), surface[1])
    if 0 < greatest <= MOST_IN_KG and surface[0] > WARM:
        raise InputError(
            f"the greatest mixing ratio is {greatest:g} g/kg, drier than warm air is near the ground",
            where=str(first.path),
            likely="the column is in kg/kg, where this form has g/kg",
            do="multiply it by 1000; write 0 for dry air",
        )
    return Sounding(100 * pressure, height, theta, mixing_ratio / 1000, u, v)


def _listing(lines: list[_Line], header: int) -> Iterator[tuple[_Line, dict[str, float]]]:
    """The values of each level of a listing by quantity: columns end where the header's names end."""
    ends = {match[0]: match.end() for match in re.finditer(r"\S+", lines[header].text)}
    starts = dict(zip(ends, [0, *ends.values()][:-1], strict=True))
    for line in lines[header + 1 :]:
        if re.match(r"\s*(-{5,}|hPa\b)", line.text):
            continue
        if not re.match(r"\s*[-+.\d]|\s*(nan|inf)", line.text, re.IGNORECASE):  # the end of the listing in its page
            return
        if line.text[max(ends.values()) :].strip():
            line.refuse("there is text beyond the last column of the header")
        words = {name: line.text[starts[name] : end].strip() for name, end in ends.items()}
        yield line, {kind: line.number_of(words[name], kind) for name, kind in LISTING.items() if words.get(name)}


def _csv(lines: list[_Line], header: int) -> Iterator[tuple[_Line, dict[str, float]]]:
    """The same for comma-separated lines, where missing values are empty or nan."""
    names = _split(lines[header])
    for line in lines[header + 1 :]:
        if line.text.lstrip().startswith("<"):  # the end of the page around it
            return
        if len(_split(line)) != len(names):
            line.refuse(f"{len(_split(line))} values where the header has {len(names)} names")
        words = {name: word for name, word in zip(names, _split(line), strict=True) if word.lower() not in ("", "nan")}
        yield line, {kind: line.number_of(words[name], kind) for name, kind in CSV.items() if name in words}


def _split(line: _Line) -> list[str]:
    return [word.strip() for word in line.text.split(",")]


def _observed(lines: list[_Line], levels: Iterator[tuple[_Line, dict[str, float]]]) -> Sounding:
    """The sounding of these levels, with heights above the first complete level."""
    rows: list[tuple[float, ...]] = []
    for line, values in levels:
        if {"temperature", "pressure"} <= set(values):
            exner = (100 * values["pressure"] / P0) ** (RD / CP)
            values["theta"] = (values["temperature"] + ZERO_CELSIUS) / exner
        if not {"pressure", "height", "theta"} <= set(values):
            continue
        pressure, height = values["pressure"], values["height"]
        if rows and height < rows[-1][1]:
            line.refuse(f"the levels must rise: {height:g} m follows {rows[-1][1]:g} m", "take such levels out")
        if rows and pressure > rows[-1][0]:
            line.refuse(f"the pressure must fall: {pressure:g} hPa follows {rows[-1][0]:g} hPa", "take such levels out")
        if not rows or (height > rows[-1][1] and pressure < rows[-1][0]):
            rows.append((pressure, height, values["theta"], values.get("mixing ratio", 0.0), *_wind(values)))
    _require_levels(lines, len(rows))
    pressure, height, theta, mixing_ratio, u, v = np.array(rows).T
    return Sounding(100 * pressure[0], height - height[0], theta, mixing_ratio / 1000, u, v)


def _wind(values: dict[str, float]) -> tuple[float, float]:
    """U and v in m/s from the direction the wind comes from and its speed; nan where either is missing."""
    speed = values.get("speed", values.get("speed in knots", math.nan) * KNOT)
    direction = math.radians(values.get("direction", math.nan))
    return -speed * math.sin(direction), -speed * math.cos(direction)


def _require_levels(lines: list[_Line], count: int) -> None:
    if count < 2:
        raise InputError(
            f"the sounding holds {count} complete levels, at least 2 are needed",
            where=f"{lines[0].path}, line {lines[-1].number} (its last)",
            do=EXPECTED,
        )
