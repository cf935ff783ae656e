"""The thermo table with columns of one's own: beside LAMMPS, on any number of ranks, from checkpoints, wrong ones."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from lammps_runs import follow_lammps, needs_lammps, run_lammps
from pydantic import ValidationError
from test_physics import run_app
from test_scripts import hpckit

from hpckit.apps.md import report
from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.settings.table import Table
from hpckit.errors import InputError
from hpckit.report.extension import app_sections
from hpckit.report.run_data import load_run

pytestmark = pytest.mark.usefixtures("quick_runs")

TABLE = """units lj
atom_style atomic
lattice fcc 0.8
region box block 0 4 0 3 0 3
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.4 4711
mass 1 1.0
mass 2 2.5
group heavy type 2
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0
pair_modify tail yes
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
compute moved all msd com yes
compute far heavy msd
compute swing heavy vacf
compute along all temp/partial 1 0 1
compute warm heavy temp
compute place heavy com
compute round heavy gyration
variable each equal (pe+ke)/atoms
variable twice equal 2*v_each+c_warm^2-sqrt(abs(c_place[2]))*PI+step*dt
thermo_style custom step elapsed atoms temp ke pe etotal evdwl epair etail enthalpy press vol density lx xlo zhi &
  pxx pyz fmax fnorm c_along c_warm[4] c_thermo_press[2] c_moved[*] c_far[4] &
  c_swing[1] c_swing[4] c_place[1] c_round c_round[6] v_each &
  v_twice dt
thermo_modify norm {0} format float %.15g
thermo 20
run 60
reset_timestep 30
thermo_style custom step dt atoms pe ke temp etotal evdwl epair etail enthalpy press vol density lx xlo zhi &
  pxx pyz fmax fnorm c_along c_warm[4] c_thermo_press[2] c_moved[*] c_far[4] &
  c_swing[1] c_swing[4] c_place[1] c_round c_round[6] v_each &
  v_twice time
thermo_modify format float %.15g
run 40
"""


AVERAGED = f"""{TABLE.partition("variable each")[0]}
variable each equal (pe+ke)/atoms
fix one all ave/time 5 3 20 c_warm v_each c_along[1] file one.txt
fix moving all ave/time 2 4 10 c_thermo_press c_moved[4] ave window 3 file moving.txt
fix all all ave/time 10 1 10 c_thermo_pe ave running file all.txt title1 "# all"
thermo_style custom step temp pe f_one[1] f_one[3] f_moving[1] f_moving[2] f_all v_each
thermo_modify norm yes format float %.15g
thermo 20
run 50
unfix moving
fix moving all ave/time 1 1 5 c_thermo_temp v_each file again.txt
run 40
"""


DIFFUSING = f"""{TABLE.partition("variable each")[0]}
fix drifts all vector 5 c_moved[4] c_far[4]
fix swings all vector 1 c_swing[4]
variable area equal dt*trap(f_swings)/3
variable slope equal slope(f_drifts[2])/6/(5*dt)-slope(f_drifts[1])
thermo_style custom step temp v_area c_swing[4] c_swing[1]
thermo_modify format float %.15g
thermo 20
run 50
thermo_style custom step temp v_area v_slope c_swing[2]
thermo_modify format float %.15g
run 40
"""


PRESSED = """units lj
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
fix c all ave/time 1 1 7 v_q file c.txt format " %.15g"
thermo 10
thermo_style custom step temp pe ke press
run 30
fix d all ave/time 5 2 10 c_thermo_temp file d.txt format " %.15g"
unfix b
run 30
"""


@needs_lammps
@pytest.mark.parametrize("norm", ["yes", pytest.param("no", marks=pytest.mark.nightly)])
def test_columns_are_those_of_lammps(mpirun, tmp_path, norm):
    follow_lammps(tmp_path, mpirun, TABLE.format(norm), again=70)


@needs_lammps
def test_integrals_and_slopes_of_series_are_those_of_lammps(mpirun, tmp_path):
    """Diffusion by displacements and by velocities, as its examples have it."""
    follow_lammps(tmp_path, mpirun, DIFFUSING, again=73)


@needs_lammps
def test_means_over_steps_are_those_of_lammps(mpirun, tmp_path):
    """The last means in the table, and the files of a run, which LAMMPS has written before."""
    follow_lammps(tmp_path, mpirun, AVERAGED, again=73)
    expected = {name: np.loadtxt(tmp_path / name) for name in ("one.txt", "moving.txt", "all.txt", "again.txt")}
    done = hpckit("run", "in.it", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, rows in expected.items():
        found = np.loadtxt(next((tmp_path / "runs").glob(f"*/output/{name}")))
        np.testing.assert_allclose(found, rows, rtol=2e-5, atol=1e-5, err_msg=name)
    run = load_run(next((tmp_path / "runs").iterdir()))
    (shown,) = (each for each in app_sections(report, run) if each.key == "columns")
    assert list(shown.numbers) == ["f_one[1]", "f_one[3]", "f_moving[1]", "f_moving[2]", "f_all", "v_each"]
    begin = int(re.search(r"Means from step (\d+) on", shown.html)[1])
    late = [line["v_each"] for line in run.metrics if line["step"] >= begin]
    assert begin >= 50
    assert shown.numbers["v_each"]["mean"] == pytest.approx(np.mean(late))
    assert shown.html.count("<svg") == len(shown.numbers)
    assert "(pe+ke)/atoms" in shown.html


@needs_lammps
@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_means_in_files_are_those_of_lammps_where_the_box_changes(tmp_path, ranks):
    run_lammps(tmp_path, PRESSED)
    (tmp_path / "in.means").write_text(PRESSED)
    run_app(tmp_path / "run", str(tmp_path / "in.means"), "-n", str(ranks))
    for name, rows in (("a", 6), ("b", 5), ("c", 9), ("d", 3)):
        theirs, ours = np.loadtxt(tmp_path / f"{name}.txt"), np.loadtxt(tmp_path / "run" / "output" / f"{name}.txt")
        assert len(theirs) == rows
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"name": "a", "columns": ["press"], "file": "../a"}], "should match pattern"),
        (
            [{"name": "a", "columns": ["press"], "file": "a"}, {"name": "b", "columns": ["pe"], "file": "a"}],
            "else: give",
        ),
        ([{"name": "a", "columns": ["press"], "file": "end.data"}], "end.data is a file of something else"),
    ],
)
def test_means_that_cannot_be_written_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"table": {"averages": given}})


def test_what_is_not_known_is_left_out_with_a_note(tmp_path):
    text = TABLE.format("no").replace("temp ke pe", "temp spcpu ke f_12 pe v_none c_stress[1]")
    (tmp_path / "in.it").write_text(text.replace("compute moved", "compute stress all stress/atom NULL\ncompute moved"))
    found = settings_of(tmp_path / "in.it")
    assert any(note.endswith("left out: spcpu, f_12, v_none, c_stress[1]") for note in found.notes)
    assert found.tree["table"]["columns"][:5] == ["step", "elapsed", "atoms", "temp", "ke"]
    assert found.tree["stages"][0]["table"]["first_step"] == -30


def test_steps_count_from_a_reset_after_a_minimization(tmp_path):
    text = TABLE.format("no") + "minimize 0 1e-9 100 100\nrun 7\nreset_timestep 5\nrun 10\nthermo 3\nrun 4\n"
    (tmp_path / "in.it").write_text(text)
    *_, unknown, first, second = settings_of(tmp_path / "in.it").tree["stages"]
    assert "first_step" not in unknown["table"]
    counts = [(each["table"]["counts"], each["table"]["first_step"]) for each in (first, second)]
    assert counts == [("stage", 5), ("stage", 15)]
    assert [each["table"]["first_time"] for each in (first, second)] == pytest.approx([0.0, 10 * 0.005])


def test_a_mean_without_its_numbers_is_refused_with_its_line(tmp_path):
    (tmp_path / "in.it").write_text(AVERAGED.replace("ave/time 5 3 20 c_warm", "ave/time 5 0 c_warm"))
    with pytest.raises(InputError, match=r"in\.it:\d+: fix one all ave/time: known are NEVERY NREPEAT NFREQ above 0"):
        settings_of(tmp_path / "in.it")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"columns": ["step", "warmth"]}, "there is no column warmth; known are step, "),
        ({"columns": ["c_it[5]"], "computed": [{"name": "it", "kind": "msd"}]}, r"there is no c_it\[5\]"),
        ({"columns": ["v_a"], "formulas": [{"name": "a", "formula": "1+v_b"}]}, "there is no column v_b"),
        ({"columns": ["v_a"], "formulas": [{"name": "a", "formula": "1+v_a"}]}, "the formula of v_a needs itself"),
        ({"columns": ["v_a"], "formulas": [{"name": "a", "formula": "(1+temp"}]}, "cannot be read"),
        ({"averages": [{"name": "a", "columns": ["pe"], "every": 4, "repeat": 3, "period": 10}]}, "do not fit in 10"),
        ({"averages": [{"name": "a", "columns": ["f_a"]}]}, "not averaged again"),
        ({"averages": [{"name": "a", "columns": ["pe", "ke"]}], "columns": ["f_a"]}, "no f_a among the means"),
        ({"columns": ["v_a"], "formulas": [{"name": "a", "formula": "count(all,in)"}]}, "there is no region in"),
        ({"regions": [{"name": "in", "radius": 2.0}]}, "radius, above 0, and across go together"),
        ({"computed": [{"name": "a", "kind": "coord/atom"}]}, "reach is missing"),
        ({"computed": [{"name": "a", "kind": "rdf", "types": [1]}]}, "partners and types are for coord/atom"),
    ],
)
def test_a_column_that_cannot_be_is_refused(given, told):
    with pytest.raises(ValidationError, match=told):
        Table.model_validate(given)


def test_the_table_and_the_metrics_of_a_run_have_the_columns(tmp_path):
    """As a user sees them; energies of a lattice in reduced units are those of each particle."""
    (tmp_path / "run.toml").write_text("""
app = "md"
[system]
cells = [3, 3, 3]
[time]
steps = 20
thermo = 10
[table]
columns = ["step", "temp", "v_per", "c_moved[4]"]
computed = [{name = "moved", kind = "msd"}]
formulas = [{name = "per", formula = "etotal*atoms"}]
""")
    done = hpckit("run", "run.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    titles = next(line.split() for line in done.stdout.splitlines() if "Step" in line)
    assert titles == ["Step", "Temp", "v_per", "c_moved[4]"]
    last = json.loads(next((tmp_path / "runs").glob("*/metrics.jsonl")).read_text().splitlines()[-1])
    assert last["v_per"] == pytest.approx(last["energy"], rel=1e-14)
    assert 0 < last["c_moved[4]"] < 0.1


STRETCHED = """units lj
lattice fcc 0.85
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.0 87287
pair_style lj/cut 2.2
pair_coeff 1 1 1.0 1.0
fix 1 all npt temp 0.6 0.6 0.2 iso 2 2 1
thermo 5
thermo_modify norm no
timestep 0.004
run 20
unfix 1
variable now equal "lx"
variable first equal ${now}
variable level equal $(pe)-10*${now}
fix 1 all npt temp 0.6 0.6 0.2 y 2 2 1 z 2 2 1
fix 2 all deform 1 x erate 0.05 remap x
variable strain equal "(lx - v_first)/v_first"
thermo_style custom step temp v_strain v_level pe
thermo_modify norm no format float %.15g
run 20
variable first equal ${now}
variable gain equal pe-$(pe)
thermo_style custom step temp v_strain pe v_gain
thermo_modify norm no format float %.15g
run 20
"""


@needs_lammps
def test_what_a_variable_was_between_two_runs_stays(mpirun, tmp_path):
    """The strain of a pull, from a length that pressure had made; also on three ranks and from a checkpoint."""
    text = STRETCHED.replace("thermo 5\n", "thermo 5\nthermo_style custom step temp lx pe press\n", 1)
    text = text.replace("thermo_modify norm no\n", "thermo_modify norm no format float %.15g\n", 1)
    follow_lammps(tmp_path, mpirun, text, again=33)
