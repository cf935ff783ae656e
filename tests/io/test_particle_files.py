"""Particle files: written and read back to the last bit, exchanged with LAMMPS, ASE and MDAnalysis; faults told."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import lmp, no_lammps

from hpckit.cli.main import main
from hpckit.errors import CorruptDataError, InputError, SetupError
from hpckit.io.particles.extended_xyz import read_extended_xyz, write_extended_xyz
from hpckit.io.particles.h5md import H5mdWriter
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.particles.lammps_data import read_lammps_data, write_lammps_data
from hpckit.io.particles.lammps_dump import DumpWriter, read_lammps_dump
from hpckit.plan.particles.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("quick_runs")

N = 17


@pytest.fixture
def system():
    """Particles in no order in a box away from the origin."""
    rng = np.random.default_rng(3)
    lower, upper = np.array([-1.0, 0.0, 2.0]), np.array([4.0, 7.0, 9.5])
    return Snapshot(
        lower,
        upper,
        (True, True, False),
        rng.permutation(N) + 1,
        np.arange(N) % 2,
        lower + (upper - lower) * rng.random((N, 3)),
        rng.integers(-3, 4, (N, 3)).astype(np.int32),
        rng.normal(size=(N, 3)),
        masses=np.array([39.948, 83.798]),
        names=("Ar", "Kr"),
        step=40,
        time=0.2,
    )


def assert_same(read, system, fields=("positions", "velocities", "images", "types"), exactly=True):
    order = np.argsort(system.ids)
    assert (read.ids == system.ids[order]).all()
    assert (read.lower == system.lower).all()
    assert (read.upper == system.upper).all()
    for name in fields:
        wanted = getattr(system, name)[order]
        if exactly:
            assert (getattr(read, name) == wanted).all(), name
        else:
            np.testing.assert_allclose(getattr(read, name), wanted, atol=1e-8)


def test_data_files_to_the_last_bit(system, tmp_path):
    path = tmp_path / "a.data"
    for given in (system, dataclasses.replace(system, charges=np.linspace(-1, 1, N))):
        write_lammps_data(path, given)
        read = read_lammps_data(path)
        assert_same(read, given)
        assert (read.masses == given.masses).all()
        assert read.step == 40
        if given.charges is not None:
            assert (read.charges == given.charges[np.argsort(given.ids)]).all()
    assert [file.name for file in tmp_path.iterdir()] == ["a.data"]


def test_dumps_to_the_last_bit(system, tmp_path):
    later = dataclasses.replace(system, step=80, forces=system.velocities[::-1].copy())
    with DumpWriter(tmp_path / "a.dump") as dump:
        dump.write(system)
        dump.write(later)
    first, second = read_lammps_dump(tmp_path / "a.dump")
    assert_same(first, system)
    assert_same(second, later, ("positions", "velocities", "images", "types", "forces"))
    assert (first.step, second.step, first.periodic) == (40, 80, (True, True, False))


@pytest.mark.parametrize("columns", ["xs ys zs", "xu yu zu", "xsu ysu zsu"])
def test_dumps_in_the_other_forms_of_positions(columns, tmp_path):
    unwrapped = np.array([[1.0, 2.0, 3.0], [-0.5, 9.5, 4.25]])
    lower, edges = np.array([0.0, 1.0, 2.0]), np.array([4.0, 4.0, 4.0])
    scaled, goes_on = "s" in columns, "u" in columns
    given = unwrapped if goes_on else lower + (unwrapped - lower) % edges
    given = (given - lower) / edges if scaled else given
    rows = "\n".join(f"{2 - i} 1 C {x} {y} {z}" for i, (x, y, z) in enumerate(given))
    (tmp_path / "d").write_text(
        "ITEM: UNITS\nlj\nITEM: TIMESTEP\n7\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 4\n1 5\n2 6\n"
        f"ITEM: ATOMS id type element {columns}\n{rows}\n"
    )
    (frame,) = read_lammps_dump(tmp_path / "d")
    np.testing.assert_allclose(frame.positions, (lower + (unwrapped - lower) % edges)[::-1], rtol=1e-15)
    if goes_on:
        np.testing.assert_allclose(frame.unwrapped, unwrapped[::-1], rtol=1e-15)


HEADER = "title\n\n3 atoms\n1 atom types\n0 4 xlo xhi\n0 4 ylo yhi\n0 4 zlo zhi\n\n"
ATOMS = "Masses\n\n1 1.5\n\nAtoms # atomic\n\n1 1 0 0 0\n2 1 1 1 1\n3 1 2 2 2\n"
GOOD = HEADER + ATOMS


@pytest.mark.parametrize(
    ("change", "line", "expected", "found"),
    [
        (("3 atoms", "three atoms"), 3, "a whole number of atoms", "'three'"),
        (("3 atoms", "-3 atoms"), 3, "a whole number of atoms", "'-3'"),
        (("3 atoms", "99999999999999 atoms"), 18, "99999999999999 lines of atoms", "the end of the file after 3"),
        (("3 atoms", "4 atoms"), 18, "4 lines of atoms", "the end of the file after 3"),
        (("0 4 ylo yhi", "4 0 ylo yhi"), 6, "ylo below yhi", "4 0"),
        (("0 4 ylo yhi", "0 inf ylo yhi"), 6, "ylo below yhi", "0 inf"),
        (("0 4 ylo yhi", "0 b ylo yhi"), 6, "two numbers for ylo yhi", "0 b"),
        (("0 4 ylo yhi\n", ""), 7, "a header line `low high ylo yhi`", "none"),
        (("0 4 zlo zhi", "0 4 zlo zhi\n0 x 0 xy xz yz"), 8, "three numbers for xy xz yz", "0 x 0"),
        (("0 4 zlo zhi", "1 0 0 avec"), 7, "a box of xlo xhi", "one of general vectors"),
        (("1 atom types", "1 atom types\n2 bodies"), 5, "0 bodies", "2"),
        (("1 atom types", "1 atom types\n0 lines\n2 bodies"), 6, "0 bodies: hpckit has no particles", "2"),
        (("1 1.5", "2 1.5"), 11, "an atom type, a whole number, 1 to 1", "2"),
        (("1 1.5", "1 -1.5"), 11, "a mass above 0", "-1.5"),
        (("2 1 1 1 1", "2 1 1 x 1"), 16, "a number in atoms", "'x'"),
        (("2 1 1 1 1", "2 1 1 nan 1"), 16, "a finite number in atoms", "'nan'"),
        (("2 1 1 1 1", "2 1 1 1"), 16, "5 or 8 columns of atoms", "4: '2 1 1 1'"),
        (("2 1 1 1 1", "2 1 1 1 1 0 0 0"), 16, "5 columns of atoms (id, type, x, y, z) as before", "8"),
        (("2 1 1 1 1", "2 2 1 1 1"), 16, "an atom type, a whole number, 1 to 1", "2"),
        (("2 1 1 1 1", "2.5 1 1 1 1"), 16, "an atom id, a whole number, 1 or more", "2.5"),
        (("2 1 1 1 1", "1 1 1 1 1"), 16, "every atom id once", "1 as in line 15"),
        (("Atoms # atomic", "Atoms # ellipsoid"), 13, "an atom style", "'ellipsoid'"),
        (("3 1 2 2 2", "3 1 2 2 2\n\nBondBond Coeffs\n\n1 1 1"), 19, "coefficients of one style", "'BondBond Coeffs'"),
        (("3 1 2 2 2", "3 1 2 2 2\n\nVelocities\n\n1 0 0 0\n2 0 0 0\n7 0 0 0"), 23, "the id of an atom", "7"),
        (("Masses", "Massen"), 9, "a line of the header or the name of a section", "'Massen'"),
        (("3 1 2 2 2", "3 1 2 2 2\n\nMasses\n\n1 1"), 19, "every section once", "'Masses'"),
    ],
)  # fmt: skip
def test_a_broken_data_file_is_told_by_its_line(change, line, expected, found, tmp_path):
    path = tmp_path / "broken.data"
    path.write_text(GOOD.replace(*change))
    assert path.read_text() != GOOD
    with pytest.raises(InputError) as caught:
        read_lammps_data(path)
    assert expected in caught.value.message
    assert found in caught.value.message.partition(", found ")[2]
    assert caught.value.where == f"{path}, line {line}"


def test_data_files_of_other_styles(tmp_path):
    path = tmp_path / "full.data"
    path.write_text(
        HEADER
        + "Atoms  # full\n\n2 1 1 0.5 1 1 1\n1 1 1 -0.5 0 0 0 1 0 -1\n".replace("-0.5 0 0 0 1 0 -1", "-0.5 0 0 0")
        + "3 1 1 0 2 2 2\n"
    )
    read = read_lammps_data(path)
    assert list(read.charges) == [-0.5, 0.5, 0.0]
    path.write_text(
        HEADER + "Pair Coeffs # lj/cut\n\n1 1 1\n\nAtoms\n\n1 1 1 -0.5 0 0 0\n2 1 1 0 1 1 1\n3 1 1 0 2 2 2\n"
    )
    with pytest.raises(InputError, match="5 or 8 columns") as caught:
        read_lammps_data(path)
    assert "`Atoms # full`" in caught.value.do
    assert read_lammps_data(path, style="full").count == 3
    with pytest.raises(InputError, match="the atom style 'fool'"):
        read_lammps_data(path, style="fool")


LABELED = """of another program

3 atoms
2 atom types
0.0 4e0 xlo xhi
-1 +4 ylo yhi
0 4 zlo zhi
0 0 0 xy xz yz

Atom Type Labels

2 Kr   # the heavier one
1 Ar

Masses

Ar 39.95
Kr 83.8

Atoms # sphere

3 Kr 1.0 1.0 2 2 2
1 Ar 1.0 1.0 0 0 0
2 1  1.0 1.0 1 1 1

Velocities

1 0.1 0.2 0.3 9 9 9
2 0.4 0.5 0.6 9 9 9
3 0.7 0.8 0.9 9 9 9
"""


def test_types_may_have_labels_and_spheres_turn(tmp_path):
    path = tmp_path / "labeled.data"
    path.write_bytes(LABELED.replace("\n", "\r\n").encode())  # as Windows writes it
    read = read_lammps_data(path)
    assert list(read.types) == [0, 0, 1]
    assert list(read.masses) == [39.95, 83.8]
    assert read.velocities[:, 2].tolist() == [0.3, 0.6, 0.9]
    for wrong, found in (("2 Ar", "2 Ar"), ("3 Xe", "3 Xe"), ("Xe", "Xe")):
        path.write_text(LABELED.replace("1 Ar\n\n", f"{wrong}\n\n"))
        with pytest.raises(InputError, match=rf"labeled\.data: expected .*, found '{found}'") as caught:
            read_lammps_data(path)
        assert caught.value.where == f"{path}, line 13"
    path.write_text(LABELED.replace("3 Kr 1.0", "3 Xe 1.0"))
    with pytest.raises(InputError, match=r"expected a number in atoms .*, found 'Xe'") as caught:
        read_lammps_data(path)
    assert caught.value.where == f"{path}, line 22"


def test_every_prefix_of_a_data_file_is_refused_or_read(tmp_path):
    """Whatever is cut off: a message with a line, or a file that is whole by chance; never anything else."""
    path = tmp_path / "cut.data"
    for end in range(len(GOOD)):
        path.write_text(GOOD[:end])
        try:
            count, where = read_lammps_data(path).count, ""
        except InputError as error:
            count, where = 3, error.where
        assert count == 3
        assert where == "" or ", line " in where


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("\n2\nITEM: BOX", "\n1000000000000\nITEM: BOX"), 12, "expected 1000000000000 lines of atoms"),
        (("\n2\nITEM: BOX", "\n3\nITEM: BOX"), 12, "the end of the file after 2"),
        (("id type", "ID type"), 9, "a column id in ITEM: ATOMS, found ID type x y z"),
        (("x y z", "x y w"), 9, "columns x y z, xs ys zs"),
        (("pp pp pp", "xy xz yz pp pp pp"), 6, "box bounds (low, high, tilt)"),
        (("pp pp pp", "abc origin pp pp pp"), 5, "a box of general vectors"),
        (("0 4\n0 4\n0 4", "0 4\n4 4\n0 4"), 7, "low bounds below high ones"),
        (("ITEM: TIMESTEP\n5\n", ""), 7, "ITEM: TIMESTEP before ITEM: ATOMS"),
        (("2 1 1 1 1", "2 1 1 1 e"), 11, "a number in atoms"),
        (("ITEM: NUMBER", "ITEM: NUMBERS"), 3, "a line ITEM: TIMESTEP, NUMBER OF ATOMS"),
    ],
)
def test_a_broken_dump_is_told_by_its_line(change, line, said, tmp_path):
    good = (
        "ITEM: TIMESTEP\n5\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 4\n0 4\n0 4\n"
        "ITEM: ATOMS id type x y z\n1 1 0 0 0\n2 1 1 1 1\n"
    )
    path = tmp_path / "broken.dump"
    path.write_text(good.replace(*change))
    with pytest.raises(InputError) as caught:
        list(read_lammps_dump(path))
    assert said in caught.value.message
    assert caught.value.where == f"{path}, line {line}"


def test_what_is_no_text_or_not_there(tmp_path):
    path = tmp_path / "x"
    for read in (read_lammps_data, lambda path: list(read_lammps_dump(path)), lambda path: list(read_h5md(path))):
        with pytest.raises(InputError, match="read"):
            read(path)
    path.write_bytes(b"\xff\xfe" * 100)
    with pytest.raises(InputError, match="expected text"):
        read_lammps_data(path)
    path.write_text("a" * (1 << 21))
    with pytest.raises(InputError, match="lines of less than"):
        read_lammps_data(path)


def test_lammps_reads_ours_and_we_read_its(system, tmp_path):
    if no_lammps():
        pytest.skip(no_lammps())
    whole = dataclasses.replace(system, periodic=(True, True, True))
    write_lammps_data(tmp_path / "ours.data", whole)
    script = """
        units lj
        atom_style atomic
        read_data ours.data
        pair_style zero 1.0
        pair_coeff * *
        write_data theirs.data nocoeff
        dump d all custom 1 their.dump id type x y z ix iy iz vx vy vz
        dump_modify d format float %.17g
        dump u all custom 1 unwrapped.dump id type xu yu zu
        dump_modify u format float %.17g
        run 0
    """
    (tmp_path / "in.test").write_text(script)
    run = subprocess.run(
        [lmp(), "-in", "in.test", "-log", "none"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert_same(read_lammps_data(tmp_path / "theirs.data"), whole, ("types", "images"))
    np.testing.assert_allclose(
        read_lammps_data(tmp_path / "theirs.data").positions, whole.positions[np.argsort(whole.ids)], rtol=1e-14
    )
    (frame,) = read_lammps_dump(tmp_path / "their.dump")
    assert_same(frame, whole)
    (frame,) = read_lammps_dump(tmp_path / "unwrapped.dump")
    np.testing.assert_allclose(frame.unwrapped, whole.unwrapped[np.argsort(whole.ids)], rtol=1e-13)


def test_extended_xyz(system, tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    path = tmp_path / "a.xyz"
    write_extended_xyz(path, [system, dataclasses.replace(system, step=50)])
    first, second = read_extended_xyz(path)
    assert_same(first, system, exactly=False)
    assert (first.names, first.step, second.step, first.periodic) == (("Ar", "Kr"), 40, 50, (True, True, False))
    np.testing.assert_allclose(first.masses, system.masses)
    path.write_text('2\nLattice="1 0 0 0 1 0 1 0 0" Properties=species:S:1:pos:R:3\nAr 0 0 0\nAr 1 1 1\n')
    with pytest.raises(InputError, match="three edges a, b, c with a volume"):
        list(read_extended_xyz(path))
    # The primitive cell of fcc, of which ASE writes edges that point anywhere, is turned with its particles.
    lattice, places = 2.0 * np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), np.array([[0.0, 0, 0], [1, 0.5, 0.25]])
    rows = "\n".join(f"Ar {x} {y} {z}" for x, y, z in places)
    path.write_text(f'2\nLattice="{" ".join(map(str, lattice.ravel()))}" Properties=species:S:1:pos:R:3\n{rows}\n')
    (frame,) = read_extended_xyz(path)
    np.testing.assert_allclose(frame.positions @ frame.cell.inverse, places @ np.linalg.inv(lattice), atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(frame.positions[1]), np.linalg.norm(places[1]))
    assert frame.cell.volume == pytest.approx(16.0)


def test_tilted_boxes_in_every_format(system, tmp_path):
    tilted = dataclasses.replace(system, tilt=np.array([1.5, -0.75, 0.5]))
    write_lammps_data(tmp_path / "a.data", tilted)
    with DumpWriter(tmp_path / "a.dump") as dump:
        dump.write(tilted)
    with H5mdWriter(tmp_path / "a.h5md") as trajectory:
        trajectory.write(tilted)
        trajectory.write(dataclasses.replace(system, step=80, lower=system.lower - 0.25))
    with H5mdWriter(tmp_path / "b.h5md") as trajectory:
        trajectory.write(system)
        with pytest.raises(InputError, match="the box is tilted at step 40"):
            trajectory.write(tilted)
    assert "-1.75 5.5 1.5\n0 7.5 -0.75\n2 9.5 0.5\n" in (tmp_path / "a.dump").read_text()
    found = [read_lammps_data(tmp_path / "a.data"), *read_lammps_dump(tmp_path / "a.dump")]
    if importlib.util.find_spec("ase"):
        write_extended_xyz(tmp_path / "a.xyz", tilted)
        found += read_extended_xyz(tmp_path / "a.xyz")
    first, second = read_h5md(tmp_path / "a.h5md")
    for read in (*found, first):
        assert_same(read, tilted, exactly=False)
        assert read.tilt.tolist() == [1.5, -0.75, 0.5]
        np.testing.assert_allclose(read.unwrapped, tilted.unwrapped[np.argsort(tilted.ids)], rtol=1e-7)
    assert not second.cell.tilted
    assert second.lower.tolist() == [-1.25, -0.25, 1.75]  # a box that changes about its middle
    scaled = (tilted.positions - tilted.lower) @ tilted.cell.inverse
    wanted = {"xs ys zs": (scaled, tilted.positions), "xu yu zu": (tilted.unwrapped, tilted.unwrapped)}
    for columns, (places, expected) in wanted.items():
        text = (tmp_path / "a.dump").read_text().partition("ITEM: ATOMS")[0]
        rows = "\n".join(f"{k} 1 {x:.17g} {y:.17g} {z:.17g}" for k, (x, y, z) in enumerate(places, 1))
        (tmp_path / "b.dump").write_text(f"{text}ITEM: ATOMS id type {columns}\n{rows}\n")
        (read,) = read_lammps_dump(tmp_path / "b.dump")
        found_there = read.positions if places is scaled else read.unwrapped
        np.testing.assert_allclose(found_there, expected, atol=1e-13)
        assert (read.cell.straight(read.positions)[:, :2] < read.upper[:2] + 1e-12).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5\nnothing\nAr 0 0\n", "the file ends before the 5 particles"),
        ("99999999999\n\nAr 0 0 0\n", "the file ends before the 99999999999 particles"),  # ASE counts them
        ("abc\n\nAr 0 0 0\n", "expected a number of particles, found 'abc'"),
        (f"{'9' * 5000}\n\nAr 0 0 0\n", "expected a number of particles, found '9999"),
        ("1\n\nAr 0 0 0\n\n1\n\nAr 0 0 0\n", "expected a number of particles, found ''"),
        ("1\n\nQq 0 0 0\n", "frame 0 is not extended XYZ"),
        ("2\n\nAr 0 0 0\nAr 0 0\n", "frame 0 is not extended XYZ"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_no_extended_xyz(text, said, tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    path = tmp_path / "a.xyz"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=said) as caught:
        list(read_extended_xyz(path))
    assert "Error" not in caught.value.report()


UNITS = {"length": "Angstrom", "time": "ps", "velocity": "Angstrom ps-1", "mass": "g mol-1"}


def frames_of(system, count):
    order = np.argsort(system.ids)
    fields = {name: getattr(system, name)[order] for name in ("ids", "types", "positions", "images", "velocities")}
    first = dataclasses.replace(system, **fields)
    for number in range(count):
        yield dataclasses.replace(first, positions=first.positions + number, step=10 * number, time=0.5 * number)


def test_h5md_while_it_grows_and_when_it_is_done(system, tmp_path):
    path = tmp_path / "t.h5md"
    frames = list(frames_of(system, 5))
    writer = H5mdWriter(path, UNITS)
    writer.write(frames[0])
    (only,) = read_h5md(path)  # as after a kill
    assert_same(only, frames[0])
    for frame in frames[1:]:
        writer.write(frame)
    writer.close()
    for read, frame in zip(read_h5md(path), frames, strict=True):
        assert_same(read, frame)
        assert (read.step, read.time, read.names, read.periodic) == (
            frame.step,
            frame.time,
            frame.names,
            frame.periodic,
        )
        assert (read.masses == frame.masses).all()
    assert [file.name for file in tmp_path.iterdir()] == ["t.h5md"]
    with h5py.File(path) as file:
        assert list(file["h5md"].attrs["version"]) == [1, 1]
        assert file["particles/all/box"].attrs["dimension"] == 3
        assert file["particles/all/velocity/step"].id == file["particles/all/position/step"].id
        assert file["particles/all/position/value"].attrs["unit"] == "Angstrom"
        assert file["particles/all/position/time"].attrs["unit"] == "ps"


def test_a_killed_run_is_packed_and_goes_on(system, tmp_path, capsys):
    """Of five frames the table of the trajectory holds three when the run is killed."""
    path, frames = tmp_path / "run/t.h5md", list(frames_of(system, 6))
    path.parent.mkdir()
    writer = H5mdWriter(path)
    for frame in frames[:3]:
        writer.write(frame)
    writer.close(last=False)
    writer._listed = np.inf
    for frame in frames[3:5]:
        writer.write(frame)
    alone = Path(shutil.copy(path, tmp_path / "alone.h5md"))
    with pytest.raises(CorruptDataError, match="missing") as caught:
        next(read_h5md(alone))
    assert "hpckit pack" in caught.value.do
    assert main(["pack", str(path.parent)]) == 0
    assert "one file of" in capsys.readouterr().out
    shutil.copy(path, alone)
    for read, frame in zip(read_h5md(alone), frames[:3], strict=True):
        assert_same(read, frame)
    with H5mdWriter(path, resume=writer.kept()) as resumed:
        resumed.write(frames[5])
    assert [file.name for file in path.parent.iterdir()] == ["t.h5md"]
    for read, frame in zip(read_h5md(path), frames, strict=True):
        assert_same(read, frame)


def test_mdanalysis_opens_h5md(system, tmp_path):
    """As docs/molecular-dynamics.md says, in another folder than that of the run."""
    analysis = pytest.importorskip("MDAnalysis", reason="MDAnalysis is not installed")
    frames = list(frames_of(system, 3))
    with H5mdWriter(tmp_path / "t.h5md", UNITS) as writer:
        for frame in frames:
            writer.write(frame)
    write_lammps_data(tmp_path / "end.data", frames[-1])
    shutil.copytree(tmp_path, tmp_path / "elsewhere")
    places = [str(tmp_path / "elsewhere" / name) for name in ("end.data", "t.h5md")]
    universe = analysis.Universe(*places, atom_style="id type x y z", convert_units=False)
    np.testing.assert_array_equal(universe.atoms.types, [str(kind + 1) for kind in frames[0].types])
    assert universe.trajectory.n_frames == 3
    for read, frame in zip(universe.trajectory, frames, strict=True):
        np.testing.assert_allclose(read.positions, frame.positions, rtol=1e-6)
        np.testing.assert_allclose(read.velocities, frame.velocities, rtol=1e-6)
        np.testing.assert_allclose(read.dimensions[:3], frame.edges)
        assert read.time == frame.time


def test_h5md_refuses_other_particles_and_other_files(system, tmp_path):
    frames = list(frames_of(system, 2))
    with H5mdWriter(tmp_path / "t.h5md") as writer:
        writer.write(frames[0])
        with pytest.raises(InputError, match="other particles"):
            writer.write(dataclasses.replace(frames[1], ids=frames[1].ids + 1))
        with pytest.raises(InputError, match="no velocities"):
            writer.write(dataclasses.replace(frames[1], velocities=None))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(InputError, match="no group h5md"):
        list(read_h5md(tmp_path / "other.h5"))


def test_h5md_of_another_program(tmp_path):
    """Fixed box as a matrix, fixed interval of steps, particles without ids."""
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file.create_group("h5md").attrs["version"] = [1, 1]
        group = file.create_group("particles/solvent")
        group["position/value"] = np.arange(18.0).reshape(2, 3, 3)
        group["position/step"], group["position/time"] = 5, 0.25
        group["species"] = [7, 7, 9]
        box = group.create_group("box")
        box["edges"] = np.diag([20.0, 21.0, 22.0])
        box.attrs["dimension"], box.attrs["boundary"] = 3, ["periodic", "none", "periodic"]
    first, second = read_h5md(tmp_path / "o.h5")
    assert (second.step, second.time, second.periodic) == (5, 0.25, (True, False, True))
    assert list(first.types) == [0, 0, 1]
    assert list(second.edges) == [20.0, 21.0, 22.0]
    assert second.positions[0, 0] == 9.0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_said(system):
    dump = DumpWriter("/dev/full")
    with pytest.raises(SetupError, match="the disk is full"):
        dump.write(system)


def test_extended_xyz_is_read_where_mpi_is_imported_and_not_started(tmp_path):
    pytest.importorskip("ase")
    path = tmp_path / "a.xyz"
    path.write_text('1\nLattice="5 0 0 0 5 0 0 0 5" Properties=species:S:1:pos:R:3\nAr 1 2 3\n')
    program = (
        "import mpi4py, sys; mpi4py.rc.initialize = False; from mpi4py import MPI; "
        "from hpckit.io.particles.extended_xyz import read_extended_xyz; "
        "print(len(next(iter(read_extended_xyz(sys.argv[1]))).positions))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
