"""Granular matter: a collision by its formula, grains over a rough ground beside LAMMPS, ranks and checkpoints."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from test_constraints import Kept

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.io.particles.lammps_data import read_lammps_data, write_lammps_data
from hpckit.kernels.particles.granular.reference import Contact
from hpckit.md.granular.contacts import Spheres
from hpckit.md.granular.rolling import Rolling
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.particles.particles import pack_particles
from hpckit.plan.particles.domain import DomainDecomposition

SCRIPT = """units lj
atom_style sphere
boundary p p fs
newton off
comm_modify vel yes
read_data start.data
pair_style {0}
pair_coeff * *
neighbor 0.1 bin
neigh_modify every 1 delay 0
timestep {1}
group bottom type 2
group active subtract all bottom
neigh_modify exclude group bottom bottom
fix 1 all gravity 1.0 chute 26.0
fix 2 bottom freeze
fix 3 active nve/sphere
compute 1 all erotate/sphere
thermo_style custom step ke c_1
thermo_modify norm no format float %.15g
thermo 10
run 100
"""
STYLES = {
    "history": ("gran/hooke/history 20000.0 NULL 50.0 NULL 0.5 0", 0.0005),
    "damped": ("gran/hooke/history 20000.0 3000.0 50.0 40.0 0.3 1", 0.0005),
    "hooke": ("gran/hooke 20000.0 NULL 50.0 NULL 0.5 1", 0.0005),
    "hertz": ("gran/hertz/history 40000.0 NULL 50.0 NULL 0.5 1", 0.0005),
}


def start(folder):
    """Grains of two sizes that flow over still ones: a data file, and a script for each style."""
    rng = np.random.default_rng(8)
    sites = np.stack(np.meshgrid(*map(np.arange, (5, 4, 6)), indexing="ij"), axis=-1).reshape(-1, 3)
    places = sites * 0.97 + 0.5 + rng.uniform(-0.06, 0.06, sites.shape)
    kinds = np.where(sites[:, 2] == 0, 2, np.where(rng.uniform(size=len(sites)) < 0.3, 3, 1))
    moves = rng.normal(0, 2.0, (len(sites), 6)) * (kinds != 2)[:, None]
    lines = ["grains", "", f"{len(sites)} atoms", "3 atom types", "", "0 4.85 xlo xhi", "0 3.88 ylo yhi", "0 6 zlo zhi"]
    lines += ["", "Atoms # sphere", ""]
    for k, (place, kind) in enumerate(zip(places, kinds, strict=True), 1):
        lines.append(f"{k} {kind} {0.9 if kind == 3 else 1.0} {2.0 if kind == 3 else 1.0} {' '.join(map(str, place))}")
    lines += ["", "Velocities", ""]
    lines += [f"{k} {' '.join(map(str, each))}" for k, each in enumerate(moves, 1)]
    (folder / "start.data").write_text("\n".join(lines) + "\n")
    for name, given in STYLES.items():
        (folder / f"in.{name}").write_text(SCRIPT.format(*given))


def made(folder, name):
    """The system of a script, its dynamics, and its time step."""
    config = Config.model_validate({**settings_of(folder / f"in.{name}").tree, "repro": True})
    return make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config), config.time.dt


@pytest.mark.nightly  # by day contacts are those of the reference, and of LAMMPS
@pytest.mark.parametrize("turn", [0.0, 20.0])
def test_a_collision_bounces_and_turns_as_its_formula_says(turn):
    """Two spheres meet head on: the normal speed shrinks by exp(-gamma pi / (2 w)); with spins, sliding friction
    gives each the tangential momentum of friction times the normal one, and 5/2 of that over the radius in spin.
    """
    stiffness, damper, friction, speed, mass, dt = 2e5, 50.0, 0.3, 1.0, math.pi / 6, 2e-6
    mesh = Mesh(MPI.COMM_SELF, periodic=(), x=1, y=1, z=1)
    domains = DomainDecomposition.even(mesh.topology, np.zeros(3), np.full(3, 9.0), np.zeros(3))
    contact = Contact(stiffness, 2 / 7 * stiffness, damper, 0.0, friction)
    system = System(mesh, domains, np.array([mass]), Spheres(contact, np.ones(1), np.ones(1)), skin=0.1)
    moves = np.array([[speed, 0, 0], [-speed, 0, 0]])
    places = np.array([[4.0, 4.0, 4.0], [5.0 + 1e-4, 4.0, 4.0]])
    system.load(pack_particles(np.arange(2), places, moves, np.zeros(2, np.int64)))
    system.rebuild()
    slots = system.particles.own[np.argsort(system.particles.ids[system.particles.own])]
    system.forces.spins[slots, 2] = turn
    system.compute(True)
    dynamics = Rolling()
    for _ in range(2000):
        dynamics.step(system, dt, False)
    slots = system.particles.own[np.argsort(system.particles.ids[system.particles.own])]
    v, w = system.particles.velocities[slots], system.forces.spins[slots]
    rate = 0.5 * damper
    left = math.exp(-rate * math.pi / math.sqrt(stiffness / (0.5 * mass) - rate**2))
    np.testing.assert_allclose(v[:, 0], [-left * speed, left * speed], rtol=2e-3)
    assert v[0, 1] == -v[1, 1]
    # The dashpot pulls at the end of the contact, which friction counts too: its part is small.
    given = friction * (1 + left) * speed if turn else 0.0
    np.testing.assert_allclose(-v[0, 1], given, rtol=0.02)
    np.testing.assert_allclose(turn - w[:, 2], 2.5 * given / 0.5, rtol=0.02)
    mesh.close()


@needs_lammps
@pytest.mark.parametrize("name", by_day(STYLES, "hertz"))
def test_grains_flow_as_in_lammps(tmp_path, name):
    start(tmp_path)
    theirs = thermo_rows(run_lammps(tmp_path, (tmp_path / f"in.{name}").read_text()))
    system, dynamics, dt = made(tmp_path, name)
    ours = []
    for step in range(101):
        if step:
            dynamics.step(system, dt, step % 10 == 0)
        if step % 10 == 0:
            it = measure(system)
            ours.append([step, it.kinetic, it.rotational])
    assert system.neighbors.builds > 1
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    system.mesh.close()


@pytest.mark.parametrize("name", by_day(["damped", "hertz"], "hertz"))  # of which the test before has the kernels
def test_no_bit_depends_on_the_ranks(tmp_path, mpirun, name):
    start(tmp_path)
    found = same_bits(mpirun, tmp_path, (1, 3), 300, [name])[name]
    assert found["builds"] > 1
    assert np.abs(found["spins"]).max() > 1


@pytest.mark.nightly
def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path):
    start(tmp_path)
    system, dynamics, dt = made(tmp_path, "damped")
    for _ in range(25):
        dynamics.step(system, dt, False)
    kept = Kept(pieces_of(system), {"system": values_of(system)})
    assert "sides" in kept.names
    other, again, _ = made(tmp_path, "damped")
    restore(other, kept, False)
    for _ in range(25):
        dynamics.step(system, dt, False)
        again.step(other, dt, False)
    assert system.neighbors.builds > kept.values["system"]["builds"], "no rebuild took contacts along"
    for one, same in zip(pieces_of(system), pieces_of(other), strict=True):
        np.testing.assert_array_equal(one.block, same.block, err_msg=one.name)
    system.mesh.close()
    other.mesh.close()


@pytest.mark.nightly
def test_the_file_of_the_end_has_sizes_and_spins_to_the_bit(tmp_path):
    start(tmp_path)
    system, dynamics, dt = made(tmp_path, "hooke")
    for _ in range(5):
        dynamics.step(system, dt, False)
    given = snapshot(system)
    write_lammps_data(tmp_path / "end.data", given)
    back = read_lammps_data(tmp_path / "end.data", periodic=given.periodic)
    for name in ("types", "positions", "velocities", "spheres", "spins"):
        np.testing.assert_array_equal(getattr(back, name), getattr(given, name), err_msg=name)
    assert len(np.unique(back.spheres, axis=0)) == 2
    assert np.abs(back.spins).max() > 1
    system.mesh.close()


def test_a_sphere_unlike_its_type_is_refused_by_name(tmp_path):
    start(tmp_path)
    data = tmp_path / "start.data"
    data.write_text(re.sub(r"^7 (\d) \S+ ", r"7 \1 1.1 ", data.read_text(), count=1, flags=re.MULTILINE))
    with pytest.raises(InputError, match="particle 7"):
        made(tmp_path, "hooke")


def test_a_box_in_which_two_images_of_a_sphere_are_near_is_refused(tmp_path):
    start(tmp_path)
    data = tmp_path / "start.data"
    data.write_text(data.read_text().replace("0 3.88 ylo", "0 2.1 ylo"))
    with pytest.raises(InputError, match=r"2\.1 is too short"):
        made(tmp_path, "hooke")
