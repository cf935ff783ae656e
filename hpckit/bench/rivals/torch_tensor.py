"""The rival of tensor parallelism: PyTorch's own, `parallelize_module` on DTensor, over gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from mpi4py import MPI
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from hpckit.bench.collectives.ranks import start_gloo
from hpckit.bench.rivals.torch import DECAY, TorchBlock, cross_entropy, gpt
from hpckit.nn.layer import Sequential


class SplitBlock(nn.Module):
    """A block whose queries, keys and values are maps of their own, so that each can be cut by heads."""

    def __init__(self, whole: TorchBlock, width: int) -> None:
        super().__init__()
        self.each = width // whole.heads
        self.norm1, self.norm2, self.out, self.up, self.down = whole.norm1, whole.norm2, whole.out, whole.up, whole.down
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        with torch.no_grad():
            for place, linear in enumerate((self.query, self.key, self.value)):
                linear.weight.copy_(whole.qkv.weight[place * width : (place + 1) * width])
                linear.bias.copy_(whole.qkv.bias[place * width : (place + 1) * width])

    def forward(self, x: Any) -> Any:
        """[B, T, width] -> [B, T, width]."""
        batch, length, _ = x.shape
        normed = self.norm1(x)
        parts = (map_(normed) for map_ in (self.query, self.key, self.value))
        query, key, value = (part.view(batch, length, -1, self.each).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


def tensor_step(ours: Sequential, heads: int, x: np.ndarray, targets: np.ndarray, rate: float) -> Callable[[], float]:
    """A step of a GPT of our values, its blocks shared by all ranks; returns the mean loss before it."""
    start_gloo(torch, torch.distributed)
    model, width = gpt(ours, heads), ours.parameters()[0].shape[1]
    mesh = init_device_mesh("cpu", (MPI.COMM_WORLD.size,))
    columns = dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel())
    every = [SplitBlock(cast(TorchBlock, block), width) for block in model.blocks]
    model.blocks = nn.ModuleList(
        parallelize_module(block, mesh, {**columns, "out": RowwiseParallel(), "down": RowwiseParallel()})
        for block in every
    )
    split = [p for p in model.parameters() if isinstance(p, torch.distributed.tensor.DTensor)]
    others = [p for p in model.parameters() if not isinstance(p, torch.distributed.tensor.DTensor)]
    optimizers = [
        torch.optim.AdamW(
            [
                {"params": [p for p in kind if p.ndim > 1], "weight_decay": DECAY},
                {"params": [p for p in kind if p.ndim == 1], "weight_decay": 0.0},
            ],
            lr=rate,
            fused=True,
        )
        for kind in (split, others)
    ]
    inputs, wanted = torch.from_numpy(x), torch.from_numpy(targets)

    def step() -> float:
        for each in optimizers:
            each.zero_grad()
        loss = cross_entropy(model(inputs), wanted)
        loss.backward()
        for each in optimizers:
            each.step()
        return loss.item()

    return step
