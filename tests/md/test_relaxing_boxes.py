"""Boxes that relax with their particles, and elastic constants: beside LAMMPS, and published ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from test_against_lammps import POTENTIALS
from test_scripts import hpckit

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.md.thermo import measure

pytestmark = pytest.mark.usefixtures("quick_runs")

ALLOY = f"pair_style eam/fs\npair_coeff * * {POTENTIALS}/NiAlH_jea.eam.fs Ni Al\n"
MADE = f"""units metal
lattice fcc 3.52
region box prism 0 3 0 4 0 3 0.1 -0.1 0.12
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.3 4711
displace_atoms all random 0.03 0.03 0.03 77
{ALLOY}write_data start.data
"""
RELAXED = f"""units metal
read_data start.data
{ALLOY}neighbor 1.0 bin
timestep 0.003
fix 1 all box/relax {{0}} vmax 0.002
min_style cg
thermo_style custom step pe vol press lx ly lz{{1}} pxx pyy pzz pxy pxz pyz
thermo_modify format float %.15g norm no
minimize 0 1e-8 4000 20000
"""
AGAIN = "unfix 1\nminimize 0 1e-8 4000 20000\nfix 1 all box/relax {0} vmax 0.001\nminimize 0 1e-8 4000 20000\n"


def relaxed(folder, text):
    """The system at the end of a script that minimizes."""
    (folder / "in.relaxed").write_text(text)
    config = Config.model_validate(settings_of(folder / "in.relaxed").tree)
    system, fire = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for step in range(1, config.time.steps + 1):
        fire.step(system, config.time.dt, step % 10 == 0)
        if fire.largest_force < config.dynamics.largest_force:
            break
    assert step < 700
    system.particles.velocities[...] = 0.0
    system.compute(measure=True)
    return system, measure(system)


OVERLAPS = """units lj
lattice fcc 0.8442
region box block 0 3 0 3 0 3
create_box 1 box
create_atoms 1 box
mass 1 1.0
displace_atoms all random 0.8 0.8 0.8 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
minimize 0 1e-2 700 20000
"""


def test_particles_that_overlap_go_apart(tmp_path):
    """Energies of 1e11 at the start: each particle moves by a bounded length, and the others are not held up."""
    system, found = relaxed(tmp_path, OVERLAPS)
    assert -7.5 < found.potential / system.count < -5.5


@needs_lammps
@pytest.mark.parametrize(
    "how", ["tri 10000.0", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("iso 0.0", "x 5.0 z 5.0"))]
)
def test_a_box_relaxes_to_that_of_lammps(tmp_path, how):
    """An alloy whose atoms are off their sites: energy, cell, and the pressure that was asked for."""
    upright = MADE.replace("prism 0 3 0 4 0 3 0.1 -0.1 0.12", "block 0 3 0 4 0 3")
    run_lammps(tmp_path, upright if how[0] == "x" else MADE)
    text = RELAXED.format(how, "" if how[0] == "x" else " xy xz yz")
    row = thermo_rows(run_lammps(tmp_path, text + 2 * AGAIN.format(how)))[-1]
    system, found = relaxed(tmp_path, text)
    target = float(how.split()[1])
    assert found.potential == pytest.approx(row[1], rel=1e-10)
    edges = [*system.domains.lengths, *system.domains.tilt]
    np.testing.assert_allclose(edges[: len(row) - 10], row[4 : len(row) - 6], rtol=0, atol=2e-6)
    assert found.volume == pytest.approx(row[2], rel=1e-7)
    changing = {"t": slice(6), "i": slice(0), "x": [0, 2]}[how[0]]
    wanted = np.array([target] * 3 + [0.0] * 3)
    np.testing.assert_allclose(np.array(found.tensor)[changing], wanted[changing], rtol=0, atol=1e-2)
    assert how[0] != "i" or found.pressure == pytest.approx(0.0, abs=1e-2)
    system.mesh.close()


@pytest.mark.nightly
@needs_lammps
def test_any_number_of_ranks_has_the_same_bits(mpirun, tmp_path):
    run_lammps(tmp_path, MADE)
    (tmp_path / "in.relaxed").write_text(RELAXED.format("tri 10000.0", ""))
    found = same_bits(mpirun, tmp_path, (1, 3), 20, ["relaxed"])["relaxed"]
    assert np.ptp(found["rows"][:, -1]) > 1e-3  # the tilt yz


ELASTIC = f"""units metal
lattice fcc 3.6150000
region box block 0 3 0 3 0 3
create_box 1 box
create_atoms 1 box
pair_style eam/alloy
pair_coeff * * {POTENTIALS}/Cu_mishin1.eam.alloy Cu
neighbor 1.0 bin
fix 1 all box/relax iso 0.0
minimize 0 1e-9 2000 10000
"""
SILICON = (
    ELASTIC.replace("fcc 3.615", "diamond 5.431")
    .replace("0 3 0 3 0 3", "0 2 0 2 0 2")
    .replace("eam/alloy", "sw")
    .replace("Cu_mishin1.eam.alloy Cu", "Si.sw Si")
    .replace("neighbor", "mass 1 28.06\nneighbor")
)
# GPa. Copper: Mishin et al. (2001), Phys. Rev. B 63, 224106. Silicon of Stillinger and Weber: Cowley (1988), Phys. Rev.
# Lett. 60, 2379, whose C44 without the motion of the two sublattices would be 117.
KNOWN = {"copper": (ELASTIC, 169.9, 122.6, 76.2), "silicon": (SILICON, 151.4, 76.4, 56.4)}


@needs_lammps
@pytest.mark.parametrize("name", by_day(KNOWN, "silicon"))
def test_elastic_constants_are_those_that_are_published(tmp_path, name):
    text, *known = KNOWN[name]
    (tmp_path / "in.metal").write_text(text)
    done = hpckit("run", "in.metal", "analysis.elastic=1e-4", "--directory", "out", "--no-report", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out/output/elastic.json").read_text())
    assert found["units"] == "bar"
    c = np.array(found["constants"]) * 1e-4
    for parts, value in zip(((0, 0), (0, 1), (3, 3)), known, strict=True):
        assert c[parts] == pytest.approx(value, rel=0.01)
    cubic = np.diag([c[3, 3]] * 6)
    cubic[:3, :3] = c[0, 1] + (c[0, 0] - c[0, 1]) * np.eye(3)
    np.testing.assert_allclose(c, cubic, rtol=0, atol=1e-3 * c[0, 0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("minimize 0", "fix 2 all nve\nrun 10\n#"), "goes with minimize"),
        (("iso 0.0", "iso 0.0 xy 1.0"), "known are iso"),
        (("iso 0.0", "x 0.0 y 1.0"), "one pressure"),
        (("10000\n", "10000\nfix 2 all nve\nrun 5\n"), "unfix it"),
    ],
)
def test_what_a_minimization_of_a_script_cannot_do_is_named(tmp_path, change, said):
    (tmp_path / "in.bad").write_text(ELASTIC.replace(*change))
    with pytest.raises(InputError, match=said):
        settings_of(tmp_path / "in.bad")
