"""What modelers take along of the box: wrfout files, series at stations, maps of storms."""

from __future__ import annotations

import json

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.weather3d import report
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.products.maps import Maps
from hpckit.apps.weather3d.products.parcels import Parcels
from hpckit.apps.weather3d.products.storms import track
from hpckit.apps.weather3d.products.wrf import to_faces
from hpckit.apps.weather3d.run import run as run_app
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.cli.main import main
from hpckit.kernels.euler.box.constants import RHO_U, RHO_V, RHO_W
from hpckit.report.extension import app_sections
from hpckit.report.run_data import load_run
from hpckit.run.context import Run
from hpckit.run.settings import with_common

STORM = {
    "grid": {"nx": 13, "ny": 14, "nz": 17, "width": 13e3, "length": 14e3, "height": 12e3, "lowest": 300.0},
    "dynamics": {"kind": "hevi", "step": 6.0},
    "base": {"kind": "weisman_klemp", "shear": 20.0, "u": -10.0},
    "moisture": {"kind": "ice"},
    "bubbles": [
        {"amplitude": 8.0, "x": 6500.0, "y": 7000.0, "z": 1500.0, "radius_x": 4e3, "radius_y": 4e3},
        {"amplitude": -12.0, "x": 6500.0, "y": 7000.0, "z": 8000.0},
    ],
    "smagorinsky": {"coefficient": 0.2},
    "tracers": [{"name": "smoke", "x": 6500.0, "y": 7000.0}],
    "parcels": {"x": [3e3, 9e3, 3], "y": [4e3, 10e3, 3], "z": [500.0, 2500.0, 2]},
    "time": {"end": 240.0, "monitor": 10},
    "output": {
        "every": 120.0,
        "fields": ["theta_total", "temperature", "pressure"],
        "maps": True,
        "series": 30.0,
        "statistics": 60.0,
        "stations": [{"name": "here", "x": 6400.0, "y": 7400.0}, {"name": "edge", "x": 13e3, "y": 0.0}],
    },
}


@pytest.fixture(scope="module")
def storm(tmp_path_factory):
    config = Config.model_validate(STORM)
    path = tmp_path_factory.mktemp("storm") / "run"
    run_app(config, Run(MPI.COMM_SELF, path, app="weather3d", title="storm", lines=False))
    values = with_common(Config).model_validate(STORM).model_dump(mode="json")  # as `hpckit run` writes them
    (path / "resolved.json").write_text(json.dumps({"values": values}))
    return path


def destagger(values: np.ndarray, dim: int) -> np.ndarray:
    """As wrf-python and MetPy do it."""
    rows = np.moveaxis(np.asarray(values, np.float64), dim, 0)
    return np.moveaxis(0.5 * (rows[1:] + rows[:-1]), 0, dim)


@pytest.mark.parametrize("ends", ["wrap", "wall", "edge"])
def test_winds_at_faces_have_those_of_the_middles_as_means(ends):
    """To sixth order, and exactly for a uniform wind; walls let nothing through."""
    errors = []
    for n in (16, 32):
        x = (np.arange(n) + 0.5) / n
        wave = {"wrap": np.sin(2 * np.pi * x), "wall": np.sin(np.pi * x), "edge": 1 + 0 * x}[ends]
        faces = to_faces(np.array([wave, 2 * wave]), 1, ends)
        assert faces.shape == (2, n + 1)
        errors.append(np.abs(destagger(faces, 1)[0] - wave).max())
        if ends == "wall":
            assert np.abs(faces[:, [0, -1]]).max() < 1e-15
        if ends == "wrap":
            np.testing.assert_array_equal(faces[:, 0], faces[:, -1])
    assert errors[1] < 1e-15 if ends == "edge" else errors[1] < errors[0] / 50 < 1e-4
    assert to_faces(np.ones(2), 0, "wall").shape == (3,)  # narrower than the filter


def test_a_wrfout_has_what_its_readers_need(storm, capsys):
    """Names, dims, attributes and staggering that wrf-python and MetPy look for; values are those of the fields."""
    assert main(["export", "wrf", str(storm), "--start", "2011-05-24_20:00:00", "--lat", "35", "--lon", "-98"]) == 0
    path = storm / "wrfout_d01_2011-05-24_20:00:00"
    assert f"{path}: 3 frames" in capsys.readouterr().out
    fields = xarray.open_dataset(storm / "output" / "fields.h5", decode_times=False)
    nz, ny, nx = fields.theta.shape[1:]
    with netCDF4.Dataset(path) as file:
        sizes = {name: len(dim) for name, dim in file.dimensions.items()}
        assert sizes == {
            "Time": 3,
            "DateStrLen": 19,
            "west_east": nx,
            "south_north": ny,
            "bottom_top": nz,
            "west_east_stag": nx + 1,
            "south_north_stag": ny + 1,
            "bottom_top_stag": nz + 1,
        }
        assert not set(sizes) & set(file.variables)  # dims alone, as WRF has them: no coordinates of zeros
        assert file.dimensions["Time"].isunlimited()
        assert b"".join(file["Times"][1].compressed()) == b"2011-05-24_20:02:00"
        np.testing.assert_allclose(file["XTIME"][:], [0.0, 2.0, 4.0])
        volume = ("Time", "bottom_top", "south_north", "west_east")
        for name in ("T", "P", "PB", "QVAPOR", "QCLOUD", "QRAIN", "QICE", "QSNOW", "QGRAUP", "smoke"):
            assert file[name].dimensions == volume, name
        for name, dim, stagger in (("U", 3, "X"), ("V", 2, "Y"), ("W", 1, "Z"), ("PH", 1, "Z"), ("PHB", 1, "Z")):
            expected = list(volume)
            expected[dim] += "_stag"
            assert (list(file[name].dimensions), file[name].stagger) == (expected, stagger)
        flat = ("Time", "south_north", "west_east")
        for name in ("XLAT", "XLONG", "HGT", "PSFC", "T2", "Q2", "U10", "V10", "F", "MAPFAC_M", "SINALPHA", "COSALPHA"):
            assert file[name].dimensions == flat, name
        assert (file.DX, file.DY, file.MAP_PROJ, file.getncattr("WEST-EAST_GRID_DIMENSION")) == (1000, 1000, 0, nx + 1)
        np.testing.assert_allclose([file["XLAT"][0].mean(), file["XLONG"][0].mean()], [35.0, -98.0], rtol=1e-6)
        shown = {name: fields[name].values.astype(np.float64) for name in ("u", "v", "w", "theta", "rho", "vapor")}
        for name, dim in (("U", 3), ("V", 2), ("W", 1)):
            ours = shown[name.lower()]
            assert np.abs(destagger(file[name][:], dim) - ours).max() < 0.06 * np.abs(ours - ours.mean()).max(), name
        for name, ours in (("QVAPOR", "vapor"), ("QICE", "ice"), ("QSNOW", "snow"), ("QGRAUP", "graupel")):
            np.testing.assert_array_equal(file[name][:], fields[ours].values)
        assert fields.ice.attrs["standard_name"] == "cloud_ice_mixing_ratio"
        assert fields.ice.values.max() > 1e-6
        theta = shown["theta"] + fields.theta_base.values[:, None, None]
        np.testing.assert_allclose(file["T"][:] + 300, theta, rtol=1e-6)
        pressure, rho = file["P"][:] + file["PB"][:], shown["rho"] + fields.rho_base.values[:, None, None]
        warm = theta * (1 + 461 / 287 * shown["vapor"])
        np.testing.assert_allclose(pressure, rho * 287 * warm * (pressure / 1e5) ** (287 / 1004), rtol=1e-4)
        np.testing.assert_allclose(fields.theta_total.values, theta, rtol=1e-6)  # of dry air, as air_temperature
        np.testing.assert_allclose(fields.pressure.values, pressure, rtol=1e-6)
        np.testing.assert_allclose(fields.temperature.values, theta * (pressure / 1e5) ** (287 / 1004), rtol=1e-6)
        height = destagger(file["PH"][:] + file["PHB"][:], 1) / 9.81
        np.testing.assert_allclose(height[0, :, 3, 4], fields.z.values, rtol=1e-5)
        assert (file["PSFC"][:] > pressure[:, 0]).all()
        np.testing.assert_allclose(file["PSFC"][0, 0, 0], 1e5, rtol=2e-4)
        with h5py.File(storm / "output" / "maps" / "fields.h5") as maps:
            for name, ours in (("SNOWNC", "snow_at_ground"), ("UP_HELI_MAX", "updraft_helicity")):
                np.testing.assert_array_equal(file[name][:], maps[ours][:, 0])
            total = sum(maps[f"{kind}_at_ground"][:, 0].astype(np.float64) for kind in ("rain", "snow", "graupel"))
            np.testing.assert_allclose(file["RAINNC"][:], total, rtol=1e-6)
        assert file["UP_HELI_MAX"][-1].max() > 0
    with xarray.open_dataset(path, engine="netcdf4") as again:
        assert set(again["U"].coords) >= {"XLONG_U", "XLAT_U"}
    fields.close()


def test_what_cannot_be_exported_is_refused(storm, tmp_path, capsys):
    (tmp_path / "resolved.json").write_text(json.dumps({"values": {"app": "diffusion"}}))
    for words, reason in (
        (["grib", str(storm)], "not a format"),
        (["wrf", str(tmp_path)], "a run of diffusion"),
        (["wrf", str(storm), "--start", "yesterday"], "not a date"),
        (["wrf", str(storm), "--lat", "91"], "not on the globe"),
    ):
        assert main(["export", *words]) == 2
        assert reason in capsys.readouterr().err


def test_stations_have_the_series_of_their_cells(storm):
    with (
        xarray.open_dataset(storm / "output" / "stations.h5", decode_times=False) as series,
        xarray.open_dataset(storm / "output" / "fields.h5", decode_times=False) as fields,
        h5py.File(storm / "output" / "maps" / "fields.h5") as maps,
    ):
        assert series.time.values.tolist() == [30.0 * n for n in range(9)]
        assert series.attrs["stations"] == "here edge"
        assert series.station_x.values.tolist() == [6400.0, 13e3]
        last = series.isel(time=-1)
        for n, (y, x) in enumerate(((7, 6), (0, 12))):
            there = fields.isel(time=-1, y=y, x=x)
            for name in ("u", "v", "vapor"):
                np.testing.assert_allclose(last[name][n], there[name][0], rtol=1e-6)
            np.testing.assert_allclose(last.theta[n], there.theta[0] + fields.theta_base[0], rtol=1e-7)
            np.testing.assert_allclose(last.w_max[n], there.w.max(), rtol=1e-6)
            for name in ("rain_at_ground", "graupel_at_ground"):
                np.testing.assert_allclose(last[name][n], maps[name][-1, 0, y, x], rtol=1e-6, atol=1e-30)
        np.testing.assert_allclose(last.temperature, last.theta * (last.pressure / 1e5) ** (287 / 1004), rtol=1e-4)


def test_maps_have_the_extremes_since_the_last_frame(storm):
    """Updraft over all steps, so at least that of the frame; a storm that is symmetric in y has both signs."""
    with (
        h5py.File(storm / "output" / "maps" / "fields.h5") as maps,
        h5py.File(storm / "output" / "fields.h5") as fields,
    ):
        updraft, w = maps["updraft"][:, 0], fields["w"][...]
        assert (updraft[1:] >= w[1:].max(axis=1) - 1e-6).all()
        most, least = maps["updraft_helicity"][-1, 0], maps["updraft_helicity_min"][-1, 0]
        assert most.max() > 1.0 > -1.0 > least.min()
        np.testing.assert_allclose(most, -least[::-1], atol=1e-5 * most.max())
        assert (np.diff(maps["rain_at_ground"][...], axis=0) >= 0).all()


def test_updraft_helicity_of_a_rotating_updraft(tmp_path):
    """Air that turns as a solid body with 2 omega and rises with w: 3000 m times both; none where it sinks."""
    config = Config.model_validate({**STORM, "bubbles": [], "base": {"kind": "neutral"}, "moisture": {"kind": "none"}})
    model = SplitModel(config, mesh_for(config, MPI.COMM_SELF))
    omega, data = 1e-3, model.state.interior
    rho = model.base.column[0][:, None, None]
    data[RHO_U] = -rho * omega * (np.arange(14)[:, None] - 7) * 1e3
    data[RHO_V] = rho * omega * (np.arange(13) - 6) * 1e3
    data[RHO_W, 1:] = 0.5 * (rho[1:] + rho[:-1]) * np.where(np.arange(13) < 9, 4.0, -4.0)
    maps = Maps(model, tmp_path, {"y": np.arange(14.0), "x": np.arange(13.0)}, {}, None)
    maps.sample()
    inner = maps.most.interior[:, 0, 2:-2, 2:-2]
    np.testing.assert_allclose(inner[0, :, :7], 2 * omega * 4.0 * 3000.0, rtol=2e-3)
    assert not inner[0, :, 7:].any()
    assert not inner[1].any()
    maps.write(0.0)
    assert not maps.most.interior.any()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"output": {"stations": [{"name": "far", "x": 1e6, "y": 0.0}]}}, "outside the box"),
        ({"output": {"stations": [{"name": "a", "x": 1.0, "y": 0.0}] * 2}}, "is taken"),
        ({"dynamics": {"kind": "explicit"}, "output": {"maps": True}}, "output.maps needs the split dynamics"),
    ],
)
def test_products_that_cannot_be_are_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Config.model_validate(given)


def test_parcels_turn_with_the_air_on_circles(tmp_path):
    """A solid body's rotation, once around: the place is back to second order in the step; upward at a constant w."""
    gone = []
    for steps in (40, 80):
        given = {
            "grid": {**STORM["grid"], "lowest": 0.0},
            "parcels": {"x": [8.3e3, 8.3e3, 1], "y": [7e3, 7e3, 1], "z": [6e3, 6e3, 1]},
        }
        config = Config.model_validate(
            {**STORM, "bubbles": [], "base": {"kind": "neutral"}, "moisture": {"kind": "none"}, **given}
        )
        model = SplitModel(config, mesh_for(config, MPI.COMM_SELF))
        omega, data, rho = 2e-3, model.state.interior, model.base.column[0][:, None, None]
        data[RHO_U] = -rho * omega * (np.arange(14)[:, None] + 0.5 - 7) * 1e3
        data[RHO_V] = rho * omega * (np.arange(13) + 0.5 - 6.5) * 1e3
        data[RHO_W, 1:] = 0.5 * (rho[1:] + rho[:-1]) * 0.5
        parcels = Parcels(model, tmp_path, {}, None)
        parcels.begin()
        for _ in range(steps):
            parcels.move(2 * np.pi / omega / steps)
        z, y, x = parcels.swarm["position"][0]
        assert z == pytest.approx(6e3 + 0.5 * 2 * np.pi / omega, rel=1e-3)
        gone.append(np.hypot(x - 8.3e3, y - 7e3))
    assert gone[1] < gone[0] / 3.5 < 60.0


@pytest.mark.nightly
def test_the_report_has_storms_and_trajectories(storm):
    made = {section.key: section for section in app_sections(report, load_run(storm))}
    with h5py.File(storm / "output" / "maps" / "fields.h5") as maps, h5py.File(storm / "output" / "parcels.h5") as file:
        numbers = made["storms"].numbers
        assert numbers["updraft_helicity"] == pytest.approx(maps["updraft_helicity"][...].max())
        assert numbers["rain"] == pytest.approx(maps["rain_at_ground"][-1].sum() * 1e6)
        assert numbers["tracks"]["right"]["t"][-1] == 240.0
        assert made["storms"].html.count("<svg") == 4
        assert "mean mixing ratio of vapor" in made["statistics"].html
        assert "()" not in made["statistics"].html  # a ratio has no unit
        assert numbers["snow"] == pytest.approx(maps["snow_at_ground"][-1].sum() * 1e6)
        heat = made["budgets"].numbers["latent_heat_budget"]
        assert abs(heat["unexplained"]) < 1e-10 * abs(heat["warmed"])
        water = made["budgets"].numbers["water_budget"]
        assert abs(water["unexplained"]) < 1e-13 * water["in_air"]
        assert file["height"].shape == (9, 18)
        rise = file["height"][...].max(axis=0) - file["height"][0]
        assert made["trajectories"].numbers["greatest_rise"] == pytest.approx(rise.max())
        assert rise.max() > 100.0
        assert 280 < file["theta"][...].min() < file["theta"][...].max() < 330
        assert (file["vapor"][-1] > 0).all()


def test_tracks_are_where_rotation_is_strong():
    times, y, x = np.array([0.0, 60.0, 120.0]), np.array([5.0, 15.0]), np.array([1.0, 2.0, 3.0])
    values = np.zeros((3, 2, 3))
    values[1, 1, 2], values[2, 0, 1], values[2, 1, 1] = 30.0, 90.0, 80.0
    assert [row.tolist() for row in track(times, y, x, values)] == [[60.0, 120.0], [15.0, 5.0], [3.0, 2.0]]


@pytest.mark.nightly
def test_a_wrfout_over_terrain_and_of_explicit_dynamics(tmp_path):
    """Heights of ground and levels; the pressure of an atmosphere at rest at the true height of each cell."""
    grid = {"nx": 13, "ny": 14, "nz": 11, "width": 13e3, "length": 14e3, "height": 11e3}
    hill = {"kind": "bell", "ridge": False, "height": 900.0, "half_width": 3e3, "x": 6e3, "y": 7e3}
    base = {"kind": "stable", "frequency": 0.01}
    for name, more in (("hill", {"dynamics": {"kind": "hevi"}, "terrain": hill}), ("explicit", {})):
        told = {"time": {"end": 0.0}, "output": {"fields": ["pressure"]}}
        config = Config.model_validate({"grid": grid, "base": base, "bubbles": [], **told, **more})
        path = tmp_path / name
        run_app(config, Run(MPI.COMM_SELF, path, app="weather3d", title=name, lines=False))
        (path / "resolved.json").write_text(json.dumps({"values": config.model_dump(mode="json")}))
        assert main(["export", "wrf", str(path), str(tmp_path / f"{name}.nc")]) == 0
        with netCDF4.Dataset(tmp_path / f"{name}.nc") as file, h5py.File(path / "output" / "fields.h5") as fields:
            height = destagger(file["PH"][0] + file["PHB"][0], 0) / 9.81
            ground = fields["surface_altitude"][...] if more else np.zeros((14, 13))
            np.testing.assert_allclose(file["HGT"][0], ground, atol=1e-3)
            assert ground.max() == (pytest.approx(830.0, abs=1.0) if more else 0.0)
            if more:
                np.testing.assert_allclose(height, fields["altitude"][...], atol=0.5)
            profile = column_of(config.base)
            np.testing.assert_allclose(file["P"][0] + file["PB"][0], profile.pressure(height), rtol=4e-3)
            np.testing.assert_allclose(file["T"][0] + 300, profile.theta(height), rtol=1e-3)
            np.testing.assert_allclose(file["P"][0] + file["PB"][0], fields["pressure"][0], rtol=1e-6)
            np.testing.assert_allclose(file["PSFC"][0], profile.pressure(ground), rtol=1e-3)
            assert not file["QVAPOR"][:].any()
            assert "RAINNC" not in file.variables
