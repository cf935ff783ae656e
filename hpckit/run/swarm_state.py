"""A swarm as checkpoints hold it: an array a field, the particles of rank 0 first, and how many each rank had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.io.checkpoint.state import Piece, Restored
from hpckit.plan.blocks import block

if TYPE_CHECKING:
    from hpckit.particles.swarm import Swarm

NUMBERS = "biufc"  # kinds of dtypes that files have; others are saved as their bytes


def pieces_of(swarm: Swarm, name: str) -> list[Piece]:
    """Collective: this rank's particles among all, as arrays `name`/field; `box` and `counts` are rank 0's."""
    counts = swarm.counts()
    first, total = int(counts[: swarm.mesh.rank].sum()), int(counts.sum())
    pieces = []
    for field in _names(swarm.data):
        values = _numbers(swarm.data[field])
        rest = values.shape[1:]
        pieces.append(Piece(f"{name}/{field}", (total, *rest), (first, *(0 for _ in rest)), values))
    if swarm.mesh.rank == 0:
        box = np.stack([swarm.lower, swarm.upper])
        pieces += [Piece(f"{name}/{key}", a.shape, (0,) * a.ndim, a) for key, a in (("-box", box), ("-counts", counts))]
    return pieces


def restore(swarm: Swarm, restored: Restored, name: str) -> None:
    """Collective: take up the particles of a checkpoint in place of those that the swarm has, each at home.

    On as many ranks as wrote it each has its particles in the order in which it had them. Raises `InputError` where
    the swarm there has other fields or another box.
    """
    where = str(getattr(restored, "path", ""))
    problem = _difference(swarm, restored, name)
    if problem:
        do = "go on with the program that wrote it, or give another folder"
        raise InputError(f"the swarm {name} {problem}", where=where, do=do)
    counts = restored.read(f"{name}/-counts", (0,), restored.shape(f"{name}/-counts"))
    size, rank = swarm.mesh.size, swarm.mesh.rank
    total = int(counts.sum())
    first, own = (int(counts[:rank].sum()), int(counts[rank])) if len(counts) == size else block(total, size, rank)
    data = np.zeros(own, swarm.data.dtype)
    for field in _names(data):
        rest = restored.shape(f"{name}/{field}")[1:]
        values = restored.read(f"{name}/{field}", (first, *(0 for _ in rest)), (own, *rest))
        data[field] = values.view(data.dtype[field].base).reshape(data[field].shape)
    swarm.data = data
    swarm.migrate()


def _difference(swarm: Swarm, restored: Restored, name: str) -> str:
    """What the swarm of the checkpoint has otherwise; "" where nothing."""
    if f"{name}/-box" not in restored.names:
        return "is not there"
    fields = _names(swarm.data)
    saved = [key.rpartition("/")[2] for key in restored.names if key.startswith(f"{name}/")]
    found = [key for key in saved if not key.startswith("-")]
    if sorted(found) != sorted(fields):
        return f"has the fields {', '.join(sorted(found))} there, and {', '.join(sorted(fields))} here"
    for field in fields:
        values, key = _numbers(swarm.data[field][:0]), f"{name}/{field}"
        if (restored.dtype(key), restored.shape(key)[1:]) != (values.dtype, values.shape[1:]):
            return f"has another {field} there: {restored.dtype(key)} {list(restored.shape(key)[1:])} a particle"
    box = np.stack([swarm.lower, swarm.upper])
    if restored.shape(f"{name}/-box") != box.shape:
        return f"has {restored.shape(f'{name}/-box')[1]} dims there, and {swarm.dims} here"
    low, high = there = restored.read(f"{name}/-box", (0, 0), box.shape)
    return "" if np.array_equal(there, box) else f"has the box from {low.tolist()} to {high.tolist()} there"


def _names(data: npt.NDArray[Any]) -> tuple[str, ...]:
    return data.dtype.names or ()


def _numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values as they are where files know their dtype, else their bytes along one more dim: texts, times, records."""
    if values.dtype.kind in NUMBERS:
        return values
    packed = np.ascontiguousarray(values)
    return packed.view(np.uint8).reshape(*values.shape, values.dtype.itemsize)
