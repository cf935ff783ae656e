"""Checkpoint generations: written whole or not at all, read by plain h5py, every changed byte found."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from hpckit.errors import CorruptDataError, HpckitError, InputError, SetupError
from hpckit.io import failpoints
from hpckit.io.checkpoint import manifest as mf
from hpckit.io.checkpoint import stream
from hpckit.io.checkpoint import writer as writer_module
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.hashes import PIECE, hash_named
from hpckit.io.checkpoint.reader import open_generation
from hpckit.io.checkpoint.shard import write_shard
from hpckit.io.checkpoint.state import Piece, State
from hpckit.io.checkpoint.writer import Writer
from hpckit.io.checkpoint.writer import _checked as checked


def values(step: int) -> np.ndarray:
    return np.arange(77.0).reshape(7, 11) + 1000 * step


def state_of(step: int) -> State:
    padded = np.full((9, 13), np.nan)
    padded[1:-1, 1:-1] = values(step)
    return State([Piece("u", (7, 11), (0, 0), padded[1:-1, 1:-1])], {"step": step})


def saved(root: Path, steps: int, keep: int = 9) -> Writer:
    """Generations 1 to `steps`, each of the step of its number."""
    writer = Writer(MPI.COMM_SELF, root, keep)
    for step in range(1, steps + 1):
        writer.save(step, state_of(step))
    writer.close()
    return writer


def loaded(root: Path) -> tuple[int, list[str]]:
    """The step of the generation that is chosen, whose values are right, and the notes on others."""
    generation, notes = choose(MPI.COMM_SELF, root)
    assert generation is not None
    assert np.array_equal(generation.read("u", (0, 0), (7, 11)), values(generation.step))
    return generation.step, notes


def test_any_number_of_ranks_reads_what_any_number_wrote(mpirun, tmp_path: Path) -> None:
    mpirun(4, "checkpoints.py", tmp_path)


def test_plain_h5py_reads_a_shard(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "rows": rng.random((293, 1093))[3:-4, 5:-6],  # gaps, more than a slab
        "opt/m": rng.random((2, 41, 53, 61)).astype("f4")[:, 1:, 2:, 3:],
        "big": np.arange(3 * PIECE // 8 // 2 + 5.0),  # more than a piece, not on a page
        "planes": rng.random((2, 1300, 1301))[:, :, 1:],
        "none": np.zeros((0, 3)),
        "one": np.array(3.25),
        "words": rng.integers(0, 255, 7).astype(np.uint8),
    }
    pieces = [Piece(name, a.shape, (0,) * a.ndim, a) for name, a in arrays.items()]
    pieces.append(Piece("words", (14,), (7,), arrays["words"]))
    path = tmp_path / "shard-00000.h5"
    entry = write_shard(path, pieces, {"step": 3})
    with h5py.File(path) as file:
        assert file.attrs["step"] == 3
        for name, array in arrays.items():
            assert np.array_equal(file[name][()], array), name
            assert file[name].dtype == array.dtype, name
        assert np.array_equal(file["words~1"], arrays["words"])
        assert file["words~1"].attrs["start"].tolist() == [7]
        assert file["opt/m"].attrs["global_shape"].tolist() == list(arrays["opt/m"].shape)
    hashed = hash_named("blake3" if "blake3" in sys.modules else "sha256")
    data = arrays["big"].tobytes()
    big = next(piece for piece in entry["pieces"] if piece["name"] == "big")
    assert big["hashes"] == [hashed(data[:PIECE]), hashed(data[PIECE:])]
    assert entry["size"] == path.stat().st_size


def test_slabs_are_the_array_in_order() -> None:
    whole = np.arange(5 * 7 * 300_000, dtype=np.int32).reshape(5, 7, 300_000)
    for block in (whole, whole[1:, 2:5, 7:-9], whole.T[::3], np.float64(3.0).reshape(()), whole[:0]):
        parts = list(stream.slabs(block))
        assert max(part.nbytes for part in parts) <= 2 * stream.SLAB
        assert np.array_equal(np.concatenate([part.reshape(-1) for part in parts]), block.reshape(-1))


def test_unfinished_generations_do_not_count_and_their_numbers_are_not_used_again(tmp_path: Path) -> None:
    saved(tmp_path, 2)
    (tmp_path / "g000003").mkdir()
    (tmp_path / "g000003" / "shard-00000.h5").write_bytes(b"half")
    assert loaded(tmp_path) == (2, ["g000003: was not finished"])
    writer = Writer(MPI.COMM_SELF, tmp_path, keep=2)
    assert writer.save(4, state_of(4)) == 4
    writer.close()
    assert mf.generations(tmp_path) == [2, 4]  # old and dead ones are gone
    assert (tmp_path / "LATEST").read_text() == "g000004\n"


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    """Bit flips and cuts in each file: the generation before is taken, with a note; never wrong values."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    saved(whole, 2)
    rng = np.random.default_rng(5)
    newest = whole / "g000002"
    names = sorted(path.name for path in newest.iterdir())
    assert names == ["COMMIT", "manifest.json", "shard-00000.h5"]
    for number in range(60):
        name, kind = names[number % 3], ("flip", "cut", "grow")[number // 3 % 3]
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(whole, broken)
        path = broken / "g000002" / name
        data = bytearray(path.read_bytes())
        if kind == "flip":
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data[: rng.integers(len(data))] if kind == "cut" else bytes(data) + b"\n" * (kind == "grow"))
        step, notes = loaded(broken)
        assert (step, [note[:9] for note in notes]) == (1, ["g000002: "]), (name, kind)
        assert loaded(broken) == (1, [])  # marked: a later attempt does not go back to it


def test_files_of_another_generation_or_rank_are_not_believed(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    for name in ("manifest.json", "COMMIT"):
        shutil.copy(tmp_path / "g000001" / name, tmp_path / "g000003" / name)
    shutil.copy(tmp_path / "g000001/shard-00000.h5", tmp_path / "g000002/shard-00000.h5")
    step, notes = loaded(tmp_path)
    assert step == 1
    assert "belongs to generation 1" in notes[0]
    assert "changed" in notes[1]


def test_all_damaged_is_an_error_and_none_is_not(tmp_path: Path) -> None:
    assert choose(MPI.COMM_SELF, tmp_path / "nothing") == (None, [])
    saved(tmp_path, 2)
    for number in (1, 2):
        (tmp_path / f"g00000{number}/shard-00000.h5").unlink()
    with pytest.raises(CorruptDataError, match=r"no generation is whole.*g000002.*g000001"):
        choose(MPI.COMM_SELF, tmp_path)


def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    content = json.loads((tmp_path / "g000001/manifest.json").read_text())
    content["schema"] = 99
    data = json.dumps(content).encode()
    (tmp_path / "g000001/manifest.json").write_bytes(data)
    (tmp_path / "g000001/COMMIT").write_bytes(mf.commit_line(data, content["hash"]))
    with pytest.raises(InputError, match="version 99"):
        open_generation(tmp_path, 1)


def test_a_manifest_of_somebody_who_makes_hashes_too_is_not_believed(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    place = tmp_path / "g000001"
    good = (place / "manifest.json").read_bytes()

    def told(change) -> str:
        content = json.loads(good)
        data = change(content)
        data = data if isinstance(data, bytes) else json.dumps(content).encode()
        (place / "manifest.json").write_bytes(data)
        (place / "COMMIT").write_bytes(mf.commit_line(data, content["hash"]))
        with pytest.raises(CorruptDataError) as caught:
            open_generation(tmp_path, 1).values["no such value"]
        return caught.value.message

    array, shard, piece = ("arrays", "u"), ("shards", 0), ("shards", 0, "pieces", 0)
    for path, value, words in (
        ((*shard, "file"), "../../../x.h5", "it names the file '../../../x.h5'"),
        ((*shard, "file"), "/etc/passwd", "it names the file"),
        ((*shard, "size"), -1, "has no size"),
        ((*piece, "offset"), 10**9, "does not lie in shard-00000.h5"),
        ((*piece, "start"), [-1, 0], "has no such box"),
        ((*piece, "start"), [1, 0], "has no such box"),
        ((*piece, "shape"), [2**40, 2**40], "has no such box"),
        ((*piece, "hashes"), [], "has not all its hashes"),
        ((*array, "shape"), [70, 11], "are not all of it"),
        ((*array, "shape"), "7x11", "an array has no such box"),
        ((*array, "dtype"), "O", "the dtype 'O'"),
        (("step",), -3, "negative numbers"),
        (("step",), "3", "step is not of type int"),
        (("shards",), [7], "TypeError"),
        (("values",), {}, "the checkpoint has no value 'no such value'"),
    ):

        def change(content: Any, path=path, value=value) -> None:
            for key in path[:-1]:
                content = content[key]
            content[path[-1]] = value

        assert words in told(change), (path, value)
    assert "RecursionError" in told(lambda content: b"[" * 10**5 + b"]" * 10**5)
    assert "no object" in told(lambda content: b"[1]")


def test_links_are_not_followed(tmp_path: Path) -> None:
    saved(tmp_path, 2)
    shard = tmp_path / "g000002/shard-00000.h5"
    shard.rename(tmp_path / "elsewhere.h5")
    shard.symlink_to(tmp_path / "elsewhere.h5")
    assert loaded(tmp_path)[0] == 1
    (tmp_path / "g000002").rename(tmp_path / "archived")
    (tmp_path / "g000002").symlink_to(tmp_path / "archived")
    writer = Writer(MPI.COMM_SELF, tmp_path)
    assert writer.save(3, state_of(3)) == 3, "its number is not used again"
    writer.close()


@pytest.mark.parametrize("action", ["ENOSPC", "EIO", "short", "EINTR"])
@pytest.mark.parametrize("site", [site for site in failpoints.SITES if not site.startswith("prune")])
def test_a_write_that_fails_leaves_the_generation_before(site: str, action: str, tmp_path: Path) -> None:
    saved(tmp_path, 1)
    writer = Writer(MPI.COMM_SELF, tmp_path)
    fails = action in ("ENOSPC", "EIO")
    failpoints.install(failpoints.breaking(f"{site}:{action}"))
    try:
        with pytest.raises(SetupError) if fails else contextlib.nullcontext() as told:
            writer.save(2, state_of(2))
    finally:
        failpoints.install(None)
    if fails:
        assert ("a checkpoint takes" in told.value.message) == (action == "ENOSPC"), told.value.message
        assert ("free" in told.value.do) == (action == "ENOSPC")
    assert loaded(tmp_path)[0] == (1 if fails else 2)
    writer.save(3, state_of(3))
    writer.close()
    assert loaded(tmp_path)[0] == 3


@pytest.mark.parametrize(("pieces", "count"), [(1, 77), (7, 20_000), (40, 3), (1, 3_000_000)])
def test_a_checkpoint_asks_for_the_room_that_it_takes(pieces: int, count: int, tmp_path: Path, monkeypatch) -> None:
    state = State([Piece(f"name-of-{n}/u", (count,), (0,), np.ones(count)) for n in range(pieces)], {"step": 1})
    writer, need = Writer(MPI.COMM_SELF, tmp_path), checked(state)
    monkeypatch.setattr(writer_module, "_free", lambda root: need - 1)
    with pytest.raises(SetupError, match="a checkpoint takes"):
        writer.save(1, state)
    monkeypatch.setattr(writer_module, "_free", lambda root: need)
    writer.save(1, state)
    taken = sum(512 * path.stat().st_blocks for path in tmp_path.rglob("*"))
    assert taken <= need <= taken + (48 << 10) + pieces * (8 << 10)


def test_a_file_size_limit_is_told(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    code = f"""
import resource, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_checkpoint import Writer, MPI, Path, state_of
from hpckit.errors import SetupError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Writer(MPI.COMM_SELF, Path({str(tmp_path)!r})).save(2, state_of(2))
except SetupError as error:
    assert "size limit" in error.message and "a checkpoint takes 40.6 KiB" in error.message, error.message
    assert error.do.startswith("raise the limit (ulimit -f)"), error.do
else:
    raise SystemExit(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
    assert loaded(tmp_path)[0] == 1
    assert mf.generations(tmp_path) == [1]


@pytest.mark.parametrize(
    "site", ["shard.write", "manifest.write", "commit.fsync", "commit.rename", "root.fsync", "prune.unlink"]
)
def test_killed_at_a_point_the_generation_is_whole_or_not_there(site: str, tmp_path: Path) -> None:
    saved(tmp_path, 2)
    process = os.fork()
    if process == 0:
        try:
            failpoints.install(failpoints.breaking(f"{site}:kill"))
            mf.folder(tmp_path, 3).mkdir()
            entry: dict[str, Any] = write_shard(mf.folder(tmp_path, 3) / "shard-00000.h5", state_of(3).pieces, {})
            old = json.loads((tmp_path / "g000002/manifest.json").read_bytes())
            mf.publish(tmp_path, {**old, "generation": 3, "step": 3, "shards": [entry]})
            mf.prune(tmp_path, 1)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert loaded(tmp_path)[0] == (3 if site in ("root.fsync", "prune.unlink") else 2)


@pytest.mark.parametrize(
    "point", ["commit.write:kill:1", "commit.write:kill:2", "commit.fsync:kill", "commit.rename:kill"]
)
def test_killed_in_its_first_checkpoint_a_run_starts_again(point: str, tmp_path: Path) -> None:
    process = os.fork()
    if process == 0:
        try:
            failpoints.install(failpoints.breaking(point))
            saved(tmp_path, 1)
        finally:
            os._exit(0)  # in no case a second run of the tests
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    generation, notes = choose(MPI.COMM_SELF, tmp_path)
    assert generation is None
    assert notes == ["g000001: was not finished"]


def test_names_of_arrays_stay_within_the_file(tmp_path: Path) -> None:
    writer = Writer(MPI.COMM_SELF, tmp_path)
    for name in ("", "a b", "a//b", "/a"):
        with pytest.raises(InputError, match="not a valid array name"):
            writer.save(1, State([Piece(name, (1,), (0,), np.zeros(1))]))
    with pytest.raises(InputError, match="which is not in"):
        Piece("u", (3,), (2,), np.zeros(2))
    with pytest.raises(HpckitError, match="no failpoint"):
        failpoints.breaking("shard.write:sing")


def test_files_of_others_in_a_generation_stay(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    own = {path.name for path in (tmp_path / "g000003").iterdir()}
    (tmp_path / "g000001/thesis.tex").write_text("mine")
    (tmp_path / "g000002/folder").mkdir()
    assert mf.prune(tmp_path, 1) == [1, 2]
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("g*/*")}
    assert left == {"g000001/thesis.tex", "g000002/folder", *(f"g000003/{name}" for name in own)}


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    assert mf.prune(tmp_path, 2) == [1, 2, 3]
    assert mf.generations(tmp_path) == [4, 5]
    assert loaded(tmp_path)[0] == 5


def test_a_program_of_a_users_own_goes_on_on_other_ranks(mpirun, tmp_path):
    assert mpirun(3, "own_checkpoints.py", tmp_path / "saved", 8).stdout.split() == ["0", "8", "False"]
    begin, end, stopped = mpirun(2, "own_checkpoints.py", tmp_path / "saved", 10**9).stdout.split()
    assert begin == "5"
    assert int(end) >= 17
    assert stopped == "True"
    done = mpirun(1, "own_checkpoints.py", tmp_path / "saved", int(end) + 1)
    assert done.stdout.split()[0] == end
    assert "not used" not in done.stderr
    newest = mf.committed(tmp_path / "saved")[-1]
    shard = max(mf.folder(tmp_path / "saved", newest).glob("shard-*.h5"), key=lambda path: path.stat().st_size)
    shard.write_bytes(bytes(shard.stat().st_size))
    done = mpirun(2, "own_checkpoints.py", tmp_path / "saved", int(end) + 2)
    assert done.stderr.count(f"not used: g{newest:06d}: ") == 1
