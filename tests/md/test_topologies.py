"""Topologies of AMBER and GROMACS, written by ParmEd: their energies beside sums over its own lists."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import reads, settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.io.particles.topologies import read_topology
from hpckit.md.snapshots import snapshot
from hpckit.md.thermo import measure
from hpckit.md.units import UNITS

parmed = pytest.importorskip("parmed")
EDGE, CUTOFF = 20.0, 9.0
KINDS = {
    "CT": (12.01, 6, 0.1094, 1.908),
    "HC": (1.008, 1, 0.0157, 1.487),
    "OW": (15.9994, 8, 0.1521, 1.7683),
    "HW": (1.008, 1, 0.0, 0.0),
}


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Four short chains and four molecules of water in mix.prmtop and mix.inpcrd, gmx.top and gmx.gro."""
    folder, rng, it = tmp_path_factory.mktemp("topologies"), np.random.default_rng(1), parmed.Structure()
    kinds = {}
    for number, (name, (mass, element, depth, half)) in enumerate(KINDS.items(), 1):
        kinds[name] = parmed.AtomType(name, number, mass, element)
        kinds[name].set_lj_params(depth, half)
    springs = [parmed.BondType(*each) for each in ((310.0, 1.526), (340.0, 1.09), (553.0, 0.9572), (553.0, 1.5136))]
    bends = [parmed.AngleType(40.0, 109.5), parmed.AngleType(50.0, 107.0)]
    turns = [parmed.DihedralType(0.18, 3, 0.0, 1.2, 2.0), parmed.DihedralType(0.25, 2, 180.0, 1.2, 2.0)]
    for rows, types in ((it.bond_types, springs), (it.angle_types, bends), (it.dihedral_types, turns)):
        rows.extend(types)
        rows.claim()
    places = []

    def atom(name, kind, charge, residue, number, place):
        made = parmed.Atom(atomic_number=KINDS[kind][1], name=name, type=kind, charge=charge, mass=KINDS[kind][0])
        made.atom_type = kinds[kind]
        it.add_atom(made, residue, number)
        places.append(place)
        return made

    for m in range(8):
        at = np.array([m % 2, m // 2 % 2, m // 4]) * 10.0 + 1.0
        if m < 4:
            ways = [at + np.array([1.25 * k, 0.8 * (k % 2), 0.3 * (k == 3)]) + rng.normal(0, 0.05, 3) for k in range(4)]
            c = [atom(f"C{k}", "CT", (-0.2, 0.1, 0.1, -0.2)[k], "BUT", m + 1, ways[k]) for k in range(4)]
            ends = [at + np.array([-0.6 + 4.9 * k, 0.5 - 0.2 * k, 0.7]) for k in range(2)]
            h = [atom(f"H{k}", "HC", 0.1, "BUT", m + 1, ends[k]) for k in range(2)]
            for a, b, k in ((c[0], c[1], 0), (c[1], c[2], 0), (c[2], c[3], 0), (c[0], h[0], 1), (c[3], h[1], 1)):
                it.bonds.append(parmed.Bond(a, b, springs[k]))
            bent = (c[0], c[1], c[2], 0), (c[1], c[2], c[3], 0), (h[0], c[0], c[1], 1), (h[1], c[3], c[2], 1)
            for a, b, d, k in bent:
                it.angles.append(parmed.Angle(a, b, d, bends[k]))
            for four, k in (((*c,), 0), ((h[0], *c[:3]), 0), ((h[1], c[3], c[2], c[1]), 1)):
                it.dihedrals.append(parmed.Dihedral(*four, type=turns[k]))
            it.dihedrals.append(parmed.Dihedral(*c, type=turns[1], ignore_end=True))
            continue
        o = atom("O", "OW", -0.834, "WAT", m + 1, at)
        arms = 0.9572 * np.array([[0.7906, 0.6123, 0.0], [-0.7906, 0.6123, 0.0]])
        h = [atom(f"H{k + 1}", "HW", 0.417, "WAT", m + 1, at + arms[k]) for k in range(2)]
        for a, b, k in ((o, h[0], 2), (o, h[1], 2), (h[0], h[1], 3)):
            it.bonds.append(parmed.Bond(a, b, springs[k]))
    it.coordinates, it.box = np.array(places), [EDGE] * 3 + [90.0] * 3
    parmed.amber.AmberParm.from_structure(it).save(str(folder / "mix.prmtop"))
    for name in ("mix.inpcrd", "gmx.top", "gmx.gro"):
        it.save(str(folder / name))
    return folder


def exact(structure):
    """Energies of bonds, angles, dihedrals, Lennard-Jones, charges; the bond that closes a water as an angle, to the
    second order.
    """
    x = structure.coordinates
    found = np.zeros(5)

    def gap(a, b):
        d = x[a.idx] - x[b.idx]
        return d - EDGE * np.rint(d / EDGE)

    shares = np.ones((len(x), len(x), 2))
    for bond in structure.bonds:
        shares[bond.atom1.idx, bond.atom2.idx] = 0.0
        if bond.atom1.name[0] == bond.atom2.name[0] == "H":
            a, b = (gap(end, bond.atom1.residue.atoms[0]) for end in (bond.atom1, bond.atom2))
            theta = np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
            open_by = 2 * np.arcsin(bond.type.req / 2 / 0.9572)
            found[1] += bond.type.k * (0.9572 * np.cos(open_by / 2) * (theta - open_by)) ** 2
            continue
        found[0] += bond.type.k * (np.linalg.norm(gap(bond.atom1, bond.atom2)) - bond.type.req) ** 2
    for angle in structure.angles:
        shares[angle.atom1.idx, angle.atom3.idx] = 0.0
        a, b = gap(angle.atom1, angle.atom2), gap(angle.atom3, angle.atom2)
        theta = np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        found[1] += angle.type.k * (theta - np.radians(angle.type.theteq)) ** 2
    for one in structure.dihedrals:
        shares[one.atom1.idx, one.atom4.idx] = 0.5, 1 / 1.2
        f, g, h = gap(one.atom1, one.atom2), gap(one.atom2, one.atom3), gap(one.atom4, one.atom3)
        a, b = np.cross(f, g), np.cross(h, g)
        phi = np.arctan2(np.cross(b, a) @ g / np.linalg.norm(g), a @ b)
        for kind in one.type if isinstance(one.type, list) else [one.type]:
            found[2] += kind.phi_k * (1 + np.cos(kind.per * phi - np.radians(kind.phase)))
    shares = np.minimum(shares, shares.transpose(1, 0, 2))
    for i, a in enumerate(structure.atoms):
        for b in structure.atoms[i + 1 :]:
            r = np.linalg.norm(gap(a, b))
            if r < CUTOFF:
                pair, charge = shares[i, b.idx]
                six = (0.5 * (a.sigma + b.sigma) / r) ** 6
                found[3] += pair * 4 * np.sqrt(a.epsilon * b.epsilon) * (six * six - six)
                found[4] += charge * UNITS["real"].coulomb * a.charge * b.charge / r
    return found


def test_topologies_of_both_programs_are_the_same_settings(mixture):
    trees = [settings_of(mixture / name).tree for name in ("mix.prmtop", "gmx.top")]
    for tree in trees:
        del tree["system"]["file"]
        for key in ("epsilon", "sigma"):
            tree["interaction"][key] = [round(value, 4) for value in tree["interaction"][key]]
        tree["bonds"]["charge_shares"] = [round(value, 3) for value in tree["bonds"]["charge_shares"]]
    assert trees[0] == trees[1]
    assert trees[0]["constraints"] == {"masses": [1.008], "angles": [1]}
    assert trees[0]["bonds"]["pair_shares"] == [0.0, 0.0, 0.5]
    one, other = (read_topology(mixture / name).snapshot for name in ("mix.prmtop", "gmx.top"))
    assert {name: len(rows) for name, rows in one.terms.items()} == {"bonds": 28, "angles": 20, "dihedrals": 16}
    for name, rows in one.terms.items():
        assert sorted(map(tuple, rows[:, 1:])) == sorted(map(tuple, other.terms[name][:, 1:]))
    np.testing.assert_allclose(one.charges, other.charges, atol=1e-6)
    assert one.coefficients["angles"][0][1] == pytest.approx(np.degrees(2 * np.arcsin(1.5136 / 2 / 0.9572)), abs=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(("topology", "coordinates"), [("mix.prmtop", "mix.inpcrd"), ("gmx.top", "gmx.gro")])
def test_energies_of_topologies_are_those_of_their_force_fields(mixture, topology, coordinates):
    path = mixture / topology
    assert reads(path)
    tree = settings_of(path).tree
    assert tree["coulomb"]["kind"] == "pppm"
    tree |= {"coulomb": {"kind": "cut"}, "constraints": {}}
    tree["interaction"] |= {"tail": False, "cutoff": CUTOFF}
    config = Config.model_validate(tree)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    it, wanted = measure(system), exact(parmed.load_file(str(path), xyz=str(mixture / coordinates)))
    pairs = it.potential - it.bonded - it.coulomb
    ours = [it.bonded - it.angles - it.dihedrals, it.angles, it.dihedrals, pairs, it.coulomb]
    assert ours == pytest.approx(wanted.tolist(), rel=2e-5)
    system.mesh.close()


@pytest.mark.nightly
def test_a_topology_runs_with_rigid_water_and_held_hydrogen(mixture):
    tree = settings_of(mixture / "mix.prmtop").tree
    tree |= {"coulomb": {"kind": "cut"}, "time": {"steps": 20, "dt": 1.0}}
    config = Config.model_validate(tree)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    assert system.constraints.count == 4 * 3 + 4 * 2
    dynamics = dynamics_of(config)
    for _ in range(20):
        dynamics.step(system, 1.0, False)
    found = snapshot(system)
    water = found.positions[24:].reshape(4, 3, 3)
    for a, b, length in ((0, 1, 0.9572), (0, 2, 0.9572), (1, 2, 1.5136)):
        d = water[:, a] - water[:, b]
        np.testing.assert_allclose(np.linalg.norm(d - EDGE * np.rint(d / EDGE), axis=1), length, rtol=1e-9)
    system.mesh.close()


def test_what_cannot_be_read_is_said(mixture, tmp_path):
    (tmp_path / "alone.prmtop").write_text((mixture / "mix.prmtop").read_text())
    with pytest.raises(InputError, match="no coordinates beside"):
        read_topology(tmp_path / "alone.prmtop")
    (tmp_path / "alone.inpcrd").write_text("nothing\n")
    with pytest.raises(InputError, match="cannot be read by ParmEd"):
        read_topology(tmp_path / "alone.prmtop")
