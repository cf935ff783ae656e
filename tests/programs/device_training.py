"""Training on a device: parameters, losses and norms after some steps are those of the host.

device_training.py [all]: a language model, on two ranks with shared layers, and replicas of a convolution network; with
`all` more models, replicas, pipelines and shards, on four ranks beside shared layers.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import hpckit as hp
from hpckit.comm.device import HOST, Device
from hpckit.nn.activations import ExactGELU, ReLU
from hpckit.nn.convolution import Convolution, Flatten, MaxPool
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Layer, Pass, Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import SGD, AdamW, clip_scale

VOCAB, STEPS, BATCH = 5, 2, 2
comm = hp.world()


def language(kind: str) -> tuple[Layer, np.ndarray, np.ndarray]:
    """A model, and tokens with those that follow them."""
    samples, length = (1, 2) if kind == "token" else (BATCH, 3)
    tokens = np.random.default_rng(3).integers(0, VOCAB, (samples, length))
    if kind == "gpt2":
        model = gpt2(VOCAB + 1, 1, 4, 2, 2, dropout=0.25)  # a row of padding
    elif kind == "llama":
        model = llama(VOCAB + 1, 1, 4, 2, 1, 3, 2, recompute=True)
    elif kind == "moe":
        model = llama(VOCAB + 1, 1, 4, 2, 2, 4, 2, experts=2, top_k=1)
    else:
        model = llama(VOCAB + 1, 1, 4, 2, 2, 4, 2, attention_dropout=0.25, recompute="attention")
    return model, tokens[:, :-1], tokens[:, 1:]


def images() -> tuple[Layer, np.ndarray, np.ndarray]:
    """A convolution network, and images with their classes."""
    head = Sequential([Flatten(), Linear(2 * 2 * 2, VOCAB + 1, "head"), ExactGELU()])
    first = Convolution(1, 2, 2, stride=1, padding=1, input_gradient=False)
    model = Sequential([Sequential([first, ReLU(), MaxPool(2)]), head])
    random = np.random.default_rng(4)
    return model, random.normal(size=(BATCH, 3, 4, 1)), random.integers(0, VOCAB, BATCH)


def trained(
    kind: str,
    device: Device,
    pp: int = 1,
    tp: int = 1,
    schedule: str = "1f1b",
    short: str = "",
    dtype: str = "float64",
    sharding: int = 0,
    parts: int = 0,
    layer_parts: int = 0,
    ep: int = 1,
    chunks: int = 1,
) -> dict[str, np.ndarray]:
    """All that a training gives on this rank."""
    model, x, targets = images() if kind == "cnn" else language(kind)
    plan = hp.plan.training_plan(
        comm.size, len(model.layers), pp=pp, tp=tp, batch=BATCH, microbatches=2 if pp > 1 else 1,
        schedule=schedule, tied=kind == "gpt2", parts=parts, layer_parts=layer_parts, ep=ep,
    )  # fmt: skip
    found: dict[str, np.ndarray] = {}
    with hp.Mesh(comm, dp=plan.dp, pp=plan.pp, tp=tp) as mesh:
        pipeline = hp.training.Pipeline(
            mesh,
            model,
            CrossEntropy(VOCAB, VOCAB + 1),
            plan,
            dtype="float32" if short else dtype,
            device=device,
            gradients=short,
            sharding=sharding,
            tensor_chunks=chunks,
        )
        pipeline.initialize(seed=1)
        make = AdamW if kind != "cnn" else SGD
        optimizer = make(pipeline.parameters, weight_decay=0.1)
        share = BATCH // plan.dp
        own = slice(mesh["dp"].rank * share, (mesh["dp"].rank + 1) * share)
        for step in range(STEPS):
            pipeline.zero_grads()
            result = pipeline.run(x[own], targets[own], Pass(True, 7, step, own.start))
            squared = pipeline.squared_norm()
            optimizer.step(1e-2, clip_scale(squared, 0.5))
            found[f"loss {step}"], found[f"norm {step}"] = np.array(result.loss), np.array(squared)
        pipeline.check()
        if pipeline.parameters.storage:
            for parameter in pipeline.parameters.list:
                for part, low, high in pipeline.parameters.parts_of(parameter):
                    at = pipeline.parameters.offsets[parameter.name] + low - part.start
                    found[parameter.name] = device.to_host(part.values[at : at + high - low])
            return found
        for stage in plan.stages_of(mesh["pp"].rank):
            pipeline.need(stage)
            for layer in plan.partition.layers(stage):
                for parameter in pipeline.model.layers[layer].parameters():
                    assert type(parameter.value) is type(device.zeros((0,))), parameter.name
                    found[parameter.name] = device.to_host(parameter.value).copy()
    return found


def main() -> None:
    """Compare, and say how many numbers were compared."""
    device = hp.find_gpu(comm)
    cases: list[tuple[str, dict[str, Any]]] = [("gpt2", {"tp": comm.size}), ("cnn", {})]
    if "all" in sys.argv:
        cases += [("llama", {}), ("gpt2", {"dtype": "bfloat16"}), ("llama", {"dtype": "float16"})]
    if "all" in sys.argv and comm.size == 2:
        cases += [("gpt2", {}), ("gpt2", {"pp": 2}), ("cnn", {"pp": 2, "schedule": "zb_h1"})]
        cases += [("llama", {"short": short}) for short in ("bfloat16", "float16")]
        cases += [("heads", {"tp": 2, "chunks": 2}), ("heads", {"tp": 2, "layer_parts": 2, "parts": 2})]
        cases += [("heads", {"tp": 2, "dtype": "bfloat16"})]
        cases += [("token", {"tp": 2}), ("token", {"sharding": 2})]  # one of the ranks has none
        cases += [("moe", {"tp": 2}), ("moe", {"ep": 2})]
    if comm.size == 4:
        cases = [("gpt2", {"tp": 2, "sharding": 3}), ("heads", {"tp": 2, "pp": 2, "schedule": "zb_h1"})]
    count = 0
    for kind, how in cases:
        there, here = trained(kind, device, **how), trained(kind, HOST, **how)
        most = {"": 1e-12, "bfloat16": 2.0**-8, "float16": 2.0**-11}[how.get("short", "")]
        if "dtype" in how:  # a GPU rounds both operands of a product; Adam begins with signs of gradients
            most = 2.0**-4
        for name, expected in here.items():
            off = np.abs(there[name] - expected).max(initial=0) / max(1e-3, np.abs(expected).max(initial=0))
            told = "dtype" in how and name.startswith(("loss", "norm"))
            assert off <= (2.0**-7 if told else most), f"{kind}, {how}: {name} is off by {off:.2g}"
            count += expected.size
    if comm.rank == 0:
        print(f"all good {count}")


main()
