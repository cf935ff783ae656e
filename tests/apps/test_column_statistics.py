"""Column statistics of the box: NumPy's means of a frame, the kernel's mixing, equal bits on any number of ranks."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
import xarray
from conftest import by_day
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.weather3d import report
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.products.statistics import FILE, through_faces
from hpckit.apps.weather3d.report import lowest_flux
from hpckit.apps.weather3d.run import run as run_app
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import CorruptDataError
from hpckit.io.fields.profiles import ProfileWriter
from hpckit.kernels.euler.box.constants import RHO_THETA, RHO_U, RHO_V
from hpckit.kernels.euler.hevi.stress.dispatch import mix
from hpckit.report.extension import app_sections
from hpckit.report.run_data import load_run
from hpckit.run.context import Run

GRID = {"nx": 13, "ny": 14, "nz": 11, "width": 2600.0, "length": 2800.0, "height": 2000.0, "lowest": 100.0}
FORCED = {
    "grid": GRID,
    "dynamics": {"kind": "hevi", "step": 1.0},
    "base": {"kind": "stable", "frequency": 0.01, "u": 3.0, "v": -2.0},
    "bubbles": [],
    "noise": {"amplitude": 1.0, "height": 800.0},
    "surface": {"heat": 0.2, "friction": 0.3},
    "smagorinsky": {"coefficient": 0.2},
    "diffusion": 20.0,
    "tracers": [{"name": "smoke", "shape": "layer", "z": 300.0, "radius_z": 500.0}],
}
MOIST = {
    **FORCED,
    "grid": {**GRID, "height": 9000.0, "lowest": 400.0},
    "base": {"kind": "weisman_klemp", "shear": 10.0},
    "moisture": {"kind": "kessler"},
    "noise": {"amplitude": 1.0, "height": 3000.0},
}
PRODUCTS = {
    "output": {
        "maps": True,
        "stations": [{"name": "a", "x": 100.0, "y": 2700.0}, {"name": "b", "x": 2600.0, "y": 0.0}],
    },
    "parcels": {"x": [0.0, 2600.0, 5], "y": [1.0, 2799.0, 4], "z": [0.0, 8000.0, 3]},
}
EXPLICIT = {"grid": {**GRID, "lowest": 0.0}, "bubbles": [{"x": 1000.0, "y": 1500.0, "z": 700.0}], "base": {"u": 5.0}}


@pytest.mark.parametrize("names", by_day([(("moist",),), (("moist", "explicit"),)], (("moist",),)), ids=str)
def test_statistics_are_the_same_on_any_number_of_ranks(mpirun, tmp_path, names):
    cases = {"moist": {**MOIST, **PRODUCTS}, "explicit": EXPLICIT}
    cases = {name: cases[name] for name in names}
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in (1, 4):
        mpirun(ranks, "statistics_ranks.py", tmp_path, timeout=240)
    for name in cases:
        with h5py.File(tmp_path / f"{name}-1" / FILE) as one, h5py.File(tmp_path / f"{name}-4" / FILE) as four:
            assert list(one) == list(four)
            for key in one:
                np.testing.assert_array_equal(one[key][...], four[key][...], err_msg=f"{name}, {key}")
            assert one["w_variance"][-1].max() > 0
            assert ("vapor_subgrid_flux" in one) is (name == "moist")
        for file in ("stations.h5", "parcels.h5", "maps/fields.h5") if name == "moist" else ():
            with h5py.File(tmp_path / f"moist-1/{file}") as one, h5py.File(tmp_path / f"moist-4/{file}") as four:
                for key in set(one) - {"VTKHDF"}:
                    np.testing.assert_array_equal(one[key][...], four[key][...], err_msg=f"{file}, {key}")


def test_a_frame_has_the_means_that_numpy_finds(tmp_path):
    """Statistics of a run beside its frames, opened by xarray with names and units of CF; picture in the report."""
    output = {"every": 5.0, "statistics": 2.0, "single": False}
    config = Config.model_validate({**FORCED, "time": {"end": 9.0}, "output": output})
    path = tmp_path / "run"
    run_app(config, Run(MPI.COMM_SELF, path, app="weather3d", title="mixing", lines=False))
    with (
        xarray.open_dataset(path / "output" / "fields.h5", decode_times=False) as frames,
        xarray.open_dataset(path / "output" / FILE, decode_times=False) as found,
    ):
        assert found.time.values.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]
        np.testing.assert_array_equal(found.z, frames.z)
        last, shown = found.isel(time=-1), {name: frames[name].values[-1] for name in ("u", "w", "theta", "smoke")}
        assert frames.time.values[-1] == 9.0
        for name, values in shown.items():
            flat = values.reshape(len(values), -1)
            mean = flat.mean(axis=1) + (frames.theta_base.values if name == "theta" else 0.0)
            size = np.abs(values).max()
            np.testing.assert_allclose(last[name], mean, rtol=1e-13, atol=1e-13 * size)
            np.testing.assert_allclose(last[f"{name}_variance"], flat.var(axis=1), rtol=1e-11, atol=1e-25)
            if name != "w":
                both = [np.cov(shown["w"][k].ravel(), flat[k], bias=True)[0, 1] for k in range(len(flat))]
                np.testing.assert_allclose(last[f"{name}_flux"], both, rtol=1e-10, atol=1e-16)
        np.testing.assert_allclose(last.theta_subgrid_flux[0], 0.1, rtol=0.3)  # half of what enters, and mixing above
        assert found.theta.attrs["standard_name"] == "air_potential_temperature"
        assert {name: found[name].units for name in ("theta_flux", "u_flux", "smoke_flux", "theta_variance")} == {
            "theta_flux": "K m s-1",
            "u_flux": "m2 s-2",
            "smoke_flux": "m s-1",
            "theta_variance": "K2",
        }
        assert found.u.attrs["cell_methods"] == "area: mean"
        z, flux = found.z.values, (found.theta_flux + found.theta_subgrid_flux).values
    (path / "resolved.json").write_text(json.dumps({"values": config.model_dump(mode="json")}))
    section = {each.key: each for each in app_sections(report, load_run(path))}["statistics"]
    assert section.numbers["time"] == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    for row, height in zip(flux, section.numbers["inversion"], strict=True):
        assert height == (z[row.argmin()] if row.min() < -0.01 * np.abs(row).max() else None)
    assert section.html.count("<svg") >= 3


def test_the_inversion_is_where_the_flux_of_heat_points_down_most():
    """Of a mixed layer whose flux falls from the ground to -0.2 of it; none before it mixes, noise below 1 % or not."""
    z = np.arange(50.0, 1000.0, 100.0)
    mixed = np.interp(z, [0.0, 560.0, 700.0], [0.1, -0.02, 0.0])
    calm = np.where(z < 100.0, 0.1, -1e-4)
    found = lowest_flux(z, np.stack([0 * mixed, calm, 0.5 * mixed]), np.stack([0 * mixed, 0 * mixed, 0.5 * mixed]))
    assert np.isnan(found[:2]).all()
    assert found[2] == 550.0


@pytest.mark.parametrize("settings", [FORCED, {**MOIST, "surface": {}}], ids=["dry", "moist"])
def test_subgrid_fluxes_are_what_the_mixing_does(settings):
    """On periodic sides the mean of a level changes by the difference of the fluxes through its faces."""
    config = Config.model_validate(settings)
    model = SplitModel(config, mesh_for(config, MPI.COMM_SELF))
    for _ in range(3):
        model.step(model.dt, PhaseTimer())
    shown = {name: each.copy() for name, each in model.shown().items()}  # mixing is in place
    rho = shown["rho"] + model.base.column[0][:, None, None]
    if model.forced:
        model.forced.config = Config.model_validate({**settings, "surface": {}})  # the mixing alone
    whole = through_faces(model, shown, rho)
    faces = {name: each.mean(axis=(1, 2)) for name, each in whole.items()}
    dt = 10.0  # any: mixing is linear in it, and each starts from the same state
    before, smoke = model.state.interior.copy(), shown["smoke"]
    model.carried.corners(model.carried.field)
    spacing = model.spacing["x"], model.spacing["y"]
    changed = np.zeros_like(before)
    mixed = np.zeros_like(smoke)
    for prandtl, cross, _ in model.viscosities(model.dt):
        mix(model.state.data, model.work, model.mu, model.unmixed, model.levels, spacing, dt, prandtl, cross)
        model._mix_carried(dt / prandtl)
        changed += (model.state.interior - before) / dt
        mixed += (model.carried.field.interior[model.carried.names.index("smoke")] - smoke) / dt
        model.state.interior[...] = before
        model.carried.field, model.carried.spare = model.carried.spare, model.carried.field
    thick = np.diff(model.edges)
    for name, rate in (("u", changed[RHO_U]), ("v", changed[RHO_V]), ("smoke", rho * mixed)):
        expected = -np.diff(faces[name]) / thick
        np.testing.assert_allclose(rate.mean(axis=(1, 2)), expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())
    if not model.is_moist:
        expected = -np.diff(faces["theta"]) / thick
        got = changed[RHO_THETA].mean(axis=(1, 2))
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())
    else:  # moist theta: the fluxes of theta and of vapor together
        theta = shown["theta"] + model.base_theta[:, None, None]
        middle = [0.5 * (each[1:] + each[:-1]) for each in (theta, shown["vapor"])]
        both = np.zeros_like(whole["theta"])
        kappa = 461.0 / 287.0
        both[1:-1] = whole["theta"][1:-1] * (1 + kappa * middle[1]) + kappa * middle[0] * whole["vapor"][1:-1]
        expected = -np.diff(both.mean(axis=(1, 2))) / thick
        got = changed[RHO_THETA].mean(axis=(1, 2))
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())


def test_profiles_go_on_after_those_that_a_checkpoint_counts(tmp_path):
    def writer(resume=None):
        told = {"theta": {"units": "K"}}
        return ProfileWriter(MPI.COMM_SELF, tmp_path / FILE, "z", np.array([1.0, 3.0, 9.0]), "m", told, {}, resume)

    first = writer()
    for time in range(3):
        first.add(float(time), {"theta": np.full(3, time)})
    kept = first.kept()
    first.add(3.0, {"theta": np.full(3, np.nan)})  # after the checkpoint
    first.write()
    after = writer(kept)
    after.add(3.5, {"theta": np.full(3, 7.0)})
    after.write()
    with h5py.File(tmp_path / FILE) as file:
        assert file["time"][...].tolist() == [0.0, 1.0, 2.0, 3.5]
        assert file["theta"][:, 2].tolist() == [0.0, 1.0, 2.0, 7.0]
    with pytest.raises(CorruptDataError, match="4 times, the checkpoint 9"):
        writer({"count": 9})
    (tmp_path / FILE).unlink()
    with pytest.raises(CorruptDataError):
        writer(kept)


def test_a_tracer_may_not_take_a_name_of_the_statistics():
    with pytest.raises(ValidationError, match="may not end in"):
        Config.model_validate({"tracers": [{"name": "air_flux"}], "output": {"statistics": 1.0}})
