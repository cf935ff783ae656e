"""The report: right numbers, one file that needs nothing else, and something sensible for runs that went wrong."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from urllib.parse import unquote

import h5py
import numpy as np
import pytest
from made_run import LEAN, TIMES, make_run

from hpckit.errors import InputError, SetupError
from hpckit.report import build_report, save_picture
from hpckit.report.data import map_link, with_data
from hpckit.report.draw.charts import least_span, metric_groups
from hpckit.report.draw.maps import panels, scales_of
from hpckit.report.field_file import FieldFile, evenly
from hpckit.report.page import grid
from hpckit.report.run_data import RunData
from hpckit.report.sections.findings import find
from hpckit.report.sections.sections import configuration, history
from hpckit.report.sections.slices import Slices, read_slices
from hpckit.report.style import pyplot, to_svg
from hpckit.report.units import counted, pretty, signs, time_scale, with_error
from hpckit.settings.apps import apps

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = make_run(tmp_path_factory.mktemp("runs") / "thermal-p3")
    return directory, build_report(directory).read_text(), json.loads((directory / "report/report.json").read_text())


def refuse_external(page: str) -> None:
    """No address is loaded: nothing but data and names within the page behind src, href and url()."""
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?!["']?(?:data:|#|\.\./output/fields\.h5" download))""", page)
    assert not re.search(r"url\((?!['\"]?#)", page)
    assert "<script" not in page
    assert "<link" not in page
    assert "@import" not in page


def test_json_holds_the_numbers_of_the_summary(run):
    directory, _, record = run
    summary = json.loads((directory / "summary.json").read_text())
    for name in (
        "status",
        "ranks",
        "steps",
        "cells",
        "wall_seconds",
        "cell_steps_per_second",
        "t_eff",
        "decomposition",
    ):
        assert record[name] == summary[name]
    assert record["conserved"]["mass"]["relative_change"] == 3e-15
    sweep = record["phases"]["x sweep"]
    assert (sweep["min"], sweep["max"], sweep["ranks"]) == (4.0, 6.0, [4.0, 4.2, 6.0])
    assert sweep["mean"] == pytest.approx(14.2 / 3)
    assert sweep["imbalance"] == pytest.approx(6.0 / (14.2 / 3) - 1)
    assert sweep["share"] == pytest.approx(14.2 / 3 / 10)
    assert record["phases"]["other"]["ranks"] == pytest.approx([1.1, 1.1, 1.1])
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()[:-1]]
    assert record["cfl"]["max"] == max(line["cfl"] for line in lines)
    with h5py.File(directory / "output/fields.h5") as file:
        assert record["fields"]["theta"]["max"] == file["theta"][:][[0, 2, 4, 6, 8]].max()


def test_page_is_small_and_loads_nothing(run):
    _, page, _ = run
    assert len(page.encode()) < 3_000_000
    refuse_external(page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_page_says_what_it_must(run):
    _, page, record = run
    text = re.sub(r"<[^>]+>", " ", page)
    for part in ("a thermal", "done", "cell-steps/s", "t_eff = cells", "potential temperature perturbation", "x (km)"):
        assert part in text, part
    for title in ("Fields", "Conservation", "CFL and extremes", "Time by phase", "Decomposition", "Provenance"):
        assert f"<h2>{title}</h2>" in page
    assert "&lt;script&gt;alert(1)" in page  # a hostile setting is shown, not run
    assert "pressure &lt;of air&gt;" in page
    assert page.index("run.toml:3") < page.index("default</td>")
    found = " ".join(finding["text"] for finding in record["findings"])
    assert "share 2 cores" in found
    assert "3 ranks (z 1, x 3) on 2 hosts" in text
    assert "ranks wait" not in found  # the cores that they share are the reason, and told
    assert "w max (m/s)" in page
    assert "mass (kg/m)" in page
    assert "the slowest rank computes 20.3" in found


@pytest.mark.nightly
def test_large_and_noisy_fields_stay_small(tmp_path, monkeypatch):
    directory = make_run(tmp_path / "large", shape=(700, 1400), noise=0.4)
    assert 600_000 < build_report(directory).stat().st_size < 3_000_000
    monkeypatch.setattr("hpckit.report.build.MOST_BYTES", 600_000)
    assert build_report(directory).stat().st_size < 600_000
    monkeypatch.setattr("hpckit.report.build.POINTS", (90,))
    monkeypatch.setattr("hpckit.report.build.MOST_BYTES", 500_000)
    assert build_report(directory).stat().st_size < 500_000
    assert "no animation: the page would be larger than 0.5 MB" in (directory / "report/index.html").read_text()


def test_failed_run_shows_the_failure_first(tmp_path):
    directory = make_run(tmp_path / "failed")
    (directory / "summary.json").unlink()
    error = {
        "code": "HPK-400",
        "title": "blow-up",
        "message": "u is not finite",
        "where": "rank 1, step 120",
        "do": "lower dt",
    }
    failure = {"rank": 1, "error": error, "traceback": ["File <here>\n"], "exit_code": 4}
    (directory / "attempts/000").mkdir(parents=True)
    (directory / "attempts/000/failure.json").write_text(json.dumps(failure))
    page = build_report(directory, **LEAN).read_text()
    text = re.sub(r"<[^>]+>", " ", page)
    for part in ("HPK-400 blow-up", "u is not finite", "rank 1, step 120", "lower dt", "File &lt;here&gt;"):
        assert part in text
    assert page.index("u is not finite") < page.index("<h2>Fields</h2>")
    record = json.loads((directory / "report/report.json").read_text())
    assert (record["status"], record["failure"]["error"]["code"]) == ("failed", "HPK-400")


def test_missing_and_broken_pieces_are_told(tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "resolved.json").write_text('{"app": "other", "values": {}}')
    assert "other" in build_report(bare, **LEAN).read_text()

    broken = make_run(tmp_path / "broken")
    (broken / "provenance.json").write_text("{")
    (broken / "output/fields.h5").write_bytes(b"no HDF5")
    build_report(broken)
    found = json.loads((broken / "report/report.json").read_text())["findings"]
    assert any("provenance.json" in finding["text"] for finding in found)
    assert any("fields.h5" in finding["text"] for finding in found)

    gone = make_run(tmp_path / "gone", one_file=0)
    (gone / "output/frames/000004/frame.h5").unlink()
    build_report(gone, **LEAN)
    found = json.loads((gone / "report/report.json").read_text())["findings"]
    assert any("frames/000004/frame.h5" in finding["text"] for finding in found)

    with pytest.raises(InputError, match="not a run directory"):
        build_report(tmp_path)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    directory = make_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SetupError) as caught:
        build_report(directory, **LEAN)
    assert "analysis" in caught.value.do


@pytest.mark.nightly
def test_picture_for_a_readme(tmp_path):
    directory = make_run(tmp_path / "run")
    assert save_picture(directory, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in save_picture(directory, tmp_path / "a.svg", variable="p").read_text()
    for variable, file in (("q", "a.png"), ("", "a.bmp")):
        with pytest.raises(InputError, match=r"picture|draw|field"):
            save_picture(directory, tmp_path / file, variable=variable)


def test_slices_are_means_of_blocks(tmp_path):
    directory = make_run(tmp_path / "run", shape=(40, 83))
    with FieldFile(directory / "output/fields.h5") as file:
        theta = read_slices(file, most_times=3, most_points=21)[0]
    assert (theta.name, theta.times) == ("theta", [TIMES[0], TIMES[4], TIMES[8]])
    assert theta.values.shape == (3, 20, 20)
    with h5py.File(directory / "output/fields.h5") as file:
        whole = file["theta"][4]
        assert theta.values[1, 3, 5] == pytest.approx(whole[6:8, 20:24].mean(), rel=1e-14)
        assert theta.coords[1][5] == pytest.approx(file["x"][20:24].mean())
    assert theta.middle == 0


def testevenly_spaced_frames():
    assert evenly(11, 6).tolist() == [0, 2, 4, 6, 8, 10]
    assert evenly(7, 6).tolist() == [0, 3, 6]
    assert evenly(12, 6).tolist() == [0, 2, 4, 7, 9, 11]
    assert evenly(9, 3).tolist() == [0, 4, 8]
    assert [evenly(n, 6).tolist() for n in (1, 2, 3)] == [[0], [0, 1], [0, 1, 2]]


def made_field(values, units="K", long_name="temperature") -> Slices:
    values = np.asarray(values, float)
    points = tuple(np.arange(n, dtype=float) for n in values.shape[1:])
    ends = float(values.min()), float(values.max())
    return Slices("t", long_name, units, [0.0, 1.0], values, ("y", "x"), points, ("m", "m"), *ends, True)


def test_a_shallow_slab_keeps_its_meters():
    field = made_field(np.zeros((1, 4, 6)))
    field.coords = np.linspace(0.0, 100.0, 4), np.linspace(0.0, 40e3, 6)
    assert scales_of(field) == ((1.0, 1000.0), ("m", "km"))
    field.coords = np.linspace(0.0, 1000.0, 4), np.linspace(0.0, 4e3, 6)
    assert scales_of(field) == ((1000.0, 1000.0), ("km", "km"))


def test_units_of_long_times_and_errors():
    assert [pretty(unit) for unit in ("s m-1/3", "kg m-3", "epsilon/sigma3")] == ["s m⁻¹ᐟ³", "kg m⁻³", "ε/σ³"]
    assert time_scale(8e3, "fs") == (1.0, "fs")
    assert time_scale(2e4, "fs") == (1e3, "ps")
    assert time_scale(7200.0) == (60.0, "min")
    assert time_scale(7200.0, "steps") == (1.0, "steps")
    assert with_error(94.8712, 0.3617) == ("94.87", "0.36")
    assert with_error(-0.0012, 0.36) == ("0.00", "0.36")
    assert with_error(95.0, 0.0996) == ("95.00", "0.10")
    assert with_error(12345.6, 78.9) == ("12\u202f346", "79")
    assert with_error(2.4312e-4, 0.0719e-4) == ("2.431e\u22124", "7.2e\u22126")
    assert with_error(2.5e8, 1.2e6, 3) == ("2.500e8", "1.2e6")
    assert with_error(1.23456, float("nan")) == ("1.235", "")
    assert signs("at most 1e-09, -0.5 \u00b1 4e-06") == "at most 1e\u22129, \u22120.5 \u00b1 4e\u22126"
    assert (counted(1, "rank"), counted(2, "rank")) == ("1 rank", "2 ranks")


def test_rounding_is_drawn_flat():
    assert least_span([2e8, 2e8 * (1 + 1e-13)]) == pytest.approx((2e8 * (1 - 5e-7), 2e8 * (1 + 5e-7)))
    assert least_span([1.0, 1.1]) is None
    assert least_span([0.0, 0.0])[1] > 0
    assert least_span([0.0, 3e-16], zero=True) == (-1e-14, 1e-14)
    assert least_span([0.0, 3e-12], zero=True) is None


def test_short_runs_have_no_findings_on_shares_of_time(run):
    _, _, record = run
    alone = {**record, "provenance": {}}
    rows = {**record["phases"], "output": {**record["phases"]["output"], "share": 0.9}}
    for wall, told in ((1.9, False), (10.0, True)):
        texts = " ".join(finding.text for finding in find({**alone, "phases": rows, "wall_seconds": wall}))
        assert ("ranks wait" in texts, "output takes" in texts) == (told, told)


@pytest.mark.parametrize(("worst", "seconds", "told"), [(0, 4.0, False), (1, 4.0, True), (0, 0.5, True)])
@pytest.mark.parametrize("phase", ["output", "sample"])
def test_nobody_is_late_who_writes(run, phase, worst, seconds, told):
    _, _, record = run
    waits = {"worst": worst, "by_worst": 8.0, "ranks": {"seconds": [0.0, 5.0, 5.0]}}
    rows = {**record["phases"], phase: {**record["phases"]["output"], "ranks": [seconds, 0.0, 0.0]}}
    found = find({**record, "provenance": {}, "phases": rows, "waits": waits, "wall_seconds": 10.0})
    assert any("for rank" in finding.text for finding in found) == told


def test_settings_stand_as_they_may_be_typed():
    typed = {"0.002": 0.002, "1000": 1000.0, "1e-05": 1e-05, "-3.5": -3.5, "1e+300": 1e300, "[0.5, 1.0]": [0.5, 1.0]}
    settings = [{"key": f"a.b{i}", "value": value, "origin": "run.toml:3"} for i, value in enumerate(typed.values())]
    page = configuration({"configuration": settings})
    for text in typed:
        assert f">{text}</td>" in page


def test_components_of_a_tensor_share_a_chart():
    names = ["pressure", "pressure_xx", "pressure_yy", "pressure_zz", "pressure_xy", "w_min", "w_max"]
    assert metric_groups(names) == {
        "pressure": ["pressure"],
        "pressure xx, yy, zz": ["pressure_xx", "pressure_yy", "pressure_zz"],
        "pressure_xy": ["pressure_xy"],
        "w, least and largest": ["w_min", "w_max"],
    }


def test_steps_cut_short_at_frames_are_not_in_the_charts_of_the_step(tmp_path):
    """Frames every 10 s, an end at 25 s, and a step that shrinks by itself at 12 s."""
    steps = {0.0: 0.0, 5.0: 0.5, 10.0: 0.1, 12.0: 0.4, 15.0: 0.4, 20.0: 0.3, 22.0: 0.45, 25.0: 0.2}
    metrics = [{"time": time, "dt": dt, "cfl": dt} for time, dt in steps.items()]
    settings = {"output": {"every": 10.0}, "time": {"end": 25.0}}
    run = RunData(tmp_path, resolved={"values": settings}, metrics=metrics)
    assert run.whole_steps().series("dt") == ([5.0, 12.0, 15.0, 22.0], [0.5, 0.4, 0.4, 0.45])
    assert len(run.series("dt")[0]) == 8
    page = history(run, {"metrics": {"dt": {"min": 0.0, "max": 0.5}}, "conserved": {}, "cfl": None})
    assert "leave out steps that were shortened" in page
    assert "time step (s) over time" in page
    for line in metrics:
        line["dt"] = min(line["dt"], 0.4) if line["dt"] >= 0.4 else line["dt"]
    page = history(run, {"metrics": {"dt": {"min": 0.0, "max": 0.4}}, "conserved": {}, "cfl": None})
    assert "time step (s) over time" not in page  # always the same but where it was cut short
    run = RunData(tmp_path, resolved={"values": {"output": [], "time": None}}, metrics=metrics[1:])
    assert run.whole_steps().metrics == metrics[1:]
    assert "shortened" not in history(run, {"metrics": {"dt": {"min": 0.1, "max": 0.5}}, "conserved": {}, "cfl": None})


def test_units_of_metrics_follow_the_app(tmp_path):
    summary = {"app": "diffusion", "decomposition": {"shape": [3, 3, 5]}}
    run = RunData(tmp_path, summary, resolved={"units": apps()["diffusion"].units})
    assert [run.with_unit(name) for name in ("heat", "temperature_max", "dt", "cfl")] == [
        "heat (K m\u00b3)",
        "temperature max (K)",
        "dt (s)",
        "cfl",
    ]


def test_titles_are_the_words_of_the_app_and_units_have_symbols(tmp_path):
    titles = {"summary": {"titles": {"mfu": "share of the peak"}, "units": {"stress": "epsilon/sigma3"}}}
    run = RunData(tmp_path, **titles)
    assert run.with_unit("mfu") == "share of the peak"
    assert run.with_unit("tokens_per_second") == "tokens per second"
    assert run.with_unit("stress") == "stress (\u03b5/\u03c3\u00b3)"


def test_text_stays_inside_its_picture():
    """The label of the axis below a map, and a title longer than its chart."""
    dims, times = np.linspace(0, 1, 9), [0.0]
    values = np.outer(dims, dims)[None]
    slices = Slices("t", "theta", "K", times, values, ("y", "x"), (dims, dims), ("m", "m"), 0.0, 1.0, True)
    svg = panels(slices)[0]
    height = float(re.search(r'viewBox="0 0 \S+ (\S+)"', svg).group(1))
    baseline = float(re.search(r'y="(\S+)"[^>]*>x \(m\)</text>', svg).group(1))
    assert height - 3 > baseline > height - 15
    figure, axes = pyplot().subplots(figsize=(2.6, 2), layout="constrained")
    axes.set_title("potential temperature, deviation from the base state")
    texts = re.findall(r"<text[^>]*>([^<]*(?:temp|base)[^<]*)<", to_svg(figure, "a chart"))
    assert texts == ["potential temperature,", "deviation from the base state"]


def test_rows_of_pictures_are_full_and_their_numbers_can_be_downloaded():
    counts = {n: [row.count("<svg") for row in grid(["<svg/>"] * n).split("</div>")[:-1]] for n in range(1, 9)}
    assert counts == {1: [1], 2: [2], 3: [3], 4: [2, 2], 5: [3, 2], 6: [3, 3], 7: [3, 2, 2], 8: [3, 3, 2]}
    assert [grid(["<svg/>"] * n, alike=True).count("<div") for n in (4, 5, 6, 7)] == [2, 1, 2, 1]  # of one size
    shown = with_data(
        "<svg/>", "loss, of a run", {"step": list(range(9000)), "loss, nats": [0.1 * n for n in range(9000)]}
    )
    text = unquote(re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', shown)[1])
    lines = text.splitlines()
    assert lines[:2] == ['step,"loss, nats"', "0,0"]
    assert lines[-1] == "8999,899.9"
    assert len(lines) == 4001
    assert 'download="loss-of-a-run.csv"' in shown
    assert grid(["<svg/>"] * 3, flat=True).count("<div") == 1  # pictures of one width, whose style sets two in a row


def test_maps_can_be_downloaded_as_a_table():
    """A row a point with its time and place; large ones as means over blocks, which the link says."""
    times, z, x = [0.0, 60.0], np.arange(7.0), np.arange(0.0, 110.0, 10.0)
    values = times[1] * np.ones(2)[:, None, None] + 100 * z[:, None] + x
    link = map_link("theta z x", {"time (s)": times, "z (m)": z, "x (m)": x}, "theta (K)", values)
    head, rows = _packed(link)
    assert head == "time (s),z (m),x (m),theta (K)"
    assert 'download="theta-z-x.csv.gz"' in link
    found = dict(zip(map(tuple, rows[:, :3]), rows[:, 3], strict=True))
    assert len(found) == values.size
    assert found[60.0, 3.0, 20.0] == values[1, 3, 2]
    wide = np.arange(300.0) + 1000 * np.arange(201.0)[:, None]
    link = map_link("h", {"y (m)": np.arange(201.0), "x (m)": np.arange(300.0)}, "h (m)", wide)
    rows = _packed(link)[1]
    assert "means over 2 x 2" in link
    assert len(rows) == 100 * 150
    assert rows[151].tolist() == [2.5, 2.5, 2502.5]


def _packed(link):
    text = gzip.decompress(base64.b64decode(re.search(r'base64,([^"]*)"', link)[1])).decode().splitlines()
    return text[0], np.array([[float(one) for one in line.split(",")] for line in text[1:]])


def test_the_contents_lead_to_every_section(run):
    _, page, _ = run
    links = re.findall(r'<a href="#([^"]+)">', page.partition("</nav>")[0])
    assert links == re.findall(r'<section id="([^"]+)">', page)
    assert len(links) > 5
    sizes = [float(size) for size in re.findall(r"font-size: calc\(([\d.]+)px \* var\(--text, 1\)\)", page)]
    assert min(sizes) >= 9.2  # of 266 points that are shown 320 px wide or wider: 11 px and more
