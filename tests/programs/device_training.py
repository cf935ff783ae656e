"""Training on a device: parameters, losses and norms after some steps are those of the host.

device_training.py [all]: a language model, without `all` its tiniest form; on two ranks replicas, pipelines too.
"""

from __future__ import annotations

import sys

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
    tokens = np.random.default_rng(3).integers(0, VOCAB, (BATCH, 3))
    if kind == "gpt2":
        model = gpt2(VOCAB + 1, 1, 4, 2, 2, dropout=0.25)  # a row of padding
    else:
        model = llama(VOCAB + 1, 1, 4, 2, 1, 3, 2, recompute=True)
    return model, tokens[:, :-1], tokens[:, 1:]


def images() -> tuple[Layer, np.ndarray, np.ndarray]:
    """A convolution network, and images with their classes."""
    head = Sequential([Flatten(), Linear(2 * 2 * 2, VOCAB + 1, "head"), ExactGELU()])
    first = Convolution(1, 2, 2, stride=1, padding=1, input_gradient=False)
    model = Sequential([Sequential([first, ReLU(), MaxPool(2)]), head])
    random = np.random.default_rng(4)
    return model, random.normal(size=(BATCH, 3, 4, 1)), random.integers(0, VOCAB, BATCH)


def trained(
    kind: str, device: Device, pp: int, schedule: str, short: str = "", mixed: str = ""
) -> dict[str, np.ndarray]:
    """All that a training gives on this rank."""
    model, x, targets = images() if kind == "cnn" else language(kind)
    tied = kind == "gpt2"
    plan = hp.plan.training_plan(
        comm.size, len(model.layers), pp=pp, batch=BATCH, microbatches=2 if pp > 1 else 1, schedule=schedule, tied=tied
    )
    found: dict[str, np.ndarray] = {}
    with hp.Mesh(comm, dp=plan.dp, pp=plan.pp) as mesh:
        pipeline = hp.training.Pipeline(
            mesh,
            model,
            CrossEntropy(VOCAB, VOCAB + 1),
            plan,
            dtype=mixed or (np.float32 if short else np.float64),
            device=device,
            gradients=short,
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
        for parameter in pipeline.parameters.list:
            if mixed:
                for part, low, high in pipeline.parameters.parts_of(parameter):
                    at = pipeline.parameters.offsets[parameter.name] + low - part.start
                    found[parameter.name] = device.to_host(part.values[at : at + high - low])
                continue
            assert type(parameter.value) is type(device.zeros((0,))), f"{parameter.name} is a {type(parameter.value)}"
            found[parameter.name] = device.to_host(parameter.value)
    return found


def main() -> None:
    """Compare, and say how many numbers were compared."""
    device = hp.find_gpu(comm)
    cases: list[tuple[str, int, str, str]] = [("gpt2", 1, "1f1b", ""), ("cnn", 1, "1f1b", "")]
    if "all" in sys.argv:
        cases += [("llama", 1, "1f1b", "")]
        if comm.size == 2:
            cases += [("gpt2", 2, "1f1b", ""), ("cnn", 2, "zb_h1", "")]
            cases += [("llama", 1, "1f1b", short) for short in ("bfloat16", "float16")]
    count = 0
    # Products of a GPU round both operands.
    for kind, mixed in (("gpt2", "bfloat16"), ("llama", "float16")) if "all" in sys.argv else ():
        there, here = (trained(kind, on, 1, "1f1b", mixed=mixed) for on in (device, HOST))
        for name, expected in here.items():
            off = np.abs(there[name] - expected).max() / max(1e-3, np.abs(expected).max())
            assert off <= 2.0**-5, f"{kind} in {mixed}: {name} is off by {off:.2g}"
    for kind, pp, schedule, short in cases:
        there, here = trained(kind, device, pp, schedule, short), trained(kind, HOST, pp, schedule, short)
        most = {"": 1e-12, "bfloat16": 2.0**-8, "float16": 2.0**-11}[short]
        for name, expected in here.items():
            off = np.abs(there[name] - expected).max() / max(1e-3, np.abs(expected).max())
            assert off <= most, f"{kind}, pp={pp}, {short}: {name} is off by {off:.2g}"
            count += expected.size
    if comm.rank == 0:
        print(f"all good {count}")


main()
