"""Generations on disk: numbered folders, each with its manifest and the COMMIT that makes it count.

    ckpt/g000012/shard-00000.h5   what a rank owned
    ckpt/g000012/manifest.json    step, values, arrays, and of every shard size, places and hashes
    ckpt/g000012/COMMIT           length and hash of the manifest, then a hash of this line itself
    ckpt/LATEST                   the name of the newest, for people

Order: shards and their fsync, manifest, COMMIT, fsync of the folder and of its parent, LATEST. COMMIT and LATEST get
their names once they are complete: half a COMMIT, left by a killed run, would count as damage. A number is never used
twice: a manifest names its generation, so that files copied from an older one are rejected.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.errors import CorruptDataError, InputError
from hpckit.io import disk
from hpckit.io.checkpoint.hashes import hash_named

SCHEMA = 1  # of manifests that are written
READABLE = (1,)  # those of files up to two versions back
FORMAT = "hpckit checkpoint"
MANIFEST, COMMIT, LATEST = "manifest.json", "COMMIT", "LATEST"
REFUSED = "REFUSED"  # why a generation was passed over when a run was resumed
NUMBERED = re.compile(r"g\d{6,12}")  # the name of a generation
NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # a part of the name of an array
MOST_MANIFEST, MOST_COMMIT = 256 << 20, 4096  # bytes that are read
SHARD = re.compile(r"shard-\d{5,9}\.h5")
OWN = re.compile(rf"{SHARD.pattern}|{MANIFEST}|{COMMIT}|{REFUSED}|\.{COMMIT}\.\d+\.tmp")  # files of a generation
MOST = 2**62  # of any number in it
KINDS = {"step": int, "piece_bytes": int, "hash": str, "values": dict, "outputs": dict, "arrays": dict, "shards": list}


def folder(root: Path, generation: int) -> Path:
    """The folder of a generation."""
    return root / f"g{generation:06d}"


def generations(root: Path) -> list[int]:
    """The numbers of all generations, complete or not, rising."""
    if not root.is_dir():
        return []
    names = (entry.name for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())
    return sorted(int(name[1:]) for name in names if NUMBERED.fullmatch(name))


def next_number(root: Path) -> int:
    """A number that no name in the folder has, be it a dead attempt or a link to a generation moved elsewhere."""
    names = [entry.name for entry in root.iterdir()]
    return 1 + max((int(name[1:]) for name in names if NUMBERED.fullmatch(name)), default=0)


def committed(root: Path) -> list[int]:
    """The committed generations, rising, by the names of their files alone."""
    return [
        each for each in generations(root) if (folder(root, each) / COMMIT).is_file() and not is_refused(root, each)
    ]


def is_refused(root: Path, generation: int) -> bool:
    """Whether a run has restarted from an older generation since."""
    return (folder(root, generation) / REFUSED).is_file()


def commit_line(manifest: bytes, hash_name: str) -> bytes:
    """The content of COMMIT."""
    body = f"hpckit-commit 1 {hash_name} {len(manifest)} {hash_named(hash_name)(manifest)}"
    return f"{body} {hashlib.sha256(body.encode()).hexdigest()}\n".encode()


def publish(root: Path, manifest: dict[str, Any]) -> None:
    """Commit a generation whose shards are on disk. Raises `OSError`."""
    generation, place = manifest["generation"], folder(root, manifest["generation"])
    content = json.dumps(manifest).encode()
    disk.write_whole(place / MANIFEST, content, "manifest.write", "manifest.fsync")
    line = commit_line(content, manifest["hash"])
    disk.sync_names(place, "generation.fsync")  # the shards' names, before anything says that they are there
    _put(place / COMMIT, line, "commit", generation)
    disk.sync_names(place, "generation.fsync")
    disk.sync_names(root, "root.fsync")
    _put(root / LATEST, f"{place.name}\n".encode(), "latest", generation)
    disk.sync_names(root, "root.fsync")


def _put(path: Path, content: bytes, site: str, generation: int) -> None:
    """Write or replace a file atomically."""
    temporary = path.with_name(f".{path.name}.{generation}.tmp")
    temporary.unlink(missing_ok=True)
    disk.write_whole(temporary, content, f"{site}.write", f"{site}.fsync")
    disk.rename(temporary, path, f"{site}.rename")


def read_manifest(root: Path, generation: int) -> bytes:
    """The bytes of a manifest that belongs to its COMMIT and to this generation.

    Raises `CorruptDataError` if files are missing or do not match, `OSError` if they cannot be read.
    """
    place = folder(root, generation)
    try:
        line = disk.read_whole(place / COMMIT, MOST_COMMIT)
        content = disk.read_whole(place / MANIFEST, MOST_MANIFEST)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{Path(error.filename).name} is missing", where=str(place)) from None
    words = line.decode("latin-1").split(" ")
    if len(words) != 6 or words[:2] != ["hpckit-commit", "1"]:
        raise CorruptDataError("COMMIT is not one that this hpckit knows", where=str(place / COMMIT))
    body = " ".join(words[:5])
    if words[5] != f"{hashlib.sha256(body.encode('latin-1')).hexdigest()}\n":
        raise CorruptDataError("COMMIT has changed since it was written", where=str(place / COMMIT))
    if line != commit_line(content, words[2]):
        raise CorruptDataError("COMMIT and manifest do not belong together", where=str(place / MANIFEST))
    return content


def parse(content: bytes, generation: int) -> dict[str, Any]:
    """The manifest in these bytes, whose hash has been checked.

    Raises `InputError` for a newer schema, `CorruptDataError` for content that `hpckit` does not write.
    """
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"the manifest is not JSON of a checkpoint: {type(error).__name__}") from None
    if not isinstance(manifest, dict):
        raise CorruptDataError("the manifest is not one of a checkpoint: no object")
    if manifest.get("format") != FORMAT or manifest.get("schema") not in READABLE:
        raise InputError(
            f"the checkpoint has the format {manifest.get('format')!r} of version {manifest.get('schema')};"
            f" read here: {FORMAT!r} of versions {', '.join(map(str, READABLE))}",
            likely="a newer hpckit has written it",
            do="resume with that hpckit",
        )
    if manifest.get("generation") != generation:
        raise CorruptDataError(f"the manifest belongs to generation {manifest.get('generation')}, not {generation}")
    require_form(manifest)
    return manifest


def refuse(root: Path, generation: int, reason: str) -> None:
    """Mark a generation that a run passed over, so that no later one uses it."""
    place = folder(root, generation) / REFUSED
    if not place.exists():
        disk.write_whole(place, f"{reason}\n".encode(), "commit.write", "commit.fsync")


def prune(root: Path, keep: int, below: int | None = None) -> list[int]:
    """Remove all but the newest `keep` committed generations, and unfinished ones; only those before `below`.

    Their COMMIT goes first, so that a half-removed one is not committed. Returns the removed numbers.
    """
    there = generations(root)
    kept = set(committed(root)[-keep:])
    newest = max(kept, default=0)
    gone = [each for each in there if each not in kept and each < (newest if below is None else below)]
    for each in gone:
        place = folder(root, each)
        if (place / COMMIT).exists():
            disk.unlink(place / COMMIT, "prune.unlink")
            disk.sync_names(place, "generation.fsync")
        remove(root, each)
    return gone


def remove(root: Path, generation: int) -> None:
    """Remove an uncommitted generation; a folder with files that no generation has stays, with those files."""
    place = folder(root, generation)
    foreign = False
    for path in sorted(place.iterdir()):
        if OWN.fullmatch(path.name) and not path.is_dir():
            disk.unlink(path, "prune.unlink")
        else:
            foreign = True
    if not foreign:
        place.rmdir()


class Values(dict):
    """Values of a state; a missing one raises `CorruptDataError`."""

    def __missing__(self, key: str) -> Any:
        raise CorruptDataError(
            f"the checkpoint has no value {key!r}", likely="another version of the app has written it, or no app"
        )


def require_form(manifest: Any) -> None:
    """Raise `CorruptDataError` unless the manifest is such as `publish` writes: no files outside of its folder, no
    arrays of objects, no places outside of an array or a file, no arrays with missing pieces.
    """
    try:
        for key, kind in KINDS.items():
            _require(type(manifest[key]) is kind, f"{key} is not of type {kind.__name__}")
        _require(manifest["step"] >= 0 and 0 < manifest["piece_bytes"] < MOST, "negative numbers")
        missing = {name: _size(array) for name, array in manifest["arrays"].items()}
        for shard in manifest["shards"]:
            _require(SHARD.fullmatch(shard["file"]) is not None, f"it names the file {shard['file']!r}")
            _require(_is_count(shard["size"]) and type(shard["structure"]) is str, f"{shard['file']} has no size")
            for piece in shard["pieces"]:
                array = manifest["arrays"][piece["name"]]
                missing[piece["name"]] -= _elements(piece, array["shape"], f"a piece of {piece['name']}")
                nbytes = math.prod(piece["shape"]) * np.dtype(array["dtype"]).itemsize
                ends = _is_count(piece["offset"]) and piece["offset"] + nbytes <= shard["size"]
                _require(ends, f"{piece['name']} does not lie in {shard['file']}")
                hashes = piece["hashes"]
                whole = type(hashes) is list and len(hashes) == -(-nbytes // manifest["piece_bytes"])
                _require(whole and all(type(each) is str for each in hashes), f"{piece['name']} has not all its hashes")
        for name, count in missing.items():
            _require(count == 0, f"the pieces of {name} are not all of it")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"the manifest is not one of a checkpoint: {type(error).__name__}: {error}") from None


def _size(array: dict[str, Any]) -> int:
    """The elements of an array."""
    _require(type(array["dtype"]) is str and not np.dtype(array["dtype"]).hasobject, f"the dtype {array['dtype']!r}")
    return _elements({"start": [0] * len(array["shape"]), **array}, array["shape"], "an array")


def _elements(box: dict[str, Any], whole: list[int], what: str) -> int:
    """The elements of a box, which lies in an array of the shape `whole`."""
    start, shape = box["start"], box["shape"]
    counts = len(start) == len(shape) == len(whole) and all(map(_is_count, (*start, *shape)))
    _require(counts and all(a + n <= m for a, n, m in zip(start, shape, whole, strict=True)), f"{what} has no such box")
    return math.prod(shape)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _require(good: bool, problem: str) -> None:
    if not good:
        raise CorruptDataError(f"the manifest is not one of a checkpoint: {problem}")
