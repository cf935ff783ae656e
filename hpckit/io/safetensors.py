"""Named arrays in safetensors files: written whole, read by slices through a memory map.

A file is 8 bytes with the length of its header (little-endian), a JSON header that gives dtype, shape and place of each
tensor, and the tensors in C order (https://github.com/huggingface/safetensors, "Format"). Nothing in it is executed.
A checkpoint may be split over several files, with an index that says which holds what.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import CorruptDataError, InputError
from hpckit.io.files import replace_file, replacing
from hpckit.kernels.nn.narrow.dispatch import narrowed
from hpckit.plan.inputs.text import parse_json, read_bytes

NAMES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
BFLOAT16 = "BF16"  # no dtype of NumPy: read as the upper half of float32
WORDS = {np.dtype(text): name for name, text in NAMES.items()}
SHORT = {"bfloat16": BFLOAT16, "float16": "F16"}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_HEADER = 100 << 20
ALIGNED = 64  # bytes: where the tensors begin
SLAB = 64 << 20  # bytes of a tensor in memory at once, where it is streamed


class Safetensors(Mapping[str, np.ndarray]):
    """The tensors of a file, or of a folder with `model.safetensors` or its index: each read when it is asked for.

    bfloat16 comes as float32, which holds all of its values. `metadata` is the file's own table of texts.

    Raises `InputError` if it does not exist or is another kind of file, `CorruptDataError` if it is cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metadata: dict[str, str] = {}
        self._at: dict[str, tuple[Path, str, tuple[int, ...], int]] = {}
        self._maps: dict[Path, np.memmap] = {}
        for file in _files(self.path):
            self._add(file)

    def __getitem__(self, name: str) -> np.ndarray:
        """The tensor, as a view of the file where its dtype is one of NumPy's."""
        file, kind, shape, begin = self._at[name]
        dtype = np.dtype("<u2" if kind == BFLOAT16 else NAMES[kind])
        flat = self._map(file)[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype)
        if kind == BFLOAT16:
            flat = (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return np.asarray(flat).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return self._at[name][2]

    def kind(self, name: str) -> str:
        """The dtype of a tensor in the format's words, as F32 or BF16."""
        return self._at[name][1]

    def rows(self, name: str, numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Some rows of a table, float32; only they are read."""
        file, kind, shape, begin = self._at[name]
        if kind != BFLOAT16:
            return self[name][numbers].astype(np.float32)
        table = self._map(file)[begin : begin + 2 * math.prod(shape)].view("<u2").reshape(shape)
        return (table[numbers].astype(np.uint32) << np.uint32(16)).view(np.float32)

    def _map(self, file: Path) -> np.memmap:
        if file not in self._maps:
            self._maps[file] = np.memmap(file, np.uint8, "r")
        return self._maps[file]

    def _add(self, file: Path) -> None:
        header, first = _header(file)
        self.metadata.update(header.pop("__metadata__", {}))
        size = file.stat().st_size
        for name, entry in header.items():
            kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            if kind not in NAMES and kind != BFLOAT16:
                raise InputError(
                    f"{file}: the tensor {name} is {kind}", do=f"convert it to one of {', '.join([*NAMES, BFLOAT16])}"
                )
            wanted = math.prod(shape) * (2 if kind == BFLOAT16 else np.dtype(NAMES[kind]).itemsize)
            if end - begin != wanted or begin < 0 or first + end > size:
                raise CorruptDataError(
                    f"{file}: the tensor {name} should be the bytes {begin} to {end} of {size - first}",
                    likely="a download or a copy that was cut off",
                    do="fetch the file again",
                )
            self._at[name] = (file, kind, shape, first + begin)


def save_safetensors(
    path: str | Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None, storage: str = ""
) -> None:
    """Write the tensors to one file, which replaces one of that name when it is complete.

    storage: "bfloat16" or "float16" rounds float32 tensors to 16 bits.
    Raises `InputError` for a dtype that the format does not have.
    """
    parts, entries = [], {}
    for name, tensor in tensors.items():
        array = np.asarray(tensor, order="C")
        kind = WORDS.get(array.dtype.newbyteorder("<"))
        if storage and array.dtype == np.float32:
            kind, array = SHORT[storage], narrowed(array, storage)
        if kind is None:
            raise InputError(f"the tensor {name} is {array.dtype}, which safetensors does not have")
        entries[name] = kind, array.shape, array.nbytes
        parts.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    replace_file(Path(path), b"".join([_head(entries, metadata), *parts]))


def stream_safetensors(
    path: str | Path,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str, int, int], np.ndarray],
    precision: str,
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Write tensors of these shapes to one file, rows by rows; returns its bytes.

    read(name, first, count): so many rows of a tensor, its elements along the first dim. precision: float32, float64,
    "bfloat16" or "float16". Memory has `SLAB` bytes of rows at once, or one row. Raises `SetupError` if the
    file cannot be written.
    """
    dtype = np.dtype("<u2" if precision in SHORT else precision).newbyteorder("<")
    kind = SHORT.get(precision) or WORDS[dtype]
    entries = {name: (kind, shape, math.prod(shape) * dtype.itemsize) for name, shape in shapes.items()}
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        file.write(_head(entries, metadata))
        for name, shape in shapes.items():
            row = math.prod(shape[1:]) * dtype.itemsize
            step = max(1, SLAB // max(row, 1))
            for first in range(0, shape[0], step):
                rows = np.ascontiguousarray(read(name, first, min(step, shape[0] - first)))
                if precision in SHORT:
                    rows = narrowed(rows.astype(np.float32, copy=False), precision)
                file.write(rows.astype(dtype, copy=False).data)
        return file.tell()


def _head(entries: Mapping[str, tuple[str, tuple[int, ...], int]], metadata: Mapping[str, str] | None) -> bytes:
    """What stands before the tensors: of each its kind, its shape, and its bytes, in their order."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, (kind, shape, nbytes) in entries.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, begin + nbytes]}
        begin += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNED)
    return struct.pack("<Q", len(text)) + text


def _files(path: Path) -> list[Path]:
    """The files that hold the tensors."""
    if path.is_file():
        return [path]
    if (path / SINGLE).is_file():
        return [path / SINGLE]
    if not (path / INDEX).is_file():
        raise InputError(
            f"there is no checkpoint in {path}",
            likely="weights in another format" if path.is_dir() else "a mistyped path",
            do=f"give a .safetensors file, or a folder with {SINGLE} or {INDEX}",
        )
    try:
        held = parse_json(read_bytes(path / INDEX, "the index", LARGEST_HEADER))["weight_map"].values()
        files = [path / name for name in dict.fromkeys(held)]
    except (ValueError, KeyError, AttributeError, TypeError) as problem:
        raise CorruptDataError(f"{path / INDEX} is not a checkpoint index: {problem}") from None
    missing = [file.name for file in files if file.parent != path or not file.is_file()]
    if missing:
        raise InputError(f"{path / INDEX} names files that are not there: {', '.join(missing)}", do="fetch them too")
    return files


def _is_entry(entry: Any) -> bool:
    """Whether it describes a tensor: the types of dtype, shape and place."""
    numbers = [*entry["shape"], *entry["data_offsets"]] if {"dtype", "shape", "data_offsets"} <= set(entry) else [None]
    counts = all(type(number) is int and 0 <= number < 2**62 for number in numbers)
    return counts and type(entry["dtype"]) is str and len(entry["data_offsets"]) == 2


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """The table of a file, and where its tensors begin."""
    head = read_bytes(file, "the file", 8, whole=False)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else LARGEST_HEADER + 1
    text = read_bytes(file, "the file", 8 + length, whole=False)[8:] if length <= LARGEST_HEADER else b""
    try:
        header = parse_json(text)
        if isinstance(header.get("__metadata__", {}), dict) and all(
            _is_entry(entry) for name, entry in header.items() if name != "__metadata__"
        ):
            return header, 8 + length
    except (ValueError, AttributeError, TypeError):
        pass
    raise CorruptDataError(
        f"{file} is not a safetensors file, or its header is damaged", do="look at the file's size, and fetch it again"
    )
