"""Rigid bodies beside LAMMPS's `fix rigid/nve`, what they conserve, and on any number of ranks to the bit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from lammps_runs import config_of, either_order, needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from potential_files import write_water
from test_constraints import Kept

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.io.particles.lammps_data import read_lammps_data, write_lammps_data
from hpckit.kernels.particles.lennard_jones import dispatch as lennard_jones
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.rigid import RigidBodies
from hpckit.md.motion.dynamics import NVE
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure, totals
from hpckit.particles.particles import pack_particles
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("quick_runs")

SCRIPT = """units real
atom_style full
bond_style zero
angle_style zero
read_data start.data
bond_coeff *
angle_coeff *
pair_style lj/cut 8.0
pair_coeff 1 1 0.15535 3.166
pair_coeff 2 2 0.046 1.2
pair_modify mix arithmetic
special_bonds lj 0 0 0
neighbor 0.5 bin
neigh_modify every 1 delay 0 check yes
fix 1 all {0} molecule
timestep 1.0
thermo 10
thermo_style custom step temp ke pe etotal press
thermo_modify format float %.15g norm no
run 200
"""


def start(folder):
    """Water of NIST that is not in equilibrium, whose particles have velocities of their own."""
    velocities = np.random.default_rng(4).normal(0, 0.006, (300, 3))
    water = write_water(folder / "start.data", "cubic1", velocities - velocities.mean(axis=0))
    first = np.repeat(water.positions[::3], 3, axis=0)
    places, images = water.cell.wrapped(first + water.cell.nearest(water.positions - first, True), True)  # in one piece
    write_lammps_data(folder / "start.data", replace(water, positions=places, images=images), "real")


def moved(path, repro, steps, every=10):
    """The system of a script after some steps, and temperature, energies and pressure on the way."""
    config = config_of(path, repro)
    system, dynamics, rows = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config), []
    for step in range(steps + 1):
        if step:
            dynamics.step(system, config.time.dt, step % every == 0)
        if step % every == 0:
            it = measure(system)
            rows.append([step, it.temperature, it.kinetic, it.potential, it.total, it.pressure])
    return system, np.array(rows)


@needs_lammps
@either_order
def test_rigid_water_moves_as_that_of_lammps_for_200_steps(tmp_path, repro):
    start(tmp_path)
    text = SCRIPT.format("rigid/nve/small")
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / "in.rigid").write_text(text)
    system, found = moved(tmp_path / "in.rigid", repro, 200)
    np.testing.assert_allclose(found[:, 1:5], expected[:, 1:5], rtol=1e-9)
    # LAMMPS takes what holds the bodies from the velocities of two half steps.
    np.testing.assert_allclose(found[5:, 5], expected[5:, 5], rtol=5e-3)
    # The pressure is that of the molecules as points: their motion, and forces along the vectors between them.
    held, system.constraints = system.constraints, None
    system.compute(measure=True)
    pairs, now = totals(system).virial[:3].sum(), snapshot(system, forces=True)
    system.constraints = held
    places = now.positions + now.images @ now.cell.matrix
    mass = np.tile([15.9994, 1.00794, 1.00794], 100)[:, None]
    middle, velocity = (
        ((mass * each).reshape(100, 3, 3).sum(axis=1) / mass[:3].sum()).repeat(3, axis=0)
        for each in (places, now.velocities)
    )
    along = ((places - middle) * now.forces).sum()
    motion = system.units.energy * (mass * velocity**2).sum()
    pressure = system.units.pressure * (motion + pairs - along) / (3 * now.cell.volume)
    assert found[-1, 5] == pytest.approx(pressure, rel=1e-9)
    # And the shapes are those of the start.
    arms = places.reshape(100, 3, 3)[:, [0, 0, 1]] - places.reshape(100, 3, 3)[:, [1, 2, 2]]
    first = Start(Config.model_validate(settings_of(tmp_path / "in.rigid").tree)).file
    there = (first.positions + first.images @ first.cell.matrix).reshape(100, 3, 3)
    there = there[:, [0, 0, 1]] - there[:, [1, 2, 2]]
    np.testing.assert_allclose(np.linalg.norm(arms, axis=2), np.linalg.norm(there, axis=2), rtol=1e-12)
    momentum = (mass * first.velocities).sum(axis=0)
    np.testing.assert_allclose((mass * now.velocities).sum(axis=0), momentum, atol=1e-12)
    system.mesh.close()


def test_any_number_of_ranks_has_the_same_bits(mpirun, tmp_path):
    start(tmp_path)
    (tmp_path / "in.rigid").write_text(SCRIPT.format("rigid/nve"))
    same_bits(mpirun, tmp_path, (1, 3), 20, ["rigid"])


def rotors():
    """A rod, a single particle and a cross, without forces: system, bodies, masses of the particles."""
    rod = (
        np.array([[0.0, 0, 0], [1.1, 0, 0], [2.5, 0, 0]]) @ np.linalg.qr(np.arange(9).reshape(3, 3) ** 2 + np.eye(3))[0]
    )
    cross = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 0.5]])
    places = np.concatenate([rod + 4.0, cross + np.array([9.0, 9.0, 3.0]), [[2.0, 12.0, 12.0]]])
    body, masses = np.array([0] * 3 + [2] * 5 + [1]), np.array([1.0, 2.0])
    types = np.array([0, 1, 0, 1, 0, 0, 1, 1, 0])
    mesh = Mesh(MPI.COMM_SELF, periodic=("x", "y", "z"), x=1, y=1, z=1)
    system = System(
        mesh,
        DomainDecomposition.even(mesh.topology, np.zeros(3), np.full(3, 14.0)),
        masses,
        Interaction(
            lennard_jones.POTENTIAL,
            lennard_jones.parameters(np.zeros((2, 2)), np.ones((2, 2)), np.full((2, 2), 1.2), False),
        ),
        constraints=RigidBodies(body, places, masses[types], 0.01),
    )
    system.load(pack_particles(np.arange(9), places, np.random.default_rng(1).normal(size=(9, 3)), types))
    system.rebuild()
    system.settle()
    return system, body, masses[types]


@pytest.mark.nightly
def test_bodies_without_forces_turn_as_rotors():
    """A rod turns about its momentum, exactly; a single particle flies on; a cross keeps momenta and its shape."""
    system, body, masses = rotors()
    assert system.constraints.count == 4 + 9  # 9 - 5, and 15 - 6

    def momenta(now, of):
        m = masses[of][:, None]
        x, v = now.positions[of] + now.images[of] @ now.cell.matrix, now.velocities[of]
        middle = (m * x).sum(axis=0) / m.sum()
        return middle, (m * v).sum(axis=0) / m.sum(), (m * np.cross(x - middle, v)).sum(axis=0), x - middle

    before, dynamics = snapshot(system), NVE()
    for step in range(500):
        if step == 200:
            kept = Kept(pieces_of(system), {"system": values_of(system)})
        dynamics.step(system, 0.01, False)
    after = snapshot(system)
    for each in range(3):
        of = np.flatnonzero(body == each)
        (x, v, spin, arms), (y, w, turned, now) = momenta(before, of), momenta(after, of)
        np.testing.assert_allclose(y, x + 5.0 * v, atol=1e-11)
        np.testing.assert_allclose([w, turned], [v, spin], atol=1e-12)
        np.testing.assert_allclose(now @ now.T, arms @ arms.T, atol=1e-12)
        if each == 0:
            rate = spin / (masses[of] @ (arms**2).sum(axis=1))
            angle = 5.0 * np.linalg.norm(rate)
            expected = np.cos(angle) * arms + np.sin(angle) * np.cross(rate / np.linalg.norm(rate), arms)
            np.testing.assert_allclose(now, expected, atol=1e-11)
    # And go on from a checkpoint with the same bits.
    other, _, _ = rotors()
    restore(other, kept, False)
    for _ in range(300):
        dynamics.step(other, 0.01, False)
    again = snapshot(other)
    np.testing.assert_array_equal(again.positions, after.positions)
    np.testing.assert_array_equal(again.velocities, after.velocities)
    # What holds the bodies, part by part: motion and virial are those of the middles, and the rate of m d u.
    rates, parts = [], ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])
    for step in range(3):
        dynamics.step(system, 0.01, True)
        if step == 1:
            found = totals(system).motion + totals(system).virial
        now = snapshot(system)
        turning, moving = np.zeros((3, 3)), np.zeros((3, 3))
        for each in range(3):
            of = np.flatnonzero(body == each)
            _, v, _, arms = momenta(now, of)
            turning += (masses[of][:, None] * arms).T @ (now.velocities[of] - v)
            moving += masses[of].sum() * np.outer(v, v)
        rates.append(0.5 * (turning + turning.T))
    np.testing.assert_allclose(found, ((rates[2] - rates[0]) / 0.02 + moving)[parts], atol=2e-3)
    system.mesh.close()
    other.mesh.close()


@pytest.mark.parametrize(
    ("constraints", "more", "said"),
    [
        ({"bodies": "molecules", "bonds": [1]}, {}, "hold all distances"),
        ({"bodies": "molecules"}, {"dynamics": {"kind": "langevin"}}, "go with nve"),
        ({"bodies": "molecules"}, {"barostat": {"kind": "mtk"}}, "constant size"),
    ],
)
def test_what_does_not_go_with_bodies_is_named(constraints, more, said):
    with pytest.raises(ValueError, match=said):
        Config.model_validate({"constraints": constraints, **more})


@pytest.mark.nightly
def test_bodies_are_the_molecules_that_a_file_numbers(tmp_path):
    """As `fix rigid … molecule` has it: not what bonds join. The end of a run keeps the numbers."""
    places = np.array([[1.0, 1, 1], [2, 1, 1], [2, 2, 1], [5, 5, 5], [6, 5, 5], [3, 6, 2]])
    box, count = (np.zeros(3), np.full(3, 8.0), (True,) * 3), len(places)
    given = Snapshot(
        *box,
        np.arange(1, count + 1),
        np.zeros(count, int),
        places,
        np.zeros((count, 3), np.int32),
        masses=np.ones(1),
        numbers=np.array([7, 7, 7, 2, 2, 0]),
        bonds=np.array([[0, 0, 1]]),
    )
    write_lammps_data(tmp_path / "numbered.data", given)
    again = read_lammps_data(tmp_path / "numbered.data").replicated((2, 1, 1))
    assert again.molecules.tolist() == [7, 7, 7, 2, 2, 0, 14, 14, 14, 9, 9, 0]
    (tmp_path / "in.numbered").write_text(
        "units lj\natom_style bond\nread_data numbered.data\nbond_style zero\nbond_coeff *\npair_style lj/cut 2.5\n"
        "pair_coeff 1 1 1.0 1.0\nvelocity all create 1.0 87\nfix 1 all rigid/nve molecule\nrun 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hpckit.cli.main", "run", "in.numbered", "--directory", "it"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    end = read_lammps_data(tmp_path / "it" / "output" / "end.data")
    assert end.numbers is not None
    assert end.numbers.tolist() == [7, 7, 7, 2, 2, 0]
    assert end.bonds is not None
    bent = end.unwrapped[[0, 2]]  # no bond joins them, and they keep their distance
    assert np.linalg.norm(bent[0] - bent[1]) == pytest.approx(np.sqrt(2), rel=1e-12)
