"""`hpckit compare`: distances of floating-point numbers, chances of times, and whole runs."""

from __future__ import annotations

import json
import math

import h5py
import numpy as np
import pytest

from hpckit.cli.verbs.compare.fields import field_differences, same_times, ulp_distance
from hpckit.cli.verbs.compare.verb import chance_of, compare, main
from hpckit.errors import InputError
from hpckit.io.safetensors import save_safetensors
from hpckit.run.directory import RunDirectory
from hpckit.settings.table import print_table


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ulp_counts_the_numbers_between(kind):
    one = kind(1.0)
    next_one = np.nextafter(one, kind(2))
    tiny = np.nextafter(kind(0), kind(1))
    pairs = [(one, one, 0), (one, next_one, 1), (next_one, one, 1), (kind(0.0), kind(-0.0), 0), (tiny, -tiny, 2)]
    pairs += [(kind(1.0), kind(2.0), 2.0 ** (23 if kind is np.float32 else 52))]
    a, b, counts = (np.array(part) for part in zip(*pairs, strict=True))
    assert ulp_distance(a.astype(kind), b.astype(kind)).tolist() == counts.tolist()
    nan, far = np.array([np.nan, np.nan, 1], kind), np.array([np.nan, 1, np.nan], kind)
    assert ulp_distance(nan, far).tolist() == [0, math.inf, math.inf]
    huge = np.finfo(kind).max
    assert ulp_distance(np.array([huge], kind), np.array([-huge], kind))[0] > 2 ** (31 if kind is np.float32 else 63)


def test_the_chance_is_that_of_all_splits():
    assert chance_of([1.0, 2.0], [3.0, 4.0]) == pytest.approx(2 / 6)
    assert chance_of([1.0, 1.0, 1.0], [1.0, 1.0]) == 1
    assert chance_of([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0]) == pytest.approx(2 / 70)
    generator = np.random.default_rng(3)
    same, other = generator.normal(size=(2, 20)).tolist()
    assert chance_of(same, other) > 0.05
    assert chance_of(same, [value + 3 for value in other]) < 0.001


def make(path, field, *, nx=8, seconds=(1.0, 1.1), app="weather", times=None):
    run = RunDirectory.create(path)
    run.write_json("resolved.json", {"app": app, "ranks": 2, "values": {"grid": {"nx": nx, "nz": 4}}})
    run.write_json("summary.json", {"status": "done", "t_eff": 2.0, "phases": {"halo": list(seconds)}})
    with h5py.File(run.output / "fields.h5", "w") as file:
        file["theta"] = field
        file["VTKHDF/theta"] = file["theta"]
        if times is not None:
            file["time"] = np.asarray(times, float)
            file["time"].make_scale("time")
            file["theta"].dims[0].attach_scale(file["time"])
        file.attrs["title"] = "x"
    return run.path


@pytest.fixture
def field():
    return np.random.default_rng(7).normal(300, 10, size=(3, 5, 7))


def test_equal_runs_have_the_same_bits(tmp_path, field, capsys):
    a, b = make(tmp_path / "a", field), make(tmp_path / "b", field)
    assert main([str(a), str(b)]) == 0
    assert "same bits" in capsys.readouterr().out
    assert len(field_differences(a, b)) == 1  # one dataset under two names


def test_rounding_and_differences_are_told_apart(tmp_path, field, capsys):
    near, far = np.nextafter(field, 1e9), field.copy()
    near[0] = field[0]
    far[2, 1, 3] += 2.0
    a, b, c = (make(tmp_path / name, it, nx=nx) for name, it, nx in (("a", field, 8), ("b", near, 8), ("c", far, 9)))
    [row] = field_differences(a, b)
    assert (row["verdict"], row["bits"], row["ulp"]) == ("rounding", 70, 1)
    assert main([str(a), str(c), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    [row] = found["fields"]
    assert (row["verdict"], row["bits"], row["largest"]) == ("differs", 1, pytest.approx(2.0))
    assert row["rms"] == pytest.approx(2 / math.sqrt(105))
    assert row["rms_over_deviation"] == pytest.approx(2 / math.sqrt(105) / field.std(), rel=1e-6)
    assert found["settings"] == [{"setting": "grid.nx", "a": 8, "b": 9}]


@pytest.mark.nightly
def test_frames_are_matched_by_their_times(tmp_path, field, capsys):
    """A run that stopped early, or that was written at other times, is held against the same moments of the other."""
    late = field.copy()
    late[1] = -1
    a = make(tmp_path / "a", field, times=[0, 10, 20])
    half = make(tmp_path / "half", field[::2], times=[0, 20 * (1 + 1e-12)])
    other = make(tmp_path / "other", late[1:], times=[30, 40])
    rows = {row["field"]: row for row in field_differences(a, half)}
    assert rows["fields.h5:theta"]["verdict"] == "same bits"
    assert [rows["fields.h5:theta"][key] for key in ("frames", "frames_a", "frames_b")] == [2, 3, 2]
    assert main([str(a), str(half)]) == 1  # one has a frame that the other has not
    assert "2 (of 3 and 2)" in capsys.readouterr().out
    [theta] = [row for row in field_differences(a, other) if "theta" in row["field"]]
    assert theta["verdict"] == "no frame at the same time"
    assert main([str(a), str(other)]) == 1
    assert same_times(np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.0, 2.0, 4.0, 5.0])) == [(1, 1), (3, 3)]


def test_integers_that_differ_are_no_rounding_and_norms_hold_far_from_zero(tmp_path):
    run = RunDirectory.create
    one, two = run(tmp_path / "a"), run(tmp_path / "b")
    values = 1e9 + np.arange(3_000_001.0) / 3_000_001
    for it, change in ((one, 0), (two, 1)):
        with h5py.File(it.output / "x.h5", "w") as file:
            file["id"] = np.arange(5) + change
            file["far"] = values + change / 2
            file["none"] = h5py.Empty("f8")
            file["scalar"] = 3.0
    rows = {row["field"]: row for row in field_differences(one.path, two.path)}
    assert rows["x.h5:id"]["verdict"] == "differs"
    assert rows["x.h5:scalar"]["verdict"] == "same bits"
    far = rows["x.h5:far"]
    assert (far["bits"], far["rms_over_deviation"]) == (3_000_001, pytest.approx(0.5 * math.sqrt(12), rel=1e-6))
    assert "x.h5:none" not in rows


def test_models_files_and_runs_without_fields(tmp_path, field, capsys):
    a, b = (make(tmp_path / name, field, app=app) for name, app in (("a", "train"), ("b", "md")))
    (tmp_path / "b/output/fields.h5").unlink()
    assert main([str(a), str(b), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["fields"], found["same"], found["only"]) == ([], False, ["fields.h5:theta"])
    assert main([str(b), str(b)]) == 1  # nothing was shown to be equal
    assert "no fields to compare" in capsys.readouterr().out
    for name, weight in (("a", 1.0), ("b", 1.0 + 1e-7)):
        save_safetensors(tmp_path / name / "output/model.safetensors", {"w": np.full((3, 2), weight, np.float32)})
    [row] = field_differences(a, b)
    assert (row["field"], row["verdict"], row["ulp"]) == ("model.safetensors:w", "rounding", 1)
    one = tmp_path / "a/output/fields.h5"
    assert main([str(one), str(one)]) == 0
    with pytest.raises(InputError, match="is not an HDF5 file"):
        main([str(one), str(a)])


def test_metrics_tell_the_step_from_which_runs_part(tmp_path, field):
    a, b = make(tmp_path / "a", field), make(tmp_path / "b", field)
    for path, losses in ((a, (3.0, 2.0, 1.5, 1.2)), (b, (3.0, 2.0, 1.0))):
        lines = [json.dumps({"step": i, "loss": loss, "mfu": len(losses)}) for i, loss in enumerate(losses)]
        (path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 3, "lo')
    [row] = compare(a, b)["metrics"]
    assert row == {
        "metric": "loss",
        "first_step": 2,
        "largest_at": 2,
        "a": 1.5,
        "b": 1.0,
        "relative": pytest.approx(1 / 3),
    }


def test_repeats_make_a_difference_of_times_significant(tmp_path, field, capsys):
    for i in range(4):
        make(tmp_path / "a" / str(i), field, seconds=(1.0 + i / 100, 1.0))
        make(tmp_path / "b" / str(i), field, seconds=(1.5 + i / 100, 1.5))
    assert main([str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    [phase] = json.loads(capsys.readouterr().out)["phases"]
    assert (phase["significant"], phase["chance"]) == (True, pytest.approx(2 / 70))
    assert main([str(tmp_path / "a" / "0"), str(tmp_path / "b" / "0"), "--json"]) == 0
    [phase] = json.loads(capsys.readouterr().out)["phases"]
    assert (phase["significant"], phase["chance"]) == (False, pytest.approx(1 / 3))
    assert phase["b_over_a"] == pytest.approx(1.5)


def test_a_list_of_numbers_is_printed_as_short_as_numbers(capsys):
    print_table(("figure", "a"), [("waits", [0.50467745, 12.0, None])])
    assert "0.5047, 12, " in capsys.readouterr().out
