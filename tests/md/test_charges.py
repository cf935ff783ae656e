"""Charged particles: beside LAMMPS from the same scripts, on any number of ranks to the bit, wrong input by line."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import config_of, either_order, follow_lammps, needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from potential_files import write_charged_chains

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.molecules.electrostatics import fineness_of
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.motion.stages import Stages
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.io.checkpoint.state import State
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.md.molecules.exclusions import partners_of
from hpckit.md.motion.dynamics import NVE
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.snapshots import snapshot
from hpckit.md.thermo import measure
from hpckit.plan.particles.charge_mesh import charge_mesh_plan
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.plan.topology import Topology

slow = pytest.mark.nightly
SCRIPT = """units real
atom_style full
special_bonds {0}
read_data chains.data
pair_style {1}
pair_coeff 1 1 0.08 2.4
pair_coeff 2 2 0.1 2.0
pair_coeff 1 2 0.09 2.3 7.0
pair_modify mix arithmetic table 0 shift yes
bond_style harmonic
bond_coeff 1 300 1.4
bond_coeff 2 250 1.35
{2}
neighbor 1.0 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
timestep 0.5
thermo 20
thermo_style custom step temp evdwl ecoul elong emol etotal press pxx pyy pzz pxy pxz pyz
thermo_modify format float %.15g norm no
run 200
"""
CASES = {
    "cut": ("lj/coul 0 0.3 0.7", "lj/cut/coul/cut 8.0 7.0", ""),
    "damped": ("lj 0 0 0.5 coul 0 0 0.8333", "lj/cut/coul/dsf 0.2 8.0 7.5", ""),
    "ewald": ("lj 0 0 0.5 coul 0 0 0.8333", "lj/cut/coul/long 8.0 8.5", "kspace_style ewald 1e-5"),
    "pppm": ("lj 0 0 0.5 coul 0 0 0.8333", "lj/cut/coul/long 8.0 8.5", "kspace_style pppm 1e-5"),
    "slabs": (
        "lj 0 0 0.5 coul 0 0 0.8333",
        "lj/cut/coul/long 8.0 8.5",
        "kspace_style pppm 1e-5\nkspace_modify mesh 27 30 32",
    ),
    "blocks": (
        "lj 0 0 0.5 coul 0 0 0.8333",
        "lj/cut/coul/long 8.0 8.5",
        "kspace_style pppm 1e-5\nkspace_modify mesh 64 60 64",
    ),
    "order 4": ("lj/coul 0 0 0", "lj/cut/coul/long 8.0 7.5", "kspace_style pppm 1e-3\nkspace_modify order 4"),
}


SALT = """units metal
atom_style charge
lattice fcc 5.64 origin 0.1 0.1 0.1
region box block 0 3 0 3 0 3
create_box 2 box
create_atoms 1 box
lattice custom 5.64 a1 1 0 0 a2 0 1 0 a3 0 0 1 origin 0.1 0.1 0.1 &
 basis 0.5 0 0 basis 0.5 0.5 0.5 basis 0 0 0.5 basis 0 0.5 0
create_atoms 2 box
mass 1 22.98977
mass 2 35.453
set type 1 charge 1.0
set type 2 charge -1.0
dielectric 1.1
pair_style {0}
{1}
velocity all create 800.0 4711
fix 1 all nve
thermo_style custom step temp ecoul elong pe press pxy
thermo 5
thermo_modify format float %.15g
timestep 0.001
run 20
"""
TOSI_FUMI = """pair_coeff 1 1 0.2637 0.317 2.340 1.0486 -0.4993
pair_coeff 1 2 0.2110 0.317 2.755 6.9906 -8.6758
pair_coeff 2 2 0.1582 0.317 3.170 72.4022 -145.4285
"""
SALTS = {
    "born/coul/long 8.0": f"{TOSI_FUMI}kspace_style ewald 1e-5\npair_modify table 0",
    "born/coul/dsf 0.2 8.0 8.5": TOSI_FUMI,
    "lj/cut/coul/debye 0.3 7.0 8.0": "pair_coeff * * 0.03 2.6",
    "coul/long 8.0": "pair_coeff * *\nkspace_style pppm 1e-4\npair_modify table 0",
    "coul/debye 0.3 8.0": "pair_coeff * *",
    "coul/cut 8.0": "pair_coeff * *",
}


def script(name, folder):
    write_charged_chains(folder / "chains.data")
    text = SCRIPT.format(*CASES[name])
    (folder / f"in.{name}").write_text(text)
    return text


def started(folder, name, repro=True):
    config = config_of(folder / f"in.{name}", repro)
    return config, Start(config)


@needs_lammps
@either_order
@pytest.mark.parametrize("name", by_day(("cut", "damped", "ewald", "pppm", "order 4"), "damped", "pppm"))
def test_energies_and_pressures_follow_lammps_for_200_steps(tmp_path, name, repro):
    printed = run_lammps(tmp_path, script(name, tmp_path))
    expected = thermo_rows(printed)
    config, start = started(tmp_path, name, repro)
    system = make_system(config, start, MPI.COMM_SELF, PhaseTimer())
    dynamics = NVE()
    for step in range(201):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it = measure(system)
            rest = it.potential - it.coulomb - it.long_range - it.bonded
            ours = [step, it.temperature, rest, it.coulomb, it.long_range, it.bonded, it.total, it.pressure, *it.tensor]
            wanted = expected[step // 20]
            # The mesh of LAMMPS has 4 pi in nine digits.
            close = 3e-9 if "pppm" in CASES[name][2] else 1e-11
            scale = np.maximum(np.abs(wanted), np.abs(wanted[4]))
            scale[7:] = np.abs(expected[:, 7:]).max()
            scale[[0, 1, 2, 3, 5]] = np.abs(wanted[[0, 1, 2, 3, 5]])
            # LAMMPS has shear by waves that are half the points along two dims; they have no direction.
            scale[11:] *= 1000 if name == "order 4" else 1
            np.testing.assert_array_less(np.abs(np.array(ours) - wanted), close * scale + 1e-12)
    assert system.neighbors.builds > 2
    system.mesh.close()
    if config.coulomb.kind in ("ewald", "pppm"):
        words = {line.split("=")[0].strip(): line.split("=")[1].split() for line in printed.splitlines() if "=" in line}
        found = fineness_of(config, start)
        assert found.splitting == pytest.approx(float(words["G vector (1/distance)"][0]), rel=1e-7)
        fine = (found.waves, "kxmax kymax kzmax") if config.coulomb.kind == "ewald" else (found.mesh, "grid")
        assert list(map(str, fine[0])) == words[fine[1]]
        assert found.error == pytest.approx(float(words["estimated absolute RMS force accuracy"][0]), rel=1e-7)


@needs_lammps
@pytest.mark.parametrize("style", by_day(SALTS, "lj/cut/coul/debye 0.3 7.0 8.0"))
def test_salts_of_other_pairs_and_of_charges_alone_follow_lammps(tmp_path, style):
    follow_lammps(tmp_path, None, SALT.format(style, SALTS[style]), 10, 3e-9 if "pppm" in SALTS[style] else 1e-10)


class Kept:
    """A checkpoint in memory, as text where it is text."""

    def __init__(self, state, step):
        self.arrays = {piece.name: piece.block.copy() for piece in state.pieces}
        self.values, self.step = json.loads(json.dumps(state.values)), step

    @property
    def names(self):
        return self.arrays.keys()

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name, start, shape):
        return self.arrays[name][tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]


@needs_lammps
@pytest.mark.parametrize(("name", "close"), [pytest.param("ewald", 3e-6, marks=slow), ("pppm", 1e-8)])
def test_each_run_of_a_script_splits_charges_for_its_box(tmp_path, name, close):
    """Two runs alike in a box that shrinks, as of LAMMPS; a checkpoint within the second goes on with the same bits.

    Where the box changes its shape, LAMMPS changes the waves of its Ewald sum within a run.
    """
    changing = "nvt temp 300 300 50\nfix 2 all deform 1 x scale 0.95 y scale 0.99 z scale 0.99"
    text = script(name, tmp_path).replace("1 all nve", f"1 all {changing}").replace("run 200", "run 10\nrun 10")
    printed = run_lammps(tmp_path, text)
    theirs = [line.split()[-1] for line in printed.splitlines() if "G vector" in line]
    (tmp_path / f"in.{name}").write_text(text)
    tree = settings_of(tmp_path / f"in.{name}").tree
    config = Config.model_validate({**tree, "repro": True})

    def begun():
        start = Start(config)
        system = make_system(config.staged[0], start, MPI.COMM_SELF, PhaseTimer())
        return system, Stages(config, start, system)

    system, stages = begun()
    ours, dynamics, kept = [system.long_range.fineness.splitting], dynamics_of(stages.config), None
    for step in range(1, 21):
        if step == 11:
            dynamics = stages.enter_next(10, dynamics)
            ours.append(system.long_range.fineness.splitting)
        dynamics.step(system, 0.5, True)
        if step == 15:
            values = {"system": values_of(system), "dynamics": dynamics.saved()}
            kept = Kept(stages.saved(State(pieces_of(system), values)), step)
    assert ours == pytest.approx([float(each) for each in theirs], rel=1e-7)
    assert ours[1] != pytest.approx(ours[0], rel=1e-4)
    it, wanted = measure(system), thermo_rows(printed)[-1]
    assert [it.coulomb, it.long_range, it.total] == pytest.approx(wanted[[3, 4, 6]].tolist(), rel=close)
    assert [it.pressure, *it.tensor] == pytest.approx(wanted[7:].tolist(), abs=close * np.abs(wanted[7:]).max())

    again, stages = begun()
    stages.restore(kept)
    dynamics = dynamics_of(stages.config, stages.begins[-1])
    restore(again, kept, measure=True)
    dynamics.restore(kept.values["dynamics"])
    for _ in range(15, 20):
        dynamics.step(again, 0.5, True)
    assert measure(again) == it
    np.testing.assert_array_equal(snapshot(again).positions, snapshot(system).positions)
    for each in (again, system):
        each.mesh.close()


@pytest.mark.parametrize("counts", [(1, 3), pytest.param((1, 2, 4, 6), marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_has_the_same_bits(mpirun, tmp_path, counts):
    names = ["damped", "ewald", "pppm", "slabs", "blocks"]
    for name in names:
        text = script(name, tmp_path).replace("neighbor 1.0", "neighbor 0.3")
        (tmp_path / f"in.{name}").write_text(text)
    # Several ranks transform the one mesh each for itself, and share the others.
    topology, halo = Topology(("x", "y", "z"), (1, 1, 3), ("x", "y", "z")), (6, 6, 6)
    assert charge_mesh_plan((64, 60, 64), topology, halo).whole is False
    for name, sharing in (("pppm", False), ("slabs", True)):
        plan = charge_mesh_plan(fineness_of(*started(tmp_path, name)).mesh, topology, halo)
        assert (plan.whole, plan.sharing) == (True, sharing)
    assert all(one["builds"] > 1 for one in same_bits(mpirun, tmp_path, counts, 60, names).values())


@either_order
@pytest.mark.parametrize(
    ("accuracy", "order"), [(1e-2, 5), pytest.param(1e-3, 3, marks=slow), pytest.param(1e-4, 7, marks=slow)]
)
def test_forces_of_the_mesh_are_as_near_to_ewalds_as_estimated(tmp_path, accuracy, order, repro):
    """Charges at random places, for which the estimates are made."""
    rng, n = np.random.default_rng(3), 600
    box = np.array([18.0, 20.0, 22.0])
    each = np.arange(1, n + 1), np.zeros(n, np.int64), rng.uniform(0, box, (n, 3)), np.zeros((n, 3), np.int32)
    charges = rng.permutation(np.repeat([1.0, -1.0], n // 2))
    given = Snapshot(np.zeros(3), box, (True, True, True), *each, masses=np.ones(1), charges=charges)
    write_lammps_data(tmp_path / "random.data", given)
    settings = {
        "repro": repro,
        "system": {"units": "real", "file": str(tmp_path / "random.data")},
        "interaction": {"epsilon": [0.0], "cutoff": 2.0},
    }
    forces, energies, estimate = [], [], 0.0
    for coulomb in (
        {"kind": "pppm", "accuracy": accuracy, "order": order, "cutoff": 6.0},
        {"kind": "ewald", "accuracy": 1e-6},
    ):
        config = Config.model_validate({**settings, "coulomb": {"cutoff": 8.9, **coulomb}})
        start = Start(config)
        estimate = estimate or fineness_of(config, start).error
        system = make_system(config, start, MPI.COMM_SELF, PhaseTimer())
        forces.append(snapshot(system, forces=True).forces)
        energies.append(measure(system).potential)
        system.mesh.close()
    error = np.sqrt(((forces[0] - forces[1]) ** 2).mean())  # of a component
    assert 0.2 * estimate < error < 1.1 * estimate
    assert energies[0] == pytest.approx(energies[1], abs=n * estimate)


def test_partners_are_found_over_one_two_and_three_bonds():
    ring = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [5, 6], [6, 7], [7, 8], [8, 9]])
    starts, others, kinds = partners_of(ring, 10)
    each = [dict(zip(others[a:b].tolist(), kinds[a:b].tolist(), strict=True)) for a, b in itertools.pairwise(starts)]
    assert each[0] == {1: 0, 4: 0, 2: 1, 3: 1}  # a ring of five: nobody is three bonds away
    assert each[5] == {6: 0, 7: 1, 8: 2}
    assert each[9] == {8: 0, 7: 1, 6: 2}


def test_wrong_charges_are_named(tmp_path):
    text = script("ewald", tmp_path)
    for wrong, line, what in (
        ("kspace_style msm 1e-4", 13, "known are ewald and pppm"),
        ("kspace_style ewald 1e-5\nkspace_modify slab 3", 14, "kspace_modify slab"),
        ("kspace_style ewald 1e-5\npair_style buck/coul/debye 0.3 8.0", 14, "known are .*, born/coul/dsf"),
        ("kspace_style ewald 1e-5\npair_style coul/cut 8\npair_coeff * * 5.0", 23, "line 15: no numbers"),
    ):
        (tmp_path / "in.ewald").write_text(text.replace("kspace_style ewald 1e-5", wrong))
        with pytest.raises(InputError, match=f"in.ewald:{line}: .*{what}"):
            settings_of(tmp_path / "in.ewald")
    (tmp_path / "in.ewald").write_text(text.replace("kspace_style ewald 1e-5", ""))
    with pytest.raises(InputError, match="there is no kspace_style"):
        settings_of(tmp_path / "in.ewald")
    base = {
        "system": {"masses": [1.0, 2.0], "fractions": [0.5, 0.5]},
        "interaction": {"epsilon": [1, 1], "sigma": [1, 1]},
    }
    config = Config.model_validate({**base, "coulomb": {"kind": "dsf", "charges": [1.0]}})
    with pytest.raises(InputError, match=r"coulomb\.charges has 1 types, but there are 2"):
        Start(config).charges()
    with pytest.raises(ValueError, match="periodic in x, y and z"):
        Config.model_validate({"system": {"periodic": ["x"]}, "coulomb": {"kind": "ewald", "charges": [1.0]}})
    config = Config.model_validate({**base, "coulomb": {"kind": "ewald", "charges": [0.0, 0.0]}})
    with pytest.raises(InputError, match="needs particles with charges"):
        fineness_of(config, Start(config))
