"""Soundings: the text forms, what is refused and why, and the columns that are made of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray
from pydantic import ValidationError

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.era5 import specific_humidity
from hpckit.apps.atmosphere.profiles import neutral, observed, profile_of, sounding_of, stable, standard
from hpckit.apps.atmosphere.settings import Base
from hpckit.apps.atmosphere.sounding import KNOT, Sounding, read_sounding
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import C0, CP, GAMMA, GRAVITY, P0, RD

WRF = """\
1000.00  300.00  14.00
  250.0  300.45  14.00  -7.88  -3.58
  750.0  301.25  14.00  -6.94  -0.89
 1250.0  302.47  13.50  -5.17   1.33
 2500.0  306.50   9.00  -1.00   2.00
 5000.0  316.00   3.00   6.00   4.00
10000.0  333.00   0.05  18.00   5.00
12500.0  348.00   0.00  20.00   5.00
"""
RULE = "-" * 77 + "\n"
HEADER = (
    RULE
    + "   PRES   HGHT   TEMP   DWPT   RELH   MIXR   DRCT   SKNT   THTA   THTE   THTV\n"
    + "    hPa     m      C      C      %    g/kg    deg   knot     K      K      K\n"
    + RULE
)
LEVELS = [  # an invented ascent with an inversion, a level without theta and a dry, windless top
    "".join(f"{word:>7}" for word in line.split(","))
    for line in (
        "1000.0,102",
        "970.0,366,24.4,19.1,72,14.60,170,12,300.2,343.1,302.8",
        "925.0,784,21.2,17.8,81,14.10,180,25,300.9,342.5,303.4",
        "850.0,1512,18.6,9.6,56,8.90,200,30,305.6,333.1,307.2",
        "700.0,3145,8.8,-9.2,27,2.70,220,35,312.2,321.0,312.7",
        "612.3,4211,0.9",
        "500.0,5840,-11.7,-21.7,43,1.30,240,45,318.8,323.3,319.1",
        "400.0,7540,-23.3,,,,250,60,324.6",
        "300.0,9600,-39.9,,,,,,329.1,,",
    )
]
WYOMING = "72357 Observations at 00Z 04 May\n\n" + HEADER + "\n".join(LEVELS) + "\n</PRE><H3>Station information</H3>\n"

CSV = """\
time,longitude,latitude,pressure_hPa,geopotential height_m,temperature_C,dew point temperature_C,\
ice point temperature_C,relative humidity_%,humidity wrt ice_%,mixing ratio_g/kg,wind direction_degree,wind speed_m/s
2026-07-05 11:17:50,-97.44,35.18,970.0,  366, 24.4, 19.1, 19.1, 72, 72,14.60,170, 12.0
2026-07-05 11:19:20,-97.44,35.18,925.0,  784, 21.2, 17.8, 17.8, 81, 81,14.10,180, 25.0
2026-07-05 11:19:21,-97.44,35.18,925.0,  785, 21.2, 17.8, 17.8, 81, 81,14.10,180, 25.0
2026-07-05 11:22:00,-97.43,35.19,nan, 1512, 18.6,  9.6,  9.6, 56, 56, 8.90,200, 30.0
2026-07-05 11:28:00,-97.42,35.20,700.0, 3145,  8.8, -9.2, -8.2, 27, 29, 2.70,220, 35.0
2026-07-05 11:37:00,-97.40,35.22,500.0, 5840,-11.7,nan,nan,nan,nan,nan,,
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes):
        path = tmp_path / "sounding.txt"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_wrf_form(write):
    sounding = read_sounding(write(WRF))
    assert sounding.surface_pressure == 100_000.0
    assert list(sounding.height) == [0, 250, 750, 1250, 2500, 5000, 10_000, 12_500]
    assert list(sounding.theta[:3]) == [300.0, 300.45, 301.25]
    assert sounding.mixing_ratio[3] == pytest.approx(0.0135)
    assert list(sounding.wind[:3]) == [-7.88, -7.88, -6.94]
    assert list(sounding.wind_v[:3]) == [-3.58, -3.58, -0.89]
    assert sounding.theta_v[0] == pytest.approx(300 * (1 + 0.61 * 0.014))


def test_wrf_form_with_a_level_at_the_ground_takes_that_level(write):
    sounding = read_sounding(write("1000 300 14\n0 299 14 1 2\n20000 400 0 3 4\n"))
    assert list(sounding.height) == [0, 20_000]
    assert list(sounding.theta) == [299, 400]


def test_wyoming_form(write):
    sounding = read_sounding(write(WYOMING))
    assert sounding.surface_pressure == 97_000.0
    assert list(sounding.height) == [0, 418, 1146, 2779, 5474, 7174, 9234]
    assert list(sounding.theta) == [300.2, 300.9, 305.6, 312.2, 318.8, 324.6, 329.1]
    assert sounding.mixing_ratio[-2] == 0  # not observed: dry
    assert sounding.wind[0] == pytest.approx(-12 * KNOT * np.sin(np.radians(170)))
    assert sounding.wind_v[0] == pytest.approx(12 * KNOT * np.cos(np.radians(10)))  # from the south
    assert np.isnan([sounding.wind[-1], sounding.wind_v[-1]]).all()
    assert sounding.wind[4] > 0  # from the southwest


def test_wyoming_form_of_today_gives_wind_in_meters_per_second(write):
    """The listing as its server gives it since 2025: SPED in place of SKNT."""
    now = WYOMING.replace("SKNT", "SPED").replace("deg   knot", "deg    m/s")
    old, new = read_sounding(write(WYOMING)), read_sounding(write(now))
    np.testing.assert_array_equal(new.theta, old.theta)
    np.testing.assert_allclose(new.wind, old.wind / KNOT, rtol=1e-14)


def test_wyoming_csv(write):
    """The same levels in comma-separated form, temperature in place of theta; repeated heights are left out."""
    sounding = read_sounding(write(CSV))
    assert sounding.surface_pressure == 97_000.0
    assert list(sounding.height) == [0, 418, 2779, 5474]
    assert sounding.theta == pytest.approx([(24.4 + 273.15) / 0.97 ** (RD / CP), 300.9, 312.2, 318.8], abs=0.1)
    assert list(sounding.mixing_ratio) == [0.0146, 0.0141, 0.0027, 0.0]
    assert sounding.wind[1:3] == pytest.approx([0, 35 * np.cos(np.radians(50))], abs=1e-12)
    assert sounding.wind_v[1:3] == pytest.approx([25, 35 * np.cos(np.radians(40))])
    assert np.isnan(sounding.wind[3])


@pytest.mark.parametrize("text", [WRF, WYOMING, CSV])
def test_line_ends_and_byte_order_mark_do_not_matter(write, text):
    plain = read_sounding(write(text))
    for other in (text.replace("\n", "\r\n"), "\ufeff" + text, text.replace("\n", "\n\n").replace("\n\n", "\n", 4)):
        np.testing.assert_array_equal(read_sounding(write(other)).theta, plain.theta)


def wrf_with(number: int, line: str) -> str:
    lines = WRF.splitlines()
    lines[number - 1] = line
    return "\n".join(lines)


def wyoming_with(level: int, line: str) -> str:
    return HEADER + "\n".join([*LEVELS[:level], line, *LEVELS[level + 1 :]]) + "\n"


BAD = {
    "empty": ("", None, "empty"),
    "blank": ("\n  \n", None, "empty"),
    "binary": (b"1000 300 14\n\x00\x01\x02", 2, "binary"),
    "not UTF-8": (b"1000 300 14\n0 300 14 1 1\n500 3\xff2 1 1 1\n", 3, "UTF-8"),
    "prose": ("Dear colleague, the sounding is in the other file.\n", 1, "9 words"),
    "surface alone": ("1000 300 14\n", 1, "1 are needed|0 complete levels"),
    "one level": ("1000 300 14\n0 300 14 1 1\n", 2, "1 complete levels"),
    "word": (wrf_with(4, "1250.0 3o2.47 13.5 -5.17 1.33"), 4, "'3o2.47' is not a number"),
    "nan": (wrf_with(5, "2500.0 nan 9.0 -1.0 2.0"), 5, "theta of nan"),
    "inf": (wrf_with(5, "2500.0 306.5 9.0 inf 2.0"), 5, "wind of inf"),
    "missing column": (wrf_with(6, "5000.0 316.0 3.0 6.0"), 6, "4 words"),
    "falling": (wrf_with(6, "2400.0 316.0 3.0 6.0 4.0"), 6, "must rise: 2400.0 m follows 2500 m"),
    "equal": (wrf_with(6, "2500.0 316.0 3.0 6.0 4.0"), 6, "must rise"),
    "below ground": (wrf_with(2, "-250.0 300.45 14.0 -7.88 -3.58"), 2, "below the surface"),
    "pascal": (wrf_with(1, "100000 300 14"), 1, "pressure of 100000"),
    "celsius": (wrf_with(3, "750.0 28.1 14.0 -6.94 -0.89"), 3, "theta of 28.1"),
    "high surface": (wrf_with(1, "250 300 14"), 1, "300 to 1100"),
    "kg/kg": (re.sub(r"(?m)^( *\S+ +\S+ +)(\S+)", lambda m: f"{m[1]}{float(m[2]) / 1000}", WRF), None, "0.014 g/kg"),
    "Wyoming falling": (wyoming_with(4, LEVELS[4].replace("3145", "1312")), 9, "must rise: 1312 m follows 1512 m"),
    "Wyoming pressure": (wyoming_with(4, LEVELS[4].replace("700.0", "870.0")), 9, "must fall"),
    "Wyoming word": (wyoming_with(4, LEVELS[4].replace("312.2", "3l2.2")), 9, "'3l2.2' is not a number"),
    "Wyoming nan": (wyoming_with(4, LEVELS[4].replace("312.2", "  nan")), 9, "theta of nan"),
    "Wyoming shifted": (wyoming_with(4, "  " + LEVELS[4]), 9, "not a number|beyond"),
    "Wyoming tail": (wyoming_with(4, LEVELS[4] + "  17"), 9, "beyond the last column"),
    "Wyoming CSV short": (CSV.replace("220, 35.0", "220"), 6, "12 values where the header has 13"),
    "Wyoming CSV falling": (CSV.replace(" 3145", "  745"), 6, "must rise: 745 m follows 784 m"),
    "Wyoming CSV kelvin": (CSV.replace(" 24.4", "297.5"), 2, "temperature of 297.5 C"),
    "Wyoming empty": (HEADER, 4, "0 complete levels"),
    "Wyoming incomplete": (HEADER + LEVELS[0] + "\n" + LEVELS[1] + "\n", 6, "1 complete levels"),
}


@pytest.mark.parametrize(("text", "line", "reason"), BAD.values(), ids=BAD.keys())
def test_refusals_name_file_line_and_reason(write, text, line, reason):
    path = write(text)
    with pytest.raises(InputError, match=reason) as caught:
        read_sounding(path)
    assert str(path) in caught.value.where
    if line is not None:
        assert f"line {line}" in caught.value.where
    assert caught.value.do


def test_missing_file_and_folder_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.txt"):
        with pytest.raises(InputError, match="cannot be read"):
            read_sounding(path)


def profiles():
    height = np.array([0.0, 300.0, 1200.0, 1500.0, 6000.0, 13_000.0])
    sounding = Sounding(
        96_500.0,
        height,
        np.array([301.0, 301.0, 302.5, 308.0, 322.0, 345.0]),
        np.array([0.014, 0.013, 0.01, 0.004, 0.001, 0.0]),
        np.array([2.0, 5.0, 9.0, np.nan, 20.0, np.nan]),
        np.array([1.0, 2.0, -9.0, np.nan, 6.0, np.nan]),
    )
    return {
        "neutral": neutral(300.0),
        "stable": stable(290.0, 0.018, 10.0),
        "standard": standard(),
        "sounding": observed(sounding, virtual=False, wind=True, extrapolate=False),
        "virtual": observed(sounding, virtual=True, wind=False, extrapolate=True, u=3.0),
    }


@pytest.mark.parametrize("name", profiles())
def test_pressure_balances_theta(name):
    """dp/dz = -rho g by a central difference, from below the ground on; no point is on a kink of theta."""
    profile = profiles()[name]
    z = np.linspace(-493.0, 12_500.0, 311)
    h = 0.5
    slope = (profile.pressure(z + h) - profile.pressure(z - h)) / (2 * h)
    rho = (profile.pressure(z) / C0) ** (1 / GAMMA) / profile.theta(z)
    np.testing.assert_allclose(slope, -GRAVITY * rho, rtol=3e-7)


@pytest.mark.parametrize("name", profiles())
def test_columns_are_in_discrete_balance(name):
    nz, dz = 37, 300.0
    base = base_state(profiles()[name], nz, dz)
    np.testing.assert_allclose(np.diff(base.faces[2]) / dz, -GRAVITY * base.column[0], rtol=1e-12)
    np.testing.assert_allclose(base.faces[2], C0 * base.faces[1] ** GAMMA, rtol=1e-13)
    np.testing.assert_allclose(base.theta, profiles()[name].theta(base.height), rtol=2e-3)
    assert (np.diff(base.column[0]) < 0).all()


def test_compat_takes_the_middles_of_cells_and_no_base_wind():
    """As the mini-app; the default takes exact means, and tells the hyperviscosity the shear of the base wind."""
    profile, dz = stable(300.0, 0.02, 15.0), 100.0
    default, compat = base_state(profile, 20, dz), base_state(profile, 20, dz, compat=True)
    rho_theta = (profile.pressure(default.height) / C0) ** (1 / GAMMA)
    np.testing.assert_allclose(compat.column[1], rho_theta, rtol=1e-14)
    np.testing.assert_allclose(compat.column[0], rho_theta / profile.theta(default.height), rtol=1e-14)
    assert not compat.faces[3].any()
    assert default.faces[3].all()
    assert (np.abs(compat.column[0] / default.column[0] - 1) > 1e-7).all()


def test_standard_atmosphere_is_the_table():
    """US Standard Atmosphere 1976, table 1: temperature exact, pressure to what g = 9.8 and R = 287 make of it."""
    profile = standard()
    z = np.array([0.0, 5000.0, 11_000.0, 20_000.0, 32_000.0, 47_000.0, 71_000.0])
    pressure = profile.pressure(z)
    table = np.array([101_325.0, 54_019.9, 22_632.1, 5474.89, 868.019, 110.906, 3.95642])
    np.testing.assert_allclose(pressure, table, rtol=6e-3)
    temperature = profile.theta(z) * (pressure / P0) ** (RD / CP)
    np.testing.assert_allclose(temperature, [288.15, 255.65, 216.65, 216.65, 228.65, 270.65, 214.65], rtol=1e-12)


def test_sounding_below_the_top_is_refused_and_says_what_is_allowed(write):
    sounding = read_sounding(write(WYOMING))
    profile = observed(sounding, virtual=False, wind=False, extrapolate=False)
    base_state(profile, 100, 92.34)
    with pytest.raises(InputError, match="ends at 9234 m, below the top of the model at 10000 m") as caught:
        base_state(profile, 100, 100.0)
    assert "at most 9234" in caught.value.do
    assert "base.extrapolate = true" in caught.value.do
    longer = observed(sounding, virtual=False, wind=False, extrapolate=True)
    z = np.array([9234.0, 9800.0, 12_000.0])
    temperature = longer.theta(z) * (longer.pressure(z) / P0) ** (RD / CP)
    np.testing.assert_allclose(temperature, temperature[0], rtol=1e-12)
    with pytest.raises(InputError, match="neutral base state ends at 29198 m"):
        base_state(neutral(300.0), 100, 300.0)


def test_wind_is_interpolated_where_it_was_observed():
    profile = profiles()["sounding"]
    np.testing.assert_allclose(profile.wind(np.array([0.0, 150.0, 3600.0, 12_000.0])), [2.0, 3.5, 14.5, 20.0])
    np.testing.assert_allclose(profile.wind_v(np.array([0.0, 150.0, 12_000.0])), [1.0, 1.5, 6.0])
    calm = Sounding(1e5, np.array([0.0, 1e4]), np.array([300.0, 330.0]), np.zeros(2), *np.full((2, 2), np.nan))
    with pytest.raises(InputError, match="no wind"):
        observed(calm, virtual=False, wind=True, extrapolate=False)


ERA5 = {"t": ("K", "air_temperature"), "q": ("kg kg**-1", "specific_humidity"), "u": ("m s**-1", "eastward_wind")}
ERA5 |= {"v": ("m s**-1", "northward_wind"), "z": ("m**2 s**-2", "geopotential")}


def era5(path: Path, times=("2011-05-24T18:00", "2011-05-24T21:00"), **left_out) -> Path:
    """A file as the Climate Data Store makes it: an atmosphere of 250 K whose ground value grows to the north-east."""
    pressure = np.array([1000.0, 925, 850, 700, 500, 300, 100])
    lat, lon = np.array([36.0, 35.5, 35.0]), np.array([262.0, 262.5])  # from the north, 0 to 360
    shape = (len(times), len(pressure), len(lat), len(lon))
    more = (lat - 35.0)[:, None] + 2 * (lon - 262.0)
    z = 287.0 * 250.0 * np.log(1010.0 / pressure)
    values = {
        "t": 250.0 + 0 * np.zeros(shape),
        "q": 1e-3 * (1 + np.arange(len(times))[:, None, None, None]) + np.zeros(shape),
        "u": more + np.zeros(shape),
        "v": pressure[:, None, None] / 100 + np.zeros(shape),
        "z": z[:, None, None] * 9.80665 / 9.8 + np.zeros(shape),
    }
    dims = ("valid_time", "pressure_level", "latitude", "longitude")
    coords = {"valid_time": np.array(times, "datetime64[ns]"), "pressure_level": pressure, "latitude": lat}
    made = xarray.Dataset(
        {
            name: (dims, values[name].astype(np.float32), {"units": units, "standard_name": standard})
            for name, (units, standard) in ERA5.items()
            if name not in left_out
        },
        {**coords, "longitude": lon},
    )
    made.pressure_level.attrs["units"] = "hPa"
    made.to_netcdf(path, format=left_out.get("format", "NETCDF4"), engine="netcdf4")
    return path


@pytest.mark.parametrize("kind", ["NETCDF4", "NETCDF3_64BIT"])
def test_a_column_of_era5_is_read(tmp_path, kind):
    """Between points, at the closest time, over a ground above the sea; longitudes east or west."""
    path = era5(tmp_path / "era5.nc", format=kind)
    base = Base(kind="sounding", file=path, lat=35.25, lon=-97.875, time="2011-05-24T20:00", ground=300.0)
    found = sounding_of(base)
    scale = 287.0 * 250.0 / 9.8
    heights = scale * np.log(1010.0 / np.array([925.0, 850, 700, 500, 300, 100])) - 300.0
    np.testing.assert_allclose(found.height, [0.0, *heights], rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(found.surface_pressure, 1.01e5 * np.exp(-300.0 / scale), rtol=1e-4)
    np.testing.assert_allclose(
        found.theta[1:], 250.0 * (1000 / np.array([925.0, 850, 700, 500, 300, 100])) ** (2 / 7), rtol=1e-3
    )
    np.testing.assert_allclose(found.mixing_ratio, 2e-3 / (1 - 2e-3), rtol=1e-5)  # of 21 UTC
    np.testing.assert_allclose(found.wind, 0.25 + 2 * 0.125, rtol=1e-5)
    np.testing.assert_allclose(found.wind_v[1], 9.25, rtol=1e-6)
    assert profile_of(base).pressure(np.zeros(1))[0] == pytest.approx(found.surface_pressure)
    low = sounding_of(base.model_copy(update={"ground": 0.0}))  # the sea is below 1000 hPa
    assert low.surface_pressure == pytest.approx(1.01e5, rel=1e-4)
    assert low.height[1] == pytest.approx(scale * np.log(1.01), rel=1e-3)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lat": None}, "3 points of latitude"),
        ({"time": None}, "it has 2 times"),
        ({"time": "1999-01-01"}, "is not in the file"),
        ({"time": "noon"}, "is not a date"),
        ({"lon": 10.0}, "outside the file"),
        ({"ground": 6000.0, "left_out": ["q", "u"]}, r"no humidity \(q\), u"),
    ],
)
def test_columns_that_are_not_in_the_file_are_refused(tmp_path, given, reason):
    path = era5(tmp_path / "era5.nc", **dict.fromkeys(given.pop("left_out", ())))
    where = {"lat": 35.2, "lon": -97.9, "time": "2011-05-24T21:00", **given}
    with pytest.raises(InputError, match=reason):
        sounding_of(Base(kind="sounding", file=path, **where))


@pytest.mark.parametrize("name", ["gh", "z"])
def test_a_geopotential_height_is_as_good_as_a_geopotential(tmp_path, name):
    path = era5(tmp_path / "era5.nc")
    with xarray.open_dataset(path) as there:
        made = there.load().rename({"z": name})
    made[name] = made[name] / 9.80665
    made[name].attrs = {"units": "gpm", "standard_name": "geopotential_height"}
    made.to_netcdf(tmp_path / "heights.nc", engine="netcdf4")
    one, other = (
        sounding_of(Base(kind="sounding", file=each, lat=35.25, lon=-97.875, time="2011-05-24T20:00"))
        for each in (path, tmp_path / "heights.nc")
    )
    np.testing.assert_allclose(other.height, one.height, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda made: made.t.attrs.update(units="degC"), "t is in 'degC'"),
        (lambda made: made.t.attrs.pop("units"), None),
        (lambda made: made.update({"t": made.t.copy(data=made.t - 273.15)}), "t of -23.15 is not possible in K"),
        (lambda made: made.q.attrs.update(units="g kg**-1"), None),
        (lambda made: made.update({"q": made.q.copy(data=1e3 * made.q)}), "q of 2 is not possible"),
        (lambda made: made.u.attrs.update(units="knots"), "u is in 'knots'"),
        (lambda made: made.update({"z": made.z.copy(data=made.z / 9.8).drop_attrs()}), "lie 17[0-9]+ m apart"),
        (lambda made: made.update({"v": made.v.where(made.pressure_level > 200)}), "v is missing on some levels"),
        (lambda made: made.coords.update({"pressure_level": 100 * made.pressure_level.drop_attrs()}), None),
    ],
)
def test_units_of_a_column_are_those_it_says_and_can_be(tmp_path, change, reason):
    """A column in degrees Celsius, g/kg, knots, meters without a word or Pa would be another atmosphere."""
    where = {"lat": 35.25, "lon": -97.875, "time": "2011-05-24_20:00"}
    path, other = era5(tmp_path / "era5.nc"), tmp_path / "other.nc"
    with xarray.open_dataset(path) as there:
        made = there.load()
    change(made)
    made.to_netcdf(other, engine="netcdf4")
    if reason:
        with pytest.raises(InputError, match=reason):
            sounding_of(Base(kind="sounding", file=other, **where))
        return
    one, two = (sounding_of(Base(kind="sounding", file=each, **where)) for each in (path, other))
    assert two.surface_pressure == pytest.approx(one.surface_pressure, rel=1e-3)
    share = 1e-3 if made.q.units == "g kg**-1" else 1.0
    np.testing.assert_allclose(two.mixing_ratio, share * one.mixing_ratio, rtol=2e-3)


def test_odd_columns_are_read_or_refused(tmp_path):
    """Levels alone or with an own dim for experiments; capitals; longitudes between the last and the first."""
    path, other = era5(tmp_path / "era5.nc"), tmp_path / "other.nc"
    where = {"lat": 35.25, "lon": -97.875, "time": "2011-05-24T20:00+00:00"}
    with xarray.open_dataset(path) as there:
        made = there.load()
    one = sounding_of(Base(kind="sounding", file=path, **where))
    for changed, reason in (
        (made.isel(pressure_level=[0]), "a single level"),
        (made.expand_dims(expver=["1", "5"]), "has dims"),
        (made.rename({name: name.upper() for name in made.data_vars}).map(lambda each: each.drop_attrs()), None),
    ):
        changed.to_netcdf(other, engine="netcdf4")
        if reason:
            with pytest.raises(InputError, match=reason):
                sounding_of(Base(kind="sounding", file=other, **where))
        else:
            two = sounding_of(Base(kind="sounding", file=other, **where))
            np.testing.assert_array_equal(two.wind, one.wind)
    globe = made.isel(longitude=[0] * 8).assign_coords(longitude=45.0 * np.arange(8))
    globe["u"] = (globe.u + globe.longitude).assign_attrs(made.u.attrs)
    for turned in (globe, globe.isel(longitude=slice(None, None, -1))):
        turned.to_netcdf(other, engine="netcdf4")
        there = sounding_of(Base(kind="sounding", file=other, **{**where, "lon": -9.0}))
        assert there.wind[0] == pytest.approx(0.25 + 0.2 * 315.0, rel=1e-4)


def test_a_relative_humidity_is_as_good_as_a_specific_one(tmp_path):
    """Saturated air at 20 C has a vapor pressure of 2339 Pa (Goff and Gratch), at -40 C over ice one of 12.84 Pa."""
    warm, cold = specific_humidity(np.ones(2), np.array([293.15, 233.15]), np.array([1e5, 5e4]))
    assert warm == pytest.approx(0.622 * 2339 / (1e5 - 0.378 * 2339), rel=2e-3)
    assert cold == pytest.approx(0.622 * 12.84 / (5e4 - 0.378 * 12.84), rel=5e-3)
    path = era5(tmp_path / "era5.nc")
    with xarray.open_dataset(path) as there:
        made = there.load().rename({"q": "r"})
    made["r"] = 0 * made["r"] + 75.0
    made["r"].attrs = {"units": "%", "standard_name": "relative_humidity"}
    made.to_netcdf(tmp_path / "relative.nc", engine="netcdf4")
    where = {"lat": 35.25, "lon": -97.875, "time": "2011-05-24T20:00", "ground": 0.0}
    found = sounding_of(Base(kind="sounding", file=tmp_path / "relative.nc", **where))
    q = specific_humidity(np.array(0.75), np.array(250.0), np.array(1e5))
    assert found.mixing_ratio[1] == pytest.approx(q / (1 - q), rel=1e-5)
    made["r"].attrs["units"] = "kg"
    made.to_netcdf(tmp_path / "odd.nc", engine="netcdf4")
    with pytest.raises(InputError, match="r is in 'kg'"):
        sounding_of(Base(kind="sounding", file=tmp_path / "odd.nc", **where))


def test_places_belong_to_netcdf_files(write):
    with pytest.raises(InputError, match=r"base\.lat belongs to a netCDF file"):
        sounding_of(Base(kind="sounding", file=write(WRF), lat=35.0))
    with pytest.raises(ValidationError, match=r"base\.time belongs to a sounding"):
        Base(kind="neutral", time="2011-05-24")


def test_an_input_sounding_of_cm1_is_that_of_wrf(write):
    """CM1 writes and reads the same columns, with more digits and spaces."""
    found = read_sounding(
        write("   1000.000    300.0000     14.0000\n   50.0  300.1  13.9  1.5  0.0\n  15000. 400. 0. 30. 0.\n")
    )
    assert (found.surface_pressure, found.theta.tolist()) == (1e5, [300.0, 300.1, 400.0])


@pytest.mark.parametrize(
    "text",
    [
        "# an ascent\n" + WRF.replace("14.00\n", "14.00  ! p (mb), theta, qv (g/kg)\n", 1),
        re.sub(r" +", ", ", WRF.replace("\n ", "\n")),
        WRF.replace("300.00", "3.0D2"),
        WRF.replace("\n", "  \t\n") + "\n!\n",
    ],
)
def test_a_sounding_is_read_as_fortran_reads_it(write, text):
    """Comments, commas, exponents of double precision, blanks."""
    found, plain = read_sounding(write(text)), read_sounding(write(WRF))
    assert found.surface_pressure == plain.surface_pressure
    np.testing.assert_array_equal(found.theta, plain.theta)
    np.testing.assert_array_equal(found.mixing_ratio, plain.mixing_ratio)


def test_a_grib_file_is_told_how_to_become_netcdf(tmp_path):
    (tmp_path / "era5.grib").write_bytes(b"GRIB" + bytes(5 << 20))
    with pytest.raises(InputError, match="GRIB") as caught:
        read_sounding(tmp_path / "era5.grib")
    assert "cfgrib" in caught.value.report()
