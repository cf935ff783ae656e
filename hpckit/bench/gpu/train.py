"""Training steps of GPTs on a GPU against PyTorch eager on the same one, from the same initial weights.

A step is forward, loss, backward and AdamW, without clipping; PyTorch runs with its fused AdamW and attention, in true
float32 as it does by default, or in bfloat16 by its autocast where ours keep weights and what layers hand on in it.
Losses of the first steps are compared before anything is timed, then steps of both run in turn. mfu: the model's
operations (6 for each multiply-add of the forward pass) over those that a product of two 4096 x 4096 matrices does in
that time. The ratios are times, ours over PyTorch's: below 1 is better for hpckit.
"""

from __future__ import annotations

import importlib.util
from statistics import median
from typing import Any

import numpy as np

from hpckit.apps.train.output.figures import gemm_peak
from hpckit.bench.gpu.figure import size
from hpckit.bench.measure import Ratios, Rows, interleave, ratio
from hpckit.bench.train.steps import COMPARED, RATE, gpt_flops, our_step
from hpckit.comm.device import Device
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.nn.cublas import products_of
from hpckit.nn.gpt import gpt2
from hpckit.nn.parameters import Parameters

# Layers, width, heads, vocabulary, samples, tokens of a sample: GPT-2's smallest, and the one of `bench train`.
GPT2, SMALL = (12, 768, 12, 50_304, 4, 1024), (4, 256, 8, 256, 8, 128)
CASES = {
    "gpt_gpu_vs_torch": (GPT2, "float32"),
    "gpt_mixed_gpu_vs_torch": (GPT2, "bfloat16"),
    "gpt_small_gpu_vs_torch": (SMALL, "float32"),
    "gpt_small_mixed_gpu_vs_torch": (SMALL, "bfloat16"),
}
TINY = {
    f"gpt{kind}_gpu_vs_torch": ((1, 2, 1, 3, 1, 2), name) for kind, name in (("", "float32"), ("_mixed", "bfloat16"))
}
ROUNDS, FEW = 15, 5
# Steps whose losses must agree, and how well: the first steps are large, so that roundings of 16 bits soon tell.
CLOSE = {"float32": (COMPARED, 1e-3), "bfloat16": (3, 5e-3)}


def training(device: Device, quick: bool, copy: float) -> tuple[Rows, Ratios]:
    """Tokens/s and MFU of each case, and the time against PyTorch's; without PyTorch on the GPU a row says why not."""
    lacking, peaks = lacks_torch(device), {"float32": gemm_peak("float32", device)}
    with products_of("bfloat16" if device.is_gpu and not isinstance(device, SimulatedGpu) else ""):
        peaks["bfloat16"] = gemm_peak("float32", device)
    rows: Rows = [{"case": f"product of matrices, {name}", "TFLOP_per_s": peak / 1e12} for name, peak in peaks.items()]
    if lacking:
        rows.append({"case": "GPT step", "candidate": "torch", "note": f"not measured: {lacking}"})
    ratios: Ratios = {}
    for key, (shape, precision) in size(device, CASES, TINY).items():
        layers, width, _, vocab, batch, length = shape
        steps = _steps(device, shape, precision, not lacking)
        times = interleave(steps, size(device, FEW if quick else ROUNDS, 1))
        flops = gpt_flops(layers, width, vocab, batch, length)
        for name, seconds in times.items():
            middle = median(seconds)
            rows.append(
                {
                    "case": f"GPT {layers} x {width}, {batch} x {length} tokens, step",
                    "precision": precision,
                    "candidate": name,
                    "milliseconds": middle * 1e3,
                    "tokens_per_s": batch * length / middle,
                    "mfu": flops / middle / peaks[precision],
                }
            )
        if "torch" in times:
            ratios[key] = ratio(times["hpckit"], times["torch"])
    return rows, ratios


def lacks_torch(device: Device) -> str:
    """Why PyTorch cannot run on this GPU; empty if it can."""
    if isinstance(device, SimulatedGpu):
        return "PyTorch does not run on a simulated GPU"
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed (pip install torch)"
    import torch

    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no GPU: install its build for CUDA"
    return ""


def _steps(device: Device, shape: tuple[int, ...], precision: str, with_torch: bool) -> dict[str, Any]:
    """Our step and PyTorch's, after steps whose losses agree."""
    layers, width, heads, vocab, batch, length = shape
    model, same = (gpt2(vocab, layers, width, heads, length, tied=False) for _ in range(2))
    text = np.random.default_rng(1).integers(0, vocab, (batch, length + 1))
    x, targets = text[:, :-1].copy(), text[:, 1:].copy()
    steps: dict[str, Any] = {"hpckit": our_step(model, vocab, x, targets, device, precision)}
    if with_torch:
        from hpckit.bench.rivals.torch import gpt, training_step

        Parameters(same.parameters()).initialize(0)
        steps["torch"] = training_step(gpt(same, heads), x, targets, RATE, "cuda", precision)
        count, close = CLOSE[precision]
        losses = np.array([[step() for step in steps.values()] for _ in range(count)])
        np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=close)
    return steps
