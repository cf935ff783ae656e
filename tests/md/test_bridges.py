"""Functions of bricks and calculators of ASE as potentials, and hpckit as a calculator."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.md.potentials import calculator
from hpckit.errors import InputError
from hpckit.md.bridges.ase_potential import AseForces, AsePotential
from hpckit.md.bridges.fit import ReferenceFrame
from hpckit.md.bridges.network import Crystal, MessagePassing, forces_of, loss_gradient, train

ase = pytest.importorskip("ase")
COUNTS = (1, 3)


@pytest.mark.nightly
def test_a_network_and_a_calculator_find_the_same_on_any_number_of_ranks(mpirun, tmp_path):
    """Features go to ghosts, gradients come back: forces are derivatives; to the bit where nothing comes back."""
    for ranks in COUNTS:
        mpirun(ranks, "md_bridges.py", tmp_path, timeout=200)
    for name in ("network", "springs-exact", "layers", "pairs", "plain"):
        one, many = (dict(np.load(tmp_path / f"{name}-{ranks}.npz")) for ranks in COUNTS)
        for key in ("rows", "forces", "ended"):
            if name.endswith("exact"):
                np.testing.assert_array_equal(many[key], one[key], err_msg=f"{name}: {key}")
            else:
                np.testing.assert_allclose(many[key], one[key], rtol=1e-9, atol=1e-8, err_msg=f"{name}: {key}")
        assert np.abs(one["forces"][:, :3]).max() > 0.01
        assert np.abs(one["forces"][:, :3].sum(axis=0)).max() < 1e-8
    for name in ("network", "springs-exact"):
        rows = np.load(tmp_path / f"{name}-1.npz")["rows"]
        assert np.ptp(rows[:, 1]) < 2e-3 * np.ptp(rows[:, 0]), "the energy is not conserved: forces are no derivatives"
    pairs, plain = (dict(np.load(tmp_path / f"{name}-1.npz")) for name in ("pairs", "plain"))
    _require_those_of_ase(pairs)
    largest = np.abs(pairs["rows"][:, 2:]).max()
    np.testing.assert_allclose(plain["rows"][:, 2:], pairs["rows"][:, 2:], rtol=0, atol=1e-7 * largest)


def _require_those_of_ase(found):
    from ase import Atoms
    from ase.calculators.lj import LennardJones

    symbols = np.array(["Cu", "Au"])[found["types"]]
    atoms = Atoms(list(symbols), found["positions"], cell=found["box"], pbc=True)
    atoms.calc = LennardJones(epsilon=0.3, sigma=2.3, rc=2.9)
    assert found["rows"][0, 0] == pytest.approx(atoms.get_potential_energy(), rel=1e-10)
    np.testing.assert_allclose(found["forces"][:, :3], atoms.get_forces(), atol=1e-9)


def shaken(count, seed):
    """A frame of particles of two types that repel each other by Gaussians, of which the strength depends on types."""
    rng, box = np.random.default_rng(seed), np.array([3.6, 3.9, 4.2])
    grid = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count]
    places, types = (grid + rng.uniform(-0.15, 0.15, (count, 3))) * box / 3, rng.integers(0, 2, count)
    brick = Crystal(places, box, types, 1.9)
    strength = 1.0 + 0.5 * (types[brick.first] + types[brick.second])
    each = strength * np.exp(-2.0 * (brick.vectors**2).sum(axis=1))
    forces = forces_of(brick, (-2.0 * each)[:, None] * brick.vectors)
    return ReferenceFrame(places, box, forces, 0.5 * float(each.sum())), types


def test_the_gradients_of_a_network_are_derivatives_of_its_loss():
    frame, types = shaken(20, 1)
    network = MessagePassing(2, 1.6, width=5, waves=4, seed=2)
    brick, parameters = Crystal(frame.positions, frame.box, types, 1.6), network.parameters
    given = frame.forces, frame.energy, 0.7, 0.3
    parameters.zero_grads()
    loss_gradient(network, brick, *given)
    gradients, values = parameters.grads.copy(), parameters.values
    rng = np.random.default_rng(3)
    for _ in range(3):
        along, before, each = rng.normal(size=values.shape) * (gradients != 0), values.copy(), []
        for sign in (1, -1):
            values[:] = before + sign * 1e-5 * along
            each.append(loss_gradient(network, brick, *given)[0])
        values[:] = before
        assert (each[0] - each[1]) / 2e-5 == pytest.approx(float(gradients @ along), rel=1e-6)


@pytest.mark.nightly
def test_a_network_learns_energies_and_forces():
    frames, types = zip(*(shaken(27, seed) for seed in range(4)), strict=True)
    network = MessagePassing(2, 1.6, width=8, waves=6, seed=1)
    errors = train(network, frames, types, steps=60, rate=0.03)
    assert errors[-1].force < 0.35 * errors[0].force
    with pytest.raises(InputError, match="0 frames"):
        train(network, [], [])


def test_hpckit_is_a_calculator_of_ase():
    """Energies, forces and stresses beside ASE's own Lennard-Jones; forces and stress are derivatives."""
    from ase.build import bulk
    from ase.calculators.lj import LennardJones
    from ase.neighborlist import neighbor_list

    atoms = bulk("Ar", "fcc", a=5.3, cubic=True).repeat((2, 2, 3))
    atoms.rattle(0.1, seed=3)
    ours = calculator(["Ne", "Ar"], kind="lennard_jones", epsilon=[1.0, 0.01], sigma=[1.0, 3.4], cutoff=6.0)
    theirs = LennardJones(epsilon=0.01, sigma=3.4, rc=6.0, smooth=False)
    cut = 4 * 0.01 * ((3.4 / 6.0) ** 12 - (3.4 / 6.0) ** 6)
    found = []
    for calc in (ours, theirs):
        atoms.calc = calc
        found.append((atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()))
    pairs = len(neighbor_list("i", atoms, 6.0)) / 2
    assert found[0][0] == pytest.approx(found[1][0] + pairs * cut, rel=1e-10), "ASE's is shifted at the cutoff"
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-12)
    np.testing.assert_allclose(found[0][2], found[1][2], atol=1e-13)
    atoms.calc = ours
    atoms.set_cell(atoms.cell[:] * 1.01, scale_atoms=True)  # another box
    assert atoms.get_potential_energy() != found[0][0]
    atoms.pbc = False
    np.testing.assert_allclose(atoms.get_forces().sum(axis=0), 0, atol=1e-12)
    atoms.set_cell([[9, 1, 0], [0, 9, 0], [0, 0, 9]])
    with pytest.raises(InputError, match="not a box"):
        atoms.get_forces()
    atoms.symbols[0] = "Kr"
    with pytest.raises(InputError, match="no Kr"):
        atoms.get_forces()
    ours.close()


def test_a_calculator_that_does_not_tell_energies_of_atoms_is_refused():
    class Whole:
        implemented_properties = ("energy", "forces")

    with pytest.raises(InputError, match="energy of each atom"):
        AseForces(AsePotential(Whole, ("Cu",), 3.0))
    with pytest.raises(InputError, match="knows no element"):
        AsePotential(Whole, ("Qq",), 3.0)
