"""Diagrams, sections and animation: right values, no blank panels, bounded reading, one self-contained page."""

from __future__ import annotations

import base64
import importlib
import io
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import by_day
from made_run import LEAN, make_run
from made_waves import write_waves
from mpi4py import MPI
from test_report import refuse_external

from hpckit.apps.weather.validate.report import picture
from hpckit.report import build_report
from hpckit.report.draw.animation import MOST_BYTES, animate
from hpckit.report.draw.figures import read_fields
from hpckit.report.draw.hovmoeller import diagrams, hovmoeller_numbers, hovmoeller_section
from hpckit.report.draw.wind import Wind
from hpckit.report.extension import app_sections
from hpckit.report.field_file import FieldFile
from hpckit.report.run_data import RunData, load_run
from hpckit.report.sections.fields import cross_sections, cut_place, extremum, fields_section
from hpckit.report.sections.slices import color_scale, cropped, one_each, read_slice, read_slices
from hpckit.report.settings import Report
from hpckit.report.units import scaled_place
from hpckit.run.context import Run

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

LENGTH = 4000.0
SPEED = 12.5
TIMES = np.arange(0.0, 161.0, 16.0)
THETA = {"theta": {"units": "K", "long_name": "potential temperature deviation"}}


@pytest.fixture(scope="module")
def wave(tmp_path_factory):
    """A wave that travels to +x at SPEED, the same at all z."""

    def values(time, z, x):
        return {"theta": 2.0 * np.sin(2 * np.pi * (x - SPEED * time) / LENGTH) + 0 * z}

    output = tmp_path_factory.mktemp("wave") / "o"
    return write_waves(output, "zx", (900.0, LENGTH), (9, 80), "x", TIMES, THETA, values)


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """A warm cell that moves up a level and along x a time; at rest at first."""

    def values(time, z, y, x):
        theta = np.zeros(z.shape)
        step = round(time / 10)
        theta[2 + step, 5, 3 + 2 * step] = 4.0 - 0.1 * step
        wind = {"u": 3.0 * time / 40 + 0 * x, "v": 0 * x, "w": time / 10 * np.ones(x.shape)}
        return {"theta": theta, **wind}

    winds = {name: {"units": "m s-1"} for name in "uvw"}
    output = tmp_path_factory.mktemp("box") / "o"
    shape, times = (9, 11, 13), np.arange(0.0, 41.0, 10.0)
    return write_waves(output, "zyx", (900.0, 1100.0, 1300.0), shape, "yx", times, {**THETA, **winds}, values)


def test_the_validation_suite_draws_a_section_of_a_box(box):
    """A picture of a nested run, and no other words in its place."""
    run = SimpleNamespace(directory=box.parent)
    (box.parent / "cases").mkdir(exist_ok=True)
    (box.parent / "cases" / "fields.h5").symlink_to(box)
    drawn = picture(run, {"run": "fields.h5", "field": "theta", "title": "A warm cell"})
    assert "A warm cell" in drawn
    assert '<svg class="panel"' in drawn
    assert "cannot be drawn" not in drawn


def test_the_validation_suite_cuts_a_box_where_something_is(tmp_path):
    def values(time, z, y, x):
        theta = np.zeros(z.shape)
        theta[3, 1, 4] = 5.0
        return {"theta": theta}

    (tmp_path / "cases").mkdir()
    output = tmp_path / "cases" / "o"
    write_waves(output, "zyx", (900.0, 1100.0, 1300.0), (9, 11, 13), "yx", np.array([0.0, 10.0]), THETA, values)
    drawn = picture(SimpleNamespace(directory=tmp_path), {"run": output.name, "field": "theta", "title": "Aside"})
    assert "cut at y = 150 m, through the extremum" in drawn


def test_a_travelling_wave_has_the_slope_of_its_speed(wave):
    with FieldFile(wave, ("x",)) as file:
        made, how = diagrams(file, file.main(), "auto")
    assert how == "mean"
    assert [one.dims for one in made] == [("time", "x")]  # nothing happens along z
    times, x = made[0].coords
    assert times.tolist() == TIMES.tolist()
    expected = 2.0 * np.sin(2 * np.pi * (x - SPEED * times[:, None]) / LENGTH)
    np.testing.assert_allclose(made[0].values[0], expected, atol=1e-13)
    crest = x[made[0].values[0].argmax(axis=1)]
    speed = np.polyfit(times, np.unwrap(crest, period=LENGTH), 1)[0]
    assert speed == pytest.approx(SPEED, rel=0.02)
    record = hovmoeller_numbers(made, how)["axes"]["x"]
    np.testing.assert_allclose(record["values"], expected, rtol=1e-5, atol=1e-12)
    assert hovmoeller_section(made, how).count("<svg") == 2  # a scale and a diagram


def test_the_extremum_follows_a_warm_cell(box, monkeypatch):
    with FieldFile(box, ("y", "x")) as file:
        made, how = diagrams(file, file.main(), "auto")
        monkeypatch.setattr("hpckit.report.field_file.SLAB_BYTES", 3000)
        pieces, _ = diagrams(file, file.main(), "extremum")
        means, _ = diagrams(file, file.main(), "mean")
        monkeypatch.setattr("hpckit.report.draw.hovmoeller.READ_BYTES", 10_000)
        few, _ = diagrams(file, file.main(), "extremum")
    assert how == "extremum"
    for one in (made, pieces):
        z, y, x = (field.values[0] for field in one)
        assert z.argmax(axis=1).tolist() == [2, 3, 4, 5, 6]
        assert set(y.argmax(axis=1).tolist()) == {5}
        assert x.argmax(axis=1).tolist() == [3, 5, 7, 9, 11]
        np.testing.assert_allclose(z.max(axis=1), [4.0, 3.9, 3.8, 3.7, 3.6], rtol=1e-6)
    assert means[0].values[0][0, 2] == pytest.approx(4.0 / (11 * 13))
    assert few[0].values[0].shape[1] <= 9


@pytest.mark.parametrize(("cells", "most"), [(100, 300), (100, 30), (101, 50)])
def test_a_diagram_ends_where_its_grid_does(tmp_path, monkeypatch, cells, most):
    """Neighbors are joined, not left out: the last tick stays, a spike does where it was, means stay means."""
    monkeypatch.setattr("hpckit.report.draw.hovmoeller.MOST_POINTS", most)

    def values(time, z, x):
        return {"theta": time + x + 0 * z, "h": time * (abs(x - 9.7e3) < 100) + 0 * z}

    path = write_waves(tmp_path / "a", "zx", (30.0, 20e3), (4, cells), "", (0.0, 1.0), {**THETA, "h": {}}, values)
    with FieldFile(path) as file:
        (one,), _ = diagrams(file, file.variables["theta"], "mean")
        spike = diagrams(file, file.variables["h"], "extremum")[0][-1]
    assert one.values.shape[2] <= most
    np.testing.assert_allclose(one.values[0, 1], 1.0 + one.coords[1], rtol=1e-6)
    assert one.ends == pytest.approx((0.0, 20e3), abs=1e-6)
    assert spike.values[0, 1].max() == 1.0
    assert spike.coords[1][spike.values[0, 1].argmax()] == pytest.approx(9.7e3, abs=10e3 / len(spike.coords[1]))
    assert re.findall(r">(\d+)</text>", hovmoeller_section([one], "mean"))[-5:] == ["0", "5", "10", "15", "20"]


def test_fields_that_say_nothing_have_no_diagrams(tmp_path):
    still = write_waves(
        tmp_path / "a", "zx", (1.0, 1.0), (4, 5), "x", (0.0, 1.0), THETA, lambda t, z, x: {"theta": 0 * x}
    )
    with FieldFile(still) as file:
        assert diagrams(file, file.main(), "auto") == ([], "auto")
        assert animate(file, file.main(), (), 30) is None
        assert extremum(file, file.main(), 0) == (2, 2)


def test_times_without_anything_to_see_are_left_out(box):
    with FieldFile(box, ("y", "x")) as file:
        theta, u, v, w = read_slices(file, main="theta", place=(2, 5, 3))
    assert theta.note == "cut at y = 550 m"
    assert (u.blank, u.times) == ([], [0.0, 10.0, 20.0, 30.0, 40.0])  # one value at a time, all times alike
    assert v.low == v.high == 0
    page = fields_section([theta, u, v, w], [])
    assert "The field is uniform" in page


def test_a_field_of_rounding_is_not_drawn(tmp_path):
    """Beside winds of 5 m/s one of 1e-12 m/s says nothing; a height between others is told in the unit of its axis."""

    def values(time, z, x):
        wave = np.sin(2 * np.pi * x / 8e3) + 0 * z
        return {"u": 5 * wave, "v": 1e-12 * wave, "w": 1e-6 * wave}

    winds = {name: {"units": "m s-1", "long_name": f"wind {name}"} for name in "uvw"}
    path = write_waves(tmp_path / "a", "zx", (6e3, 8e3), (6, 16), "x", (0.0, 1.0), winds, values)
    with FieldFile(path, ("x",)) as file:
        fields = read_slices(file, main="u")
    page = fields_section(fields, [])
    assert page.count("not drawn") == 1
    v = page.index("wind v")
    assert v < page.index("not drawn") < page.index("wind w")
    assert scaled_place(1500.0, "m", 2e4).endswith("km")
    assert scaled_place(1500.0, "m").endswith(" m")


def test_a_start_at_rest_has_no_blank_panel(tmp_path):
    def values(time, z, x):
        return {"theta": time * np.sin(2 * np.pi * x / 80.0) + 0 * z}

    path = write_waves(tmp_path / "a", "zx", (30.0, 80.0), (6, 16), "x", (0.0, 1.0, 2.0), THETA, values)
    with FieldFile(path, ("x",)) as file:
        theta = read_slices(file)[0]
    assert (theta.blank, theta.times) == ([0.0], [1.0, 2.0])
    page = fields_section([theta], [])
    assert page.count('class="panel"') == 2
    assert "Not drawn: t = 0" in page


def test_sections_go_through_the_extremum(box):
    with FieldFile(box, ("y", "x")) as file:
        main = file.main()
        assert cut_place(file, main, "extremum") == (6, 5, 11)
        assert cut_place(file, main, "center") == (4, 5, 6)
        along_x, along_y, above = cross_sections(file, main, "extremum", 400)
        middle = cross_sections(file, main, "center", 400)
    assert [one.dims for one in (along_x, along_y, above)] == [("z", "x"), ("z", "y"), ("y", "x")]
    assert along_y.places == ["x = 350 m", "x = 750 m", "x = 1\u202f150 m"]
    for time, (step, value) in enumerate(((0, 4.0), (2, 3.8), (4, 3.6))):
        assert along_x.values[time].argmax() == (2 + step) * 13 + 3 + 2 * step
        assert above.values[time].max() == pytest.approx(value)
    assert len({one.scale for one in (along_x, along_y, above)}) == 1
    assert along_x.wind.most == pytest.approx(5.0)  # u 3, w 4
    assert along_x.wind.up[2].max() == pytest.approx(4.0)
    assert above.wind.most == pytest.approx(3.0)
    assert all(len(one.times) == 1 or one.places for one in middle)
    page = fields_section([], [along_x, along_y, above])
    assert "z = 650 m" in page
    assert "the longest is 5 m s\u207b\u00b9" in page


def test_planes_at_several_heights_have_a_mean_each():
    """A storm between opposite winds: arrows without the mean of each time, and its own picture has them too."""
    storm = np.zeros((2, 3, 3))
    storm[:, 1, 1] = 2.0
    across = storm + np.array([-9.0, 5.0])[:, None, None]
    flow = Wind(np.arange(3.0), np.arange(3.0), across, 0 * storm, 9.0, "m s-1")
    off = flow.apart(each_time=True)
    assert off.across == pytest.approx(storm - 2 / 9)
    assert off.mean[0].ravel() == pytest.approx([-9.0 + 2 / 9, 5.0 + 2 / 9])
    assert off.at(1).whole().across == pytest.approx(flow.across[1:])
    assert flow.apart().mean is None  # of both times together: it would leave all of the wind


def test_flow_on_faces_is_brought_to_the_centers(tmp_path):
    from lone import LoneMesh

    from hpckit.io import FieldWriter
    from hpckit.plan.grid.decomposition import Decomposition

    mesh = LoneMesh("y", "x", periodic=("x",))
    cells = Decomposition((4, 6), mesh.topology)
    units = {"units": "m s-1"}
    variables = {
        "h": {},
        "u": {**units, "location": ("center", "face")},
        "v": {**units, "location": ("face", "center")},
    }
    coords = {"y": np.arange(4) + 0.5, "x": np.arange(6) + 0.5}
    with FieldWriter(mesh, tmp_path, cells, coords, {"y": "m", "x": "m"}, variables) as writer:
        u = np.tile(np.arange(6.0), (4, 1))
        v = np.tile(np.arange(5.0)[:, None], (1, 6))
        writer.write(0.0, {"h": u, "u": u, "v": v})
    with FieldFile(tmp_path / "fields.h5", ("x",)) as file:
        wind = read_slice(file, file.main(), [0], 400, {}, wind=True).wind.whole()
    assert wind.across[0, 0].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 2.5]
    assert wind.up[0, :, 0].tolist() == [0.5, 1.5, 2.5, 3.5]


def test_the_animation_is_small_and_moves(wave):
    with FieldFile(wave, ("x",)) as file:
        made = animate(file, file.main(), (), 30)
        assert animate(file, file.main(), (), 2) is None
    picture = Image.open(io.BytesIO(made.moving))
    assert picture.n_frames == len(TIMES)
    frames = []
    for number in range(picture.n_frames):
        picture.seek(number)
        frames.append(np.asarray(picture.convert("RGB")).astype(int))
    assert frames[0].shape == (made.height, made.width, 3)
    assert all(np.abs(a - b).max() > 100 for a, b in itertools.pairwise(frames))
    assert frames[0][0, 0].tolist() == [255, 255, 255]
    assert 2 <= len(made.stills) <= 4
    assert len(made.moving) + sum(map(len, made.stills)) < MOST_BYTES


@pytest.mark.nightly
def test_a_large_animation_is_made_smaller(wave):
    with FieldFile(wave, ("x",)) as file:
        large = animate(file, file.main(), (), 30)
        small = animate(file, file.main(), (), 30, len(large.moving))
        assert animate(file, file.main(), (), 30, 3_000) is None
    assert small.width < large.width
    assert len(small.moving) < len(large.moving)


def test_the_page_has_all_of_them_and_loads_nothing(tmp_path):
    directory = make_run(tmp_path / "run")
    page = build_report(directory).read_text()
    refuse_external(page)
    assert len(page.encode()) < 3_000_000
    for title in ("Animation", "Place and time", "Spectra"):
        assert f"<h2>{title}</h2>" in page
    assert "prefers-reduced-motion" in page
    moving = re.search(r'class="motion"[^>]*src="data:image/png;base64,([^"]+)"', page).group(1)
    assert b"acTL" in base64.b64decode(moving)
    record = json.loads((directory / "report/report.json").read_text())
    assert record["hovmoeller"]["variable"] == "theta"
    assert record["animation"]["times"][-1] == 1000.0
    (spectrum,) = record["spectra"]
    total = np.sum(spectrum["density"], axis=1) * spectrum["ring_width_rad_per_m"]
    np.testing.assert_allclose(total, spectrum["variance"], rtol=1e-6)


def test_parts_are_left_out_when_asked(tmp_path):
    directory = make_run(tmp_path / "run")
    page = build_report(directory, **{**LEAN, "variable": "p"}).read_text()
    for title in ("Animation", "Place and time", "Spectra"):
        assert f"<h2>{title}</h2>" not in page


def test_pictures_show_what_differs(tmp_path):
    """A dim that does not vary gives curves; a wide idle part is cut off; arrows leave a strong mean flow out."""
    from lone import LoneMesh

    from hpckit.io import FieldWriter
    from hpckit.plan.grid.decomposition import Decomposition

    mesh = LoneMesh("z", "x")
    cells, centers = Decomposition((8, 60), mesh.topology), {"z": np.arange(8.0), "x": np.arange(60.0)}
    x = np.arange(60.0)[None, :] + np.zeros((8, 1))
    variables = {"theta": {"units": "K", "long_name": "a deviation"}, "h": {"units": "m"}}
    variables |= {name: {"units": "m s-1"} for name in ("u", "w")}
    with FieldWriter(mesh, tmp_path, cells, centers, {"z": "m", "x": "m"}, variables) as writer:
        for t in range(3):
            bump = t * np.exp(-((x - 40.0) ** 2)) * (1 + np.arange(8.0)[:, None])
            writer.write(t, {"theta": bump, "h": x + t, "u": 20.0 + bump, "w": 0.1 * bump})
    run = RunData(tmp_path, fields=tmp_path / "fields.h5")
    theta, h, u, _ = read_fields(run, 100, Report())[0]
    assert (h.values.shape, h.dims, h.note) == ((3, 60), ("x",), "the same all along z")
    np.testing.assert_allclose(h.values, np.arange(60.0) + np.arange(3.0)[:, None])
    assert theta.blank == [0.0]
    assert theta.coords[1].tolist() == list(range(37, 44))
    assert "x = 37 m to 43 m" in theta.note
    assert theta.wind.mean[0] == pytest.approx(20.0, abs=2.0)
    assert theta.wind.most < 20.0
    assert np.isin(theta.wind.columns, theta.coords[1]).all()
    flow = theta.wind.whole()
    bump = np.exp(-((flow.columns - 40.0) ** 2)) * (1 + flow.rows[:, None])
    np.testing.assert_allclose(flow.across, [20.0 + bump, 20.0 + 2 * bump], rtol=1e-6)
    np.testing.assert_allclose(flow.up, [0.1 * bump, 0.2 * bump], rtol=1e-5, atol=1e-6)
    assert u.middle == 20.0  # as it was at first, everywhere
    one, two = one_each(theta)
    assert 2 * color_scale(one)[1] == pytest.approx(color_scale(two)[1])
    page = fields_section([theta], [], each=True)
    assert page.count("color scale of") == 2
    assert fields_section([theta], []).count("color scale of") == 1


def test_a_part_between_two_columns_of_arrows_is_drawn_without_them(tmp_path):
    def values(time, z, x):
        one = (1 + time) * np.exp(-(((x - 508.0) / 2.0) ** 2)) + 0 * z
        return {"theta": one, "u": one, "w": one}

    variables = {**THETA, "u": {"units": "m s-1"}, "w": {"units": "m s-1"}}
    path = write_waves(tmp_path / "a", "zx", (8.0, 1000.0), (8, 1000), "", (0.0, 1.0), variables, values)
    with FieldFile(path) as file:
        (theta,) = cropped([read_slice(file, file.main(), [0, 1], 1000, {}, wind=True)], "theta")
    assert theta.values.shape[2] < 20
    assert fields_section([theta], []).count('class="panel"') == 2


def test_sections_of_a_stream_leave_out_one_mean_of_all_times(tmp_path):
    def values(time, z, y, x):
        size = np.exp(-((x - 6.0) ** 2) - (y - 5.0) ** 2 - (z - 4.0) ** 2) * (1 + time)
        return {"theta": size, "u": 20.0 + 5 * time + size, "v": 0 * x, "w": size}

    variables = {**THETA, **{name: {"units": "m s-1"} for name in "uvw"}}
    path = write_waves(tmp_path / "a", "zyx", (9.0, 11.0, 13.0), (9, 11, 13), "", (0.0, 1.0), variables, values)
    with FieldFile(path) as file:
        wind = cross_sections(file, file.main(), "center", 400)[0].wind
        flow = [file.read(file.variables["u"], frame, (slice(None), 5)) for frame in (0, 1)]
    assert wind.mean[0] == pytest.approx(np.mean(flow), rel=1e-6)
    np.testing.assert_allclose(wind.whole().across, flow, rtol=1e-6)


def test_arrows_in_a_wind_with_shear_leave_out_the_mean_of_each_height(tmp_path):
    """A wind that turns with height is not in them, a plume is; where there is no more than the shear they show it."""

    def values(time, z, x):
        size = np.exp(-((x - 6.0) ** 2) - (z - 4.0) ** 2) * time
        return {"theta": size, "u": 5 * (z - 4.5) + 0 * x, "w": 4 * size}

    variables = {**THETA, "u": {"units": "m s-1"}, "w": {"units": "m s-1"}}
    path = write_waves(tmp_path / "a", "zx", (9.0, 13.0), (9, 13), "", (0.0, 1.0), variables, values)
    with FieldFile(path) as file:
        both, still = (read_slice(file, file.main(), frames, 400, {}, wind=True) for frames in ([0, 1], [0]))
        shear = file.read(file.variables["u"], 0)
    np.testing.assert_allclose(both.wind.mean[0], shear[:, :1], rtol=1e-6)
    assert np.abs(both.wind.across).max() < 1e-5
    assert both.wind.most == pytest.approx(np.abs(both.wind.up).max())
    assert "without the mean of each height" in fields_section([both], [])
    assert still.wind.mean is None
    np.testing.assert_allclose(both.wind.whole().across[-1], shear, rtol=1e-6)


BESIDE = [
    (
        "flood",
        {
            "grid": {"nx": 200, "ny": 4, "width": 2000.0, "height": 40.0},
            "start": {"kind": "dam", "level": 1.0, "behind_level": 10.0, "x": 1000.0},
            "time": {"end": 40.0},
            "output": {"every": 20.0},
        },
        "Beside the exact solution",
    ),
    (
        "shallow_water",
        {
            "grid": {"nx": 128, "ny": 4, "width": 16e6, "height": 5e5},
            "physics": {"depth": 1000.0},
            "start": {"kind": "step", "amplitude": 1.0},
            "time": {"end": 172_800.0},
            "output": {"every": 7200.0},
        },
        "Beside the exact solution",
    ),
    (
        "weather",
        {
            "grid": {"nx": 60, "nz": 10, "width": 300e3, "height": 10e3},
            "base": {"kind": "isothermal", "temperature": 250.0, "u": 20.0},
            "bubbles": [],
            "wave": {"amplitude": 0.01},
            "time": {"end": 300.0},
            "output": {"every": 150.0},
        },
        "Beside the exact solution",
    ),
    (
        "weather",
        {
            "grid": {"nx": 128, "nz": 16, "width": 51_200.0, "height": 6400.0},
            "bubbles": [{"amplitude": -15.0, "x": 25_600.0, "z": 3000.0, "radius_x": 4000.0, "keeps": "pressure"}],
            "diffusion": 75.0,
            "time": {"end": 900.0},
            "output": {"every": 450.0},
        },
        "Beside the published density current",
    ),
]


@pytest.mark.parametrize(("app", "settings", "title"), by_day(BESIDE, BESIDE[0]))
def test_what_is_known_stands_beside_ours(tmp_path, app, settings, title):
    config = importlib.import_module(f"hpckit.apps.{app}.config").Config.model_validate(settings)
    run = Run(MPI.COMM_SELF, tmp_path / "r", app=app)
    run.directory.write_json("resolved.json", {"app": app, "values": config.model_dump(mode="json")})
    importlib.import_module(f"hpckit.apps.{app}.run").run(config, run)
    found = {
        one.title: one
        for one in app_sections(importlib.import_module(f"hpckit.apps.{app}.report"), load_run(tmp_path / "r"))
    }
    numbers = found[title].numbers
    if app == "flood":
        assert (numbers["time"], found[title].html.count("<svg")) == (40.0, 2)
        assert numbers["error"] < 0.01
    elif app == "shallow_water":
        assert numbers["error"] < 0.05  # 0.027 with 512 cells: what is left of the waves
    elif "wave" in settings:
        assert found["Base state"].numbers["brunt_vaisala"] == pytest.approx(9.8 / np.sqrt(1004 * 250.0), rel=1e-3)
        assert numbers["error"] < 0.5
    else:
        assert 12_500 < numbers["front"] < 15_000  # 14 767 m on the finest grids
        assert numbers["least"] == pytest.approx(-9, abs=2.5)
