"""Profiles over bins, tables of distances, and correlations in time: beside LAMMPS, on several ranks, wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from lammps_runs import follow_lammps, needs_lammps, run_lammps
from potential_files import write_chain
from pydantic import ValidationError
from test_chains import SCRIPT as CHAIN
from test_physics import run_app

from hpckit.apps.md import report
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.settings.formulas import value_of, values_of
from hpckit.apps.md.settings.table import Table
from hpckit.report.extension import app_sections
from hpckit.report.run_data import load_run

MELT = """units lj
lattice fcc 0.7
region box block 0 4 0 4 0 6
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.4 4711
mass 1 1.0
mass 2 2.0
group two type 2
velocity all create 1.5 87287 loop geom
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0
neighbor 0.3 bin
fix 1 all nve
timestep 0.005
"""
SERIES = f"""{MELT}
variable pxy equal pxy
variable pxz equal pxz
variable scale equal 0.5*vol
fix SS all ave/correlate 2 10 40 v_pxy c_thermo_temp type auto file own.txt ave running
fix cross all ave/correlate 3 5 30 v_pxy c_thermo_temp v_pxz type full file cross.txt prefactor 2.0 start 20
variable v11 equal trap(f_SS[3])*${{scale}}
variable slow equal slope(f_SS[4])
variable natoms equal count(all)
variable share equal count(two)/${{natoms}}*mass(two)+fcm(two,y)-vcm(two,x)*xcm(all,z)+ke(two)/gyration(two)
compute each two ke/atom
variable warm atom c_each/1.5+(vx^2+vy*vy-exp(-abs(fz)))*(type==2)*temp%3
compute sums all reduce sum vx c_each v_warm
compute most two reduce max vx fz v_warm
compute mean two reduce ave v_warm
compute far all rdf 20
compute some two rdf 12 2 2 1 * * 2 cutoff 2.0
compute warmth two temp
fix far all ave/time 5 4 40 c_far[*] file far.txt mode vector
fix some all ave/time 5 2 20 c_some[1] c_some[2] c_some[7] file some.txt mode vector ave running start 60
fix tensor all ave/time 2 3 20 c_warmth file tensor.txt mode vector ave window 2
compute layers all chunk/atom bin/1d z lower 0.05 units reduced
compute squares two chunk/atom bin/2d x lower 2.0 z center 3.1 units box
compute cells all chunk/atom bin/1d y 0.1 0.7
compute kinds all chunk/atom type
fix heat all ave/chunk 2 5 20 layers v_warm vx density/number density/mass temp file heat.txt
fix two two ave/chunk 2 5 20 squares fx c_each vz temp norm sample ave running file two.txt
fix none two ave/chunk 5 2 20 cells vy temp norm none ave window 2 file none.txt
fix kinds all ave/chunk 4 2 20 kinds vy temp density/mass ave window 2 file kinds.txt
fix moves all ave/histo 5 4 40 -2 2 8 vx v_warm mode vector file moves.txt
fix spread two ave/histo 5 4 40 -1 1 7 vy mode vector ave running beyond extra file spread.txt
fix ends two ave/histo 10 2 20 -1 1 5 vz mode vector ave window 2 beyond end file ends.txt
fix warmths all ave/histo 1 10 20 0.8 1.2 4 c_thermo_temp c_thermo_press file warmths.txt
thermo 40
thermo_style custom step temp press f_moves[1] f_moves[2] f_moves[3] f_moves[4] f_moves[3][2] f_spread[4][3] &
  f_ends[2][1] f_warmths[2] v_share v_v11 v_slow f_SS[2][3] f_far[13][3] f_some[7][3] f_tensor[2] f_heat[3][5] &
  f_two[4][6] f_none[2][3] c_sums[2] c_sums[3] c_most[*] c_mean c_far[14][2]
thermo_modify format float %.15g
run 80
unfix kinds
run 80
"""
PARTS = f"""{MELT}
region tube cylinder z 2 2 1.3 INF INF
region slab cylinder x 2 3 1.5 0.5 3.2 side out
region ball sphere 2 2 3 1.4
region far sphere 2 2 3 1.4 side out
region block block 0.5 3.5 1 3 0.6 5.2
region none sphere 2 2 3 0.0001
variable tube equal count(two,tube)
variable slab equal mass(all,slab)
variable ball equal vcm(all,x,ball)
variable far equal fcm(two,y,far)
variable block equal ke(all,block)
variable most equal bound(two,zmax,block)-bound(all,xmin,ball)
variable wide equal gyration(all,block)+xcm(two,z,tube)
variable none equal bound(all,xmax,none)+gyration(all,none)+xcm(all,y,none)+vcm(all,y,none)
compute near all coord/atom cutoff 1.4
compute pairs two coord/atom cutoff 2.2 group two
compute ones two coord/atom cutoff 1.9 1
compute sums all reduce sum c_near c_pairs c_ones
compute most all reduce max c_near c_pairs c_ones
fix tube all ave/time 5 4 20 v_tube c_sums[2] file tube.txt
thermo 20
thermo_style custom step temp v_tube v_slab v_ball v_far v_block v_most v_wide v_none c_sums[*] c_most[*] f_tube[2]
thermo_modify format float %.15g
run 40
"""
PRESSED = """units real
lattice fcc 5.4
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 40.0
velocity all create 150 87287
pair_style lj/cut 8
pair_coeff * * 0.238 3.4
fix 1 all npt temp 100 100 100 aniso 0 0 1000
timestep 2
compute shares all chunk/atom bin/2d z lower 0.2 x lower 0.15 units reduced
compute low all chunk/atom bin/1d z lower 3.0 units box
compute middle all chunk/atom bin/1d z center 3.0 units box
fix own all ave/chunk 5 2 20 shares temp density/mass density/number vx file own.txt
fix cross all ave/chunk 5 2 20 low temp density/mass density/number vx file cross.txt
fix far all ave/chunk 5 3 20 middle temp density/mass density/number vx norm sample file far.txt
thermo 20
thermo_style custom step temp zlo zhi lz xlo xhi f_cross[2][4] f_far[8][3]
thermo_modify format float %.15g
run 100
"""
FILES = ("own", "cross", "far", "some", "tensor", "heat", "two", "none", "kinds", "moves", "spread", "ends", "warmths")


def rows_of(path) -> np.ndarray:
    """All numbers of a file, row by row."""
    lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
    return np.array([float(word) for line in lines for word in line.split()])


@needs_lammps
@pytest.mark.parametrize(
    ("text", "count"), [(SERIES, 13), pytest.param(PRESSED, 3, marks=pytest.mark.nightly)], ids=["still", "box"]
)
def test_series_are_those_of_lammps(mpirun, tmp_path, text, count):
    """Numbers of the table, also on three ranks and from a checkpoint; and the files, with their heads."""
    follow_lammps(tmp_path, mpirun, text, again=93)
    run_app(tmp_path / "run", str(tmp_path / "in.it"))
    for name in FILES[:count]:
        theirs, ours = tmp_path / f"{name}.txt", tmp_path / "run" / "output" / f"{name}.txt"
        heads = [[line for line in each.read_text().splitlines() if line[0] == "#"] for each in (ours, theirs)]
        assert heads[0] == heads[1]
        expected = rows_of(theirs)
        assert len(expected) > 20
        np.testing.assert_allclose(rows_of(ours), expected, rtol=1e-5, atol=1e-5, err_msg=name)
    (shown,) = (each for each in app_sections(report, load_run(tmp_path / "run")) if each.key == "series")
    assert "heat" in shown.numbers or "far" in shown.numbers
    assert shown.html.count("<svg") > 5


@needs_lammps
def test_functions_of_regions_and_numbers_of_neighbors_are_those_of_lammps(mpirun, tmp_path):
    follow_lammps(tmp_path, mpirun, PARTS, again=27)


@needs_lammps
@pytest.mark.parametrize("shares", ["fene", pytest.param("lj/coul 0 0 0.5", marks=pytest.mark.nightly)])
def test_distances_leave_out_partners_in_molecules(tmp_path, shares):
    """Only those without any share of the forces."""
    write_chain(tmp_path / "chain.data")
    near = "compute near all coord/atom cutoff 1.1\ncompute sum all reduce sum c_near\n"
    near += "fix near all ave/time 10 2 20 c_sum file near.txt\n"
    text = CHAIN.format(shares, "harmonic", "300.0 0.97").replace("run 200", f"{near}compute far all rdf 14\nrun 20")
    text = text.replace("run 20", "fix far all ave/time 10 2 20 c_far[*] file far.txt mode vector\nrun 20")
    run_lammps(tmp_path, text)
    (tmp_path / "in.it").write_text(text)
    run_app(tmp_path / "run", str(tmp_path / "in.it"))
    expected = rows_of(tmp_path / "far.txt")
    assert expected[2:].reshape(14, 4)[:, 2].max() > 0.1
    np.testing.assert_allclose(rows_of(tmp_path / "run" / "output" / "far.txt"), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(rows_of(tmp_path / "run" / "output" / "near.txt"), rows_of(tmp_path / "near.txt"))


def test_series_that_are_not_known_are_left_out_with_a_note(tmp_path):
    text = SERIES.replace("compute kinds all chunk/atom type", "compute kinds all chunk/atom molecule")
    text = text.replace("compute far all rdf 20", "compute far all rdf 20 1")
    text = text.replace("compute mean two reduce ave v_warm", "compute mean two reduce ave f_store")
    text = text.replace("none ave window 2", "none bias warmth")
    (tmp_path / "in.it").write_text(text)
    found = settings_of(tmp_path / "in.it")
    assert [each["name"] for each in found.tree["table"]["profiles"]] == ["heat", "two"]
    assert [each["name"] for each in found.tree["table"]["averages"]] == ["some", "tensor"]
    for note in (
        "thermo_style: what is not known here is left out: f_far[13][3], f_none[2][3], c_mean, c_far[14][2]",
        "fix kinds ave/chunk is passed over",
        "fix none ave/chunk is passed over",
        "fix ave: what is not known here is left out: far",
    ):
        assert any(note in each for each in found.notes), note


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"profiles": [{"name": "a", "columns": ["vx", "press"]}]}, "particles have no press"),
        ({"profiles": [{"name": "a", "columns": ["c_t"]}], "computed": [{"name": "t", "kind": "temp"}]}, "have no c_t"),
        ({"profiles": [{"name": "a", "columns": ["vx"], "bins": {"along": ["x"]}}]}, "a width and an origin along"),
        ({"averages": [{"name": "a", "columns": ["temp"], "mode": "vector"}]}, "temp is not a vector"),
        ({"correlations": [{"name": "a", "columns": ["pe"], "lags": 9, "period": 5}]}, "9 lags of 1 steps do not fit"),
        (
            {"correlations": [{"name": "a", "columns": ["pe"], "period": 5}], "columns": ["f_a[1][4]"]},
            r"no f_a\[1\]\[4\]",
        ),
        (
            {"computed": [{"name": "r", "kind": "rdf", "bins": 5}], "columns": ["c_r[6][1]"]},
            r"there is no c_r\[6\]\[1\]",
        ),
        ({"histograms": [{"name": "h", "columns": ["vx"], "low": 2, "high": 1}]}, "from 2 to 1 has no width"),
        ({"histograms": [{"name": "h", "columns": ["warm"], "low": 0, "high": 1}]}, "no column warm"),
        ({"averages": [{"name": "a", "columns": ["pe"]}], "exchanged": ["a"]}, "names of table come twice: a, a"),
        ({"computed": [{"name": "r", "kind": "reduce"}]}, "of is for reduce, which needs it"),
        ({"computed": [{"name": "r", "kind": "reduce", "of": ["vx", "warm"]}]}, "particles have no warm"),
    ],
)
def test_series_that_cannot_be_are_refused(given, told):
    with pytest.raises(ValidationError, match=told):
        Table.model_validate(given)


def test_formulas_of_many_numbers_are_those_of_each():
    formula = "-a^2+(b-4)%3*atan2(a,b)-(a>b)*ln(b)+round(a)+floor(b)-abs(a)/sqrt(b)||!(a<0)&&b>=2"
    values = {"a": np.array([0.5, -1.25, 3.5, 7.0]), "b": np.array([1.5, 2.25, 3.25, 7.0])}
    for text in (formula, formula.partition("||")[0]):
        expected = [value_of(text, lambda name, k=k: float(values[name][k])) for k in range(4)]
        np.testing.assert_allclose(values_of(text, values.__getitem__), expected, rtol=1e-14)
