"""Chains beside LAMMPS, from the same data file and the same script."""

from __future__ import annotations

import pytest
from lammps_runs import needs_lammps, run_lammps, thermo_rows
from mpi4py import MPI
from potential_files import write_chain

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.md.motion.dynamics import NVE
from hpckit.md.thermo import measure

SCRIPT = """units lj
atom_style bond
special_bonds {0}
read_data chain.data
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
bond_style {1}
bond_coeff 1 {2}
pair_style lj/cut 1.12
pair_modify shift yes
pair_coeff 1 1 1.0 1.0 1.12
fix 1 all nve
timestep 0.003
thermo 20
thermo_style custom step temp epair emol etotal press
thermo_modify format float %.15g norm no
run 200
"""


def system_of(folder, text):
    (folder / "in.chain").write_text(text)
    config = Config.model_validate(settings_of(folder / "in.chain").tree)
    return config, make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())


@needs_lammps
@pytest.mark.parametrize(
    "what",
    [
        ("fene", "fene", "30.0 1.5 1.0 1.0"),
        pytest.param(("lj 1 1 1", "harmonic", "300.0 0.97"), marks=pytest.mark.nightly),
        pytest.param(("lj/coul 0.0 1.0 1.0", "morse", "60.0 3.0 0.97"), marks=pytest.mark.nightly),
    ],
)
def test_energies_and_pressures_of_chains_follow_lammps_for_200_steps(tmp_path, what):
    write_chain(tmp_path / "chain.data")
    text = SCRIPT.format(*what)
    expected = thermo_rows(run_lammps(tmp_path, text))
    config, system = system_of(tmp_path, text)
    dynamics = NVE()
    for step in range(201):
        if step:
            dynamics.step(system, config.time.dt, step % 20 == 0)
        if step % 20 == 0:
            it = measure(system)
            ours = [step, it.temperature, it.potential - it.bonded, it.bonded, it.total, it.pressure]
            assert ours == pytest.approx(expected[step // 20].tolist(), rel=1e-10, abs=1e-9)
    assert system.neighbors.builds > 5
    system.mesh.close()


def test_bonds_and_settings_must_agree(tmp_path):
    write_chain(tmp_path / "chain.data")
    text = SCRIPT.format("fene", "fene", "30.0 1.5 1.0 1.0")
    with pytest.raises(InputError) as error:
        system_of(tmp_path, text.replace("special_bonds fene", "special_bonds lj 0 1"))
    assert "in.chain:3" in str(error.value)
    with pytest.raises(InputError) as error:
        system_of(tmp_path, text.replace("bond_coeff 1 30.0 1.5 1.0 1.0", "bond_coeff 1 30.0 1.5"))
    assert "in.chain:8" in str(error.value)
    config = Config.model_validate({"system": {"file": str(tmp_path / "chain.data")}})
    with pytest.raises(InputError, match=r"has bonds, and bonds\.kind is none"):
        Start(config)
