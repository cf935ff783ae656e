"""HDF5 files that are damaged or made to do harm: a child process reads them first, and says what is wrong."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hpckit.cli.verbs.compare.verb import compare
from hpckit.errors import CorruptDataError, InputError
from hpckit.io import open_fields, probe, probe_child
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.probe import problems, require_intact


def good(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["plain"] = np.arange(77.0).reshape(7, 11)
        options = {"chunks": (3, 5), "compression": 4, "shuffle": True, "fletcher32": True}
        file.create_dataset("packed", data=np.arange(143).reshape(13, 11), **options)
        file["group/words"] = ["one", "two"]
        file["group/one"] = 1.0
        file.attrs["about"] = "a file"
        file["group/top"] = file["/"]
        file["soft"] = h5py.SoftLink("/soft2")
        file["soft2"] = h5py.SoftLink("/soft")


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource("../elsewhere.h5", "a", (10,))
    file.create_virtual_dataset("a", layout)


def strange_filter(file: h5py.File) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, (1,))
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((8,)), plist)


HOSTILE: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "size": (lambda file: file.create_dataset("a", (10**7, 10**5), "f8", chunks=(1, 1000)), "declares 8000000000000 b"),
    "chunk": (lambda file: file.create_dataset("a", (9, 2**26), "f8", chunks=(1, 2**26), compression=9), "declares"),
    "external link": (lambda file: file.__setitem__("a", h5py.ExternalLink("/etc/passwd", "/x")), "link to another"),
    "external values": (lambda file: file.create_dataset("a", (9,), "u1", external=[("/etc/passwd", 0, 9)]), "lies in"),
    "virtual": (virtual, "outside of its folder"),
    "filter": (strange_filter, "needs the filter 32099"),
    "tiny chunks": (lambda file: file.create_dataset("a", (6000, 6000), "u1", chunks=(1, 1)), "takes more than 1 s"),
}


def change_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *changes: tuple[str, str]) -> None:
    """Have files read by a changed copy of the child's module."""
    text = Path(probe_child.__file__).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "child.py").write_text(text)
    run = probe.subprocess.run

    def other(words: list[str], **rest: Any) -> Any:
        return run([words[0], str(tmp_path / "child.py"), *words[4:]], **rest)

    monkeypatch.setattr(probe.subprocess, "run", other)


ONE_SECOND = ("SECONDS, BYTES_A_SECOND = 4", "SECONDS, BYTES_A_SECOND = 1")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A child that takes a second at most."""
    change_child(monkeypatch, tmp_path, ONE_SECOND)


def test_a_file_is_not_bad_because_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    change_child(
        monkeypatch, tmp_path, ONE_SECOND, ("    done = 0\n", "    done = __import__('time').sleep(1.5) or 0\n")
    )
    good(tmp_path / "good.h5")
    assert problems([tmp_path / "good.h5"]) == [""]


def test_files_made_to_do_harm_are_refused(short: None, tmp_path: Path) -> None:
    good(tmp_path / "good.h5")
    require_intact([tmp_path / "good.h5"])
    for number, (make, _) in enumerate(HOSTILE.values()):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            make(file)
    told = problems([tmp_path / f"{number}.h5" for number in range(len(HOSTILE))])
    for name, problem, (_, wanted) in zip(HOSTILE, told, HOSTILE.values(), strict=True):
        assert wanted in problem, name


def test_fuzzed_files_never_harm_this_process(tmp_path: Path) -> None:
    random.seed(7)
    good(tmp_path / "good.h5")
    whole = (tmp_path / "good.h5").read_bytes()
    files = []
    for number in range(70):
        data = bytearray(whole)
        if number % 5 == 4:
            data = data[: random.randrange(9, len(data))]
        for _ in range(random.choice((1, 1, 4, 40))):
            data[random.randrange(8, min(len(data), 4000))] ^= 1 << random.randrange(8)
        if number % 7 == 6:  # a word of the structure becomes a huge or a negative length
            place = random.randrange(8, min(len(data), 4000) - 8)
            data[place : place + 8] = random.choice((b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x00" * 8))
        files.append(tmp_path / f"{number}.h5")
        files[-1].write_bytes(data)
    told = problems(files)
    assert len(told) == 70
    assert sum(bool(problem) for problem in told) > 35, "most of the changes are seen by HDF5"
    # What was read to its end in the child is read here as well.
    for path, problem in zip(files, told, strict=True):
        if not problem:
            probe_child.read(str(path))


def test_readers_of_foreign_files_ask_the_child(tmp_path: Path) -> None:
    for name in ("a", "b"):
        output = tmp_path / name / "output"
        output.mkdir(parents=True)
        (tmp_path / name / "resolved.json").write_text("{}")
        good(output / "fields.h5")
    assert compare(tmp_path / "a", tmp_path / "b")["only"] == []
    with h5py.File(tmp_path / "b/output/fields.h5", "a") as file:
        file["other"] = h5py.ExternalLink("/etc/passwd", "/x")
    fields = tmp_path / "b/output/fields.h5"
    with pytest.raises(CorruptDataError, match=r"fields.h5 is not read: /other is a link to another file"):
        compare(tmp_path / "a", tmp_path / "b")
    shutil.copy(fields, tmp_path / "trajectory.h5")
    with pytest.raises(CorruptDataError, match=r"trajectory.h5 is not read"):
        next(read_h5md(tmp_path / "trajectory.h5"))
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(InputError, match=r"first bytes differ"):
        next(read_h5md(tmp_path / "text.h5"))
    pytest.importorskip("h5netcdf")
    with pytest.raises(CorruptDataError, match=r"is not read"):
        open_fields(fields)
