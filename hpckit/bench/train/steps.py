"""What `hpckit bench train` runs in a process with one thread: training steps of ours and of PyTorch's in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.bench.measure import interleave
from hpckit.bench.ranks import answer
from hpckit.comm.device import HOST, Device
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2
from hpckit.nn.layer import Pass, Sequential, backward
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameters
from hpckit.training.precision import mixed

VOCAB, LENGTH, BATCH = 256, 128, 8
MLP_BATCH = 256
RATE, DECAY = 1e-3, 0.01
COMPARED = 5  # steps whose losses must agree
CLOSE = 2e-4  # relative difference of losses in float32; of bfloat16's to float32's:
CLOSE_SHORT = 2e-2
Step = Callable[[], float]
Candidates = tuple[dict[str, Step], dict[str, int]]


def our_step(
    model: Sequential,
    classes: int,
    x: np.ndarray,
    targets: np.ndarray,
    device: Device = HOST,
    precision: str = "float32",
) -> Step:
    """A step of ours on a batch: returns the mean loss before it."""
    parameters = Parameters(model.parameters(), precision, allocate=lambda count, dtype: device.zeros((count,), dtype))
    model = Sequential(mixed(model.layers, parameters.storage))
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


def gpt_flops(layers: int, width: int, vocab: int, batch: int, length: int) -> int:
    """Floating-point operations of a step of a GPT: 6 for each multiply-add of the forward pass."""
    weights = 12 * layers * width**2 + vocab * width
    return batch * length * (6 * weights + 6 * layers * length * width)  # of the causal half, 12 for a whole square


def gpts(layers: int, width: int, heads: int, rivals: Sequence[str] = ("torch",)) -> Candidates:
    """Steps of a GPT of ours and of rivals; samples and floating-point operations of a step.

    rivals: "torch", "torch_compiled" (by `torch.compile`), or ours in "bfloat16".
    """
    model = gpt2(VOCAB, layers, width, heads, LENGTH, tied=False)
    text = np.random.default_rng(1).integers(0, VOCAB, (BATCH, LENGTH + 1))
    x, targets = text[:, :-1].copy(), text[:, 1:].copy()
    steps = {"hpckit": our_step(model, VOCAB, x, targets)}
    for rival in rivals:
        if rival == "bfloat16":
            again = gpt2(VOCAB, layers, width, heads, LENGTH, tied=False)
            steps[rival] = our_step(again, VOCAB, x, targets, precision=rival)
            continue
        from hpckit.bench.rivals.torch import compiled, gpt, training_step

        theirs = gpt(model, heads)
        steps[rival] = training_step(compiled(theirs) if rival == "torch_compiled" else theirs, x, targets, RATE)
    return steps, {"samples": BATCH, "flops": gpt_flops(layers, width, VOCAB, BATCH, LENGTH)}


def mlps(sizes: list[int]) -> Candidates:
    """Steps of an MLP of ours and of PyTorch's; samples and floating-point operations of a step."""
    from hpckit.bench.rivals.torch import perceptron, training_step

    random, model = np.random.default_rng(1), mlp(sizes)
    x, targets = random.standard_normal((MLP_BATCH, sizes[0]), np.float32), random.integers(0, sizes[-1], MLP_BATCH)
    ours = our_step(model, sizes[-1], x, targets)
    products = [a * b for a, b in pairwise(sizes)]
    work = {"samples": MLP_BATCH, "flops": MLP_BATCH * (6 * sum(products) - 2 * products[0])}
    return {"hpckit": ours, "torch": training_step(perceptron(model, sizes), x, targets, RATE)}, work


def case(kind: str, shape: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Losses compared, then times of steps in turn."""
    steps, work = gpts(**shape) if kind == "gpt" else mlps(**shape)
    losses = {name: [step() for _ in range(COMPARED)] for name, step in steps.items()}
    for name, found in losses.items():
        np.testing.assert_allclose(found, losses["hpckit"], rtol=CLOSE_SHORT if name == "bfloat16" else CLOSE)
    times = interleave(steps, rounds)
    return {"times": times, "losses": {name: round(found[-1], 6) for name, found in losses.items()}, **work}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
