"""What `hpckit bench train` runs in a process with one thread: training steps of ours and of PyTorch's in turn."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.bench.job import answer
from hpckit.bench.measure import interleave
from hpckit.comm.device import HOST, Device
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2
from hpckit.nn.layer import Pass, Sequential, backward
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameters

VOCAB, LENGTH, BATCH = 256, 128, 8
MLP_BATCH = 256
RATE, DECAY = 1e-3, 0.01
COMPARED = 5  # steps whose losses must agree
Pair = tuple[Callable[[], float], Callable[[], float], dict[str, int]]


def our_step(
    model: Sequential, classes: int, x: np.ndarray, targets: np.ndarray, device: Device = HOST
) -> Callable[[], float]:
    """A step of ours on a batch: returns the mean loss before it."""
    parameters = Parameters(model.parameters(), allocate=lambda count, dtype: device.zeros((count,), dtype))
    loss = CrossEntropy(classes)
    parameters.initialize(0)
    optimizer = AdamW(parameters, weight_decay=DECAY)

    def step() -> float:
        parameters.zero_grads()
        logits, saved = model.forward(x, Pass())
        total, kept = loss.forward(logits, targets)
        backward(model, saved, loss.backward(kept, 1 / targets.size))
        optimizer.step(RATE)
        device.wait()
        return float(total) / targets.size

    return step


def their_step(
    model: Any, values: dict[str, Any], x: np.ndarray, targets: np.ndarray, place: str = "cpu"
) -> Callable[[], float]:
    """A step of PyTorch's on the same batch, from the initial values of ours; place: "cpu" or "cuda"."""
    import torch

    model.to(place)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(values[name]))
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, fused=True)
    inputs, wanted = torch.from_numpy(x).to(place), torch.from_numpy(targets.reshape(-1)).to(place)

    def step() -> float:
        optimizer.zero_grad()
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), wanted)
        loss.backward()
        optimizer.step()
        if place == "cuda":
            torch.cuda.synchronize()
        return loss.item()

    return step


def gpt_flops(layers: int, width: int, vocab: int, batch: int, length: int) -> int:
    """Floating-point operations of a step of a GPT: 6 for each multiply-add of the forward pass."""
    weights = 12 * layers * width**2 + vocab * width
    return batch * length * (6 * weights + 6 * layers * length * width)  # of the causal half, 12 for a whole square


def gpt_pair(layers: int, width: int, heads: int) -> Pair:
    """Steps of a GPT of ours and of PyTorch's; samples and floating-point operations of a step."""
    from hpckit.bench.train_torch import gpt

    model = gpt2(VOCAB, layers, width, heads, LENGTH, tied=False)
    text = np.random.default_rng(1).integers(0, VOCAB, (BATCH, LENGTH + 1))
    ours = our_step(model, VOCAB, text[:, :-1], text[:, 1:].copy())
    theirs, values = gpt(model, heads)
    flops = gpt_flops(layers, width, VOCAB, BATCH, LENGTH)
    return ours, their_step(theirs, values, text[:, :-1].copy(), text[:, 1:].copy()), {"samples": BATCH, "flops": flops}


def mlp_pair(sizes: list[int]) -> Pair:
    """Steps of an MLP of ours and of PyTorch's; samples and floating-point operations of a step."""
    from hpckit.bench.train_torch import perceptron

    random, model = np.random.default_rng(1), mlp(sizes)
    x, targets = random.standard_normal((MLP_BATCH, sizes[0]), np.float32), random.integers(0, sizes[-1], MLP_BATCH)
    ours = our_step(model, sizes[-1], x, targets)
    theirs, values = perceptron(model, sizes)
    products = [a * b for a, b in pairwise(sizes)]
    work = {"samples": MLP_BATCH, "flops": MLP_BATCH * (6 * sum(products) - 2 * products[0])}
    return ours, their_step(theirs, values, x, targets), work


def case(kind: str, shape: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Losses compared, then times of steps in turn."""
    import torch

    torch.set_num_threads(1)
    ours, theirs, work = gpt_pair(**shape) if kind == "gpt" else mlp_pair(**shape)
    losses = np.array([(ours(), theirs()) for _ in range(COMPARED)])
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=2e-4)
    gc.disable()  # a collection would be charged to whoever happens to run
    times = interleave({"hpckit": ours, "torch": theirs}, rounds)
    gc.enable()
    last = {"hpckit": round(losses[-1, 0], 6), "torch": round(losses[-1, 1], 6)}
    return {"times": times, "losses": last, **work}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
