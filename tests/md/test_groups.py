"""Groups of particles that move, are held, pushed and measured in their own ways, and particles in a plane."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import follow_lammps, needs_lammps
from mpi4py import MPI

from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of, group_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.md.external.groups import Warmth
from hpckit.md.snapshots import snapshot
from hpckit.settings.config import load

pytestmark = pytest.mark.usefixtures("quick_runs")

# A fluid between two plates, of which the upper one moves; z is a point.
COUETTE = """dimension 2
boundary p s p
atom_style atomic
neighbor 0.3 bin
neigh_modify delay 5
lattice hex 0.7
region box block 0 14 0 7 -0.25 0.25
create_box 3 box
create_atoms 1 box
mass 1 1.0
mass 2 1.0
mass 3 1.5
pair_style lj/cut 1.12246
pair_coeff * * 1.0 1.0 1.12246
region bottom block INF INF INF 1.25 INF INF
group lower region bottom
region top block INF INF 5.75 INF INF INF
group upper region top
group boundary union lower upper
group flow subtract all boundary
set group lower type 2
set group upper type 3
compute mobile flow temp
velocity flow create 1.0 482748 temp mobile
fix 1 all nve
fix 2 flow temp/rescale 20 1.0 1.0 0.02 1.0
fix_modify 2 temp mobile
velocity lower set 0.0 0.0 0.0
velocity upper set 3.0 0.0 0.0
fix 3 boundary setforce 0.0 0.0 0.0
fix 4 all enforce2d
timestep 0.003
thermo 20
thermo_style custom step temp ke pe etotal press
thermo_modify norm no format float %.16g temp mobile
run 200
"""

# All that acts on groups, in three runs: the rest stands still with its velocities.
PARTS = """units lj
lattice fcc 0.8442
region box block 0 4 0 5 0 4
create_box 2 box
create_atoms 1 box
mass 1 1.0
mass 2 2.0
set type 1 type/fraction 2 0.3 771
pair_style lj/cut 2.0
pair_coeff * * 1.0 1.0
region bottom block INF INF INF 1.3 INF INF
group low region bottom
group up subtract all low
group heavy type 2
group both intersect up heavy
velocity all create 1.44 87287 loop geom
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 up nvt temp 1.0 1.2 0.5 tchain 2
fix a both addforce 0.3 0.1 -0.2
compute t up temp
timestep 0.005
thermo 20
thermo_style custom step temp ke pe etotal press
thermo_modify norm no format float %.16g
run 60
thermo_modify temp t
unfix 1
fix 1 up nve
fix b up temp/berendsen 1.5 1.5 0.2
fix m up momentum 7 linear 1 0 1 angular rescale
fix av low aveforce NULL 0.2 NULL
fix sp up spring tether 2.0 4.0 4.0 NULL 0.5
run 60
unfix b
fix b heavy temp/rescale 3 1.0 1.1 0.01 0.7
compute p up temp/partial 1 0 1
fix_modify b temp p
fix 2 low nve
run 85
"""


# A crack and an indenter that comes down; types 2 and 3 do not see each other.
INDENTED = """dimension 2
boundary s s p
neighbor 0.3 bin
neigh_modify delay 5
lattice hex 0.93
region box block 0 16 0 9 -0.25 0.25
create_box 4 box
create_atoms 1 box
mass * 1.0
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0 2.5
region bottom block INF INF INF 1.25 INF INF
group lower region bottom
group mobile subtract all lower
region a block INF 5 4.5 INF INF INF
region b block INF 5 INF 4.5 INF INF
group a region a
group b region b
set group a type 2
set group b type 3
set group lower type 4
compute new mobile temp
velocity mobile create 0.05 887723 temp new
velocity mobile ramp vy 0.0 0.3 y 1.25 8.75 sum yes
velocity mobile zero angular
fix 1 all nve
fix 2 lower setforce NULL 0.0 0.0
timestep 0.003
variable k equal 100.0/xlat
variable y equal "11.9*ylat - step*dt*1.5*ylat"
fix 4 all indent $k sphere 10 v_y 0 5.0
fix 5 mobile indent 10.0 cylinder z 9.0 8.0 11.0 side in units box
fix 6 all indent 20.0 plane y 8.4 hi
fix 7 all enforce2d
neigh_modify exclude type 2 3
thermo 20
thermo_style custom step temp ke pe etotal press
thermo_modify norm no format float %.16g temp new
run 160
"""

# A metal that is sheared, with its velocities changed between two runs.
SHEARED = """boundary s s p
lattice fcc 0.9
region box block 0 5 0 4 0 2.828427
create_box 2 box
lattice fcc 0.9 orient x 1 0 0 orient y 0 1 1 orient z 0 -1 1 origin 0.5 0 0
create_atoms 1 box
mass 1 1.0
mass 2 1.5
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0
neighbor 0.3 bin
neigh_modify delay 5
region bottom block INF INF INF 0.7 INF INF
region top block INF INF 2.1 INF INF INF
group lower region bottom
group upper region top
group boundary union lower upper
group mobile subtract all boundary
set group lower type 2
compute new3d mobile temp
compute new2d mobile temp/partial 0 1 1
velocity mobile create 0.5 5812775 temp new3d
fix 1 all nve
fix 2 boundary setforce 0.0 0.0 0.0
fix 3 mobile temp/rescale 10 0.5 0.5 0.01 1.0
fix_modify 3 temp new3d
thermo 20
thermo_style custom step temp ke pe etotal press
thermo_modify norm no format float %.16g temp new3d
run 60
velocity upper set 1.0 0 0
velocity mobile ramp vx 0.0 1.0 y 0.7 2.1 sum yes
unfix 3
fix 3 mobile temp/rescale 10 0.5 0.5 0.01 1.0
fix_modify 3 temp new2d
thermo_modify temp new2d
run 60
velocity all zero linear
velocity mobile zero angular
velocity mobile create 0.3 887 temp new3d sum yes mom yes rot yes dist gaussian
velocity mobile scale 0.6
velocity lower set NULL 0.3 NULL sum yes units box
run 80
"""


TEXTS = {"plane": COUETTE, "parts": PARTS, "indented": INDENTED, "sheared": SHEARED}


@needs_lammps
@pytest.mark.parametrize("name", by_day(TEXTS, "parts"))
def test_what_acts_on_groups_is_that_of_lammps_on_any_ranks_and_from_a_checkpoint(tmp_path, mpirun, name):
    """Temperatures and pressures too, which are those of a group, and an indenter that moves with the steps."""
    follow_lammps(tmp_path, mpirun, TEXTS[name], again=93)


GROUPED = """app = "md"
groups = [
    { name = "left", block = [0.0, 3.2, -inf, inf, -inf, inf] },
    { name = "some", ids = ["3", "7:40", "200:230"], types = [1] },
]
[system]
cells = [4, 4, 4]
fractions = [0.5, 0.5]
[interaction]
epsilon = [1.0, 1.0]
sigma = [1.0, 1.0]
cutoff = 2.0
[dynamics]
kind = "langevin"
group = "some"
temperature = 2.0
damping = 0.02
moves = ["left", "some"]
pushes = [{ kind = "set", group = "left", force = [0.0, 0.5, 0.0], along = ["x", "y"] }]
[time]
steps = 50
"""


def test_friction_and_noise_act_on_one_group_and_others_stand_still(tmp_path):
    """Those that move without noise do so by Verlet's steps; those in no group keep place and velocity."""
    (tmp_path / "it.toml").write_text(GROUPED)
    config = load(str(tmp_path / "it.toml"), []).config
    start = Start(config)
    left, some = start.members("left"), start.members("some")
    assert 80 < left.sum() < 200
    assert 10 < some.sum() < 66
    system, dynamics = make_system(config, start, MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    before = snapshot(system)
    dynamics.step(system, 0.005, False)
    after, still, quiet = snapshot(system), ~(left | some), left & ~some
    for name in ("positions", "velocities"):
        np.testing.assert_array_equal(getattr(after, name)[still], getattr(before, name)[still])
    gone = after.velocities - before.velocities
    np.testing.assert_allclose(gone[quiet, :2], np.tile([0.0, 0.0025], (quiet.sum(), 1)), atol=1e-15)
    moved = after.positions - before.positions - 0.005 * (before.velocities + 0.5 * gone)
    moved -= np.rint(moved / system.domains.lengths) * system.domains.lengths
    np.testing.assert_allclose(moved[quiet, :2], 0.0, atol=1e-14)
    assert np.abs(gone[some & left][:, 0]).min() > 1e-4  # noise
    system.external = None
    warm = Warmth(group_of(start, "some"))
    seen = []
    for step in range(400):
        dynamics.step(system, 0.005, False)
        if step > 100:
            seen.append(warm.temperature(system) * warm.freedom(system) / (3 * some.sum()))
    assert np.mean(seen) == pytest.approx(2.0, rel=0.06)
    system.mesh.close()


@pytest.mark.parametrize("balanced", [True, False])
def test_noise_that_adds_up_to_nothing_pushes_no_center(tmp_path, balanced):
    """Friction alone slows the group's momentum down then, to rounding."""
    text = GROUPED.replace("damping = 0.02", f"damping = 0.02\nbalanced = {str(balanced).lower()}")
    (tmp_path / "it.toml").write_text(
        text.replace('moves = ["left", "some"]\n', "").partition("pushes")[0] + "[time]\nsteps = 9"
    )
    config = load(str(tmp_path / "it.toml"), []).config
    start = Start(config)
    some = start.members("some")
    system, dynamics = make_system(config, start, MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for _ in range(5):
        before = snapshot(system).velocities
        dynamics.rub(system, 0.005)
        after = snapshot(system).velocities
        np.testing.assert_array_equal(after[~some], before[~some])
        slowed = np.exp(-0.005 / 0.02) * before[some].sum(axis=0)
        assert np.abs(after[some] - before[some]).min() > 0
        assert (np.abs(after[some].sum(axis=0) - slowed).max() < 1e-12) == balanced
    dynamics.step(system, 0.005, False)
    system.mesh.close()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('group = "some"', 'group = "sum"', r"dynamics.group is 'sum', and the groups are \['all', 'left', 'some'\]"),
        ('name = "some"', 'name = "left"', "different names"),
        ('ids = ["3"', 'ids = ["9:3"', "ids has '9:3'"),
        ('kind = "langevin"', 'kind = "fire"', "push forces to 0"),
        ("cells = [4, 4, 4]", "cells = [4, 4, 4]\ndims = 2", "open z"),
        ("[time]", '[barostat]\nkind = "mtk"\n[time]', "box that changes"),
    ],
)
def test_groups_that_do_not_fit_are_named(tmp_path, old, new, said):
    (tmp_path / "it.toml").write_text(GROUPED.replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        load(str(tmp_path / "it.toml"), [])


BATHED = """app = "md"
groups = [{ name = "odd", types = [1] }, { name = "even", types = [2] }, { name = "third", types = [3] }]
[system]
cells = [6, 6, 6]
density = 0.5
fractions = [0.4, 0.4, 0.2]
masses = [1.0, 2.0, 3.0]
temperature = 1.0
[interaction]
epsilon = [0.0, 0.0, 0.0]
sigma = [1.0, 1.0, 1.0]
cutoff = 1.0
[dynamics]
kind = "langevin"
group = "odd"
damping = 0.02
also = [
    { kind = "langevin", group = "even", temperature = 2.0, ramp_to = 3.0, damping = 0.02 },
    { kind = "bussi", group = "third", temperature = 0.5, damping = 0.02 },
]
[time]
steps = 300
"""


def test_each_of_several_thermostats_holds_its_group(tmp_path):
    """An ideal gas of three kinds; one of the temperatures grows."""
    (tmp_path / "it.toml").write_text(BATHED)
    config = load(str(tmp_path / "it.toml"), []).config
    start = Start(config)
    system, dynamics = make_system(config, start, MPI.COMM_SELF, PhaseTimer()), dynamics_of(config, 0, start)
    warmth, found = [Warmth(group_of(start, name)) for name in ("odd", "even", "third")], []
    for step in range(300):
        dynamics.step(system, config.time.dt, False)
        if step % 10 == 9 and step > 60:
            found.append([each.temperature(system) for each in warmth])
    expected = np.array([[1.0, 2.0 + (step + 1) / 300, 0.5] for step in range(69, 300, 10)])
    assert np.abs(np.mean(found - expected, axis=0) / expected.mean(axis=0)).max() < 0.03
    assert np.abs((found - expected) / expected).max() < 0.25
    system.mesh.close()
    for old, new, said in (
        ('kind = "langevin"\ngroup', 'kind = "nve"\ngroup', "name the first of them there"),
        ('group = "even"', 'group = "odd"', "share particles"),
    ):
        (tmp_path / "it.toml").write_text(BATHED.replace(old, new))
        with pytest.raises(InputError, match=said):
            dynamics_of(load(str(tmp_path / "it.toml"), []).config)


def test_a_group_without_particles_is_named(tmp_path):
    (tmp_path / "it.toml").write_text(GROUPED.replace("200:230", "7000:7001").replace('"3", "7:40", ', ""))
    config = load(str(tmp_path / "it.toml"), []).config
    with pytest.raises(InputError, match="some has no particles"):
        make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fix 5 flow setforce 0 0", "known are FX FY FZ"),
        ("fix 5 flow addforce v_f 0 0", "known are FX FY FZ"),
        ("fix 5 flow spring couple upper 1 0 0 0 0", "known are tether"),
        ("fix 5 flow momentum 10 linear 2 0 0", "known is N and linear"),
        ("fix 5 flow temp/rescale 10 1.0 1.0 0.1", "known is N T T"),
        ("fix 5 flow temp/berendsen 1.0 1.0", "known is T T"),
        ("fix 5 flow nvt temp 1 1 1", "moved twice"),
        ("fix 5 folw setforce 0 0 0", "no group folw"),
        ("fix 5 flow gravity 1 vector 0 0 1", "known is the group all"),
        ("fix_modify 3 temp mobile", "fix_modify 3"),
        ("variable a equal step*step\nfix 5 all indent 1 sphere v_a 0 0 1", "grow evenly"),
        ("fix 5 all indent 1 cone z 0 0 1 1 1 1", "known are K and sphere"),
        ("run 1\nvelocity flow set 1 2", "known are create"),
        ("run 1\nvelocity folw set 1 2 0", "no group folw"),
        ("thermo_modify temp nothing", "known are computes"),
        ("compute c flow temp/com\nthermo_modify temp c", "known are computes"),
        ("fix 5 all gravity 1 vector 0 1 0", "before fix setforce"),
        ("run 1\nregion r block 0 1 0 1 INF INF\ngroup late region r\nfix 5 late setforce 0 0 0", "before a run"),
    ],
)
def test_what_groups_of_a_script_cannot_do_is_named(tmp_path, line, said):
    (tmp_path / "in.it").write_text(COUETTE.replace("run 200", f"{line}\nrun 1"))
    with pytest.raises(InputError, match=said):
        settings_of(tmp_path / "in.it")
