"""What two outputs differ in, value by value: HDF5 files, tensors of a model, particles of a data file.

Frames are matched by their times: of a run that stopped early those are compared that it has.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpckit.errors import HpckitError, InputError
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.io.probe import hdf5_files, is_hdf5, require_intact
from hpckit.io.safetensors import Safetensors

ROUNDING_ULP = 16  # up to so many units in the last place two fields are called equal but for rounding
SAME_TIME = 1e-9  # of the larger time: frames closer than this are at one time
SLAB_VALUES = 1 << 21  # compared at once


@dataclass(frozen=True)
class OutputArray:
    """An array somewhere in an output. `rows(start, stop)` reads a part of its first dim, all of it where it has none.

    times: of its frames, where the first dim is one of frames.
    """

    shape: tuple[int, ...]
    rows: Callable[[int, int], np.ndarray]
    times: np.ndarray | None = None


def field_differences(a: Path, b: Path) -> list[dict[str, Any]]:
    """The `differences` of two runs or HDF5 files."""
    with contextlib.ExitStack() as files:
        ours, theirs = (outputs(path, files) for path in (a, b))
        return differences(ours, theirs)


def differences(ours: dict[str, OutputArray], theirs: dict[str, OutputArray]) -> list[dict[str, Any]]:
    """For each array that both have: how many frames could be compared, values that differ in their bits, largest
    distance in units in the last place (ulp), largest and root-mean-square difference, that relative to the first's own
    deviation.
    """
    return [{"field": name, **_difference(ours[name], theirs[name])} for name in ours if name in theirs]


def outputs(path: Path, files: contextlib.ExitStack) -> dict[str, OutputArray]:
    """Name -> array of everything in `output/` of a run, or in one HDF5 file, by name; `files` closes what is open.

    Raises `CorruptDataError` for a file that cannot be read.
    """
    found: dict[str, OutputArray] = {}
    if not path.is_dir():
        require_intact([path])
        found = dict(_datasets(files.enter_context(h5py.File(path))))
        return dict(sorted(found.items()))
    folder = path / "output"
    hdf5 = [file for file in hdf5_files(folder) if not file.is_symlink()]
    require_intact(hdf5)
    for file in hdf5:
        for name, values in sorted(_datasets(files.enter_context(h5py.File(file)))):
            found[f"{file.name}:{name}"] = values
    for file in sorted(folder.rglob("*.safetensors")):
        found |= {f"{file.name}:{name}": values for name, values in _tensors(file)}
    for file in sorted(folder.glob("*.data")):
        with contextlib.suppress(HpckitError):  # not one of LAMMPS
            found |= {f"{file.name}:{name}": values for name, values in _particles(file)}
    return found


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many floating-point numbers lie between `a` and `b` (float32 or float64, one shape); 0 for +0 and -0.

    As float64, exact up to 2**53; inf where just one of them is not a number.
    """
    kind: Any = np.int32 if a.dtype.itemsize == 4 else np.int64
    lowest = np.iinfo(kind).min

    def ordered(values: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(values).view(kind)
        return np.where(bits < 0, lowest - bits, bits)

    first, second = ordered(a), ordered(b)
    high, low = np.maximum(first, second), np.minimum(first, second)
    # The difference of two int64 may need 65 bits.
    distance = np.where((high >= 0) == (low >= 0), high - low, 0).astype(np.float64)
    apart = (high >= 0) != (low >= 0)
    distance[apart] = high[apart].astype(np.float64) - low[apart].astype(np.float64)
    lost = np.isnan(a) | np.isnan(b)
    return np.where(lost, np.where(np.isnan(a) & np.isnan(b), 0.0, math.inf), distance)


def same_times(a: np.ndarray, b: np.ndarray) -> list[tuple[int, int]]:
    """Places in `a` and `b`, both rising, that hold the same time: the pairs of frames to compare."""
    pairs, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if abs(a[i] - b[j]) <= SAME_TIME * max(abs(a[i]), abs(b[j])):
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif a[i] < b[j]:
            i += 1
        else:
            j += 1
    return pairs


def _difference(a: OutputArray, b: OutputArray) -> dict[str, Any]:
    """Compare two arrays, frame by frame where they have frames, else a slab of the first dim at a time."""
    framed = a.times is not None and b.times is not None and a.shape[1:] == b.shape[1:]
    if not framed and a.shape != b.shape:
        return {
            "verdict": f"shape {list(a.shape)} and {list(b.shape)}",
            "bits": max(map(math.prod, (a.shape, b.shape))),
        }
    total = _Sums()
    if framed:
        assert a.times is not None
        assert b.times is not None
        pairs = same_times(a.times, b.times)
        for i, j in pairs:
            total.add(a.rows(i, i + 1), b.rows(j, j + 1))
        frames = {"frames": len(pairs), "frames_a": len(a.times), "frames_b": len(b.times)}
        if not pairs:
            return {"verdict": "no frame at the same time", "bits": 0, **frames}
        return {**total.told(), **frames}
    length = a.shape[0] if a.shape else 1
    step = max(1, SLAB_VALUES // max(1, math.prod(a.shape[1:])))
    for start in range(0, length, step):
        total.add(a.rows(start, min(start + step, length)), b.rows(start, min(start + step, length)))
    return total.told()


class _Sums:
    """What is known of the difference of two arrays, from one pair of slabs after the other."""

    def __init__(self) -> None:
        self.count, self.bits, self.ulp, self.largest, self.squares = 0, 0, 0.0, 0.0, 0.0
        self.origin: float | None = None  # sums of A are taken from here: its mean may be far larger than its deviation
        self.own, self.own_squares = 0.0, 0.0

    def add(self, one: np.ndarray, two: np.ndarray) -> None:
        """Add a slab of A and the same of B."""
        kind = np.result_type(one, two)
        if kind.kind == "f":
            kind = np.dtype(np.float32 if kind.itemsize <= 4 else np.float64)
            distance = ulp_distance(one.astype(kind), two.astype(kind))
            self.ulp = max(self.ulp, float(distance.max(initial=0.0)))
        self.bits += int((one.astype(kind) != two.astype(kind)).sum() - (np.isnan(one) & np.isnan(two)).sum())
        first, second = one.astype(np.float64), two.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.abs(first - second)
        self.largest = max(self.largest, float(np.nanmax(gap, initial=0.0)))
        with np.errstate(over="ignore"):
            self.squares += float(np.nansum(gap**2))
        finite = first[np.isfinite(first)]
        if self.origin is None and finite.size:
            self.origin = float(finite[0])
        self.own += float((finite - (self.origin or 0.0)).sum())
        self.own_squares += float(((finite - (self.origin or 0.0)) ** 2).sum())
        self.count += one.size

    def told(self) -> dict[str, Any]:
        """The verdict and its numbers."""
        count = max(self.count, 1)
        deviation = math.sqrt(max(0.0, self.own_squares / count - (self.own / count) ** 2))
        rms = math.sqrt(self.squares / count)
        verdict = "same bits" if not self.bits else "rounding" if 0 < self.ulp <= ROUNDING_ULP else "differs"
        return {
            "verdict": verdict,
            "bits": self.bits,
            "ulp": self.ulp,
            "largest": self.largest,
            "rms": rms,
            "rms_over_deviation": rms / deviation if deviation else None,
        }


def _datasets(file: h5py.File) -> Iterator[tuple[str, OutputArray]]:
    """All datasets of numbers by name; one that has several names once, by the shortest."""
    names: dict[Any, tuple[str, h5py.Dataset, h5py.Group]] = {}
    for name, dataset, group in _numbers(file):
        address = h5py.h5o.get_info(dataset.id).addr
        if address not in names or (name.count("/"), name) < (names[address][0].count("/"), names[address][0]):
            names[address] = name, dataset, group
    for name, dataset, group in names.values():
        yield name, OutputArray(dataset.shape, _reader(dataset), _times(dataset, group))


def _reader(dataset: h5py.Dataset) -> Callable[[int, int], np.ndarray]:
    def rows(start: int, stop: int) -> np.ndarray:
        return np.atleast_1d(np.asarray(dataset[start:stop] if dataset.ndim else dataset[()]))

    return rows


def _times(dataset: h5py.Dataset, group: h5py.Group) -> np.ndarray | None:
    """The times of the frames of a dataset: the scale of its first dim in a netCDF file, `time` beside it in H5MD."""
    if not dataset.ndim:
        return None
    proxy, own = dataset.dims[0], dataset.name.rsplit("/", 1)[-1]
    candidates = [proxy[i] for i in range(len(proxy))]
    candidates += [dataset] if own == "time" or dataset.name.endswith("/Steps/Values") else []
    candidates += [group.get("time")] if own in ("value", "step") else []
    for scale in candidates:
        named = isinstance(scale, h5py.Dataset) and (scale.name or "").rsplit("/", 1)[-1] in ("time", "Values")
        if named and scale.dtype.kind in "fiu":
            times = np.asarray(scale[()], np.float64)
            if times.shape == dataset.shape[:1] and np.all(times[1:] > times[:-1]):
                return times
    return None


def _numbers(
    group: h5py.Group, above: str = "", within: tuple[int, ...] = ()
) -> Iterator[tuple[str, h5py.Dataset, h5py.Group]]:
    """Datasets of numbers with their names and groups. Links by name, which may lead anywhere, and links back up are
    left out; so is the group VTKHDF, which shows values that stand elsewhere.
    """
    within = (*within, h5py.h5o.get_info(group.id).addr)
    for name in sorted(group):
        if name == "VTKHDF" or not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group) and h5py.h5o.get_info(item.id).addr not in within:
            yield from _numbers(item, f"{above}{name}/", within)
        elif isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.shape is not None:
            yield f"{above}{name}", item, group


def _held(values: np.ndarray) -> OutputArray:
    return OutputArray(values.shape, lambda start, stop: np.atleast_1d(values[start:stop] if values.ndim else values))


def _tensors(file: Path) -> Iterator[tuple[str, OutputArray]]:
    tensors = Safetensors(file)
    for name in sorted(tensors):
        values = tensors[name]
        if values.dtype.kind in "fiu":
            yield name, _held(values)


def _particles(file: Path) -> Iterator[tuple[str, OutputArray]]:
    """The particles of a data file, as a frame at its step."""
    snapshot = read_lammps_data(file)
    times = np.array([float(snapshot.step)])
    for name in ("ids", "types", "positions", "images", "velocities", "charges", "lower", "upper"):
        values = getattr(snapshot, name)
        if values is not None:
            yield name, replace(_held(np.asarray(values)[np.newaxis]), times=times)


def is_file_of_numbers(path: Path) -> bool:
    """It is one HDF5 file, and no run. Raises `InputError` for one that cannot be read."""
    try:
        return path.is_file() and is_hdf5(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", do="give run directories, or files of HDF5"
        ) from error
