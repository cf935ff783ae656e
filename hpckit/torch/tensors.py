"""Tensors in memory that hpckit's collectives take, models that must be alike on all ranks, and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hpckit.collectives import broadcast
from hpckit.collectives.axis import axis_of
from hpckit.comm.agree import all_of_ranks, require_same
from hpckit.comm.shared.group import node_comm
from hpckit.errors import InputError
from hpckit.jobs.process import cores

if TYPE_CHECKING:
    from hpckit.training.replicas import Replicas

# Dtype -> NumPy's, and the kind of number that collectives take it for.
KINDS: dict[torch.dtype, tuple[Any, str | None]] = {
    torch.float64: (np.float64, None),
    torch.float32: (np.float32, None),
    torch.float16: (np.float16, None),
    torch.bfloat16: (np.uint16, "bfloat16"),
}
ALIGN = 64  # bytes; tensors in one vector begin at multiples


def as_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The memory of an array as a tensor; bfloat16 stands in arrays of uint16."""
    return torch.from_numpy(array).view(dtype)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor of the host as an array."""
    held = tensor.detach()
    return (held.view(torch.uint16) if held.dtype == torch.bfloat16 else held).numpy()


def kind_of(dtype: torch.dtype) -> str | None:
    """What `hpckit.all_reduce` must be told of a dtype (`kind`). Raises `InputError` for what cannot be averaged."""
    if dtype not in KINDS:
        raise InputError(f"gradients of {dtype} cannot be averaged", do=f"use {', '.join(map(str, KINDS))}")
    return KINDS[dtype][1]


def room_of(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> int:
    """The elements that a tensor, in this dtype, takes in a vector where the next begins at a multiple of `ALIGN`."""
    whole = ALIGN // (dtype or tensor.dtype).itemsize
    return -(-tensor.numel() // whole) * whole


def views_of(array: np.ndarray, tensors: Sequence[torch.Tensor], first: int = 0) -> list[torch.Tensor]:
    """Views of a vector in the shapes of tensors of one dtype, one behind the other from element `first`."""
    found = []
    for tensor in tensors:
        part = array[first : first + tensor.numel()].reshape(tensor.shape)
        found.append(as_tensor(part, tensor.dtype))
        first += room_of(tensor)
    return found


def by_dtype(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[torch.dtype, list[int]]]:
    """The places of the tensors of each dtype, in their order."""
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    yield from places.items()


def require_model(
    comm: Any,
    module: nn.Module,
    reduce_dtype: torch.dtype | None = None,
    param_dtype: torch.dtype | None = None,
    output_dtype: torch.dtype | None = None,
) -> None:
    """Raise `InputError` on every rank unless the module lives on the host and is alike on all: names, shapes, dtypes
    and what is trained, in the same order, and in which dtypes it computes and returns, and gradients are averaged.
    Collective.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"a model is a torch.nn.Module, not a {type(module).__name__}")
    named = [*module.named_parameters(), *module.named_buffers()]
    facts = {}
    for place, (name, tensor) in enumerate(named):
        what = "a buffer"
        if isinstance(tensor, nn.Parameter):
            what = "trained" if tensor.requires_grad else "frozen"
            if tensor.requires_grad:
                kind_of(tensor.dtype)
        shown = str(tensor.dtype).removeprefix("torch.")
        facts[name] = f"{list(tensor.shape)} {shown} on {tensor.device.type} ({what}, number {place})"
    facts |= {"reduce_dtype": str(reduce_dtype), "param_dtype": str(param_dtype), "output_dtype": str(output_dtype)}
    require_same(comm, facts, "a model is the same on every rank")
    if reduce_dtype is not None:
        kind_of(reduce_dtype)
    for dtype, what in ((param_dtype, "computes in"), (output_dtype, "returns")):
        if dtype is not None and dtype not in KINDS:
            raise InputError(f"no module {what} {dtype}", do=f"use {', '.join(map(str, KINDS))}")
    abroad = [name for name, tensor in named if tensor.device.type != "cpu"]
    if abroad:
        raise InputError(
            f"{abroad[0]} lives on {dict(named)[abroad[0]].device}, and hpckit.torch moves tensors of the host",
            do="keep the model on the CPU; NCCL serves PyTorch's own DDP and FSDP on GPUs",
        )


def broadcast_tensors(replicas: Replicas, tensors: Sequence[torch.Tensor], root: int = 0) -> None:
    """Copy the tensors of one replica to those of all, as one message of bytes. Collective."""
    if replicas.size == 1 or not tensors:
        return
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    packed = np.empty(sum(sizes), np.uint8)
    places = [torch.from_numpy(part) for part in np.split(packed, np.cumsum(sizes)[:-1])]
    with torch.no_grad():
        if replicas.rank == root:
            for place, tensor in zip(places, tensors, strict=True):
                place.copy_(tensor.detach().contiguous().reshape(-1).view(torch.uint8))
        broadcast(packed, replicas.comm, root).wait()
        if replicas.rank != root:
            for place, tensor in zip(places, tensors, strict=True):
                # Bytes may begin anywhere, numbers of a tensor may not.
                tensor.copy_(place.clone().view(tensor.dtype).view(tensor.shape))


def bound_threads(mesh_axis: Any) -> int:
    """Let PyTorch use this rank's part of the cores it shares with other ranks of the axis, or of a mesh; returns it.

    Threads beyond the cores wait for each other: steps take several times as long. Never raises the number that
    `OMP_NUM_THREADS` or the program has set. Collective.
    """
    node = node_comm(axis_of(mesh_axis).given)
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    every = all_of_ranks(node, np.array([hash(tuple(mine))], np.int64))
    share = max(1, cores() // int((every == hash(tuple(mine))).sum()))
    threads = min(share, torch.get_num_threads())
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    return threads
