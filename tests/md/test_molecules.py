"""Molecules: angles, dihedrals and impropers beside LAMMPS, the same bits on any number of ranks, water of NIST."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import config_of, either_order, needs_lammps, run_lammps, same_bits, thermo_rows
from mpi4py import MPI
from potential_files import write_branched_chains, write_water

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.io.particles.lammps_data import read_lammps_data, write_lammps_data
from hpckit.md.motion.dynamics import NVE
from hpckit.md.thermo import measure
from hpckit.md.units import UNITS

nightly = pytest.mark.nightly
SCRIPT = """units real
atom_style full
special_bonds {0}
improper_style harmonic
read_data chains.data
pair_style lj/cut/coul/cut 8.0 7.0
pair_coeff 1 1 0.08 2.4
pair_coeff 2 2 0.1 2.0
pair_coeff 1 2 0.09 2.3 7.0
pair_modify mix arithmetic table 0 shift yes
bond_style harmonic
bond_coeff * 300 1.4
angle_style {1}
dihedral_style {2}
neighbor 1.0 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
timestep 0.5
thermo 20
thermo_style custom step temp ebond eangle edihed eimp emol etotal press pxx pyy pzz pxy pxz pyz
thermo_modify format float %.15g norm no
run 200
"""
CASES = {
    "harmonic": ("lj/coul 0 0 0.5", "harmonic\nangle_coeff 1 40 112\nangle_coeff 2 35.5 120",
                 "harmonic\ndihedral_coeff 1 1.2 -1 3\ndihedral_coeff 2 0.7 1 2"),
    "charmm": ("charmm", "charmm\nangle_coeff * 40 112 12.0 2.3",
               "charmm\ndihedral_coeff 1 1.2 3 40 0\ndihedral_coeff 2 0.4 1 180 0.0"),
    "opls": ("amber", "cosine\nangle_coeff * 4", "opls\ndihedral_coeff * 1.3 -0.2 0.5 0.15"),
}  # fmt: skip


def script(name, folder):
    write_branched_chains(folder / "chains.data")
    text = SCRIPT.format(*CASES[name])
    (folder / f"in.{name}").write_text(text)
    return text


@needs_lammps
@either_order
@pytest.mark.parametrize(
    ("name", "inner"), by_day([("harmonic", 1), ("charmm", 1), ("opls", 1), ("opls", 4)], ("charmm", 1), ("opls", 4))
)
def test_energies_and_pressures_of_molecules_follow_lammps(tmp_path, name, inner, repro):
    text = script(name, tmp_path)
    if inner > 1:
        text = text.replace("run 200", f"run_style respa 2 {inner} bond 1 pair 2\nrun 100")
        (tmp_path / f"in.{name}").write_text(text)
    expected = thermo_rows(run_lammps(tmp_path, text))
    config = config_of(tmp_path / f"in.{name}", repro)
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), NVE()
    for step in range(config.time.steps + 1):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it, row = measure(system), expected[step // 20]
            bonds = it.bonded - it.angles - it.dihedrals - it.impropers
            ours = [it.temperature, bonds, it.angles, it.dihedrals, it.impropers, it.bonded, it.total]
            assert ours == pytest.approx(row[1:8].tolist(), rel=1e-10, abs=1e-9 if inner == 1 else 1e-10 * abs(row[6]))
            pressures = [it.pressure, *it.tensor]
            assert pressures == pytest.approx(row[8:].tolist(), abs=1e-10 * np.abs(expected[:, 8:]).max())
    assert np.abs(expected[:, 2:6]).min() > 0.1
    assert inner > 1 or system.neighbors.builds > 2
    system.mesh.close()


@pytest.mark.parametrize("counts", [(1, 3), pytest.param((1, 2, 4, 6), marks=nightly)], ids=str)
def test_any_number_of_ranks_has_the_same_bits(mpirun, tmp_path, counts):
    names = ["charmm", "opls"]
    for name in names:
        text = script(name, tmp_path).replace("neighbor 1.0", "neighbor 0.3")
        (tmp_path / f"in.{name}").write_text(text)
    assert all(one["builds"] > 1 for one in same_bits(mpirun, tmp_path, counts, 60, names).values())


@pytest.mark.nightly
@nightly
def test_steps_with_inner_steps_are_of_second_order(tmp_path):
    """The total energy spreads a quarter as far with half of the step, with twice that of one level."""
    script("charmm", tmp_path)
    tree = settings_of(tmp_path / "in.charmm").tree
    spreads = []
    for inner, dt in ((4, 1.0), (4, 0.5), (1, 1.0)):
        config = Config.model_validate(
            {
                **tree,
                "dynamics": {"inner": inner},
                "coulomb": {"kind": "dsf", "cutoff": 7.0},
                "interaction": {**tree["interaction"], "switch": 6.0, "shift": False},
            }
        )
        system, dynamics, kept = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), NVE(), []
        for _ in range(round(80 / dt)):
            dynamics.step(system, dt, True)
            kept.append(measure(system).total)
        spreads.append(np.std(kept))
        system.mesh.close()
    assert 3.2 < spreads[0] / spreads[1] < 4.8
    assert spreads[2] > 2 * spreads[0]


def test_a_file_with_molecules_is_written_as_it_was_read(tmp_path):
    write_branched_chains(tmp_path / "one.data")
    first = read_lammps_data(tmp_path / "one.data")
    assert {name: rows.shape for name, rows in first.terms.items()} == {
        "bonds": (288, 3),
        "angles": (240, 4),
        "dihedrals": (192, 5),
        "impropers": (48, 5),
    }
    assert first.coefficients == {"impropers": [(20.0, 35.0)]}
    write_lammps_data(tmp_path / "two.data", first, "real")
    again = read_lammps_data(tmp_path / "two.data")
    for name, rows in first.terms.items():
        np.testing.assert_array_equal(again.terms[name], rows)
    assert again.coefficients == first.coefficients
    chains = first.molecules
    assert sorted(np.bincount(chains)[1:]) == [7] * 48
    assert (chains[first.bonds[:, 1]] == chains[first.bonds[:, 2]]).all()
    atoms = (tmp_path / "two.data").read_text().split("Atoms # ")[1].splitlines()[2:]
    assert [int(line.split()[1]) for line in atoms[: first.count]] == chains.tolist()
    text = (tmp_path / "one.data").read_text()
    row = next(line for line in text.split("Angles\n\n")[1].splitlines())
    (tmp_path / "bad.data").write_text(text.replace(f"\n{row}\n", f"\n{row.rsplit(' ', 1)[0]} 999\n"))
    with pytest.raises(InputError, match="ids of 3 atoms"):
        read_lammps_data(tmp_path / "bad.data")


def test_mistakes_in_scripts_of_molecules_are_named_by_line(tmp_path):
    text = (
        script("opls", tmp_path)
        .replace("opls\n", "class2\n")
        .replace("cosine\nangle_coeff * 4", "cosine\nangle_coeff 1 1 2")
    )
    (tmp_path / "in.bad").write_text(text)
    with pytest.raises(InputError) as error:
        settings_of(tmp_path / "in.bad")
    assert "angle_coeff 1 1 2: a type and K" in str(error.value)
    assert "dihedral_style class2: known are none, zero, harmonic" in str(error.value)
    (tmp_path / "in.bad").write_text("units real\npair_style lj/charmm/coul/long\npair_style lj/cut\nrun 0\n")
    with pytest.raises(InputError, match=r"(?s)in.bad:2: .*words are missing.*in.bad:3: pair_style lj/cut: words are"):
        settings_of(tmp_path / "in.bad")
    config = Config.model_validate({"system": {"file": str(tmp_path / "chains.data")}, "bonds": {"kind": "zero"}})
    with pytest.raises(InputError, match=r"has angles, and angles\.kind is none"):
        Start(config)
    config = Config.model_validate(settings_of(tmp_path / "in.opls").tree)
    short = config.model_copy(update={"angles": config.angles.model_copy(update={"parameters": ()})})
    with pytest.raises(InputError, match="needs parameters for each type"):
        make_system(short, Start(short), MPI.COMM_SELF, PhaseTimer())


# Energies / k in K by the NIST Standard Reference Simulation Website, of the configurations with 100 and 200 molecules:
# pairs within the cutoff, those beyond, and of charges near, far, with themselves and within molecules; all of them.
NIST = {
    "cubic1": (9.95387e4, -8.23715e2, -5.58889e5, 6.27009e3, -2.84469e6, 2.80999e6, -4.88604e5),
    "cubic2": (1.93712e5, -3.29486e3, -1.19295e6, 6.03495e3, -5.68938e6, 5.61998e6, -1.06590e6),
}


@either_order
@pytest.mark.parametrize("name", by_day(["cubic1", "cubic2"], "cubic2"))
def test_every_part_of_the_energy_of_water_is_that_of_nist(tmp_path, name, repro):
    water, units = write_water(tmp_path / "water.data", name), UNITS["real"]
    settings = {
        "repro": repro,
        "system": {"units": "real", "file": str(tmp_path / "water.data")},
        "interaction": {"epsilon": [78.19743111 * units.boltzmann, 0.0], "sigma": [3.16555789, 1.0], "cutoff": 10.0},
        "coulomb": {"kind": "ewald", "splitting": 5.6 / 20, "waves": [5, 5, 5], "squares": 26},
        "bonds": {"kind": "zero", "pair_shares": [0, 0, 0], "charge_shares": [0, 0, 0]},
        "angles": {"kind": "zero"},
    }
    settings["interaction"]["tail"] = True
    config = Config.model_validate(settings)
    system = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
    it, g = measure(system), config.coulomb.splitting
    # These two are closed forms; what is left of the energies of the system are the parts that it sums.
    alone = -units.coulomb * g / math.sqrt(math.pi) * float((water.charges**2).sum())
    within = 0.0
    for place in range(0, water.count, 3):
        for a, b in ((0, 1), (0, 2), (1, 2)):
            d = water.positions[place + a] - water.positions[place + b]
            r = float(np.linalg.norm(d - 20.0 * np.rint(d / 20.0)))
            within -= units.coulomb * water.charges[place + a] * water.charges[place + b] * math.erf(g * r) / r
    oxygens = water.count // 3
    beyond = 0.5 * oxygens**2 * float(system.interaction.tail_energy[0, 0]) / 20.0**3
    near, far = it.coulomb - within, it.long_range - alone
    pairs = it.potential - it.coulomb - it.long_range - beyond
    ours = np.array([pairs, beyond, near, far, alone, within, it.potential]) / units.boltzmann
    assert ours.tolist() == pytest.approx(list(NIST[name]), rel=1e-5)
    system.mesh.close()


@needs_lammps
@either_order
def test_ends_of_dihedrals_have_the_pairs_of_charmm(tmp_path, repro):
    """lj/charmm/coul/long with weights of dihedrals, coefficients of pairs from the data file; 40 steps."""
    text = script("charmm", tmp_path).replace("180 0.0", "180 0.5").replace("3 40 0", "3 40 1.0")
    text = text.replace("lj/cut/coul/cut 8.0 7.0", "lj/charmm/coul/long 6.0 7.0\nkspace_style ewald 1e-6")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("pair_coeff")) + "\n"
    text = text.replace(" shift yes", "").replace("run 200", "run 40").replace("read_data chains.data\n", "")
    text = text.replace("pair_modify", "read_data chains.data\npair_modify")
    data = (tmp_path / "chains.data").read_text()
    rows = "\nPair Coeffs\n\n1 0.08 2.4 0.05 2.1\n2 0.1 2.0 0.07 1.9\n\n"
    place = data.index("Atoms")
    (tmp_path / "chains.data").write_text(data[:place] + rows.lstrip("\n") + data[place:])
    (tmp_path / "in.fourths").write_text(text)
    expected = thermo_rows(run_lammps(tmp_path, text))
    tree = settings_of(tmp_path / "in.fourths").tree
    assert tree["interaction"]["epsilon_14"] == [0.05, 0.07]
    config = Config.model_validate({**tree, "repro": repro})
    system, dynamics = make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer()), NVE()
    for step in range(41):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it, row = measure(system), expected[step // 20]
            ours = [it.temperature, it.angles, it.dihedrals, it.impropers, it.total]
            assert ours == pytest.approx(row[[1, 3, 4, 5, 7]].tolist(), rel=1e-8)
            assert it.pressure == pytest.approx(row[8], abs=1e-8 * np.abs(expected[:, 8:]).max())
    system.mesh.close()
    whole = make_system(config.model_copy(update={"dihedrals": without_weights(config)}), Start(config),
                        MPI.COMM_SELF, PhaseTimer())  # fmt: skip
    assert abs(measure(whole).total - expected[0, 7]) > 1e-3  # the pairs at the ends matter
    whole.mesh.close()


def without_weights(config):
    rows = tuple((*row[:3], 0.0) for row in config.dihedrals.parameters)
    return config.dihedrals.model_copy(update={"parameters": rows})


def test_bonds_are_held_by_type_of_particle_and_mass(tmp_path):
    text = script("charmm", tmp_path).replace("fix 1", "fix 2 all shake 0.0001 20 0 {} \nfix 1")
    masses = read_lammps_data(tmp_path / "chains.data").masses
    held = {}
    for words in ("t 2", f"m {masses[1] + 0.05}"):
        (tmp_path / "in.held").write_text(text.format(words))
        config = Config.model_validate(settings_of(tmp_path / "in.held").tree)
        held[words[0]] = (start := Start(config)).held_bonds()
    rows, types = start.bound("bonds"), start.file.types
    np.testing.assert_array_equal(held["t"], (types[rows[:, 1:]] == 1).any(axis=1))
    np.testing.assert_array_equal(held["m"], (np.abs(masses - masses[1]) <= 0.15)[types[rows[:, 1:]]].any(axis=1))
    assert held["t"].any()
    (tmp_path / "in.held").write_text(text.format("m heavy"))
    with pytest.raises(InputError, match=r"types \(t\), masses \(m\)"):
        settings_of(tmp_path / "in.held")
