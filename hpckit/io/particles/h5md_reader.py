"""Reads H5MD trajectories (specification 1.1), those of other programs too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpckit.errors import InputError
from hpckit.io.fields.frames import require_sources
from hpckit.io.probe import SIGNATURE, require_intact
from hpckit.plan.inputs.text import read_bytes
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.snapshot import Snapshot, sorted_by_id


def read_h5md(path: str | Path) -> Iterator[Snapshot]:
    """The frames of an H5MD file that has one group of particles in a box, one at a time.

    Reads files of other programs too: edges and species fixed or time dependent, particles in any order. Raises
    `InputError` for another kind of file, naming the element that is missing or wrong, and `CorruptDataError` for a
    damaged one: a child process reads it first.
    """
    path = Path(path)
    if read_bytes(path, "the file", len(SIGNATURE), whole=False) != SIGNATURE:
        raise InputError(f"{path.name} is not an HDF5 file: its first bytes differ", where=str(path))
    require_intact([path])
    require_sources(path)
    with h5py.File(path, "r") as file:
        group = _group(file, path)
        positions = _element(group, "position", path)
        if positions.ndim != 3 or positions.shape[2] != 3:
            raise InputError(f"expected positions [frames, particles, 3], found {positions.shape}", where=str(path))
        for number in range(positions.shape[0]):
            try:
                snapshot = _snapshot(file, group, number, path)
            except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                said = " ".join(str(error).split())
                where = f"{path}, frame {number}"
                raise InputError(f"an element is not such as H5MD has it: {said}", where=where) from None
            yield snapshot


def _group(file: h5py.File, path: Path) -> h5py.Group:
    groups = list(file["particles"]) if "particles" in file else []
    if "h5md" not in file or len(groups) != 1:
        found = f"{len(groups)} groups of particles" if "h5md" in file else "no group h5md"
        raise InputError(f"expected an H5MD file with one group of particles, found {found}", where=str(path))
    return file["particles"][groups[0]]


def _element(group: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """The values of an element, time dependent (a group with `value`) or fixed (a dataset)."""
    found = group.get(name)
    if isinstance(found, h5py.Group):
        found = found.get("value")
    if not isinstance(found, h5py.Dataset):
        raise InputError(f"expected an element {group.name}/{name}, found none", where=str(path))
    return found


def _at(group: h5py.Group, name: str, number: int, path: Path) -> Any:
    """What an element holds at a frame, None where there is no such element."""
    if name not in group:
        return None
    values = _element(group, name, path)
    return values[number] if isinstance(group[name], h5py.Group) else values[...]


def _snapshot(file: h5py.File, group: h5py.Group, number: int, path: Path) -> Snapshot:
    positions = np.asarray(_at(group, "position", number, path), np.float64)
    n = len(positions)
    edges = np.asarray(_at(group, "box/edges", number, path), np.float64)
    if edges.shape == (3,):
        edges = np.diag(edges)
    boundary = [word.decode() if isinstance(word, bytes) else str(word) for word in group["box"].attrs["boundary"]]
    corner = _at(group, "box/lower", number, path)
    lower = np.zeros(3) if corner is None else np.asarray(corner, np.float64)
    try:
        cell, rotation = Cell.of_edges(edges, lower)
    except ValueError as error:
        raise InputError(f"box/edges: {error}", where=f"{path}, frame {number}") from None
    turned = not np.array_equal(rotation, np.eye(3))  # a box in another position is turned, with all in it
    vectors = {
        name: None if found is None else np.asarray(found, np.float64) @ rotation if turned else found
        for name in ("velocity", "force")
        for found in [_at(group, name, number, path)]
    }
    if turned:
        positions = lower + (positions - lower) @ rotation
    ids = _at(group, "id", number, path)
    species = _at(group, "species", number, path)
    kinds = np.zeros(n, np.int64) if species is None else np.asarray(species, np.int64)
    types = kinds - 1 if "parameters/hpckit" in file else np.unique(kinds, return_inverse=True)[1]
    image = _at(group, "image", number, path)
    ids, types, positions, images, velocities, forces, mass = sorted_by_id(
        np.arange(1, n + 1) if ids is None else np.asarray(ids, np.int64),
        types,
        positions,
        np.zeros((n, 3), np.int32) if image is None else np.asarray(image, np.int32),
        vectors["velocity"],
        vectors["force"],
        _at(group, "mass", number, path),
    )
    masses = (
        None if mass is None else np.array([mass[types == t].mean() for t in range(int(types.max(initial=-1)) + 1)])
    )
    steps, times = group.get("position/step"), group.get("position/time")
    names = file.get("parameters/hpckit/type_names")
    return Snapshot(
        lower,
        np.array(cell.upper),
        (boundary[0] == "periodic", boundary[1] == "periodic", boundary[2] == "periodic"),
        ids,
        types,
        positions,
        images,
        velocities,
        forces,
        masses,
        None,
        tuple(names.asstr()[...]) if names is not None else (),
        int(_sampled(steps, number)),
        float(_sampled(times, number)),
        tilt=np.array(cell.tilt),
    )


def _sampled(values: h5py.Dataset | None, number: int) -> Any:
    """The step or time of a frame; a single number is the interval (specification 1.1)."""
    if values is None:
        return 0
    return values[number] if values.ndim else number * values[()] + values.attrs.get("offset", 0)
