"""`hpckit analyze`: trajectories of other programs, from their files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpckit.cli.main import main
from hpckit.io.particles.h5md import H5mdWriter
from hpckit.io.particles.lammps_dump import DumpWriter
from hpckit.md.observables.measurements import Measured, Measurements
from hpckit.plan.particles.snapshot import Snapshot

COUNT, FRAMES, BOX, INTERVAL = 43, 12, np.array([6.0, 7.0, 5.0]), 0.25


@pytest.fixture(scope="module")
def walk():
    """Frames of particles that go far through the sides of the box, small steps at a time; with their images."""
    rng = np.random.default_rng(7)
    places = rng.uniform(0, 1, (COUNT, 3)) * BOX
    push, frames = rng.normal(0, 0.5, (COUNT, 3)), []
    for number in range(FRAMES):
        images = np.floor(places / BOX).astype(np.int32)
        box = np.zeros(3), BOX, (True,) * 3, np.arange(1, COUNT + 1), np.arange(COUNT) % 2
        inside = places - images * BOX
        frames.append(Snapshot(*box, inside, images - frames[0].images if frames else images, push, step=10 * number))
        places = places + push + rng.normal(0, 0.1, (COUNT, 3))
    assert max(np.abs(frame.images).max() for frame in frames) > 0
    return frames


@pytest.fixture
def dump(walk, tmp_path):
    """As LAMMPS writes it by itself: a name of any kind, no images, no times."""
    path = tmp_path / "dump.walk"
    for frame in walk:
        DumpWriter(tmp_path / "one.dump").write(frame)
        text = (tmp_path / "one.dump").read_text()
        names = text.split("ITEM: ATOMS ")[1].split("\n")[0].split()
        kept = [names.index(name) for name in ("id", "type", "x", "y", "z")]
        head, rows = text.split("ITEM: ATOMS ")[0], text.split("ITEM: ATOMS ")[1].split("\n")[1:-1]
        lines = [" ".join(row.split()[column] for column in kept) for row in rows]
        with path.open("a") as file:
            file.write(head + "\n".join(["ITEM: ATOMS id type x y z", *lines, ""]))
    return path


def found_in(capsys, *words):
    assert main(["analyze", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_dump_without_images_and_times_gives_the_same_as_the_frames(walk, dump, capsys):
    found = found_in(capsys, dump, "--interval", INTERVAL, "--lags", 8, "--spacing", 1, "--k-max", 4.0, "--reach", 2.4)
    what = Measured(reach=2.4, k_max=4.0, lags=8, spacing=1)
    frames = [
        Snapshot(**{**vars(frame), "time": INTERVAL * number, "velocities": None}) for number, frame in enumerate(walk)
    ]
    expected = Measurements.of(frames, what, types=2).result()
    for part, name in (("radial", "g"), ("structure", "s"), ("motion", "msd"), ("motion", "time")):
        np.testing.assert_allclose(found[part][name], expected[part][name], rtol=1e-9, atol=1e-12)
    assert found["motion"]["einstein"]["diffusion"] == pytest.approx(expected["motion"]["einstein"]["diffusion"])
    assert (found["frames"], found["particles"], found["types"], found["notes"]) == (FRAMES, COUNT, 2, [])
    assert "speeds" not in found


def test_frames_are_chosen_and_their_motion_needs_times(dump, capsys):
    found = found_in(capsys, dump, "--frames", "1:11:2", "--interval", INTERVAL)
    assert (found["frames"], found["steps"], found["motion"]["frames"]) == (5, [10, 90], 5)
    assert found["motion"]["time"][1] == 2 * INTERVAL
    found = found_in(capsys, dump)
    assert "motion" not in found
    assert "--interval" in found["notes"][0]


def test_velocities_masses_and_units_come_from_the_file_or_the_command(walk, tmp_path, capsys):
    path, page = tmp_path / "walk.h5", tmp_path / "walk.html"
    with H5mdWriter(path, {"length": "angstrom", "time": "fs"}) as writer:
        for number, frame in enumerate(walk):
            writer.write(Snapshot(**{**vars(frame), "time": INTERVAL * number}))
    words = ["analyze", str(path), "--masses", "1,3", "--units", "real", "--axis", "z", "--report", str(page)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    for said in ("12 frames of 43 particles", "angstrom\u00b2/fs, from the displacement", "speeds differ", str(page)):
        assert said in printed
    text = page.read_text()
    assert text.count("<svg") == 7
    assert "cm\u00b2/s" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reach", "9"], "up to half the box, 2.5"),
        (["--frames", "1:x"], "FIRST:STOP:STEP"),
        (["--masses", "1.0"], "particles of type 2"),
        (["--masses", "0,1"], "above 0"),
        (["--lags", "0"], "--lags is 0"),
        (["--bins", "9999999999"], "from 1 to 1000000"),
        (["--k-max", "inf"], "a number above 0"),
        (["--k-max", "1e9"], "wave vectors up to it"),
        (["--interval", "nan"], "a time above 0"),
        (["--interval", "-1"], "a time above 0"),
        (["--frames", "99:"], "no particles"),
    ],
)
def test_what_cannot_be_is_told(dump, capsys, words, said):
    assert main(["analyze", str(dump), *words]) == 2
    assert said in capsys.readouterr().err
