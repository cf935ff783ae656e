"""Fields of a run as a wrfout file: names, units, dims and staggering of WRF's output (netCDF-4).

Winds of the fields stand in the middles of cells, WRF's at faces: they are put there by the six-point filter whose
two-point mean, which is how readers come back to the middles, gives the winds of the fields to sixth order. Levels are
at fixed heights, so the geopotential is all base state (PHB = 9.81 z, as readers of WRF divide it). What stands at 2 m
and 10 m in WRF is that of the lowest cells here.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.layout import halos_of
from hpckit.apps.weather3d.products.maps import MAPS
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.sides import HORIZONTAL, periodic_axes
from hpckit.apps.weather3d.split.state import level_tables
from hpckit.apps.weather3d.terrain import Terrain
from hpckit.errors import InputError
from hpckit.io.fields.hdf5 import FORMAT
from hpckit.io.fields.master import MASTER
from hpckit.io.files import replacing
from hpckit.kernels.euler.constants import C0, GAMMA, GRAVITY, P0, RD
from hpckit.kernels.euler.rain.constants import RV
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology

EPOCH = "2000-01-01_00:00:00"
WRF_GRAVITY = 9.81  # m/s2: what readers divide the geopotential by
DEGREE = 111_177.0  # m of latitude, on WRF's sphere of 6370 km
T0 = 300.0  # K: what WRF takes off theta
TO_FACES = np.array([1, -7, 22, 22, -7, 1]) / 32
WATER = {
    "vapor": ("QVAPOR", "Water vapor mixing ratio"),
    "cloud": ("QCLOUD", "Cloud water mixing ratio"),
    "rain": ("QRAIN", "Rain water mixing ratio"),
    "ice": ("QICE", "Ice mixing ratio"),
    "snow": ("QSNOW", "Snow mixing ratio"),
    "graupel": ("QGRAUP", "Graupel mixing ratio"),
}
DIMS = {
    "Time": "Time",
    "X": "west_east",
    "Y": "south_north",
    "Z": "bottom_top",
    "x": "west_east_stag",
    "y": "south_north_stag",
    "z": "bottom_top_stag",
    "S": "DateStrLen",
}
# Name: (dims without Time: capitals in the middle, small letters at faces; units; description).
VARIABLES: dict[str, tuple[str, str, str]] = {
    "XLAT": ("YX", "degree_north", "LATITUDE, SOUTH IS NEGATIVE"),
    "XLONG": ("YX", "degree_east", "LONGITUDE, WEST IS NEGATIVE"),
    "XLAT_U": ("Yx", "degree_north", "LATITUDE, SOUTH IS NEGATIVE"),
    "XLONG_U": ("Yx", "degree_east", "LONGITUDE, WEST IS NEGATIVE"),
    "XLAT_V": ("yX", "degree_north", "LATITUDE, SOUTH IS NEGATIVE"),
    "XLONG_V": ("yX", "degree_east", "LONGITUDE, WEST IS NEGATIVE"),
    "U": ("ZYx", "m s-1", "x-wind component"),
    "V": ("ZyX", "m s-1", "y-wind component"),
    "W": ("zYX", "m s-1", "z-wind component"),
    "PH": ("zYX", "m2 s-2", "perturbation geopotential"),
    "PHB": ("zYX", "m2 s-2", "base-state geopotential"),
    "T": ("ZYX", "K", "perturbation potential temperature theta-t0"),
    "P": ("ZYX", "Pa", "perturbation pressure"),
    "PB": ("ZYX", "Pa", "BASE STATE PRESSURE"),
    "MU": ("YX", "Pa", "perturbation dry air mass in column"),
    "MUB": ("YX", "Pa", "base state dry air mass in column"),
    "PSFC": ("YX", "Pa", "SFC PRESSURE"),
    "T2": ("YX", "K", "temperature of the lowest level"),
    "Q2": ("YX", "kg kg-1", "QVAPOR of the lowest level"),
    "TH2": ("YX", "K", "potential temperature of the lowest level"),
    "U10": ("YX", "m s-1", "U of the lowest level"),
    "V10": ("YX", "m s-1", "V of the lowest level"),
    "HGT": ("YX", "m", "Terrain Height"),
    "F": ("YX", "s-1", "Coriolis sine latitude term"),
    "E": ("YX", "s-1", "Coriolis cosine latitude term"),
    "SINALPHA": ("YX", "", "Local sine of map rotation"),
    "COSALPHA": ("YX", "", "Local cosine of map rotation"),
    "MAPFAC_M": ("YX", "", "Map scale factor on mass grid"),
    "MAPFAC_U": ("Yx", "", "Map scale factor on u-grid"),
    "MAPFAC_V": ("yX", "", "Map scale factor on v-grid"),
    "ZNU": ("Z", "", "eta values on half (mass) levels"),
    "ZNW": ("z", "", "eta values on full (w) levels"),
    "P_TOP": ("", "Pa", "PRESSURE TOP OF THE MODEL"),
    "RDX": ("", "m-1", "INVERSE X GRID LENGTH"),
    "RDY": ("", "m-1", "INVERSE Y GRID LENGTH"),
    "XLAND": ("YX", "", "LAND MASK (1 FOR LAND, 2 FOR WATER)"),
    "RAINC": ("YX", "mm", "ACCUMULATED TOTAL CUMULUS PRECIPITATION"),
    "RAINNC": ("YX", "mm", "ACCUMULATED TOTAL GRID SCALE PRECIPITATION"),
    "SNOWNC": ("YX", "mm", "ACCUMULATED TOTAL GRID SCALE SNOW AND ICE"),
    "GRAUPELNC": ("YX", "mm", "ACCUMULATED TOTAL GRID SCALE GRAUPEL"),
    "UP_HELI_MAX": ("YX", "m2 s-2", "MAX UPDRAFT HELICITY"),
    "W_UP_MAX": ("YX", "m s-1", "MAX Z-WIND UPDRAFT"),
}
MAPPED = {
    "rain_at_ground": "RAINNC",
    "snow_at_ground": "SNOWNC",
    "graupel_at_ground": "GRAUPELNC",
    "updraft_helicity": "UP_HELI_MAX",
    "updraft": "W_UP_MAX",
}
ORDERS = {0: "0  ", 1: "Z  ", 2: "XY ", 3: "XYZ"}
STAGGERED = {"x": "X", "y": "Y", "z": "Z"}


def start_of(text: str) -> datetime.datetime:
    """The date in text, as WRF or ISO 8601 write it; raises `InputError` for others."""
    try:
        return datetime.datetime.fromisoformat(text.replace("_", "T"))
    except ValueError as error:
        raise InputError(f"{text!r} is not a date", do=f"give one such as {EPOCH}, or 2000-01-01T00:00:00") from error


def to_faces(values: np.ndarray, dim: int, ends: str) -> np.ndarray:
    """Values at the n + 1 faces from those in n middles along a dim; their two-point means are the values again.

    That holds to sixth order. ends: "wrap" periodic, "wall" an odd mirror (0 at the end faces), "edge" repeated.
    """
    rows = np.moveaxis(values, dim, 0)
    some = len(rows)
    n = np.arange(-3, some + 3)
    mirrored = n.copy()
    while (mirrored < 0).any() or (mirrored >= some).any():  # fewer cells than the filter is wide
        mirrored = np.where(mirrored < 0, -1 - mirrored, mirrored)
        mirrored = np.where(mirrored >= some, 2 * some - 1 - mirrored, mirrored)
    if ends == "wrap":
        padded = rows[n % some]
    elif ends == "wall":
        sign = np.where((n < 0) | (n >= some), -1.0, 1.0).reshape(-1, *[1] * (rows.ndim - 1))
        padded = rows[mirrored] * sign
    else:
        padded = rows[np.clip(n, 0, some - 1)]
    faces = sum(weight * padded[k : k + some + 1] for k, weight in enumerate(TO_FACES))
    return np.moveaxis(np.asarray(faces), 0, dim)


def write_wrfout(
    fields: Path, config: Config, path: Path, start: datetime.datetime, middle: tuple[float, float]
) -> int:
    """Write all frames of a run's fields.h5 to path; returns their number.

    start: the date of time 0; middle: latitude and longitude of the middle of the box, degrees. Rain and updraft
    helicity are there if the run has maps (`output.maps`). Raises `SetupError` if the file cannot be written.
    """
    maps = fields.with_name(MAPS) / MASTER
    with h5py.File(fields) as source, replacing(path) as temporary, h5py.File(temporary, "w", libver=FORMAT) as made:
        times = np.asarray(source["time"][...])
        rest = _base_of(source, config)
        still = _still(source, config, middle, rest)
        told = h5py.File(maps) if maps.is_file() else None
        try:
            blank = _Frames(made, config, start, middle, len(times))
            for k, time in enumerate(times):
                blank.add(k, float(time), {**still, **_moving(source, told, k, config, still, rest)})
        finally:
            if told:
                told.close()
    return len(times)


class _Frames:
    """The file: dims and attributes at once, variables as the first frame brings them."""

    def __init__(
        self, made: h5py.File, config: Config, start: datetime.datetime, middle: tuple[float, float], count: int
    ) -> None:
        grid = config.grid
        self.made, self.start, self.count = made, start, count
        sizes = {"X": grid.nx, "Y": grid.ny, "Z": grid.nz, "x": grid.nx + 1, "y": grid.ny + 1, "z": grid.nz + 1}
        for number, (letter, name) in enumerate(DIMS.items()):
            size = {"Time": count, "S": 19}.get(letter) or sizes[letter]
            scale = made.create_dataset(
                name,
                (size,),
                ">f4",
                maxshape=(None,) if letter == "Time" else None,
                chunks=None if letter != "Time" else (1,),
            )
            scale.make_scale(f"This is a netCDF dimension but not a netCDF variable.{size:10d}")
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
        made.attrs.update(_attributes(config, start, middle))

    def add(self, k: int, time: float, values: Mapping[str, np.ndarray]) -> None:
        """Frame k, at a time (s)."""
        date = self.start + datetime.timedelta(seconds=round(time))
        stamp = np.frombuffer(f"{date:%Y-%m-%d_%H:%M:%S}".encode(), "S1")
        self._put(k, "Times", "S", stamp, {})
        since = f"minutes since {self.start:%Y-%m-%d %H:%M:%S}"
        self._put(k, "XTIME", "", np.float32(time / 60), {"units": since, "description": since, **_shape_of("")})
        for name, each in values.items():
            letters, units, said = VARIABLES.get(name) or ("ZYX", "kg kg-1", _said(name))
            where = "XLONG XLAT XTIME" if letters[-2:] == "YX" else ""
            where = {"Yx": "XLONG_U XLAT_U XTIME", "yX": "XLONG_V XLAT_V XTIME"}.get(letters[-2:], where)
            told = {"description": said, "units": units, **_shape_of(letters)}
            self._put(k, name, letters, each, {**told, **({"coordinates": where} if where else {})})

    def _put(self, k: int, name: str, letters: str, values: Any, attributes: Mapping[str, Any]) -> None:
        values = np.asarray(values, "S1" if name == "Times" else np.float32)
        if name not in self.made:
            shape = (self.count, *values.shape)
            options = {} if name == "Times" else {"compression": "gzip", "compression_opts": 1, "shuffle": True}
            it = self.made.create_dataset(
                name, shape, values.dtype, maxshape=(None, *values.shape), chunks=(1, *values.shape), **options
            )
            for dim, letter in enumerate(("Time", *letters)):
                it.dims[dim].attach_scale(self.made[DIMS[letter]])
            it.attrs.update(attributes)
        self.made[name][k] = values


def _said(name: str) -> str:
    return next((said for short, said in WATER.values() if short == name), f"mixing ratio of {name}")


def _shape_of(letters: str) -> dict[str, Any]:
    stagger = "".join(STAGGERED[letter] for letter in letters if letter in STAGGERED)
    return {"FieldType": np.int32(104), "MemoryOrder": ORDERS[len(letters)], "stagger": stagger}


def _attributes(config: Config, start: datetime.datetime, middle: tuple[float, float]) -> dict[str, Any]:
    """Global attributes that readers of wrfout look for. MAP_PROJ 0: a plane, as in WRF's idealized cases."""
    grid = config.grid
    latitude, longitude = map(np.float32, middle)
    whole = {
        "WEST-EAST_GRID_DIMENSION": grid.nx + 1,
        "SOUTH-NORTH_GRID_DIMENSION": grid.ny + 1,
        "BOTTOM-TOP_GRID_DIMENSION": grid.nz + 1,
        "MAP_PROJ": 0,
        "USE_THETA_M": 0,
        "HYBRID_OPT": 0,
        "GRID_ID": 1,
        "PARENT_ID": 0,
        "I_PARENT_START": 1,
        "J_PARENT_START": 1,
        "PARENT_GRID_RATIO": 1,
        "JULYR": start.year,
        "JULDAY": start.timetuple().tm_yday,
    }
    real = {"DX": grid.dx, "DY": grid.dy, "DT": config.full_step, "GMT": start.hour + start.minute / 60}
    stamp = f"{start:%Y-%m-%d_%H:%M:%S}"
    return {
        "TITLE": " OUTPUT FROM HPCKIT WEATHER3D IN THE FORM OF WRF",
        "START_DATE": stamp,
        "SIMULATION_START_DATE": stamp,
        "GRIDTYPE": "C",
        "MAP_PROJ_CHAR": "Cartesian",
        **{name: np.int32(value) for name, value in whole.items()},
        **{name: np.float32(value) for name, value in real.items()},
        **dict.fromkeys(("CEN_LAT", "TRUELAT1", "TRUELAT2", "MOAD_CEN_LAT"), latitude),
        **dict.fromkeys(("CEN_LON", "STAND_LON"), longitude),
        "POLE_LAT": np.float32(90.0),
        "POLE_LON": np.float32(0.0),
    }


class _Base(NamedTuple):
    """The base state of all cells: faces of levels (m), density of dry air (kg/m3), theta (K), pressure (Pa)."""

    faces: np.ndarray
    rho: np.ndarray
    theta: np.ndarray
    pressure: np.ndarray


def _base_of(source: h5py.File, config: Config) -> _Base:
    """That of the run's file, or that of the model in cells over terrain."""
    grid = config.grid
    edges = grid.edges
    if config.terrain.kind == "flat":
        rows = (np.asarray(source[name][...], np.float64) for name in ("rho_base", "theta_base", "pressure_base"))
        cells = [np.broadcast_to(row[:, None, None], (grid.nz, grid.ny, grid.nx)) for row in rows]
        return _Base(edges[:, None, None] + np.zeros((1, grid.ny, grid.nx)), *cells)
    alone = Topology(("z", *HORIZONTAL), (1, 1, 1), periodic_axes(config))
    whole = Decomposition((grid.nz, grid.ny, grid.nx), alone, halo=halos_of(config))
    profile = column_of(config.base, config.moisture.kind != "none")
    terrain = Terrain(config, profile, level_tables(edges), (whole, 0), np.asarray)
    return _Base(terrain.faces, terrain.cells.rho, terrain.cells.theta, terrain.cells.pressure)


def _still(source: h5py.File, config: Config, middle: tuple[float, float], rest: _Base) -> dict[str, np.ndarray]:
    """What does not change: places, levels, the base state."""
    grid = config.grid
    edges, shape, faces = grid.edges, (grid.ny, grid.nx), rest.faces
    column = (rest.rho * np.diff(faces, axis=0)).sum(axis=0) * GRAVITY
    mass = np.concatenate([[0.0], np.cumsum(np.asarray(source["rho_base"][...]) * np.diff(edges))])
    eta = 1 - mass / mass[-1]
    x, y = ((np.arange(2 * n + 1) / 2 - n / 2) * width for n, width in ((grid.nx, grid.dx), (grid.ny, grid.dy)))
    north = middle[0] + y / DEGREE
    east = middle[1] + x / (DEGREE * max(np.cos(np.radians(middle[0])), 1e-3))
    places = {}
    for name, (rows, columns) in {"": (1, 1), "_U": (1, 0), "_V": (0, 1)}.items():
        lat, lon = np.meshgrid(north[rows::2], east[columns::2], indexing="ij")
        places[f"XLAT{name}"], places[f"XLONG{name}"] = lat, lon
    profile = column_of(config.base, config.moisture.kind != "none")
    flat = {"F": config.coriolis, "E": 0.0, "SINALPHA": 0.0, "COSALPHA": 1.0, "XLAND": 2.0, "RAINC": 0.0}
    return {
        **places,
        "PHB": WRF_GRAVITY * faces,
        "PH": np.zeros_like(faces),
        "PB": rest.pressure,
        "MUB": column,
        "HGT": faces[0],
        **{name: np.full(shape, value) for name, value in flat.items()},
        "MAPFAC_M": np.ones(shape),
        "MAPFAC_U": np.ones((grid.ny, grid.nx + 1)),
        "MAPFAC_V": np.ones((grid.ny + 1, grid.nx)),
        "ZNU": 0.5 * (eta[1:] + eta[:-1]),
        "ZNW": eta,
        "P_TOP": profile.pressure(edges[-1:])[0],
        "RDX": np.float32(1 / grid.dx),
        "RDY": np.float32(1 / grid.dy),
    }


def _moving(
    source: h5py.File, maps: h5py.File | None, k: int, config: Config, still: Mapping[str, np.ndarray], rest: _Base
) -> dict[str, np.ndarray]:
    """The variables of frame k that change."""

    def read(name: str) -> np.ndarray:
        return np.asarray(source[name][k], np.float64)

    rho, theta = read("rho") + rest.rho, read("theta") + rest.theta
    water = {short: read(name) for name, (short, _) in WATER.items() if name in source}
    water.setdefault("QVAPOR", np.zeros_like(theta))
    pressure = C0 * (rho * theta * (1 + RV / RD * water["QVAPOR"])) ** GAMMA
    temperature = theta * (pressure / P0) ** (1 - 1 / GAMMA)
    weight = (rho * np.diff(rest.faces, axis=0)) * GRAVITY
    wet = 1 + sum(water.values())
    wraps = periodic_axes(config)
    ends = {
        axis: "wrap" if axis in wraps else "wall" if getattr(config.sides, axis) == "walls" else "edge" for axis in "xy"
    }
    u, v, w = (read(name) for name in "uvw")
    tracers = {tracer.name: read(tracer.name) for tracer in config.tracers}
    found = {
        "U": to_faces(u, 2, ends["x"]),
        "V": to_faces(v, 1, ends["y"]),
        "W": to_faces(w, 0, "wall"),
        "T": theta - T0,
        "P": pressure - still["PB"],
        "MU": weight.sum(axis=0) - still["MUB"],
        "PSFC": pressure[0] * np.exp(0.5 * (weight * wet)[0] / pressure[0]),
        "T2": temperature[0],
        "TH2": theta[0],
        "Q2": water["QVAPOR"][0],
        "U10": u[0],
        "V10": v[0],
        **water,
        **tracers,
    }
    if maps is not None:
        found |= {short: np.asarray(maps[name][k, 0], np.float64) for name, short in MAPPED.items() if name in maps}
        if "SNOWNC" in found:  # WRF's rain is all that falls
            found["RAINNC"] = found["RAINNC"] + found["SNOWNC"] + found["GRAUPELNC"]
    return found
