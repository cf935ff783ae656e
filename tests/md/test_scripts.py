"""LAMMPS input scripts as settings: what they say, variables and loops, and everything that cannot be done at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import follow_lammps, needs_lammps, run_lammps, tables, thermo_rows
from mpi4py import MPI
from test_against_lammps import SHARED

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.making.velocities import by_place
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.motion.stages import Stages
from hpckit.apps.md.run import dry_run
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.io.particles.lammps_data import read_lammps_data, write_lammps_data
from hpckit.md.motion.dynamics import NVE
from hpckit.md.snapshots import load_snapshot, snapshot
from hpckit.md.thermo import measure
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.settings.config import load
from tests.programs.md_groups import run as run_stages

pytestmark = pytest.mark.usefixtures("quick_runs")


def hpckit(*words, cwd):
    """A command, as a user gives it."""
    command = [sys.executable, "-m", "hpckit.cli.main", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


CRACK = """dimension 1
boundary m s p
lattice hex 0.93
region box block 0 100 0 40 -0.25 0.25
create_box 2 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0 2.5
region 1 block INF INF INF 1.25 INF INF
group lower region 1
group rest subtract all lower
group upper above 3
compute new rest temp
compute old pets temp
velocity rest create 0.01 887723 temp new
fix 1 all nve
run 5
"""


def test_a_list_of_mistakes_has_those_of_the_script_and_no_others(tmp_path):
    """What follows from a mistake is none: without particles there is no pair_coeff that could be missing."""
    (tmp_path / "in.crack").write_text(CRACK)
    with pytest.raises(InputError) as error:
        settings_of(tmp_path / "in.crack")
    found = [int(line.split(":")[1]) for line in str(error.value).splitlines() if "in.crack:" in line]
    assert found == [1, 2, 3, 13]
    (tmp_path / "in.crack").write_text(CRACK.replace("upper above 3", "upper type 2"))
    with pytest.raises(InputError, match=r"in\.crack:15: .*no group pets"):
        settings_of(tmp_path / "in.crack")
    (tmp_path / "in.again").write_text(
        "read_restart a\npair_style lj/cut 2.5\npair_coeff 1 1 1 1\nfix 1 all nve\nrun 1\n"
    )
    with pytest.raises(InputError, match=r"in\.again:1: read_restart"):
        settings_of(tmp_path / "in.again")
    (tmp_path / "a").write_text("nothing\n")
    (tmp_path / "in.again").write_text((tmp_path / "in.again").read_text().replace("restart", "data"))
    with pytest.raises(InputError, match=r"in\.again:1: read_data a: .*atom types"):
        settings_of(tmp_path / "in.again")


CHOSEN = """units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 4
region same block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 region same
mass 1 1.0
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
fix 1 all nvt temp 1.0 1.0 $(100*dt)
label again
variable k loop 5
if "${k} == 1" then "timestep 0.001" elif "(${k} >= 3) && (a != b)" "jump SELF done" else "timestep 0.002" "thermo 7"
fix 1 all nvt temp 1.0 1.0 $(100.0*dt)
run 20
next k
jump SELF again
label done
run 3
"""


def test_conditions_and_the_time_step_in_formulas(tmp_path):
    (tmp_path / "in.chosen").write_text(CHOSEN)
    found = settings_of(tmp_path / "in.chosen")
    assert found.tree["time"] == {"steps": 20, "thermo": 20, "dt": 0.001}
    stages = found.tree["stages"]
    assert [(each["steps"], each.get("dt"), each.get("thermo")) for each in stages] == [(23, 0.002, 7)]
    assert stages[0]["dynamics"]["damping"] == pytest.approx(2 * np.pi * 0.2)
    for wrong in (
        'if "1 ==" then "run 1"',
        'if "1 == 1" "run 1"',
        'if "(1" then "run 1"',
        'if "1" then',
        'if "0" then "run 1" elif',
    ):
        (tmp_path / "in.wrong").write_text(CHOSEN.replace("label done", f"label done\n{wrong}"))
        with pytest.raises(InputError, match=r"in.wrong:\d+: .*(condition|known is if)"):
            settings_of(tmp_path / "in.wrong")


LOOPED = """# two types in a loop   # and a comment
variable n index 4
variable edge equal 2*${n}-v_n/4+sqrt(1)
units lj
lattice fcc 0.8442
region box block 0 ${edge} 0 $n 0 $(2+3)
create_box 2 box
create_atoms 1 box
mass * 1.5
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0
pair_coeff 1 2 0.5 &
    0.9 2.2
velocity all create 1.2 4928 loop all
fix 1 all nve
fix 2 all langevin 1.0 1.0 0.5 77
variable k loop 3
label again
run $(v_k*10)
next k
jump SELF again
"""


def test_variables_loops_and_continued_lines(tmp_path):
    (tmp_path / "in.looped").write_text(LOOPED)
    found = settings_of(tmp_path / "in.looped")
    assert found.tree["system"] == {
        "units": "lj",
        "lattice": "fcc",
        "density": 0.8442,
        "cells": [8, 4, 5],
        "fractions": [1.0, 0.0],
        "masses": [1.5, 1.5],
        "temperature": 1.2,
        "seed": 4928,
        "draw": "lammps",
    }
    pair = found.tree["interaction"]
    assert pair["pairs"] == [{"types": [1, 2], "epsilon": 0.5, "sigma": 0.9, "cutoff": 2.2}]
    assert (pair["epsilon"], pair["mixing"], pair["cutoff"]) == ([1.0, 1.0], "geometric", 2.5)
    assert found.tree["time"] == {"steps": 60, "thermo": 60, "dt": 0.005}
    assert found.tree["dynamics"] == {"seed": 77, "kind": "langevin", "temperature": 1.0, "damping": 0.5}
    assert found.lines["system", "cells"] == 7


def test_every_line_that_cannot_be_done_is_named_at_once(tmp_path):
    text = LOOPED.replace("fix 1 all nve", "fix 1 all nve\nfix 3 all shake 1e-4 5 0\nkspace_style pppm\nrun")
    text = text.replace("units lj", "units si").replace("$n 0", "${m} 0")
    (tmp_path / "in.bad").write_text(text)
    with pytest.raises(InputError) as error:
        settings_of(tmp_path / "in.bad")
    for line, what in (
        (4, "units si"),
        (6, "no variable m"),
        (16, "shake"),
        (17, "kspace_style"),
        (18, "run"),
    ):
        assert f"in.bad:{line}: " in str(error.value)
        assert what in str(error.value)
    assert str(error.value).startswith("5 of its lines")
    done = hpckit("run", "in.bad", cwd=tmp_path)
    assert done.returncode != 0
    assert "in.bad:17: kspace_style pppm: words are missing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("units lj\n", "makes no particles"),
        (LOOPED.replace("fix 1 all nve", ""), "no fix moves"),
        (LOOPED.replace("0 $n 0", "0 INF 0"), "give the box ends"),
        (LOOPED.replace("next k", "next q"), "no such variable"),
        (LOOPED.replace("run", "mass 1 ${k}\nrun"), "mass after a run"),
        (LOOPED.replace("next k\n", ""), "does not end"),
        (LOOPED.replace("sqrt(1)", "__import__('os')"), "cannot be evaluated"),
    ],
)
def test_scripts_that_say_too_little_or_too_much(tmp_path, monkeypatch, text, said):
    monkeypatch.setattr("hpckit.apps.md.lammps.script.MOST_LINES", 2000)
    (tmp_path / "in.bad").write_text(text)
    with pytest.raises(InputError) as error:
        settings_of(tmp_path / "in.bad")
    assert said in str(error.value)


# Of its 21, those whose potentials, shapes of particles and groups hpckit has.
TAKEN = {"bench": ["chain", "chain.scaled", "chute", "chute.scaled", "eam", "lj", "rhodo", "rhodo.scaled"]}
TAKEN["bench/POTENTIALS"] = ["eam", "fene", "granular", "lj", "protein", "spce", "sw", "tersoff"]


@needs_lammps
@pytest.mark.parametrize("folder", TAKEN)
def test_scripts_of_lammps_that_are_taken_and_those_that_name_what_they_lack(folder, monkeypatch):
    monkeypatch.chdir(SHARED / folder)
    taken = []
    for path in sorted((SHARED / folder).glob("in.*")):
        try:
            Config.model_validate(settings_of(path).tree)
            taken.append(path.name.removeprefix("in."))
        except InputError as error:
            assert "pair_style" in str(error)  # noqa: PT017
    assert taken == TAKEN[folder]


MORSE = """units metal
lattice fcc 3.615
region box block 0 4 0 5 0 4
create_box 1 box
create_atoms 1 box
mass 1 63.55
pair_style morse 6.5
pair_coeff 1 1 0.35 1.4 2.85
velocity all create 1600.0 376847 loop {0}
neighbor 1.0 bin
fix 1 all nve
timestep 0.002
thermo 20
thermo_style custom step temp epair emol etotal press
thermo_modify format float %.14g
run 40
"""


LOOPS = "geom", "all", "all dist gaussian rot yes", "geom dist gaussian mom no"


@needs_lammps
@pytest.mark.parametrize("loop", by_day(LOOPS, LOOPS[2]))
def test_a_script_starts_and_moves_as_lammps_does_it(tmp_path, loop):
    """The same random velocities, so the same temperatures, energies and pressures."""
    text = MORSE.format(loop)
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / "in.metal").write_text(text)
    config = Config.model_validate(settings_of(tmp_path / "in.metal").tree)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), NVE()
    for step in range(41):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it = measure(system)
            ours = [step, it.temperature, it.potential, it.total, it.pressure]
            assert ours == pytest.approx(expected[step // 20, [0, 1, 2, 4, 5]].tolist(), rel=1e-9)
    system.mesh.close()


MIXED = """units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 5
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.4 77
mass * 1.0
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.1
pair_coeff 2 2 0.6 1.3
pair_modify mix {0} shift yes
velocity all create 1.0 4928
fix 1 all nve
thermo 1
thermo_style custom step temp epair emol etotal press
thermo_modify norm no format float %.14g
run 1
"""


@needs_lammps
@pytest.mark.parametrize("rule", ["arithmetic", "geometric", "sixthpower"])
def test_what_pairs_are_not_told_is_mixed_as_in_lammps(tmp_path, rule):
    text = MIXED.format(rule)
    expected = thermo_rows(run_lammps(tmp_path, text))[0]
    (tmp_path / "in.mixed").write_text(text)
    config = Config.model_validate(settings_of(tmp_path / "in.mixed").tree)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    it = measure(system)
    assert [it.potential, it.pressure] == pytest.approx(expected[[2, 5]].tolist(), rel=1e-12)
    system.mesh.close()


PLACED = """units lj
read_data start.data
pair_style lj/cut 1.0
pair_coeff 1 1 0.0 1.0
velocity all create 1.0 4928 loop geom
fix 1 all nve
run 0
write_data end.data
"""


@needs_lammps
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("tilt", [(0.0, 0.0, 0.0), (1.3, -0.7, 2.1)])
def test_velocities_by_place_know_where_lammps_puts_particles_of_a_file(tmp_path, monkeypatch, tilt, copies):
    """Places beyond the sides are put into the box, and those of a tilted one rounded, before they are hashed; so are
    those of copies.
    """
    monkeypatch.chdir(tmp_path)
    places = np.random.default_rng(3).uniform(-3.0, 9.0, (50, 3))
    box = np.array([0.1, -0.2, 0.3]), np.array([6.4, 5.5, 7.3]), (True, True, True)
    ids, types = np.arange(1, 51), np.zeros(50, int)
    images = np.random.default_rng(4).integers(-2, 3, (50, 3)).astype(np.int32)
    write_lammps_data("start.data", Snapshot(*box, ids, types, places, images, masses=np.ones(1), tilt=np.array(tilt)))
    text = PLACED.replace("pair_style", "replicate 2 1 3\npair_style" if copies else "pair_style")
    run_lammps(tmp_path, text)
    (tmp_path / "in.placed").write_text(text.replace("write_data end.data\n", ""))
    config = Config.model_validate(settings_of(tmp_path / "in.placed").tree)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    ours, wanted = snapshot(system), read_lammps_data("end.data")
    assert np.abs(ours.velocities[np.argsort(ours.ids)] - wanted.velocities[np.argsort(wanted.ids)]).max() < 1e-12
    system.mesh.close()


def test_a_style_of_what_a_data_file_has_none_of_says_nothing(tmp_path):
    text = "units real\natom_style full\nbond_style harmonic\nangle_style harmonic\nread_data start.data\nmass 1 1.0\n"
    text += "bond_coeff 1 450.0 1.0\nangle_coeff 1 55.0 109.0\npair_style lj/cut 3.0\npair_coeff 1 1 0.1 1.0\n"
    (tmp_path / "in.few").write_text(text + "fix 1 all nve\nrun 1\n")
    head = "a line\n\n3 atoms\n2 bonds\n0 angles\n1 atom types\n1 bond types\n1 angle types\n"
    (tmp_path / "start.data").write_text(head)
    found = settings_of(tmp_path / "in.few").tree
    assert found["bonds"]["parameters"] == [[450.0, 1.0]]
    assert "angles" not in found
    (tmp_path / "start.data").write_text(head.replace("0 angles", "1 angles"))
    assert settings_of(tmp_path / "in.few").tree["angles"]["parameters"] == [[55.0, 109.0]]


def test_velocities_by_place_are_the_same_on_any_ranks_one_of_them_without_particles():
    places = np.random.default_rng(4).random((5, 3))
    parts = [by_place(87287, places[first:last]) for first, last in ((0, 3), (3, 3), (3, 5))]
    np.testing.assert_array_equal(np.concatenate(parts), by_place(87287, places))


FIXES = {
    "nvt": "nvt temp 800.0 800.0 0.1 tchain 2",
    "iso": "npt temp 800.0 800.0 0.1 iso 1000.0 1000.0 0.3",
    "aniso": "npt temp 800.0 800.0 0.1 aniso 0.0 0.0 0.3 pchain 1",
    "z": "npt temp 800.0 800.0 0.1 z 0.0 0.0 0.3 mtk no pchain 0 tchain 1",
    "xy": "npt temp 800.0 800.0 0.1 x 5.0 5.0 0.3 y 5.0 5.0 0.3 couple xy",
    "nph": "nph iso 2000.0 2000.0 0.3",
    "warmer": "npt temp 800.0 1200.0 0.1 iso 0.0 1000.0 0.3",
}


@needs_lammps
@pytest.mark.parametrize("name", by_day(FIXES, "aniso"))
def test_chains_and_barostats_move_as_those_of_lammps_for_200_steps(tmp_path, name):
    text = (
        MORSE.format("geom")
        .replace("nve", FIXES[name])
        .replace("run 40", "run 200")
        .replace("neighbor 1.0", "neighbor 0.2")
    )
    text = text.replace("emol etotal press", "vol etotal press lx ly lz")
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / "in.metal").write_text(text)
    config = Config.model_validate(settings_of(tmp_path / "in.metal").tree)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for step in range(201):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it, row = measure(system), expected[step // 20]
            ours = [step, it.temperature, it.potential, it.volume, it.total, *system.domains.lengths]
            assert ours == pytest.approx([*row[:5], *row[6:]], rel=1e-10)
            assert it.pressure == pytest.approx(row[5], abs=1e-9 * np.abs(expected[:, 5]).max())
    assert (name in ("nvt", "xy")) == (system.domains.lengths[2] == 4 * 3.615)
    assert system.neighbors.builds > 3
    system.mesh.close()


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ("npt temp 1 1 0.1", "one pressure and one damping"),
        ("npt temp 1 1 0.1 iso 0 0 1 drag no", "known are temp T T DAMPING, iso"),
        ("npt temp 1 1 0.1 x 0 0 1 y 1 1 1", "one pressure"),
        ("npt temp 1 1 0.1 x 0 0 1 couple yz", "couple yz does not go with x"),
        ("nph temp 1 1 0.1 iso 0 0 1", "known are iso"),
        ("nvt temp 1 1 0.1 iso 0 0 1", "known are temp T T DAMPING, tchain N and drag D"),
        ("npt temp 1 1 0.1 tri 0 0 1 xy 0 0 1", "one pressure and one damping"),
        ("npt temp 1 1 0.1 x 0 0 1 y 0 0 1 xy 5 5 1", "xy 0 0 and the damping of the edges"),
    ],
)
def test_barostats_that_hpckit_has_not_are_named(tmp_path, fix, said):
    (tmp_path / "in.bad").write_text(MORSE.format("geom").replace("nve", fix))
    with pytest.raises(InputError) as error:
        settings_of(tmp_path / "in.bad")
    assert said in str(error.value)


def test_a_script_becomes_a_run_file(tmp_path):
    (tmp_path / "in.looped").write_text(LOOPED)
    done = hpckit("run", "in.looped", "--to-toml", "time.steps=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "made from in.looped" in done.stdout
    (tmp_path / "looped.toml").write_text(done.stdout)
    again = hpckit("run", "looped.toml", "--show-config", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "lammps" in again.stdout


def test_copies_of_a_file_keep_their_molecules_whole(tmp_path):
    bonds = np.array([[0, 0, 1], [1, 1, 2]])
    places = np.array([[9.5, 1.0, 2.0], [0.3, 1.0, 2.0], [1.0, 1.5, 2.5]])
    images = np.array([[0, 0, 0], [1, 0, 0], [1, 0, -2]], np.int32)
    box = np.array([-1.0, 0.0, 0.0]), np.array([9.0, 5.0, 7.0])
    one = Snapshot(*box, (True,) * 3, np.array([1, 2, 4]), np.array([0, 1, 0]), places, images, bonds=bonds)
    many = one.replicated((2, 1, 3))
    assert many.upper.tolist() == [19.0, 5.0, 21.0]
    assert many.ids.tolist() == [number + 4 * copy for copy in range(6) for number in (1, 2, 4)]
    assert (many.positions >= many.lower).all()
    assert (many.positions < many.upper).all()
    gaps = one.unwrapped[bonds[:, 1]] - one.unwrapped[bonds[:, 2]]
    found = many.unwrapped[many.bonds[:, 1]] - many.unwrapped[many.bonds[:, 2]]
    np.testing.assert_allclose(found, np.tile(gaps, (6, 1)), atol=1e-12)
    np.testing.assert_allclose(many.unwrapped[3:6] - many.unwrapped[:3], [[10.0, 0, 0]] * 3, atol=1e-12)
    script = tmp_path / "in.copies"
    script.write_text("units lj\nreplicate 2 2\nreplicate 2 1 1\nrun 1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"three whole numbers[\s\S]*after read_data"):
        settings_of(script)


PUSHED_APART = """units lj
atom_style atomic
lattice fcc 0.8
region box block 0 5 0 5 0 6
create_box 2 box
create_atoms 1 random 480 4321 box
set type 1 type/fraction 2 0.3 777
mass * 1.0
velocity all create 1.0 8765 loop geom
pair_style soft 1.12246
pair_coeff * * 1.0 1.12246
variable strength equal ramp(1.0,60.0)
fix 1 all nve
fix push all adapt 4 pair soft a * * v_strength
fix slow all viscous 3.0
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
timestep 0.003
thermo 20
thermo_style custom step temp pe etotal press pxy
thermo_modify norm no format float %.16g
run 301
unfix push
unfix slow
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
pair_coeff 2 2 0.8 1.1
pair_coeff 1 2 0.9 1.05 2.2
pair_modify shift yes
timestep 0.0005
run 40
pair_coeff 1 2 0.5 1.05 2.2
run 21
pair_style soft 1.0
pair_coeff * * 5.0
variable strength delete
variable strength equal 5.0+0.01*step
fix push all adapt 1 pair soft a * * v_strength
run 15
"""


@pytest.mark.nightly
@needs_lammps
@pytest.mark.parametrize("again", [150, 330])
def test_runs_with_other_pairs_are_those_of_lammps(tmp_path, mpirun, again):
    """Random places pushed apart by soft pairs that grow, then Lennard-Jones pairs, others of them, and soft again."""
    follow_lammps(tmp_path, mpirun, PUSHED_APART, again=again, close=1e-9)


def test_pairs_of_a_later_run_are_its_stage(tmp_path):
    (tmp_path / "in.it").write_text(PUSHED_APART)
    tree = settings_of(tmp_path / "in.it").tree
    assert tree["interaction"]["parameters"] == [1.0, 1.12246]
    assert tree["interaction"]["ramp_to"] == [60.0, 1.12246]
    config = Config.model_validate(tree)
    first, second, third, last = config.staged
    assert (first.interaction.kind, second.interaction.kind) == ("soft", "lennard_jones")
    assert (second.interaction.shift, third.interaction.shift) == (True, True)
    assert [pair.epsilon for pair in second.interaction.pairs] == [0.9]
    assert [pair.epsilon for pair in third.interaction.pairs] == [0.5]
    assert last.interaction.parameters == pytest.approx((5.0 + 0.01 * 362, 1.0))
    assert last.interaction.ramp_to == pytest.approx((5.0 + 0.01 * 377, 1.0))
    ended = PUSHED_APART.partition("unfix push")[0] + "run 5\n"
    (tmp_path / "in.it").write_text(ended)
    assert [
        each.interaction.ramp_to for each in Config.model_validate(settings_of(tmp_path / "in.it").tree).staged
    ] == [(60.0, 1.12246)] * 2, "a fix adapt begins anew in each run"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pair_coeff 2 2 0.8 1.1\n", "", "there is no pair_coeff of 2 2"),
        ("pair_style lj/cut 2.5", "pair_style lj/cut/coul/cut 2.5", "after a run: known without charges"),
        ("unfix push", "", "fix adapt: known of pair_style soft"),
        ("soft a * *", "soft a 1 1", "known is N pair soft a"),
    ],
)
def test_pairs_of_a_later_run_that_cannot_be_are_named(tmp_path, old, new, said):
    assert old in PUSHED_APART
    (tmp_path / "in.it").write_text(PUSHED_APART.replace(old, new, 1))
    with pytest.raises(InputError, match=re.escape(said)):
        settings_of(tmp_path / "in.it")


@needs_lammps
def test_pairs_of_a_later_run_leave_masses_and_what_their_style_was_told(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMMPS_POTENTIALS", str(SHARED / "potentials"))
    text = """units metal
lattice fcc 3.6
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 63.55
pair_style lj/cut 6.0
pair_coeff * * 0.167 2.315 5.0
pair_modify shift yes
fix 1 all nve
run 3
pair_style lj/cut 5.5
run 3
pair_style eam
pair_coeff * * Cu_u3.eam
run 3
"""
    (tmp_path / "in.it").write_text(text)
    config = Config.model_validate(settings_of(tmp_path / "in.it").tree)
    first, second, third = config.staged
    assert config.system.masses == (63.55,)
    assert (first.interaction.cutoff, second.interaction.cutoff) == (5.0, 5.5)
    assert (second.interaction.epsilon, second.interaction.shift) == ((0.167,), True)
    assert third.interaction.kind == "eam"
    (tmp_path / "in.it").write_text(text.replace("63.55", "60.0"))
    with pytest.raises(InputError, match=r"it has the mass 63\.55, not 60"):
        settings_of(tmp_path / "in.it")


STRAIGHT = """units lj
atom_style angle
read_data straight.data
pair_style lj/cut 1.12
pair_coeff * * 1.0 1.0
neighbor 0.1 bin
bond_style harmonic
bond_coeff 1 100.0 0.97
angle_style cosine
angle_coeff 1 2.0
fix 1 all nve
run 1
"""


def test_angles_that_are_longer_than_the_reach_of_pairs_have_their_energy(tmp_path):
    """Straight ones across a side of the box, at all places: their ends are 1.94 apart, and pairs reach 1.22."""
    rows, bonds, angles = [], [], []
    for k in range(12):
        first = len(rows) + 1
        rows += [
            f"{first + j} {k + 1} 1 {(4.5 + 0.97 * j + 0.1 * k) % 6.0} {k % 4 * 1.5} {k // 4 * 2.0}" for j in range(3)
        ]
        bonds += [f"{len(bonds) + j + 1} 1 {first + j} {first + j + 1}" for j in range(2)]
        angles.append(f"{k + 1} 1 {first} {first + 1} {first + 2}")
    head = "chains\n\n36 atoms\n24 bonds\n12 angles\n1 atom types\n1 bond types\n1 angle types\n\n"
    head += "0 6 xlo xhi\n0 6 ylo yhi\n0 6 zlo zhi\n\nMasses\n\n1 1\n\n"
    parts = {"Atoms": rows, "Bonds": bonds, "Angles": angles}
    body = "\n".join(f"{name}\n\n" + "\n".join(each) + "\n" for name, each in parts.items())
    (tmp_path / "straight.data").write_text(head + body)
    (tmp_path / "in.it").write_text(STRAIGHT)
    config = Config.model_validate(settings_of(tmp_path / "in.it").tree)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    thermo = measure(system)
    assert abs(thermo.angles) < 1e-12
    assert abs(thermo.bonded) < 1e-12
    assert dry_run(config, 1).notes[-1].endswith(f"as far as {3.125 * 0.97 + 0.1:g}"), "three bonds, with no pairs"


LIMITED = """units lj
atom_style atomic
lattice fcc 0.8
region box block 0 5 0 5 0 6
create_box 1 box
create_atoms 1 random 480 4321 box
mass * 1.0
velocity all create 1.0 8765 loop geom
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0
fix 1 all nve/limit 0.02
fix 2 all temp/rescale 10 1.0 1.0 0.05 1.0
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
timestep 0.003
thermo 20
thermo_style custom step temp ke press
thermo_modify norm no format float %.16g
run 200
unfix 1
unfix 2
group some id <> 1 240
group others subtract all some
fix 1 some nve/limit 0.001
run 40
unfix 1
fix 1 others nve/limit 0.002
run 21
unfix 1
fix 1 all nve
timestep 0.0005
run 20
"""


@needs_lammps
def test_particles_that_may_not_move_far_are_those_of_lammps(tmp_path):
    """From random places with overlaps; those that do not move keep their velocities."""
    text = LIMITED.replace("run 200", "run 60").replace("thermo 20", "thermo 1")
    expected = tables(run_lammps(tmp_path, text))[60:, 1:]  # the pressure of the first step is 1e30
    (tmp_path / "in.it").write_text(text)
    run_stages(MPI.COMM_SELF, tmp_path, ["it"])
    found = np.load(tmp_path / "it-1.npz")["rows"][60:, 1:]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


STAGES_OF_PAIRS = """app = "md"
[system]
cells = [4, 4, 4]
[interaction]
cutoff = 1.5
[time]
steps = 3
[[stages]]
steps = 0
[stages.interaction]
epsilon = [0.7]
cutoff = 2.5
"""


def test_a_stage_has_the_forces_of_its_pairs():
    config = Config.model_validate(tomllib.loads(STAGES_OF_PAIRS))
    start = Start(config)
    system = make_system(config, start, MPI.COMM_SELF, PhaseTimer())
    stages = Stages(config, start, system)
    builds, dynamics = system.neighbors.builds, dynamics_of(stages.config, 0, start)
    for _ in range(3):
        dynamics.step(system, 0.005, False)
    stages.enter_next(3, dynamics)
    found = system.particles.forces[system.particles.own].copy(), measure(system)
    alone = make_system(stages.config, start, MPI.COMM_SELF, PhaseTimer())
    load_snapshot(alone, snapshot(system))
    alone.rebuild()
    alone.compute(measure=True)
    order, other = np.argsort(system.particles.ids[system.particles.own]), alone.particles
    np.testing.assert_allclose(
        found[0][order], other.forces[other.own][np.argsort(other.ids[other.own])], rtol=0, atol=1e-11
    )
    assert found[1].potential == pytest.approx(measure(alone).potential, rel=1e-13)
    assert system.neighbors.reach > 2.5
    assert system.neighbors.builds > builds


STAGES = """fix 1 all nve
run 40
minimize 0 1e-11 10000 10000
reset_timestep 0
velocity all scale 500.0
run 20
velocity all create 600.0 4928 loop all
unfix 1
fix 1 all nvt temp 600 800 0.1
run 20
minimize 0 1e-11 10000 10000
reset_timestep 0
timestep 0.001
run 20
unfix 1
compute m all msd
fix 2 all npt temp 800 800 0.1 iso 0 1000 0.5
run 40
variable k loop 2
label again
fix 2 all npt temp 900 900 0.1 iso 1000 1000 0.5
run 20
next k
jump SELF again
"""


@pytest.mark.nightly
@needs_lammps
def test_stages_of_a_script_are_those_of_lammps(tmp_path):
    """Minimization, velocities anew, other fixes, a ramp, another time step, loops: each run as LAMMPS does it.

    A thermostat lives through a minimization with its chain; the same fix given again starts anew.
    """
    text = MORSE.format("geom").partition("fix 1 all nve")[0] + MORSE.partition("fix 1 all nve\n")[2]
    text = text.replace("1600.0", "300.0").replace("neighbor 1.0", "pair_modify shift yes\nneighbor 1.0")
    text = text.replace("epair emol etotal", "pe vol etotal").replace("run 40\n", STAGES)
    lines = [line.split() for line in run_lammps(tmp_path, text).splitlines()]
    theirs, reading = [], False
    for words in lines:
        reading = words[:1] == ["Step"] or (reading and words[:2] != ["Loop", "time"])
        if words[:1] == ["Step"]:
            theirs.append([])
        elif reading and words:
            theirs[-1].append([float(word) for word in words])
    (tmp_path / "in.staged").write_text(text)
    (tmp_path / "staged.toml").write_text(load(str(tmp_path / "in.staged"), []).run_file)
    done = hpckit("run", "staged.toml", "--directory", "it", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names, ours, step = ("temperature", "potential", "volume", "energy", "pressure"), [], None
    for line in (tmp_path / "it" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if step is None or row["step"] == step:  # the last step of a stage is the first of the next
            ours.append([])
        step = row["step"]
        ours[-1].append([step, *(row[name] for name in names)])
    assert len(ours) == len(theirs) == 9
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if number in (1, 4):  # two ways down to one minimum
            assert one[-1][2] == pytest.approx(other[-1][2], rel=1e-12)
            continue
        one, other = np.array(one)[:, 1:], np.array(other)[:, 1:]
        np.testing.assert_allclose(one[:, :4], other[:, :4], rtol=1e-10)
        np.testing.assert_allclose(one[:, 4], other[:, 4], atol=1e-9 * np.abs(other[:, 4]).max())


BETWEEN_WALLS = """units metal
boundary p p f
read_data slab.data
mass 1 39.948
pair_style lj/cut 8.0
pair_modify shift yes
pair_coeff 1 1 0.0104 3.405
velocity all create 120.0 376847 loop geom
neighbor 1.0 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
fix below all wall/lj93 zlo EDGE 0.02 3.0 9.0
fix above all wall/lj93 zhi EDGE 0.01 3.4 8.5 units box
fix down all gravity 3e-4 vector 0 0 -2
fix more all gravity 1e-4 chute 0
fix_modify below energy yes
fix_modify above energy yes
fix_modify down energy yes
fix_modify more energy yes
timestep 0.004
thermo 20
thermo_style custom step temp pe vol etotal press
thermo_modify format float %.14g
run 160
"""


def write_slab(folder):
    """Particles with room to the walls."""
    places = 3.8 * (np.argwhere(np.ones((4, 4, 4))) + 0.7)
    box, count = (np.zeros(3), np.array([15.2, 15.2, 18.0]), (True, True, False)), len(places)
    slab = Snapshot(*box, np.arange(1, count + 1), np.zeros(count, int), places, np.zeros((count, 3), np.int32))
    write_lammps_data(folder / "slab.data", slab)


@pytest.mark.nightly
@needs_lammps
def test_walls_and_gravity_of_a_script_are_those_of_lammps(tmp_path):
    """A slab of argon that falls onto a wall: temperatures and energies, with those of walls and gravity, agree."""
    write_slab(tmp_path)
    expected = thermo_rows(run_lammps(tmp_path, BETWEEN_WALLS))
    (tmp_path / "in.slab").write_text(BETWEEN_WALLS)
    config = Config.model_validate(settings_of(tmp_path / "in.slab").tree)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for step in range(161):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it, row = measure(system), expected[step // 20]
            ours = [step, it.temperature, it.potential, it.total]
            assert ours == pytest.approx(row[[0, 1, 2, 4]].tolist(), rel=1e-10)
            assert it.pressure == pytest.approx(row[5], abs=1e-9 * np.abs(expected[:, 5]).max())
    system.mesh.close()


@pytest.mark.parametrize(
    ("direction", "field"),
    [
        ("vector 3 0 -4", [1.2, 0.0, -1.6]),
        ("chute 30", [1.0, 0.0, -np.sqrt(3)]),
        ("spherical 90 30", [0.0, 1.0, np.sqrt(3)]),
    ],
)
def test_gravity_of_a_script_has_its_direction(tmp_path, direction, field):
    (tmp_path / "in.falls").write_text(CHOSEN.replace("label again", f"fix g all gravity 2 {direction}\nlabel again"))
    found = settings_of(tmp_path / "in.falls").tree
    assert found["dynamics"]["field"] == pytest.approx(field)
    assert found["stages"][0]["dynamics"]["field"] == pytest.approx(field)


def test_walls_stay_in_a_minimization_and_what_hpckit_has_not_is_named(tmp_path):
    write_slab(tmp_path)
    path = tmp_path / "in.slab"
    path.write_text(BETWEEN_WALLS.replace("run 160", "minimize 0 1e-8 100 100\nunfix above\nrun 5"))
    found = settings_of(path).tree
    assert [wall["end"] for wall in found["dynamics"]["walls"]] == ["low", "high"]
    assert "field" not in found["dynamics"]
    assert found["stages"][0]["dynamics"]["walls"] == found["dynamics"]["walls"][:1]
    wrong = [
        ("gravity 1e-4 chute 0", "gravity 1e-4 gradient 0"),
        ("wall/lj93 zlo EDGE", "wall/lj93 zlo SIDE"),
        ("wall/lj93 zhi", "wall/lj1043 zhi"),
        ("thermo 20", "compute 1 all tmep"),
        ("timestep 0.004", "fix hot all langevin 90 90 1.0 4711 gjf yes"),
    ]
    text = BETWEEN_WALLS
    for old, new in wrong:
        text = text.replace(old, new)
    path.write_text(text)
    with pytest.raises(InputError) as error:
        settings_of(path)
    found = [int(line.split(":")[1]) for line in str(error.value).splitlines() if "in.slab:" in line]
    assert found == [12, 13, 15, 20, 21]
    path.write_text(BETWEEN_WALLS.replace("fix_modify more energy", "fix 2 all nve\nfix_modify 1 energy"))
    with pytest.raises(InputError, match=r"fix_modify 1 energy yes[\s\S]*lines 11 and 19"):
        settings_of(path)


STRETCHED = """include box.inc
include forces.inc
minimize 0 1e-8 100 1000
change_box all x delta 0 0.05 remap units box
include forces.inc
minimize 0 1e-8 100 1000
change_box all xy delta 0.02 remap units box
minimize 0 1e-8 100 1000
change_box all xy delta 0.02 remap units box
minimize 0 1e-8 100 1000
"""
INCLUDED = {
    "box.inc": "units metal\nlattice fcc 3.615\nregion box prism 0 3 0 3 0 3 0 0 0\ncreate_box 1 box\n"
    "create_atoms 1 box\nmass 1 1.0e-20\n",
    "forces.inc": "pair_style morse 6.5\npair_coeff 1 1 0.35 1.4 2.85\nneighbor 1.0 bin\n",
}


def test_a_box_is_changed_before_each_run_and_files_are_included(tmp_path):
    for name, text in {**INCLUDED, "in.stretched": STRETCHED}.items():
        (tmp_path / name).write_text(text)
    config = Config.model_validate(settings_of(tmp_path / "in.stretched").tree)
    assert config.time.steps == 1000  # evaluations of the forces: an iteration of cg has some
    starts = [[each.of for each in stage.deform.start] for stage in config.stages]
    assert starts == [["x"], ["xy"], ["xy"]]
    # A mass that means nothing does not throw particles away.
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    before = measure(system).potential
    for _ in range(3):
        dynamics.step(system, config.time.dt, True)
    assert measure(system).potential == pytest.approx(before, rel=1e-12)
    system.mesh.close()
    (tmp_path / "forces.inc").write_text(INCLUDED["forces.inc"].replace("bin", "bin\nfix 3 all warm"))
    with pytest.raises(InputError, match=r"in\.stretched:2: forces\.inc:4: fix 3 all warm"):
        settings_of(tmp_path / "in.stretched")
    (tmp_path / "forces.inc").write_text("include forces.inc\n")
    with pytest.raises(InputError, match="include each other"):
        settings_of(tmp_path / "in.stretched")


FORMULAS = (
    *("-2^2", "2^3^2", "round(2.5)", "round(-2.5)", "(2 > 1) + 3*(1 == 1)", "!0 + 1", "1 |^ 0", "7 % 4 - -3"),
    *("atan2(1, 2)", "v_e^2/2", "1.5e1 + .5", "2 < 1 || 3 >= 3 && 1 != 0"),
)
SPOKEN = """variable e equal "1 + 2"
variable e index 7 8
variable w index "a b" 'c d' e
variable h getenv HPCKIT_TEST_STEP
variable here atom x*2
variable k loop 9 11 pad
# a comment goes on here &
timestep 0.5
{0}
units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box {1} box
create_atoms 1 box
{2}
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0
fix 1 all nve
thermo 0
run 1$k
next w w
if "!(${{w}} != e) && ($w == e)" then "timestep 0.00$h"
run 5
if "1 == 1" then quit
run 3
"""


@needs_lammps
def test_the_language_of_scripts_is_that_of_lammps(tmp_path, monkeypatch):
    """Powers from the left, signs before them, halves go up, quotes, comments that go on, the end by quit."""
    monkeypatch.setenv("HPCKIT_TEST_STEP", "4")
    names = [f"f{k}" for k in range(len(FORMULAS))]
    defined = "\n".join(f'variable {name} equal "{text}"' for name, text in zip(names, FORMULAS, strict=True))
    masses = "\n".join(f"mass {k} $(100+v_{name})" for k, name in enumerate(names, 1))
    text = SPOKEN.format(defined, len(names), masses)
    told = text.replace("quit", "'print \"DT $(dt)\"' quit")
    told = told.replace("fix 1 all nve", "fix 1 all nve\n" + "\n".join(f'print "VALUE ${{{name}}}"' for name in names))
    output = [line.split() for line in run_lammps(tmp_path, told).splitlines()]
    values = [float(words[1]) for words in output if words[:1] == ["VALUE"]]
    (tmp_path / "in.spoken").write_text(text)
    found = settings_of(tmp_path / "in.spoken").tree
    np.testing.assert_allclose(np.array(found["system"]["masses"]) - 100, values, rtol=1e-12)
    assert found["time"] == {"steps": 109, "thermo": 10**9, "dt": 0.005}
    assert [(each["steps"], each["dt"]) for each in found["stages"]] == [(5, 0.004)]
    assert [float(words[1]) for words in output if words[:1] == ["DT"]] == [0.004]
    for wrong in ("variable e string a", "timestep ${here}", "run 1.5", "timestep $(v_e+)"):
        (tmp_path / "in.spoken").write_text(text.replace("fix 1 all nve", f"fix 1 all nve\n{wrong}"))
        line = 1 + text[: text.index("fix 1 all nve")].count("\n") + 1
        with pytest.raises(InputError, match=rf"in\.spoken:{line}: .*(already|not one value|not a number|evaluated)"):
            settings_of(tmp_path / "in.spoken")


CENTERED = """units lj
lattice fcc 0.8442
region box block 0 3 0 3 0 3
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.5 7
mass 1 1.0
mass 2 3.0
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0 1.4
velocity all create 1.0 4928 mom no
velocity all zero linear
velocity all create 1.0 4928 mom no
fix 1 all nve
thermo 10
thermo_style custom step temp ke pe etotal press
thermo_modify norm no format float %.15g
run 10
velocity all zero linear
run 10
min_style fire
minimize 0 1e-6 200 200
run 10
velocity all zero linear
run 10
"""


@needs_lammps
def test_velocities_lose_their_mean_or_all_between_two_runs(tmp_path):
    """`velocity zero` takes the momentum away; a minimization by fire leaves the particles at rest, another one not."""
    expected = [thermo_rows(part) for part in run_lammps(tmp_path, CENTERED).split("Per MPI rank memory")[1:]]
    (tmp_path / "in.centered").write_text(CENTERED)
    config = Config.model_validate(settings_of(tmp_path / "in.centered").tree)
    assert [stage.velocities for stage in config.stages] == ["center", "keep", "rest", "center"]
    start = Start(config)
    system, dynamics = make_system(config, start, MPI.COMM_SELF, PhaseTimer()), NVE()
    stages = Stages(config, start, system)
    for number in range(5):
        if number:
            dynamics = stages.enter_next(10 * number, dynamics)
        it = measure(system)
        if number < 2:
            assert [it.temperature, it.total] == pytest.approx(expected[number][0, [1, 4]].tolist(), rel=1e-10)
        elif number > 2:
            assert it.kinetic < 1e-8
        for step in range(10 if number < 2 else 0):
            dynamics.step(system, config.time.dt, step == 9)
    (tmp_path / "in.centered").write_text(CENTERED.replace("min_style fire\n", ""))
    config = Config.model_validate(settings_of(tmp_path / "in.centered").tree)
    assert [stage.velocities for stage in config.stages] == ["center", "keep", "keep", "center"]
    system.mesh.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compute t all temp/com\nvelocity all create 1.0 7 temp t", "known is a compute t all temp"),
        ("group one type 1\ncompute t one temp\nvelocity all create 1.0 7 temp t", "known is a compute t all temp"),
        ("dump 1 all xyzzy 10 file", "known are atom"),
    ],
)
def test_velocities_and_dumps_that_hpckit_has_not_are_named(tmp_path, line, said):
    (tmp_path / "in.bad").write_text(CENTERED.replace("fix 1 all nve", f"fix 1 all nve\n{line}"))
    with pytest.raises(InputError, match=said):
        settings_of(tmp_path / "in.bad")
    sound = "compute t all temp\nvelocity all create 1.0 7 temp t\ndump 1 all xyz 5 a.xyz\ndump 2 all image 5 a.jpg x y"
    (tmp_path / "in.good").write_text(
        CENTERED.replace("fix 1 all nve", f"{sound}\nbalance 1.1 shift xyz 10 1.1\nfix 1 all nve")
    )
    assert settings_of(tmp_path / "in.good").tree["output"]["every"] == 5


SAID_LAST = """units metal
{0}
fix 1 all nve
thermo 10
thermo_style custom step temp pe vol etotal press
thermo_modify format float %.15g
run 10
"""
LAST = {
    "mass": "read_data start.data nocoeff\nmass 1 50.0\npair_style lj/cut 5.0\n"
    "pair_coeff 1 1 0.1 3.0\npair_coeff 2 2 0.1 2.8\npair_coeff 2 1 0.02 2.9",
    "metal": "read_data start.data\nmass 1 5.0\nmass 2 4.0\npair_style eam/alloy\n"
    "pair_coeff * * NiAlH_jea.eam.alloy Ni Al\nmass 2 40.0",
    "pairs": "pair_style lj/cut 5.0\nread_data start.data",
}


@needs_lammps
@pytest.mark.parametrize("name", LAST)
def test_masses_and_pairs_are_what_was_said_last(tmp_path, monkeypatch, name):
    """The script's masses stand for those of its data file, those of a potential for both; pairs in any order."""
    monkeypatch.setenv("LAMMPS_POTENTIALS", str(SHARED / "potentials"))
    text = SAID_LAST.format(LAST[name])
    places = 3.0 * np.argwhere(np.ones((2, 2, 2))) + np.random.default_rng(3).uniform(0.0, 0.2, (8, 3))
    speeds, types = np.random.default_rng(4).normal(size=(8, 3)), np.array([0, 1] * 4)
    box, ids, images = (np.zeros(3), np.full(3, 12.0), (True,) * 3), np.arange(1, 9), np.zeros((8, 3), np.int32)
    given = Snapshot(*box, ids, types, places, images, speeds, masses=np.array([7.0, 3.0]))
    write_lammps_data(tmp_path / "start.data", given)
    if name == "pairs":
        data = (tmp_path / "start.data").read_text()
        pairs = "PairIJ Coeffs\n\n1 1 0.1 3.0\n1 2 0.02 2.9\n2 2 0.1 2.8\n\nAtoms"
        (tmp_path / "start.data").write_text(data.replace("Atoms", pairs, 1))
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / "in.last").write_text(text.replace("start.data", "start.data extra/special/per/atom 4"))
    config = Config.model_validate(settings_of(tmp_path / "in.last").tree)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), NVE()
    for step in range(11):
        if step:
            dynamics.step(system, config.time.dt, step == 10)
        if step % 10 == 0:
            it = measure(system)
            ours = [it.temperature, it.potential, it.total, it.pressure]
            assert ours == pytest.approx(expected[step // 10, [1, 2, 4, 5]].tolist(), rel=1e-9)
    system.mesh.close()
