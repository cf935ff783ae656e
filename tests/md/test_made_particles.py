"""Particles that a LAMMPS script makes, changes and pushes before its first run, beside LAMMPS's own."""

from __future__ import annotations

import numpy as np
import pytest
from lammps_runs import follow_lammps, needs_lammps, run_lammps, thermo_rows
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import particles_of, settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.md.thermo import measure
from hpckit.md.units import UNITS

TURNED = """units metal
boundary p p p
lattice bcc 3.3 orient x 1 1 0 orient y -1 1 0 orient z 0 0 1
region box block -2 3 -1.5 3.5 0.25 5.25
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.3 12393
region hole sphere 0.5 1.0 2.0 1.2
delete_atoms region hole
region cyl cylinder z 0 0 1.0 INF 2
group c region cyl
group rest subtract all c
set group c type 2
displace_atoms rest random 0.05 0.05 0.02 1234 units box
displace_atoms c move 0.02 0 0
mass 1 50
mass 2 60
pair_style lj/cut 6.0
pair_coeff 1 1 0.2 2.6
pair_coeff 2 2 0.1 2.5 5.0
velocity rest create 300 777 mom yes rot yes dist gaussian loop geom
velocity c set 0.5 NULL -0.2 units box
velocity all ramp vy 0 0.5 z 0 4 sum yes
fix 1 all nve
timestep 0.001
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify format float %.15g
run 20
"""
FILLED = """units metal
boundary p p p
lattice bcc 3.3 orient x 1 1 0 orient y -1 1 0 orient z 0 0 1
region box block -2 3 -1.5 3.5 0.25 5.25
create_box 2 box
create_atoms 1 box
region hole sphere 0.5 1.0 2.0 1.2
delete_atoms region hole
region tiny sphere 0.5 0.35 2 0.1
region tin2 block 0.2 0.8 1.5 2.2 2.3 2.8
create_atoms 2 single 0.5 1.0 2.0
create_atoms 1 random 3 4567 tin2
region cyl cylinder z 0 0 1.0 INF 2
group c region cyl
group rest subtract all c
set group c type 2
displace_atoms rest random 0.05 0.05 0.02 1234 units box
displace_atoms c move 0.02 0 0
mass 1 50
mass 2 60
pair_style lj/cut 6.0
pair_coeff * * 0.002 1.0
pair_coeff 2 2 0.1 2.5
velocity all create 300 777
fix 1 all nve
timestep 0.001
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify format float %.15g
run 20
"""
LEANING = """units lj
boundary p p f
lattice hcp 1.0 origin 0.1 0.1 0.1
region box prism 0 4 0 3 0 4 1 0 0
create_box 2 box
region low block INF INF INF INF INF 3.0
region ball sphere 2 1.5 2 1.1 side out
region both intersect 2 low ball
create_atoms 1 region both basis 3 2
group odd id 1:100:2 101:999
group more union odd all
delete_atoms group odd
mass * 1.0
pair_style lj/cut 1.8
pair_coeff * * 1.0 1.0
velocity more create 0.5 4711 rot yes
velocity more zero linear
velocity all scale 0.7
fix 1 all nve
timestep 0.002
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify norm no format float %.15g
run 20
"""
RANDOM = """units lj
boundary p p p
region box block -8 8 -8 8 -8 8
create_box 3 box
region tube cylinder z 1 0 5 INF INF side in
region rest cylinder z 1 0 5 INF INF side out
region ball sphere 0 4 4 3
region horn cone x 0 0 4 2 -6 6
region egg ellipsoid 0 0 0 3 4 5
region leans prism -4 4 -4 4 -4 4 2 1 1
region any union 2 tube ball
region both intersect 2 horn ball
create_atoms 1 random 200 34134 rest overlap 0.9 maxtry 200
create_atoms 2 random 60 12756 tube overlap 0.9 maxtry 50
create_atoms 3 random 30 777 any overlap 0.9
create_atoms 3 random 5 778 both overlap 0.7
create_atoms 3 random 5 779 egg overlap 0.8 maxtry 4
create_atoms 3 random 5 780 leans overlap 0.8
create_atoms 1 random 20 781 NULL overlap 0.9 maxtry 3
mass * 1.0
pair_style lj/cut 2.0
pair_coeff * * 0.1 1.0
velocity all create 0.5 4711
fix 1 all nve
timestep 0.001
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify norm no format float %.15g
run 20
"""
SCRIPTS = {"random": RANDOM, "turned": TURNED, "filled": FILLED, "leaning": LEANING}


CHANGED = """units lj
boundary p p p
pair_style lj/cut 2.0
read_data start.data
region low block INF INF INF INF INF 2.0
region tube cylinder z 3 3 1.5 INF INF
group some id 5:60:3
group two type 2
group high subtract all two
group in region tube
delete_atoms group some {0}
set group two type 1
set region low type 2
region hole sphere 4.5 4.5 4.5 1.3
delete_atoms region hole {1}
create_atoms 2 random 4 4711 hole overlap 0.9
displace_atoms in move 0.05 0 0.02
reset_atoms id {2}
velocity all create 0.5 777
fix 1 all nve
timestep 0.001
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify norm no format float %.15g
run 20
"""


@needs_lammps
@pytest.mark.parametrize("words", [("", "", ""), ("compress no", "", "sort yes"), ("", "compress no", "sort no")])
def test_particles_of_a_file_are_changed_as_lammps_changes_them(tmp_path, words):
    """Those of a file that is not in the order of their numbers: places and velocities hang on both."""
    random = np.random.default_rng(5)
    places = (np.stack(np.meshgrid(*[np.arange(6.0)] * 3), axis=-1).reshape(-1, 3) + 0.3) * 1.2
    places += random.uniform(-0.1, 0.1, places.shape)
    rows = [f"{k + 1} {random.integers(1, 3)} {x:.6f} {y:.6f} {z:.6f}" for k, (x, y, z) in enumerate(places)]
    box = "".join(f"0 7.2 {axis}lo {axis}hi\n" for axis in "xyz")
    text = f"a file\n\n{len(rows)} atoms\n2 atom types\n\n{box}\nMasses\n\n1 1.0\n2 2.5\n\n"
    text += "Pair Coeffs\n\n1 1.0 1.0\n2 0.5 1.1\n\nAtoms # atomic\n\n" + "\n".join(random.permutation(rows)) + "\n"
    (tmp_path / "start.data").write_text(text)
    follow_lammps(tmp_path, None, CHANGED.format(*words), 10)


@needs_lammps
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_makes_is_what_lammps_makes(tmp_path, name):
    """Types, places and velocities from random numbers are those of LAMMPS to the bit, so that energies agree."""
    expected = thermo_rows(run_lammps(tmp_path, SCRIPTS[name]))
    (tmp_path / "in.made").write_text(SCRIPTS[name])
    config = Config.model_validate(settings_of(tmp_path / "in.made").tree)
    assert config.system.file == tmp_path / "in.made"
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for step in range(21):
        if step:
            dynamics.step(system, config.time.dt, step % 10 == 0)
        if step % 10 == 0:
            it, row = measure(system), expected[step // 10]
            assert [it.temperature, it.potential, it.total, it.pressure] == pytest.approx(row[1:5].tolist(), rel=1e-10)
    system.mesh.close()


def test_what_cannot_be_made_is_named_with_its_line(tmp_path):
    text = TURNED.replace("orient x 1 1 0", "orient x 1 1 1").replace("displace_atoms c move", "displace_atoms c turn")
    (tmp_path / "in.bad").write_text(text)
    with pytest.raises(InputError, match=r"in\.bad:3: lattice bcc .*orthogonal directions"):
        settings_of(tmp_path / "in.bad")
    (tmp_path / "in.bad").write_text(TURNED.replace("displace_atoms c move", "displace_atoms c turn"))
    with pytest.raises(InputError, match=r"in\.bad:15: displace_atoms c turn"):
        settings_of(tmp_path / "in.bad")
    for words in ("-3 4567 tin2", "3 4567 tin2 maxtry 0", "3 4567 tin2 overlap", "3 4567 other"):
        (tmp_path / "in.bad").write_text(FILLED.replace("3 4567 tin2", words))
        with pytest.raises(InputError, match=rf"in\.bad:12: create_atoms 1 random {words}: known are"):
            settings_of(tmp_path / "in.bad")
    (tmp_path / "in.bad").write_text(TURNED.replace("c set 0.5", "d set 0.5"))
    with pytest.raises(InputError, match=r"in\.bad:22: .*no group d"):
        settings_of(tmp_path / "in.bad")
    (tmp_path / "in.bad").write_text(
        TURNED.replace("region cyl cylinder z 0 0 1.0 INF 2", "region cyl sphere 99 0 0 1.0").replace(
            "c set 0.5 NULL -0.2 units box", "c scale 0.5"
        )
    )
    config = Config.model_validate(settings_of(tmp_path / "in.bad").tree)
    with pytest.raises(InputError, match="line 22: velocity"):
        Start(config)


def test_a_site_on_a_side_is_there_once(tmp_path):
    """Rounding puts two of these sites 4e-16 below the box; LAMMPS makes 640 particles, too."""
    (tmp_path / "in.sides").write_text(
        "units metal\nlattice fcc 3.52 orient x 1 1 -2 orient y 1 1 1 orient z 1 -1 0\n"
        "region box block 0 4 0 2 0 5\ncreate_box 1 box\ncreate_atoms 1 box\n"
    )
    made = particles_of(tmp_path / "in.sides", (True, True, True), np.ones(1), UNITS["metal"])
    assert made.count == 640
