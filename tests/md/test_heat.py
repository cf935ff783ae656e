"""Heat that is given, and energy and momentum that are swapped between slabs: conductivity and viscosity."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from lammps_runs import follow_lammps, needs_lammps, same_anywhere
from mpi4py import MPI
from pydantic import ValidationError
from test_scripts import hpckit
from test_snap import FILES

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.errors import InputError
from tests.programs.md_groups import run as run_stages

FLUID = """units {units}
lattice fcc {lattice}
region box block 0 4 0 4 0 8
create_box 2 box
create_atoms 1 box
set type 1 type/fraction 2 0.4 4711
mass 1 {mass}
mass 2 {heavy}
group two type 2
velocity all create {warm} 87287 loop geom
pair_style lj/cut {cutoff}
pair_coeff * * {pair}
fix 1 all nve
timestep {dt}
region hot block INF INF INF INF 1.1 2.3
region cold block INF INF 0.9 3.1 5.1 6.2
compute hot all temp/region hot
compute cold two temp/region cold
compute fast all reduce/region hot max vx vy
compute momentum all reduce/region cold sum vz
thermo 20
"""
REDUCED = {
    "units": "lj",
    "lattice": 0.7,
    "mass": 1.0,
    "heavy": 2.0,
    "warm": 1.35,
    "cutoff": 2.5,
    "pair": "1 1",
    "dt": 0.004,
}
REAL = {
    "units": "real",
    "lattice": 5.6,
    "mass": 40.0,
    "heavy": 84.0,
    "warm": 120,
    "cutoff": 8.5,
    "pair": "0.238 3.4",
    "dt": 2,
}
METAL = {**REAL, "units": "metal", "pair": "0.0104 3.4", "dt": 0.002}
SCRIPTS = {
    "flux": (
        METAL,
        """compute myKE all ke/atom
compute myPE all pe/atom
compute myStress all stress/atom NULL virial
compute whole two stress/atom NULL
compute sums all reduce sum c_whole[1] c_whole[6] c_myPE
compute flux all heat/flux myKE myPE myStress
compute flow two heat/flux myKE myPE whole
fix JJ all ave/correlate 5 8 40 c_flux[1] c_flux[2] c_flux[3] type auto ave running
variable k11 equal trap(f_JJ[3])
variable pxx equal -c_sums[1]/vol
thermo_style custom step temp press c_flux[1] c_flux[2] c_flux[4] c_flux[6] v_k11 c_flow[2] v_pxx c_sums[2] c_sums[3]
thermo_modify format float %.15g
thermo 40
run 80
""",
    ),
    "heat": (
        REDUCED,
        """fix hot all heat 1 40.0 region hot
fix cold two heat 3 -25.0 region cold
thermo_style custom step temp etotal c_hot c_cold c_hot[3] c_fast[1] c_fast[2] c_momentum
thermo_modify format float %.15g
run 60
unfix cold
fix more two heat 2 5.0
run 25
""",
    ),
    "shifted": (
        METAL,
        """fix hot all ehex 1 4.0 region hot
fix cold two ehex 3 -1.5 region cold
fix more all ehex 5 0.5 region cold hex
thermo_style custom step temp etotal c_hot c_cold c_hot[3] c_momentum
thermo_modify format float %.15g
run 60
""",
    ),
    "energy": (
        REAL,
        """fix swap all thermal/conductivity 5 z 8 swap 2
fix other two thermal/conductivity 10 x 4
variable rate equal f_swap/(step*dt+1)
thermo_style custom step temp etotal f_swap f_other v_rate
thermo_modify format float %.15g
run 60
timestep 1.5
run 20
""",
    ),
    "momentum": (
        METAL,
        """fix swap all viscosity 5 x z 8 swap 3
fix other two viscosity 10 y x 4 vtarget 2.5
thermo_style custom step temp etotal f_swap f_other c_hot c_momentum
thermo_modify format float %.15g
run 60
""",
    ),
}


METALLIC = f"""units metal
lattice fcc 3.61
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 63.55
velocity all create 900 87287 loop geom
pair_style eam
pair_coeff 1 1 {FILES}/Cu_u3.eam
fix 1 all nve
timestep 0.002
region low block INF INF INF INF INF 1.9
group two region low
"""


@pytest.mark.nightly
@needs_lammps
def test_the_heat_current_of_embedded_atoms_is_that_of_lammps(mpirun, tmp_path):
    follow_lammps(tmp_path, mpirun, METALLIC + SCRIPTS["flux"][1], again=47)


@needs_lammps
@pytest.mark.parametrize("name", by_day([*SCRIPTS], "flux", "heat"))
def test_heat_and_swaps_are_those_of_lammps(mpirun, tmp_path, name):
    """Also on three ranks, and from a checkpoint."""
    given, script = SCRIPTS[name]
    follow_lammps(tmp_path, mpirun, FLUID.format(**given) + script, again=47)


def test_baths_in_blocks_count_the_energy_that_they_take(mpirun, tmp_path):
    """What they give is what the fluid gets; the same bits on three ranks and from a checkpoint."""
    script = """fix warms all langevin 1.9 1.9 0.3 59804 tally yes
fix cools two langevin 0.1 0.1 0.3 287859 tally yes
compute cool two temp/region cold
fix_modify warms temp hot
fix_modify cools temp cool
thermo_style custom step etotal f_warms f_cools c_hot c_cold
thermo_modify norm no
run 100
"""
    fluid = FLUID.format(**REDUCED).replace("fix 1 all nve", "pair_modify shift yes\nfix 1 all nve")
    (tmp_path / "in.it").write_text(fluid + script)
    run_stages(MPI.COMM_SELF, tmp_path, ["it"])
    found = dict(np.load(tmp_path / "it-1.npz"))
    energy, warms, cools, hot, cold = found["rows"][:, 1:].T
    assert warms[-1] < -100
    assert cools[-1] > 20
    assert hot[-1] - cold[-1] > 0.5
    np.testing.assert_allclose(energy + warms + cools, energy[0], rtol=0, atol=0.02 * -warms[-1])
    same_anywhere(mpirun, tmp_path, 47, found)


def test_words_that_are_not_known_are_refused_with_their_lines(tmp_path):
    wrong = """fix hot all heat 1 40.0 region none
fix swap all thermal/conductivity 6 z 8 swap
fix other two viscosity 10 y x 4 vtarget
fix odd all viscosity 10 y x 5
"""
    (tmp_path / "in.it").write_text(FLUID.format(**REDUCED) + wrong + "run 5\n")
    with pytest.raises(InputError) as error:
        settings_of(tmp_path / "in.it")
    for line in ("known is N FLUX, and region of a block", "known is N AXIS NBIN", "known is N DIM AXIS NBIN"):
        assert line in str(error.value)
    for line in ("fix swap all thermal/conductivity 6 z 8 vtarget 2", "fix hot all heat 1.5 4.0"):
        (tmp_path / "in.it").write_text(FLUID.format(**REDUCED) + line + "\nrun 5\n")
        with pytest.raises(InputError, match="known is N"):
            settings_of(tmp_path / "in.it")
    wrong = "fix hot all heat 1 4\nfix_modify hot temp thermo_temp\nrun 5\n"
    (tmp_path / "in.it").write_text(FLUID.format(**REDUCED) + wrong)
    with pytest.raises(InputError, match="known is temp of fix temp/rescale and berendsen"):
        settings_of(tmp_path / "in.it")
    wrong = "fix bath all langevin 1 1 1 4711\nfix_modify bath temp thermo_temp\nrun 5\n"
    (tmp_path / "in.it").write_text(FLUID.format(**REDUCED) + wrong)
    with pytest.raises(InputError, match="known is temp of a compute temp/region of a block"):
        settings_of(tmp_path / "in.it")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"coulomb": {"kind": "dsf"}, "table": {"computed": [{"name": "a", "kind": "pe/atom"}]}},
            "pe/atom are of pairs alone",
        ),
        ({"table": {"computed": [{"name": "a", "kind": "heat/flux", "of": ["c_b"]}]}}, "heat/flux, which needs three"),
        (
            {"dynamics": {"corrections": [{"kind": "swap_energy", "name": "a", "bins": 7}]}},
            "an even number of bins, not 7",
        ),
        ({"dynamics": {"corrections": [{"kind": "swap_energy"}]}}, "need a name"),
        ({"dynamics": {"corrections": [{"kind": "momentum", "within": [0, 1] * 3}]}}, "within is for heat"),
        ({"table": {"exchanged": ["a"]}}, "there are no dynamics.corrections or baths a"),
        (
            {"table": {"computed": [{"name": "a", "kind": "msd", "within": [0, 1] * 3}]}},
            "within is for temp and reduce",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, told):
    with pytest.raises(ValidationError, match=told):
        Config.model_validate(given)


def test_heat_that_is_not_there_ends_the_run(tmp_path):
    script = SCRIPTS["heat"][1].replace("heat 1 40.0", "heat 1 -4e5")
    (tmp_path / "in.it").write_text(FLUID.format(**REDUCED) + script)
    done = hpckit("run", "in.it", cwd=tmp_path)
    assert done.returncode != 0
    assert "is to be taken" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
