"""Rigid water beside LAMMPS's `fix shake`, on any number of ranks to the bit; the kernel against its reference."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import config_of, either_order, needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from potential_files import write_water

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.kernels.particles.lennard_jones import dispatch as lennard_jones
from hpckit.kernels.particles.molecules.constraints import reference, simd
from hpckit.kernels.particles.pair.reference import VIRIAL
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.constraints import Clusters, Constraints, clusters_of
from hpckit.md.motion.barostats import MTK
from hpckit.md.motion.thermostats import NoseHoover
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import freedom, measure
from hpckit.particles.particles import pack_particles
from hpckit.plan.particles.domain import DomainDecomposition

SCRIPT = """units real
atom_style full
bond_style harmonic
angle_style harmonic
read_data water.data
pair_style lj/cut/coul/long 8.0 8.0
pair_coeff 1 1 0.15535 3.166
pair_coeff 2 2 0.0 1.0
pair_modify mix arithmetic table 0
kspace_style pppm 1e-4
bond_coeff 1 450.0 1.0
angle_coeff 1 55.0 109.47
neighbor 0.5 bin
neigh_modify every 1 delay 0 check yes
fix 1 all shake 1e-13 200 0 b 1 a 1
fix 2 all {0}
timestep 1.0
thermo 20
thermo_style custom step temp ke pe etotal press vol
thermo_modify format float %.15g norm no
run 200
"""
FIXES = {
    "nve": "nve",
    "nvt": "nvt temp 298.0 298.0 100.0",
    "npt": "npt temp 298.0 298.0 100.0 iso 1.0 1.0 1000.0",
}


RATTLE = {"rattle": "nve", "rattle_nvt": FIXES["nvt"]}


def script(name, folder):
    velocities = np.random.default_rng(4).normal(0, 0.006, (600, 3))
    if name.startswith("rattle"):  # molecules that do not turn yet: LAMMPS takes velocities along distances as they are
        velocities = velocities[::3].repeat(3, axis=0)
    # Of nve molecules that start too wide, and are brought to their lengths before the first step.
    angle = 110.0 if name == "nve" else 109.47
    write_water(folder / "water.data", "cubic2", velocities - velocities.mean(axis=0), angle=angle)
    moving = (FIXES | RATTLE)[name]
    text = SCRIPT.format(moving)
    if name.startswith("rattle"):
        held, moved = (f"fix {line}\n" for line in ("1 all shake 1e-13 200 0 b 1 a 1", f"2 all {moving}"))
        text = text.replace(held + moved, moved + held.replace("shake", "rattle"))
    (folder / f"in.{name}").write_text(text)
    return text


@needs_lammps
@either_order
@pytest.mark.parametrize("name", by_day(FIXES, "npt"))
def test_rigid_water_follows_lammps_for_200_steps(tmp_path, name, repro):
    expected = thermo_rows(run_lammps(tmp_path, script(name, tmp_path)))
    config = config_of(tmp_path / f"in.{name}", repro)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    assert freedom(system) == 3 * 600 - 3 - 3 * 200
    dynamics = dynamics_of(config)
    for step in range(201):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it, row = measure(system), expected[step // 20]
            ours = [it.temperature, it.kinetic, it.potential, it.total, it.volume]
            # The mesh of LAMMPS has 4 pi in nine digits.
            assert ours == pytest.approx([*row[1:5], row[6]], rel=1e-7 if name == "npt" else 2e-8)
            assert it.pressure == pytest.approx(row[5], abs=1e-6 * np.abs(expected[:, 5]).max())
    found = snapshot(system)
    rows = found.bonds[:, 1:]
    d = found.positions[rows[:, 0]] - found.positions[rows[:, 1]]
    lengths = np.linalg.norm(d - found.edges * np.rint(d / found.edges), axis=1)
    # What scales velocities or the box between steps moves the lengths of SHAKE.
    assert np.abs(lengths - 1.0).max() < {"nve": 1e-10, "nvt": 1e-5, "npt": 1e-4}[name]
    system.mesh.close()


@needs_lammps
@pytest.mark.parametrize("is_first", [True, False])
def test_a_temperature_is_that_of_the_freedom_when_velocities_are_drawn(tmp_path, is_first):
    """As in LAMMPS, velocities that are drawn before `fix shake` have more than they are asked for, over fewer degrees
    of freedom.
    """
    before, marker, after = script("nvt", tmp_path).partition("fix 1")
    drawn = "velocity all create 300.0 4928 rot yes dist gaussian\n"
    after = marker + after.replace("run 200", "run 2")
    text = before + (drawn + after if is_first else after.replace("thermo 20", drawn + "thermo 2"))
    expected = thermo_rows(run_lammps(tmp_path, text))
    assert (expected[0, 1] > 400) == is_first
    (tmp_path / "in.drawn").write_text(text)
    config = config_of(tmp_path / "in.drawn", True)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    dynamics = dynamics_of(config)
    for step in (1, 2):
        dynamics.step(system, config.time.dt, step == 2)
    it = measure(system)
    assert [it.temperature, it.kinetic, it.potential] == pytest.approx(expected[-1, 1:4].tolist(), rel=2e-8)
    system.mesh.close()


@needs_lammps
@either_order
def test_velocities_without_a_part_along_the_distances(tmp_path, repro):
    """The places are those of `fix rattle`, whose printed velocities are those of another time; the energy that stays
    is that of `fix shake`.
    """
    text = script("rattle", tmp_path)
    places, speeds = (thermo_rows(run_lammps(tmp_path, text.replace("rattle", each))) for each in ("rattle", "shake"))
    config = config_of(tmp_path / "in.rattle", repro)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for step in range(1, 201):
        dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it = measure(system)
            assert it.potential == pytest.approx(places[step // 20, 3], rel=2e-8)
            assert it.kinetic == pytest.approx(speeds[step // 20, 2], rel=1e-6)
    system.mesh.close()


def test_any_number_of_ranks_has_the_same_bits(mpirun, tmp_path):
    names = ["nve", "rattle_nvt"]
    for name in names:
        script(name, tmp_path)
    found = same_bits(mpirun, tmp_path, (1, 3), 20, names)["rattle_nvt"]
    arms = found["positions"] - found["positions"][::3].repeat(3, axis=0)
    arms -= 20.0 * np.rint(arms / 20.0)
    speeds = found["velocities"] - found["velocities"][::3].repeat(3, axis=0)
    held = np.arange(600) % 3 > 0
    np.testing.assert_allclose(np.linalg.norm(arms[held], axis=1), 1.0, rtol=1e-13)
    assert np.abs((arms * speeds).sum(axis=1)).max() < 1e-12 * np.abs(speeds).max()


@pytest.mark.parametrize(
    ("pairs", "alike"),
    [
        pytest.param([(0, 1)], False, marks=pytest.mark.nightly),
        ([(0, 1), (0, 2), (1, 2)], False),
        ([(0, 1), (0, 2), (1, 2)], True),
        ([(0, 1), (0, 2), (0, 3)], False),
    ],
)
def test_the_kernel_agrees_with_its_reference_and_holds_the_lengths(pairs, alike):
    """Triangles with two sides and two weights alike are solved in closed form, as water is."""
    rng, pairs = np.random.default_rng(5), np.array(pairs)
    size, own = int(pairs.max()) + 1, 17
    positions = np.zeros((24, 4))
    shape = np.array([[0, 0, 0], [1, 0, 0], [-0.3, 0.9, 0], [-0.3, -0.4, 0.9]])
    found = np.arange(24)[: 24 // size * size].reshape(-1, size)
    for places in found:
        positions[places, :3] = shape[:size] + rng.normal(0, 0.02, (size, 3)) + rng.normal(0, 5, 3)
    moves, weights = rng.normal(0, 0.02, (24, 3)), rng.uniform(0.5, 1.5, 24)
    numbers = np.arange(len(found))
    gaps = positions[found][:, pairs[:, 0], :3] - positions[found][:, pairs[:, 1], :3]
    squares = (gaps**2).sum(axis=2)
    if alike:
        squares[1:, 1] = squares[1:, 0]  # all but one
        weights[found[1:, 2]] = weights[found[1:, 1]]
        w = weights[found[1]]
        # Of one that has its lengths before.
        wide = np.array([[0.0, 0, 0], [1, 0, 0], [-0.3, 0.954, 0]])
        wide[2] /= np.linalg.norm(wide[2])
        r = wide[pairs[:, 0]] - wide[pairs[:, 1]]
        s = r + moves[found[1]][pairs[:, 0]] - moves[found[1]][pairs[:, 1]]
        work = np.zeros((simd.ROWS, simd.LANES))
        work[simd.WAYS : simd.WAYS + 9], work[simd.LATER : simd.LATER + 9] = r.reshape(9, 1), s.reshape(9, 1)
        work[simd.WANTED : simd.WANTED + 3, :] = np.array([1.0, 1.0, (r[2] ** 2).sum()])[:, None]
        work[simd.WEIGHTS : simd.WEIGHTS + 3, :] = w[:, None]
        simd._settle(work.ravel())
        factors = work[simd.FACTORS : simd.FACTORS + 3, 3]
        ends = np.array([[1, -1, 0], [1, 0, -1], [0, 1, -1]])
        np.testing.assert_allclose(((s + ((ends * w) @ ends.T * factors) @ r) ** 2).sum(axis=1), (r**2).sum(axis=1))
    out = []
    for form in (reference, simd):
        forces, tallies = np.zeros((24, 4)), np.zeros((24, 8))
        what = positions, moves.T.copy(), weights, found, numbers, pairs, squares, 3.0, forces, tallies, True
        assert form.hold_distances(own, *what) == 0
        assert not forces[own:].any()
        out.append((forces, tallies))
        forces = np.zeros((24, 4))
        form.hold_distances(24, *what[:-3], forces, tallies, False)
        moved = positions[:, :3] + moves + weights[:, None] * forces[:, :3] / 3.0
        after = moved[found][:, pairs[:, 0]] - moved[found][:, pairs[:, 1]]
        np.testing.assert_allclose((after**2).sum(axis=2), squares, rtol=1e-12)
    for one, other in zip(*out, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    forces, tallies = np.zeros((24, 4)), np.zeros((24, 8))
    simd.hold_distances(own, *what[:-3], forces, tallies, VIRIAL)
    np.testing.assert_array_equal(forces, out[1][0])
    np.testing.assert_allclose(tallies.sum(axis=0), out[0][1].sum(axis=0), rtol=1e-9, atol=1e-11)
    out = []
    for form in (reference, simd):
        forces, tallies = np.zeros((24, 4)), np.zeros((24, 8))
        form.hold_speeds(own, positions, moves.T.copy(), weights, found, pairs, 3.0, forces, tallies, True)
        assert not forces[own:].any()
        out.append((forces, tallies))
        forces = np.zeros((24, 4))
        form.hold_speeds(24, positions, moves.T.copy(), weights, found, pairs, 3.0, forces, tallies, False)
        after = (moves + weights[:, None] * forces[:, :3] / 3.0)[found]
        along = ((after[:, pairs[:, 0]] - after[:, pairs[:, 1]]) * gaps).sum(axis=2)
        np.testing.assert_allclose(along, 0.0, atol=1e-15)
    for one, other in zip(*out, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)
    moves[0] += 50.0
    what = (
        positions,
        moves.T.copy(),
        weights,
        found,
        numbers,
        pairs,
        squares,
        3.0,
        np.zeros((24, 4)),
        np.zeros((24, 8)),
        False,
    )
    assert simd.hold_distances(own, *what) == 1


@pytest.mark.nightly
@needs_lammps
def test_springs_stand_for_the_distances_in_a_minimization(tmp_path):
    """The energy at its start is LAMMPS's without springs, and K (r - length)^2 of each; then it falls. LAMMPS counts
    springs across a side of the box more than once.
    """
    text = script("nve", tmp_path).replace("run 200", "minimize 0 1e-3 20 200")
    lines = text.replace("b 1 a 1", "b 1 a 1 kbond 0.0")
    rest = thermo_rows(run_lammps(tmp_path, lines))[0, 3]
    wide, wanted = (2 * np.sin(np.radians(angle) / 2) for angle in (110.0, 109.47))
    for given, stiffness in (("", 1e9 * 0.0019872067), (" kbond 700.0", 700.0)):
        (tmp_path / "in.down").write_text(text.replace("b 1 a 1", f"b 1 a 1{given}"))
        config = Config.model_validate(settings_of(tmp_path / "in.down").tree)
        system, fire = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
        now = measure(system)
        assert now.potential == pytest.approx(rest + 200 * stiffness * (wide - wanted) ** 2, rel=1e-6)
        for step in range(10):
            fire.step(system, config.time.dt, step == 9)
        assert measure(system).potential < now.potential - 1
        system.mesh.close()


def test_clusters_that_cannot_be_held_are_named(tmp_path):
    chain = np.array([[0, 1], [1, 2], [2, 3]])
    with pytest.raises(InputError, match="up to three around it"):
        clusters_of(chain, np.ones(3), np.zeros((0, 3), np.int64), np.zeros(0), 4)
    with pytest.raises(InputError, match="these do not"):
        clusters_of(chain[:1], np.ones(1), chain[None, :, 0], np.zeros(1), 4)
    text = script("nve", tmp_path)
    (tmp_path / "in.bad").write_text(text.replace("b 1 a 1", "c 1.0"))
    with pytest.raises(InputError, match="known are TOLERANCE"):
        settings_of(tmp_path / "in.bad")
    (tmp_path / "in.bad").write_text(text.replace("b 1 a 1", "b 2 a 1"))
    config = Config.model_validate(settings_of(tmp_path / "in.bad").tree)
    with pytest.raises(InputError, match=r"constraints\.bonds is \[2\]"):
        make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())


class Kept:
    """The pieces of one rank as what a checkpoint gives back."""

    def __init__(self, pieces, values):
        self.values, self.arrays = values, {each.name: each.block.copy() for each in pieces}
        self.names = [*self.arrays]

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name, start, shape):
        return self.arrays[name][start[0] : start[0] + shape[0]]


def dumbbells(foresee, thermostat=False):
    """512 particles of a gas, two by two at a distance of 1, in a box that a barostat changes."""
    rng = np.random.default_rng(3)
    edge, sites = 16.0, 2.0 * np.stack(np.meshgrid(*[np.arange(8)] * 3), axis=-1).reshape(-1, 3)[::2]
    arms = rng.normal(size=sites.shape)
    arms /= np.linalg.norm(arms, axis=1)[:, None]
    places = np.stack([sites, sites + arms], axis=1).reshape(-1, 3)
    velocities = rng.normal(size=places.shape)
    along = ((velocities[::2] - velocities[1::2]) * arms).sum(axis=1)[:, None] * arms / 2
    velocities += np.stack([-along, along], axis=1).reshape(-1, 3)
    pairs = np.arange(512).reshape(-1, 2)
    mesh = Mesh(MPI.COMM_SELF, periodic=("x", "y", "z"), x=1, y=1, z=1)
    held = Constraints([Clusters(pairs, np.array([[0, 1]]), np.ones((256, 1)))], 512, 0.02, foresee)
    system = System(
        mesh,
        DomainDecomposition.even(mesh.topology, np.zeros(3), np.full(3, edge)),
        np.ones(1),
        Interaction(
            lennard_jones.POTENTIAL, lennard_jones.parameters(*np.array([0.0, 1.0, 1.2]).reshape(3, 1, 1), False)
        ),
        repro=True,
        constraints=held,
    )
    system.load(pack_particles(np.arange(512), places, velocities - velocities.mean(axis=0), np.zeros(512, int)))
    system.rebuild()
    system.settle()
    chain = NoseHoover(1.0, 1.0, 3) if thermostat else None
    return system, MTK(chain, 0.05, 8.0)


@pytest.mark.nightly
def test_the_conserved_quantity_of_a_barostat_stays_with_constraints():
    """Work of constraint forces in a box that changes: without foresight it falls, and is in no virial."""
    found = []
    for foresee in (True, False):
        system, barostat = dumbbells(foresee)
        kept = []
        for step in range(1, 1201):
            barostat.step(system, 0.02, step % 10 == 0)
            if step % 10 == 0:
                kept.append(barostat.conserved(system, measure(system).total))
        found.append(np.ptp(kept))
        system.mesh.close()
    assert found[0] < 0.05
    assert found[1] > 10 * found[0]


def test_constraints_go_on_from_a_checkpoint_to_the_bit():
    system, barostat = dumbbells(True, thermostat=True)
    for _ in range(30):
        barostat.step(system, 0.02, False)
    kept = Kept(pieces_of(system), {"system": values_of(system), "dynamics": barostat.saved()})
    other, goes_on = dumbbells(True, thermostat=True)
    restore(other, kept, True)
    goes_on.restore(kept.values["dynamics"])
    ends = []
    for which, moved in ((system, barostat), (other, goes_on)):
        for _ in range(30):
            moved.step(which, 0.02, False)
        ends.append(snapshot(which))
        which.mesh.close()
    np.testing.assert_array_equal(ends[0].positions, ends[1].positions)
    np.testing.assert_array_equal(ends[0].velocities, ends[1].velocities)
