"""The rivals of `hpckit bench train`: the same models in PyTorch, as one would write them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hpckit.kernels.device_array import to_host
from hpckit.nn.layer import Sequential

Values = dict[str, np.ndarray]
DECAY = 0.01  # of weights; of vectors none


class TorchBlock(nn.Module):
    """A block of GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """[B, T, width] -> [B, T, width]."""
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with a head of its own."""

    def __init__(self, vocab: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(TorchBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: Any) -> Any:
        """[B, T] -> [B, T, vocab]."""
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt(ours: Sequential, heads: int) -> GPT:
    """The model of the shape of ours, with our values."""
    values = {p.name: to_host(p.value) for p in ours.parameters()}
    (vocab, width), context = values["embed.token.weight"].shape, len(values["embed.position.weight"])
    model = GPT(vocab, context, width, heads, len(ours.layers) - 2)
    renamed = {
        "token.weight": values["embed.token.weight"],
        "position.weight": values["embed.position.weight"],
        "norm.weight": values["head.norm.gain"],
        "norm.bias": values["head.norm.bias"],
        "head.weight": values["head.weight"],
    }
    for i in range(len(model.blocks)):
        for norm in ("norm1", "norm2"):
            renamed[f"blocks.{i}.{norm}.weight"] = values[f"block.{i}.{norm}.gain"]
            renamed[f"blocks.{i}.{norm}.bias"] = values[f"block.{i}.{norm}.bias"]
        for linear in ("attention.qkv", "attention.out", "mlp.up", "mlp.down"):
            own = f"blocks.{i}.{linear.split('.')[1]}"
            renamed[f"{own}.weight"] = values[f"block.{i}.{linear}.weight"].T
            renamed[f"{own}.bias"] = values[f"block.{i}.{linear}.bias"]
    return filled(model, renamed)


def compiled(model: nn.Module) -> Any:
    """The model by `torch.compile`, which needs a C++ compiler."""
    return torch.compile(model)


def perceptron(ours: Sequential, sizes: list[int]) -> nn.Sequential:
    """The MLP of the sizes, with our values."""
    layers: list[nn.Module] = []
    values, renamed = {p.name: p.value for p in ours.parameters()}, {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        renamed[f"{len(layers)}.weight"] = values[f"{i}.weight"].T
        renamed[f"{len(layers)}.bias"] = values[f"{i}.bias"]
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return filled(nn.Sequential(*layers[:-1]), renamed)


def filled(model: Any, values: Values) -> Any:
    """The model with these values, by its names."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values[name])))
    return model


def adamw(modules: Iterable[nn.Module], rate: float) -> torch.optim.Optimizer:
    """PyTorch's fused AdamW of some modules."""
    every = [p for module in modules for p in module.parameters()]
    groups = [
        {"params": [p for p in every if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in every if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


def cross_entropy(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The mean loss of logits [..., classes]."""
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), wanted.reshape(-1))


def training_step(
    model: nn.Module, x: np.ndarray, targets: np.ndarray, rate: float, place: str = "cpu", precision: str = "float32"
) -> Callable[[], float]:
    """A training step on a batch, which returns the mean loss before it; place: "cpu" (one thread) or "cuda".

    precision: "bfloat16" for `torch.autocast` of forward and loss.
    """
    if place == "cpu":
        torch.set_num_threads(1)
    model.to(place)
    optimizer = adamw([model], rate)
    inputs, wanted = torch.from_numpy(x).to(place), torch.from_numpy(targets).to(place)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast(place, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = cross_entropy(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        if place == "cuda":
            torch.cuda.synchronize()
        return loss.item()

    return step
