"""What a manifest must look like: its hash says that nothing has changed since it was written, not who wrote it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from hpckit.errors import CorruptDataError

SHARD = re.compile(r"shard-\d{5,9}\.h5")
MOST = 2**62  # of any number in it
KINDS = {"step": int, "piece_bytes": int, "hash": str, "values": dict, "outputs": dict, "arrays": dict, "shards": list}


class Values(dict):
    """Values of a state, of which one that is not there is corrupt data."""

    def __missing__(self, key: str) -> Any:
        raise CorruptDataError(
            f"the checkpoint has no value {key!r}", likely="another version of the app has written it, or no app"
        )


def require_form(manifest: Any) -> None:
    """Raise `CorruptDataError` where a manifest is not one that `publish` writes: files outside of its folder, arrays
    of objects, places outside of an array or a file, arrays that the pieces do not make whole.
    """
    try:
        for key, kind in KINDS.items():
            _require(type(manifest[key]) is kind, f"{key} is no {kind.__name__}")
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
