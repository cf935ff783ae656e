"""Means over time, as `fix ave/time` of LAMMPS has them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from lammps_runs import needs_lammps, run_lammps
from pydantic import ValidationError
from test_physics import run_app

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.output import averages
from hpckit.apps.md.settings.averages import Average

pytestmark = pytest.mark.usefixtures("quick_runs")

SCRIPT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 5 0 5 0 5
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all npt temp 1.0 1.0 0.5 iso 1.0 1.0 2.0
compute mine all pressure thermo_temp
variable p equal press
variable e equal etotal
variable h equal enthalpy
variable v equal vol
variable q equal pe+ke
fix a all ave/time 2 5 10 c_thermo_temp v_p v_e c_thermo_pe c_mine[4] v_h v_v file a.txt format " %.15g"
fix b all ave/time 1 1 7 v_e c_mine file b.txt ave running format " %.15g"
fix c all ave/time 1 1 7 v_q file c.txt
thermo 50
run 30
fix d all ave/time 5 2 10 c_thermo_temp file d.txt format " %.15g"
unfix b
run 35
"""


@needs_lammps
@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_a_script_s_means_over_time_are_those_of_lammps(tmp_path, ranks):
    run_lammps(tmp_path, SCRIPT)
    (tmp_path / "in.means").write_text(SCRIPT)
    run_app(tmp_path / "run", str(tmp_path / "in.means"), "-n", str(ranks))
    for name, rows in (("a", 6), ("b", 5), ("d", 3)):
        theirs, ours = np.loadtxt(tmp_path / f"{name}.txt"), np.loadtxt(tmp_path / "run" / "output" / f"{name}.txt")
        assert len(theirs) == rows
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, err_msg=name)
    assert not (tmp_path / "run" / "output" / "c.txt").exists()


def test_what_of_a_script_is_not_averaged_is_told_and_passed_over(tmp_path):
    (tmp_path / "in.means").write_text(SCRIPT)
    reading = settings_of(tmp_path / "in.means")
    assert any("fix c ave/time is passed over, for v_q, pe+ke" in note for note in reading.notes)
    files = [
        [each["file"] for each in table["averages"]] for table in (reading.tree["output"], *reading.tree["stages"])
    ]
    assert files == [["a.txt", "b.txt"], ["a.txt", "d.txt"]]


class Rows(list):
    """In place of a file."""

    add = list.append


def _averages(monkeypatch, given, steps):
    """What measures the number of the step as temperature."""
    monkeypatch.setattr(averages, "measure", lambda system: SimpleNamespace(temperature=float(system.step)))
    found = averages.Averages([given], SimpleNamespace(rank=1), SimpleNamespace(step=0))
    found._tables = {each.file: Rows() for each in given}
    found.enter(given, 0)
    _go_on(found, steps)
    return found


def _go_on(it, steps):
    for step in steps:
        if step == 0 or it.wants(step):
            it.system.step = step
            it.add(step)


def test_sums_go_on_after_a_checkpoint(monkeypatch):
    given = (
        Average(file="a", values=("temperature",), every=3, repeat=3, steps=9),
        Average(file="b", values=("temperature",), steps=4, running=True),
    )
    whole = _averages(monkeypatch, given, range(40))
    assert whole._tables["a"] == ["9 6\n", "18 15\n", "27 24\n", "36 33\n"]
    assert whole._tables["b"][:3] == ["0 0\n", "4 2\n", "8 4\n"]
    first = _averages(monkeypatch, given, range(18))
    assert first.has(15)
    second = _averages(monkeypatch, given, ())
    second.restore(json.loads(json.dumps(first.saved())), given)
    _go_on(second, range(17, 40))
    for name, rows in whole._tables.items():
        assert first._tables[name] + second._tables[name] == rows


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"file": "a", "values": ["heat"]}], "heat: known are"),
        ([{"file": "../a", "values": ["pressure"]}], "is the name of a file"),
        ([{"file": "a", "values": ["pressure"], "every": 7}], "multiple of every"),
        ([{"file": "a", "values": ["pressure"]}, {"file": "a", "values": ["energy"]}], "a is a file of something else"),
        ([{"file": "end.data", "values": ["pressure"]}], "end.data is a file of something else"),
    ],
)
def test_means_that_cannot_be_written_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"output": {"averages": given}})
