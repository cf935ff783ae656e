"""Data parallelism for a module of PyTorch: every rank has the whole model and a part of the batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from hpckit.errors import InputError
from hpckit.torch.gradients import Gradients
from hpckit.torch.tensors import bound_threads, broadcast_tensors, require_model
from hpckit.training.data import BUCKET
from hpckit.training.replicas import Replicas


class DistributedDataParallel(nn.Module):
    """A module replicated on the ranks of `mesh_axis`; its gradients are averaged during backward.

        model = DistributedDataParallel(model, mesh["dp"])
        optimizer = torch.optim.AdamW(model.parameters())
        for x, y in share:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()  # every `grad` is the mean over the replicas when it returns
            optimizer.step()

    Used as PyTorch's own: parameters and buffers start as those of rank 0; parameters without a gradient are found
    without being told; `no_sync` accumulates; `module` is what it was given. Gradients lie in symmetric memory where
    the replicas share a node. They are added in the order of the ranks: each run has the same bits.

    **Unequal parts.** Set `samples` on every rank to the samples of its part before backward, and the mean is weighted:
    with a loss that is a mean over samples, gradients are those of the whole batch. A rank whose part is empty sets
    `samples = 0` and calls `skip()` in place of forward and backward.

    bucket_bytes: of gradients averaged at once; left out, 25 MiB, and all at once where the replicas share a node,
    whose cores add themselves. broadcast_buffers: rank 0's buffers (running means) go to all ranks at each forward pass
    in training. reduce_dtype: of gradients on their way to other replicas, as FSDP2's `MixedPrecisionPolicy` has it and
    DDP's `bf16_compress_hook`; `torch.bfloat16` halves the bytes of float32. They are averaged in float32 at least, and
    rounded once before and once behind; gradients themselves keep the dtype of their parameters.

    Collective; raises `InputError` on every rank if the models differ.
    """

    def __init__(
        self,
        module: nn.Module,
        mesh_axis: Any,
        *,
        bucket_bytes: int | None = None,
        broadcast_buffers: bool = True,
        deterministic: bool = True,
        reduce_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        replicas = Replicas(mesh_axis, deterministic)
        require_model(replicas.comm, module, reduce_dtype)
        bound_threads(replicas.comm)
        if bucket_bytes is None:
            bucket_bytes = sys.maxsize if replicas.share_node else BUCKET
        if bucket_bytes < 0:
            raise InputError(f"buckets of {bucket_bytes} bytes", do="give 0 (one a parameter) or more")
        self.module = module
        self.replicas, self.broadcast_buffers = replicas, broadcast_buffers
        broadcast_tensors(replicas, [*module.parameters(), *module.buffers()])
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not trained:
            raise InputError("no parameter of the model is trained", do="run the module itself, on every rank")
        self.gradients = Gradients(replicas, trained, bucket_bytes, reduce_dtype)

    @property
    def samples(self) -> float | None:
        """The samples of this rank's part of the batch, its weight in the mean; None: all ranks count alike."""
        return self.gradients.weight

    @samples.setter
    def samples(self, count: float | None) -> None:
        if count is not None and not count >= 0:
            raise InputError(f"samples is {count}", do="give the samples of this rank's part, 0 or more, or None")
        self.gradients.weight = None if count is None else float(count)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns."""
        self.gradients.forget()
        if self.training and self.broadcast_buffers and self.gradients.sync:
            broadcast_tensors(self.replicas, list(self.module.buffers()))
        return self.module(*arguments, **named)

    def skip(self) -> None:
        """Replace forward and backward on a rank without samples: the other ranks' mean goes on."""
        if self.samples != 0:
            raise InputError(
                f"skip() with samples={self.samples}",
                do="set samples on every rank before backward: 0 on this one, which has none",
            )
        if self.training and self.broadcast_buffers and self.gradients.sync:
            broadcast_tensors(self.replicas, list(self.module.buffers()))
        if self.gradients.sync:
            self.gradients.skip()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within it accumulate on each rank; the next one outside averages all."""
        before, self.gradients.sync = self.gradients.sync, False
        try:
            yield
        finally:
            self.gradients.sync = before

    def check(self) -> None:
        """Raise `MismatchError` on all ranks unless they hold the same parameters, to the bit. Collective."""
        values = [p.detach().contiguous().reshape(-1).view(torch.uint8).numpy() for p in self.module.parameters()]
        self.replicas.require_equal(np.concatenate(values))
