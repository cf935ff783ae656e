"""The roofline: peaks that are measured, work that is counted, points that follow from both."""

from __future__ import annotations

import json
import re
import socket
from types import SimpleNamespace

import numpy as np
import pytest
import work_counts
from made_run import LEAN, make_run

from hpckit.apps.diffusion import report as diffusion
from hpckit.apps.shallow_water import report as water
from hpckit.apps.weather import report as slab
from hpckit.apps.weather3d import report as box
from hpckit.kernels.peaks import reference, simd
from hpckit.report import build_report
from hpckit.report.extension import PhaseWork
from hpckit.report.run_data import RunData
from hpckit.report.sections.roofline import roofline, roofline_section
from hpckit.run import peaks as measured
from hpckit.run.directory import RunDirectory

pytest.importorskip("matplotlib")

PEAKS = {
    "schema": measured.SCHEMA,
    "cpu": "a <processor>",
    "threads": 3,
    "copy": 18.0,
    "triad": 20.0,
    "caches": {"L1": 400.0, "L2": 200.0},
    "flops": 100.0,
    "undisturbed": True,
}
MACHINE = {"host": "node0", "nodes": 2, "peaks": PEAKS}
VALUES = {"cells": 1000, "steps": 50, "phases": {"a": {"mean": 1e-3}, "b": {"mean": 3e-3}, "wait": {"mean": 1.0}}}


def test_a_point_lies_where_its_work_and_time_put_it():
    record = roofline(
        VALUES, [PhaseWork("a and b", ("a", "b"), 96.0, 240.0), PhaseWork("gone", ("c",), 1.0, 1.0)], MACHINE
    )
    (point,) = record["points"]
    assert point["seconds"] == pytest.approx(4e-3)
    assert point["gflops"] == pytest.approx(240 * 1000 * 50 / 4e-3 / 1e9)
    assert point["t_eff"] == pytest.approx(96 * 1000 * 50 / 4e-3 / 1e9)
    assert point["flops_per_byte"] == 2.5
    assert point["roof_gflops"] == pytest.approx(2.5 * 2 * 20.0)  # two nodes; memory is below the peak
    assert point["share_of_roof"] == pytest.approx(point["gflops"] / 100.0)
    assert point["share_of_copy"] == pytest.approx(point["t_eff"] / 36.0)
    dense = roofline(VALUES, [PhaseWork("a", ("a",), 1.0, 240.0)], MACHINE)["points"][0]
    assert dense["roof_gflops"] == 200.0
    page = roofline_section(record)
    assert page.count("<svg") == 1
    assert "a &lt;processor&gt; (2 nodes" in page
    assert "6 cores" in page
    assert "Other processes" not in page


def test_a_roofline_that_cannot_be_says_why():
    work = [PhaseWork("a", ("a",), 1.0, 1.0)]
    assert roofline(VALUES, [], MACHINE) is None
    assert roofline_section(None) == ""
    for values, machine, words in (
        (VALUES, {"reason": "4 ranks share 2 cores"}, "4 ranks share 2 cores"),
        (VALUES, {}, "no peaks"),
        ({"phases": {}}, MACHINE, "no steps"),
        ({**VALUES, "phases": {}}, MACHINE, "no phase"),
    ):
        assert words in roofline_section(roofline(values, work, machine))


def test_the_report_has_it_with_its_numbers(tmp_path):
    directory = make_run(tmp_path / "run")
    app = SimpleNamespace(work=lambda run: [PhaseWork("x sweep", ("x sweep",), 96.0, 228.0)])
    options = {**LEAN, "roofline": True}
    page = build_report(directory, app, MACHINE, **options).read_text()
    assert "<h2>Roofline</h2>" in page
    record = json.loads((directory / "report/report.json").read_text())["roofline"]
    assert record["points"][0]["seconds"] == pytest.approx(14.2 / 3)
    assert "<h2>Roofline</h2>" not in build_report(directory, app, MACHINE, **LEAN).read_text()


@pytest.mark.parametrize(
    ("count", "dims", "stated"),
    [
        (work_counts.slab_x, 2, slab.FLOPS["x sweep"]),
        (work_counts.slab_z, 2, slab.FLOPS["z sweep"]),
        (work_counts.box_x, 3, box.SWEEPS["x sweep"]),
        (work_counts.box_y, 3, box.SWEEPS["y sweep"]),
        (work_counts.box_z, 3, box.SWEEPS["z sweep"]),
        (work_counts.box_turn, 3, box.TURN),
        (work_counts.box_diffuse, 3, box.DIFFUSION),
        (work_counts.water_step, 2, water.FLOPS),
        (work_counts.heat(2), 2, diffusion.FLOPS[2]),
        (work_counts.heat(3), 3, diffusion.FLOPS[3]),
    ],
)
def test_stated_operations_are_those_of_the_reference(count, dims, stated):
    sizes = (14, 18, 22, 26) if dims == 3 else (16, 24, 32)
    assert work_counts.per_cell(count, sizes, dims) == pytest.approx(stated, rel=0.01)


def test_the_counter_counts():
    with work_counts.counted(SimpleNamespace()) as told:
        a = work_counts.make(3, 5)
        _ = (a + 1.0) * a / 2.0 - np.sqrt(a)
        assert told() == 5 * 15
        _ = np.abs(-a) > 0.5
        assert told() == 5 * 15
        _ = np.diff(a, axis=1) ** 2.0
        assert told() == 5 * 15 + 12 + 12
        assert a.sum() == 15
        assert told() == 5 * 15 + 12 + 12 + 14


def test_work_of_apps_follows_settings(tmp_path):
    summary = {"bytes_per_cell_step": 360, "decomposition": {"shape": [3, 4, 5]}}
    run = RunData(tmp_path, summary, resolved={"values": {"diffusion": 3.0}})
    assert [one.name for one in box.work(run)] == ["x sweep", "y sweep", "z sweep", "coriolis", "diffusion"]
    assert sum(one.bytes for one in box.work(run)) == pytest.approx(360 + 40 + 72)
    assert [one.flops for one in diffusion.work(run)] == [16]
    plain = {
        "grid": {"sides": "periodic"},
        "bottom": {"kind": "flat"},
        "physics": {"drag": 0.0},
        "wind": {"stress": 0.0},
    }
    for values, flops in ((plain, water.FLOPS - water.EXTRA), ({**plain, "physics": {"drag": 1.0}}, water.FLOPS)):
        run.resolved = {"values": values}
        assert [one.flops for one in water.work(run)] == [flops]


@pytest.mark.nightly
def test_measuring_loops_compute_what_they_say():
    x, y = np.linspace(0, 1, 64), np.linspace(3, 4, 64)
    for name, arguments in (("copy", (x, 2)), ("triad", (x, y, 0.5, 3))):
        ours, theirs = np.zeros(64), np.zeros(64)
        getattr(simd, name)(ours, *arguments)
        getattr(reference, name)(theirs, *arguments)
        np.testing.assert_allclose(ours, theirs, rtol=1e-15)
    ours, theirs = x.copy(), x.copy()
    simd.multiply_add(ours, 0.9, 0.1, 3)
    reference.multiply_add(theirs, 0.9, 0.1, 3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)


def test_peaks_are_measured_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(measured, "MOST_BYTES", 1 << 21)
    monkeypatch.setattr(measured, "SHORT", 1e-5)
    record = measured.measure(1)
    assert record["threads"] == 1
    assert min(record["copy"], record["triad"], record["flops"], *record["caches"].values()) > 0
    host = socket.gethostname()
    faster = {**record, "copy": 2 * record["copy"], "flops": 0.5 * record["flops"], "undisturbed": True}
    measured.keep(host, record, tmp_path)
    best = measured.keep(host, faster, tmp_path)
    assert (best["copy"], best["flops"]) == (faster["copy"], record["flops"])
    monkeypatch.setattr(measured, "measure", lambda threads: pytest.fail("measured again"))
    assert measured.find_peaks(host, 1, tmp_path) == best
    assert "hpckit bench machine" in measured.find_peaks("elsewhere", 1, tmp_path)["reason"]
    assert "10000 cores" in measured.find_peaks(host, 10_000, tmp_path)["reason"]
    monkeypatch.setattr(measured, "measure", lambda threads: {**record, "undisturbed": False})
    measured.cache_file(host, tmp_path).unlink()
    tries = [measured.find_peaks(host, 1, tmp_path)["tries"] for _ in range(2 * measured.TRIES)]
    assert tries == [1, 2, *[measured.TRIES] * (2 * measured.TRIES - 2)]  # no more on a host that is never quiet
    measured.cache_file(host, tmp_path).write_text("{")
    assert measured.read_cache(host, tmp_path) == {}


def test_cache_sizes_are_read_from_the_system(tmp_path):
    for index, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "24M"))
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert measured.cache_sizes(tmp_path) == {"L1": 48 << 10, "L2": 2 << 20, "L3": 24 << 20}
    assert measured.cache_sizes(tmp_path / "none") == {}


def place(rank, host="a", cores=(0, 1), threads=1):
    return {"rank": rank, "host": host, "cores": list(cores), "threads": threads}


def test_cores_of_a_run():
    two = [place(0), place(1)]
    assert measured.cores_of({"placement": two}, {}) == {"host": "a", "threads": 2, "nodes": 1}
    bound = [place(0, cores=(0,)), place(1, cores=(1,)), place(2, "b", (0,)), place(3, "b", (1,))]
    assert measured.cores_of({"placement": bound}, {}) == {"host": "a", "threads": 2, "nodes": 2}
    for places, summary, words in (
        ([], {}, "not recorded"),
        ([*two, place(2)], {}, "3 ranks with 3 threads share 2 cores"),
        ([place(0, threads=4)], {}, "1 rank with 4 threads shares 2 cores"),
        (two, {"device": "gpu"}, "GPU"),
        ([*two, place(2, "b")], {}, "different numbers"),
    ):
        assert words in measured.cores_of({"placement": places}, summary)["reason"]


def test_a_run_keeps_the_peaks_it_was_drawn_with(tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_json("provenance.json", {"placement": [place(0, socket.gethostname())]})
    measurements = []

    def measure(threads):
        measurements.append(threads)
        return {**PEAKS, "threads": threads}

    monkeypatch.setattr(measured, "measure", measure)
    monkeypatch.setattr(measured, "cpu_name", lambda: PEAKS["cpu"])
    first = measured.peaks_of_run(directory, tmp_path / "cache")
    assert first["peaks"]["threads"] == 1
    assert json.loads((tmp_path / "run/machine.json").read_text()) == first
    assert measured.peaks_of_run(directory, tmp_path / "other") == first
    assert measurements == [1]


def test_no_address_in_the_picture():
    page = roofline_section(roofline(VALUES, [PhaseWork("a", ("a",), 96.0, 240.0)], MACHINE))
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
