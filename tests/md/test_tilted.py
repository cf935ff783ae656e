"""Tilted boxes: cells, ghosts, lists, motion, files and scripts, beside LAMMPS and on several ranks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import config_of, either_order, needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from potential_files import write_water
from test_against_lammps import POTENTIALS

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.molecules.electrostatics import fineness_of
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.run import dry_run
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import DecompositionError, InputError
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.kernels.particles.integrate.cell import reference, simd
from hpckit.md.external.groups import Warmth
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.snapshots import snapshot
from hpckit.md.thermo import measure
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.ghosts import GhostPlan
from hpckit.plan.proving import prove
from hpckit.plan.topology import Topology

TENSOR = "temp pe etotal press pxx pyy pzz pxy pxz pyz"
LJ = """units lj
lattice fcc 0.8442
region box prism 0 5 0 6 0 4 2.0 -1.5 2.5
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
velocity all create 1.44 87287 loop all
neighbor 0.3 bin
"""
METAL = f"""units metal
lattice fcc 3.615
region box prism 0 4 0 4 0 3 -1.0 1.5 -0.5
create_box 1 box
create_atoms 1 box
pair_style eam
pair_coeff 1 1 {POTENTIALS}/Cu_u3.eam
velocity all create 1600.0 376847 loop geom
neighbor 1.0 bin
timestep 0.002
"""
CARBIDE = (
    METAL.replace("lattice fcc 3.615", "lattice diamond 4.36")
    .replace("create_atoms 1 box", "create_atoms 1 box\nmass 1 28.06")
    .replace("pair_style eam", "pair_style tersoff")
    .replace(f"1 1 {POTENTIALS}/Cu_u3.eam", f"* * {POTENTIALS}/SiC.tersoff Si")
    .replace("timestep 0.002", "timestep 0.001")
)
TANTALUM = (
    METAL.replace("lattice fcc 3.615", "lattice bcc 3.316")
    .replace("create_atoms 1 box", "create_atoms 1 box\nmass 1 180.88")
    .replace("pair_style eam", "pair_style hybrid/overlay zbl 4.0 4.8 snap\npair_coeff 1 1 zbl 73 73")
    .replace(f"1 1 {POTENTIALS}/Cu_u3.eam", f"* * snap {POTENTIALS}/Ta06A.snapcoeff {POTENTIALS}/Ta06A.snapparam Ta")
)
END = (
    """fix 1 all {0}
thermo 10
thermo_style custom step """
    + TENSOR
    + """
thermo_modify format float %.15g norm no
run 200
"""
)


def figures(system):
    it = measure(system)
    return [it.temperature, it.potential, it.total, it.pressure, *it.tensor]


def moved(path, repro, steps=200, more=lambda system: []):
    """The figures of a script's run, every tenth step, and more of them."""
    config = config_of(path, repro)
    system, dynamics, rows = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config), []
    for step in range(steps + 1):
        if step:
            dynamics.step(system, config.time.dt, step % 10 == 0)
        if step % 10 == 0:
            rows.append([step, *figures(system), *more(system)])
    system.mesh.close()
    return np.array(rows), system


@needs_lammps
@either_order
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lj", LJ),
        *(
            pytest.param(name, text, marks=pytest.mark.nightly)
            for name, text in (("eam", METAL), ("tersoff", CARBIDE), ("snap", TANTALUM))
        ),
    ],
)
def test_tilted_boxes_move_as_those_of_lammps_for_200_steps(tmp_path, name, text, repro):
    text += END.format("nve")
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / f"in.{name}").write_text(text)
    found, system = moved(tmp_path / f"in.{name}", repro)
    np.testing.assert_allclose(found[:, :4], expected[:, :4], rtol=1e-10)
    np.testing.assert_allclose(found[:, 4:], expected[:, 4:], rtol=0, atol=1e-9 * np.abs(expected[:, 4]).max())
    assert system.neighbors.builds > (5 if name in ("lj", "eam") else 0)
    assert all(system.domains.tilt)


CHANGES = {
    "shear": (LJ.replace("2.0 -1.5 2.5", "0.0 0.0 0.0"), "nve", "1 xy erate 0.9 yz erate -0.7 xz vel 0.4", ""),
    "ends": (
        LJ,
        "nvt temp 1.4 1.4 0.5",
        "2 x final 0.3 4.9 y delta -0.2 0.1 z scale 1.05 xy final -1.0 yz delta 0.3",
        "",
    ),
    "rates": (
        METAL,
        "nve",
        "1 x erate 0.2 y volume z volume xz trate 0.5 xy wiggle 0.4 0.3",
        "xz delta 0.2 z scale 1.02 ",
    ),
    "plane": (
        LJ.replace("lattice fcc", "dimension 2\nlattice sq2").replace(
            "0 5 0 6 0 4 2.0 -1.5 2.5", "0 9 0 8 -0.5 0.5 1 0 0"
        ),
        "nve",
        "1 xy erate 0.5 x erate 0.1 y volume",
        "",
    ),
    "upright": (METAL.replace("-1.0 1.5 -0.5", "0 0 0"), "nve", "1 x wiggle 0.2 0.25 z trate 0.1 units lattice", ""),
}


@needs_lammps
@either_order
@pytest.mark.parametrize("name", by_day(CHANGES, "rates"))
def test_boxes_change_as_by_fix_deform_of_lammps_for_200_steps(tmp_path, name, repro):
    text, moving, changes, before = CHANGES[name]
    text += f"change_box all triclinic {before}{'remap units box' if before else ''}\n" + END.format(moving)
    more = "fix 3 all enforce2d\n" if name == "plane" else ""
    text = text.replace("fix 1", f"{more}fix 2 all deform {changes} remap x\nfix 1").replace(
        TENSOR, f"{TENSOR} lx ly lz"
    )
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / f"in.{name}").write_text(text)
    found, system = moved(tmp_path / f"in.{name}", repro)
    np.testing.assert_allclose(found[:, :4], expected[:, :4], rtol=1e-10)
    np.testing.assert_allclose(found[:, 4:11], expected[:, 4:11], rtol=0, atol=1e-9 * np.abs(expected[:, 4]).max())
    np.testing.assert_allclose(system.domains.lengths, expected[-1, 11:], rtol=1e-12)
    assert system.neighbors.builds > 3
    if name == "shear":
        assert not system.domains.cell.skewed or system.neighbors.since == 0


SHEARED = (
    LJ.replace("2.0 -1.5 2.5", "0 0 0").replace("neighbor 0.3 bin", "neighbor 0.3 bin\nneigh_modify delay 0 check no")
    + "velocity all ramp vx 0 10.0 y 0 10.06 sum yes units box\n"
)


FLOWS = "xy erate 1.5", "xy erate 0.5 xz vel 0.4 x erate 0.03 yz delta 0.2 z scale 0.9"


@needs_lammps
@either_order
@pytest.mark.parametrize("changes", by_day(FLOWS, FLOWS[0]))
def test_a_sheared_liquid_moves_as_that_of_lammps(tmp_path, changes, repro):
    """Particles stay while the box leans, and flips; those that cross its ends get the velocity there."""
    deform = f"fix 2 all deform 1 {changes} remap v\ncompute th all temp/deform\n"
    text = SHEARED + deform + END.format("nvt/sllod temp 1.4 1.2 0.5")
    text = text.replace(TENSOR, f"{TENSOR} c_th").replace("200", "160")
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / "in.sheared").write_text(text)
    found, system = moved(
        tmp_path / "in.sheared", repro, 160, lambda system: [Warmth(thermal=True).temperature(system)]
    )
    np.testing.assert_allclose(found[:, :4], expected[:, :4], rtol=1e-10)
    np.testing.assert_allclose(found[:, 4:11], expected[:, 4:11], rtol=0, atol=1e-9 * np.abs(expected[:, 4]).max())
    np.testing.assert_allclose(found[1:, 11], expected[1:, 11], rtol=1e-10)
    assert found[-1, 1] > 1.5 * found[-1, 11]
    assert system.particles.images[: system.particles.slots, 0].any()


PRESSURES = {
    "tri": (METAL, "npt temp 800.0 800.0 0.1 tri 5000.0 5000.0 0.2"),
    "upright": (METAL.replace("-1.0 1.5 -0.5", "0 0 0"), "nph tri 0.0 0.0 0.2 pchain 1 mtk no"),
    "some": (METAL, "npt temp 800.0 800.0 0.1 x 0 0 0.3 z 0 0 0.3 xz 0 0 0.3 couple xz"),
    "edges": (METAL, "npt temp 800.0 800.0 0.1 aniso 0.0 0.0 0.2"),
}


@needs_lammps
@either_order
@pytest.mark.parametrize("name", by_day(PRESSURES, "tri"))
def test_barostats_tilt_boxes_as_those_of_lammps_for_200_steps(tmp_path, name, repro):
    text, moving = PRESSURES[name]
    text += "change_box all triclinic\n" + END.format(moving).replace(TENSOR, f"{TENSOR} lx ly lz xy xz yz")
    expected = thermo_rows(run_lammps(tmp_path, text))
    (tmp_path / f"in.{name}").write_text(text)
    found, system = moved(tmp_path / f"in.{name}", repro)
    np.testing.assert_allclose(found[:, :4], expected[:, :4], rtol=1e-10)
    np.testing.assert_allclose(found[:, 4:11], expected[:, 4:11], rtol=0, atol=1e-9 * np.abs(expected[:, 4]).max())
    box = [*system.domains.lengths, *system.domains.tilt]
    np.testing.assert_allclose(box, expected[-1, 11:], rtol=0, atol=1e-10 * expected[-1, 11])
    assert (np.abs(expected[-1, 14:] - expected[0, 14:]) > 1e-3).any()


WATER = """units real
atom_style full
read_data water.data
pair_style lj/cut/coul/long 10.0
pair_coeff 1 1 0.15539 3.16555789
pair_coeff 2 2 0.0 1.0
pair_modify mix arithmetic tail yes table 0
bond_style harmonic
bond_coeff 1 450 1.0
angle_style harmonic
angle_coeff 1 55 109.47
special_bonds lj/coul 0 0 0
kspace_style ewald {0}
neighbor 1.0 bin
fix 1 all nve
timestep 0.25
thermo 10
thermo_style custom step temp evdwl ecoul elong emol etotal press pxx pyy pzz pxy pxz pyz
thermo_modify format float %.15g norm no
run {1}
"""


@pytest.mark.nightly
@needs_lammps
@pytest.mark.parametrize("name", [pytest.param("monoclinic4", marks=pytest.mark.nightly), "triclinic3"])
def test_water_of_nist_in_tilted_boxes_has_the_energies_of_a_converged_sum(tmp_path, name):
    """Every part of the energy, the pressure's six, and 20 steps."""
    write_water(tmp_path / "water.data", name)
    expected = thermo_rows(run_lammps(tmp_path, WATER.format("1e-9", 20)))
    (tmp_path / "in.water").write_text(WATER.format("1e-9", 20))
    config = Config.model_validate(settings_of(tmp_path / "in.water").tree)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    for step in range(21):
        if step:
            dynamics.step(system, config.time.dt, step % 10 == 0)
        if step % 10 == 0:
            it, row = measure(system), expected[step // 10]
            near = it.potential - it.coulomb - it.long_range - it.bonded
            ours = [near, it.coulomb, it.long_range, it.bonded, it.total]
            assert ours == pytest.approx(row[2:7].tolist(), rel=1e-6), step
            most = np.abs(expected[:, 8:11]).max()
            assert [it.pressure, *it.tensor] == pytest.approx(row[7:].tolist(), abs=1e-6 * most)
    system.mesh.close()


@pytest.mark.nightly
@needs_lammps
@pytest.mark.parametrize("name", [pytest.param("monoclinic4", marks=pytest.mark.nightly), "triclinic3"])
def test_a_mesh_of_charges_leans_as_that_of_lammps(tmp_path, name):
    """Splitting, mesh and estimate as LAMMPS prints them; its energies and pressures; forces of the sum over waves
    within the estimate; and the mirror image of the box, whose tilts are below 0.
    """
    text, water = WATER.replace("ewald {0}", "pppm {0}").format("1e-5", 0), write_water(tmp_path / "water.data", name)
    said = run_lammps(tmp_path, text)
    row = thermo_rows(said)[-1]
    printed = {key: words for key, _, words in (line.strip().partition(" = ") for line in said.splitlines())}
    (tmp_path / "in.water").write_text(text)
    tree = settings_of(tmp_path / "in.water").tree
    config = Config.model_validate(tree)
    found = fineness_of(config, Start(config))
    assert found.splitting == pytest.approx(float(printed["G vector (1/distance)"]), rel=1e-7)
    assert found.mesh == tuple(map(int, printed["grid"].split()))
    assert found.error == pytest.approx(float(printed["estimated absolute RMS force accuracy"]), rel=1e-6)
    systems = []
    waves = {"kind": "ewald", "accuracy": 1e-7, "splitting": found.splitting, "erfc": "lammps"}
    for settings in (config, Config.model_validate({**tree, "coulomb": waves})):
        system = make_system(settings, Start(settings), MPI.COMM_SELF, PhaseTimer())
        systems.append((measure(system), snapshot(system, forces=True).forces))
        system.mesh.close()
    (it, forces), (exact, exact_forces) = systems
    assert [it.coulomb, it.long_range] == pytest.approx(row[3:5].tolist(), rel=3e-9)
    assert [it.pressure, *it.tensor] == pytest.approx(row[7:].tolist(), abs=1e-7 * np.abs(row[8:11]).max())
    off = np.sqrt(((forces - exact_forces) ** 2).sum(axis=1).mean())
    assert off < found.error
    assert it.long_range == pytest.approx(exact.long_range, rel=1e-5)
    cell = water.cell
    mirrored = replace(cell, tilt=(-cell.tilt[0], -cell.tilt[1], cell.tilt[2]))
    places, _ = mirrored.wrapped(water.positions * [-1.0, 1.0, 1.0], True)
    write_lammps_data(tmp_path / "water.data", replace(water, positions=places, tilt=np.array(mirrored.tilt)), "real")
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    assert system.long_range.fineness == found
    assert measure(system).long_range == pytest.approx(it.long_range, rel=1e-9)
    system.mesh.close()


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ((1, 3), ("thin", "flow")),
        pytest.param((1, 2, 3), ("lj", "thin", "shear", "flow", "water", "mesh"), marks=pytest.mark.nightly),
    ],
)
def test_any_number_of_ranks_has_the_same_bits(mpirun, tmp_path, counts, names):
    """Domains are cut in straight coordinates; a box thinner than the lists meets itself more than once."""
    thin = "prism 0 3 0 4 0 2 1.5 -1.0 2.0"
    for name, text in (("lj", LJ), ("thin", LJ.replace("prism 0 5 0 6 0 4 2.0 -1.5 2.5", thin))):
        (tmp_path / f"in.{name}").write_text(text + END.format("nve"))
    deform = "fix 2 all deform 1 xy erate 2.5 z scale 0.9\n"
    (tmp_path / "in.shear").write_text(LJ + deform + END.format("nve").replace("200", "60"))
    flow = "fix 2 all deform 1 xy erate 2.5 remap v\n" + END.format("nvt/sllod temp 1.4 1.4 0.5")
    (tmp_path / "in.flow").write_text(SHEARED + flow.replace("200", "60"))
    write_water(tmp_path / "water.data", "triclinic3")
    (tmp_path / "in.water").write_text(WATER.format("1e-3", 60))
    (tmp_path / "in.mesh").write_text(WATER.replace("ewald {0}", "pppm {0}").format("1e-4", 60))
    found = same_bits(mpirun, tmp_path, counts, 60, names)
    assert all(found[name]["builds"] > 1 for name in names if name not in ("water", "mesh"))
    assert found["thin"]["images"].any(axis=0).all()


class Kept:
    """A checkpoint in memory, as text where it is text."""

    def __init__(self, system, dynamics):
        self.arrays = {piece.name: piece.block.copy() for piece in pieces_of(system)}
        self.values = json.loads(json.dumps({"system": values_of(system), "dynamics": dynamics.saved()}))

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name, start, shape):
        return self.arrays[name][tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]


@pytest.mark.nightly
@needs_lammps
@pytest.mark.parametrize(
    "moving",
    [
        "nve\nfix 2 all deform 1 xy erate 2.5 z wiggle 0.3 0.2",
        "nvt/sllod temp 1.4 1.4 0.5\nfix 2 all deform 1 xy erate 2.5 z wiggle 0.3 0.2 remap v",
        pytest.param(PRESSURES["tri"][1], marks=pytest.mark.nightly),
    ],
)
def test_boxes_that_change_go_on_from_a_checkpoint_with_the_same_bits(tmp_path, moving):
    """Also between the step that tilts the box beyond half of its edge and the one that flips it."""
    text = LJ.replace("2.0 -1.5 2.5", "2.45 -1.5 2.5") if "deform" in moving else METAL
    (tmp_path / "in.kept").write_text(text + END.format(moving).replace("200", "40"))
    config = Config.model_validate({**settings_of(tmp_path / "in.kept").tree, "repro": True})
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
    kept, skewed = {}, 0
    for step in range(1, 41):
        dynamics.step(system, config.time.dt, True)
        last = system.domains.cell.skewed
        skewed += last
        if (step == 20 and "npt" in moving) or (last and skewed == 1):
            kept[step] = Kept(system, dynamics)
    assert len(kept) == 1
    whole = snapshot(system)
    for step, there in kept.items():
        again, goes_on = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), dynamics_of(config)
        restore(again, there, measure=True)
        goes_on.restore(there.values["dynamics"])
        for _ in range(step, 40):
            goes_on.step(again, config.time.dt, True)
        found = snapshot(again)
        for name in ("positions", "images", "velocities", "upper", "tilt"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), err_msg=name)
        assert again.domains.tilt == system.domains.tilt
        again.mesh.close()
    system.mesh.close()


TILTED = Cell((-1.0, 0.5, 2.0), (4.0, 6.5, 9.0), (2.4, -1.7, 3.3))


def test_a_cell_as_a_value():
    rng = np.random.default_rng(3)
    places = rng.uniform(-30, 30, (200, 3))
    inside, images = TILTED.wrapped(places, (True, True, True))
    shares = (inside - TILTED.lower) @ TILTED.inverse
    assert ((shares > -1e-14) & (shares < 1 + 1e-14)).all()
    np.testing.assert_allclose(inside + images @ TILTED.matrix, places, atol=1e-13)
    np.testing.assert_allclose(TILTED.straight(inside), TILTED.lower + shares * TILTED.lengths, atol=1e-13)
    np.testing.assert_allclose(TILTED.leaning(TILTED.straight(inside)), inside, atol=1e-14)
    np.testing.assert_allclose(TILTED.inverse @ TILTED.matrix, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(TILTED.reciprocal @ TILTED.matrix.T, 2 * np.pi * np.eye(3), atol=1e-14)
    a, b, c = TILTED.matrix
    faces = np.cross(b, c), np.cross(c, a), np.cross(a, b)
    np.testing.assert_allclose(TILTED.widths, [TILTED.volume / np.linalg.norm(face) for face in faces])
    # The nearest images, against all images around.
    around = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 3, indexing="ij"), axis=-1).reshape(-1, 3) @ TILTED.matrix
    gaps = inside[1:] - inside[:-1]
    least = np.linalg.norm(gaps[:, None] + around, axis=2).min(axis=1)
    found = np.linalg.norm(TILTED.nearest(gaps, (True,) * 3), axis=1)
    near = least < 0.5 * TILTED.widths.min()
    assert near.sum() > 10
    np.testing.assert_allclose(found[near], least[near])
    # A flip keeps the lattice, and where images lead.
    skewed = Cell(TILTED.lower, TILTED.upper, (7.1, -4.9, 8.2))
    flipped, change = skewed.flipped()
    assert not flipped.skewed
    np.testing.assert_allclose(images @ skewed.matrix, (images @ change) @ flipped.matrix, atol=1e-12)
    other = Cell((0.0, 0.0, 0.0), (5.5, 6.0, 6.5), (-1.0, 2.0, 0.3))
    np.testing.assert_allclose(TILTED.matrix @ TILTED.map_to(other).T, other.matrix, atol=1e-14)


def test_ghosts_of_tilted_domains_are_proved_and_kernels_have_one_meaning():
    rng = np.random.default_rng(5)
    topology = Topology(("x", "y", "z"), (2, 1, 3), ("x", "y", "z"))
    domains = DomainDecomposition.even(topology, TILTED.lower, TILTED.upper, TILTED.tilt)
    records = np.column_stack([rng.uniform(-20, 20, (60, 3)), np.ones(60)])
    records[7, :3] = np.array(TILTED.lower) + TILTED.matrix.sum(axis=0)  # the upper corner is the lower one
    cell = np.array(TILTED.lower), TILTED.lengths, np.array(TILTED.tilt), np.array([True, True, True])
    both = []
    for form in (reference, simd):
        positions, images = records.copy(), np.zeros((60, 3), np.int32)
        assert form.wrap_cell(positions, images, 59, *cell) == 0
        straight = np.zeros((60, 4))
        form.straighten(positions, 59, cell[0], TILTED.slopes, straight)
        form.deform(positions, 58, TILTED.map_to(Cell((0.0,) * 3, (2.0, 3.0, 4.0), (0.1, 0.2, 0.3))), *[cell[0]] * 2)
        velocities = straight[::-1].copy()
        form.stream(velocities, records, 58, TILTED.matrix.T, cell[0], np.array([1.0, -2.0, 3.0]))
        both.append((positions, images, straight, velocities))
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    assert (both[1][0][59] == records[59]).all()
    positions = TILTED.leaning(both[1][2][:59, :3])
    prove(GhostPlan.of(domains, 1.7, positions))
    # Every pair within reach of one another is on the rank of either: by its own particles and its ghosts.
    owners, ghosts = domains.owners(positions), GhostPlan.of(domains, 1.7, positions).sent
    around = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    held = {(r, p, *map(int, n)) for r, p, n in zip(ghosts.receiver, ghosts.particle, ghosts.image, strict=True)}
    held |= {(int(owner), p, 0, 0, 0) for p, owner in enumerate(owners)}
    pairs = 0
    for i in range(len(positions)):
        for n in around:
            gaps = np.linalg.norm(positions + n @ TILTED.matrix - positions[i], axis=1)
            for j in np.flatnonzero(gaps < 1.7):
                assert (owners[i], j, *n) in held
                pairs += 1
    assert pairs > 150
    with pytest.raises(DecompositionError, match="tilt xz"):
        DomainDecomposition.even(Topology(("x", "y", "z"), (1, 1, 1), ("x", "y")), *TILTED.bounds, TILTED.tilt)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"system": {"tilt": [0, 0, 1.0], "periodic": ["x", "y"]}, "dynamics": {"walls": [{"dim": "z"}]}},
            "dynamics.walls",
        ),
        ({"deform": {"changes": [{"of": "x", "style": "vel", "values": [-1e4]}]}}, "edges of"),
        ({"deform": {"start": [{"of": "y", "style": "scale", "values": [-1]}]}}, "edges of"),
    ],
)
def test_what_does_not_go_with_a_tilted_box_is_named_before_the_start(settings, said):
    config = Config.model_validate(settings)
    with pytest.raises(InputError, match=said):
        dry_run(config, 2)


STAYS, SHEAR = {"remap": "v"}, [{"of": "xy", "style": "erate", "values": [0.1]}]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deform": {"changes": [{"of": "xy", "style": "scale", "values": [1]}]}}, "by these but scale"),
        ({"deform": {"changes": [{"of": "x", "style": "final", "values": [1]}]}}, "takes 2 numbers"),
        ({"deform": {"changes": [{"of": "x", "style": "volume"}]}}, "have the style volume"),
        ({"deform": {"start": [{"of": "x", "style": "vel", "values": [1]}]}}, "allowed are final, delta"),
        ({"dynamics": {"kind": "nose_hoover", "sllod": True}}, "set deform.changes and remap = 'v'"),
        ({"deform": {**STAYS, "changes": [*SHEAR, {"of": "y", "style": "volume"}]}}, "goes without the style volume"),
        ({"deform": {**STAYS, "changes": SHEAR}, "dynamics": {"sllod": True}}, "a way of nose_hoover"),
        ({"deform": {**STAYS, "changes": SHEAR}, "barostat": {"kind": "mtk", "dims": ["z"]}}, "without barostat"),
        ({"system": {"tilt": [1, 0, 0], "file": __file__}}, "omit it with file"),
        ({"barostat": {"kind": "mtk", "tilts": ["xy", "xy"]}, "dynamics": {"kind": "nve"}}, "each once"),
    ],
)
def test_changes_of_a_box_that_cannot_be_are_named(settings, said):
    with pytest.raises(ValueError, match=said):
        Config.model_validate(settings)
