"""`hpckit compare`: distances of floating-point numbers, chances of times, and whole runs."""

from __future__ import annotations

import json
import math

import h5py
import numpy as np
import pytest

from hpckit.cli.compare import chance_of, field_differences, main, ulp_distance
from hpckit.cli.terminal import print_table
from hpckit.run_directory import RunDirectory


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


def make(path, field, *, nx=8, seconds=(1.0, 1.1)):
    run = RunDirectory.create(path)
    run.write_json("resolved.json", {"app": "weather", "ranks": 2, "values": {"grid": {"nx": nx, "nz": 4}}})
    run.write_json("summary.json", {"status": "done", "t_eff": 2.0, "phases": {"halo": list(seconds)}})
    with h5py.File(run.output / "fields.h5", "w") as file:
        file["theta"] = field
        file["VTKHDF/theta"] = file["theta"]
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
