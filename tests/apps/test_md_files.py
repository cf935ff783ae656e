"""A run of molecular dynamics starts from particle files of any format, and says where a file and the run differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import load_function
from hpckit.apps.md.start import Start
from hpckit.errors import InputError
from hpckit.io.particles.extended_xyz import write_extended_xyz
from hpckit.io.particles.frames import read_frame
from hpckit.io.particles.h5md import H5mdWriter
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.io.particles.lammps_dump import DumpWriter
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.settings.config import load

PERIODIC = (True, True, False)
DIGITS = {"extxyz": 1e-8}  # ASE writes eight digits behind the point, the others all


def frame(step: int, velocities: bool = True) -> Snapshot:
    """Seven particles of two types in an uneven box, others at every step."""
    drawn = np.random.default_rng(step)
    return Snapshot(
        lower=np.array([-1.0, 0.0, 2.0]),
        upper=np.array([4.0, 6.0, 9.0]),
        periodic=PERIODIC,
        ids=np.arange(1, 8),
        types=np.array([0, 1, 0, 0, 1, 1, 0]),
        positions=drawn.uniform([-1, 0, 2], [4, 6, 9], (7, 3)),
        images=drawn.integers(-2, 3, (7, 3), np.int32),
        velocities=drawn.normal(size=(7, 3)) if velocities else None,
        masses=np.array([1.0, 2.5]),
        names=("H", "He"),
        step=step,
        time=0.5 * step,
    )


def write(path: Path, frames: list[Snapshot]) -> Path:
    """The frames in the format that the end of the name says."""
    if path.suffix == ".extxyz":
        write_extended_xyz(path, frames)
    elif path.suffix == ".data":
        write_lammps_data(path, frames[-1])
    else:
        with DumpWriter(path) if path.suffix == ".lammpstrj" else H5mdWriter(path) as writer:
            for each in frames:
                writer.write(each)
    return path


def config(path: Path, **system: object) -> Config:
    return Config.model_validate(
        {
            "system": {"file": str(path), "periodic": ("x", "y"), "masses": (1.0, 2.5), **system},
            "interaction": {"epsilon": (1.0, 1.0), "sigma": (1.0, 1.0)},
        }
    )


@pytest.mark.parametrize("end", ["data", "lammpstrj", "extxyz", "h5"])
def test_every_format_gives_the_same_start(tmp_path, end):
    path = write(tmp_path / f"some.{end}", [frame(1), frame(2), frame(3)])
    start = Start(config(path))
    found = start.packed(MPI.COMM_SELF)
    expected = frame(3)
    np.testing.assert_allclose(found["position"][:, :3], expected.positions, rtol=0, atol=DIGITS.get(end, 0))
    np.testing.assert_allclose(found["velocity"][:, :3], expected.velocities, rtol=0, atol=DIGITS.get(end, 0))
    np.testing.assert_array_equal(found["image"], expected.images)
    np.testing.assert_array_equal(start.lower, expected.lower)
    np.testing.assert_array_equal(start.upper, expected.upper)
    assert (start.count, start.notes) == (7, [])


@pytest.mark.parametrize("end", ["lammpstrj", "extxyz", "h5"])
def test_frames_are_counted_from_either_end(tmp_path, end):
    path = write(tmp_path / f"some.{end}", [frame(1), frame(2), frame(3)])
    for number, step in ((0, 1), (1, 2), (-1, 3), (-3, 1)):
        found = read_frame(path, number).positions
        np.testing.assert_allclose(found, frame(step).positions, rtol=0, atol=DIGITS.get(end, 0))
    for number in (3, -4):
        with pytest.raises(InputError, match=f"no frame {number}"):
            read_frame(path, number)


def test_velocities_are_drawn_where_wanted(tmp_path):
    path = write(tmp_path / "some.data", [frame(1, velocities=False)])
    at_rest = Start(config(path))
    assert not at_rest.packed(MPI.COMM_SELF)["velocity"].any()
    assert "start at rest" in at_rest.notes[0]
    drawn = Start(config(path, velocities="draw", temperature=0.7))
    v = drawn.packed(MPI.COMM_SELF)["velocity"][:, :3]
    masses = np.array([1.0, 2.5])[frame(1).types][:, None]
    assert (masses * v * v).sum() == pytest.approx(18 * 0.7, rel=1e-13)
    assert np.abs((masses * v).sum(axis=0)).max() < 1e-13
    assert drawn.notes == []


def test_what_a_file_says_beyond_the_run_is_told(tmp_path):
    path = tmp_path / "other.data"
    path.write_text(
        "LAMMPS data file via write_data, timestep = 20, units = real\n\n2 atoms\n1 atom types\n\n"
        "0 5 xlo xhi\n0 5 ylo yhi\n0 5 zlo zhi\n0.0 0 0e0 xy xz yz\n\nPairIJ Coeffs # lj/cut\n\n1 1 1 1 2.5\n\n"
        "Atoms # charge\n\n1 1 -0.5 1 1 1\n2 1 0.5 3 3 3\n"
    )
    notes = "\n".join(Start(config(path)).notes)
    for said in ("units are real", "no velocities", "charges", "PairIJ Coeffs"):
        assert said in notes
    path = write(tmp_path / "some.h5", [frame(1)])
    notes = Start(config(path, periodic=("x",))).notes
    assert notes == [f"{path} is periodic along x y, this run along x (system.periodic)"]


def test_a_trajectory_of_any_name_is_known_by_its_first_bytes(tmp_path):
    for end in ("lammpstrj", "h5"):
        path = write(tmp_path / f"some.{end}", [frame(1), frame(2)])
        found = read_frame(path.rename(tmp_path / "dump.melt"), 0)
        np.testing.assert_allclose(found.positions, frame(1).positions, rtol=0, atol=DIGITS.get(end, 0))
        assert found.step == 1


def test_files_of_a_run_file_are_beside_it(tmp_path, monkeypatch):
    """Wherever the command is given, and where the run is resumed."""
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder / "some.data", [frame(1)])
    (folder / "mine.py").write_text("def energy(r2, p):\n    return p[0] / r2**6\n")
    (folder / "mine.toml").write_text(
        'app = "md"\n[system]\nfile = "some.data"\nmasses = [1.0, 1.0]\n'
        '[interaction]\nkind = "python"\nfunction = "mine.py:energy"\nparameters = [1.0]\n'
    )
    monkeypatch.chdir(tmp_path)
    found = load("project/mine.toml", []).config
    assert found.system.file == folder / "some.data"
    assert found.interaction.function == f"{folder}/mine.py:energy"
    assert load_function(found.interaction.function)(1.0, [2.0]) == 2.0
    (folder / "some.data").unlink()
    with pytest.raises(InputError, match=r"mine.toml:3: system.file = .*there is no file .*some.data"):
        load("project/mine.toml", [])
