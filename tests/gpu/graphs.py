"""Kernels that are generated from graphs, against the same sweep in NumPy; they compute in double precision alone."""

from __future__ import annotations

import itertools

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.graph import cuda, reference
from hpckit.kernels.graph.nodes import Node, constant, make, shift
from hpckit.kernels.graph.region import Block
from hpckit.kernels.graph.sweep import GraphSweep
from tests.gpu.checks import Check, Pairs, size

HALO = 2


def values(dims: int) -> tuple[Node, ...]:
    """Sums over neighbors of a product, a choice between two values with a root, functions, and a shift alone."""
    u, v = (make("field", value=(name, ())) for name in "uv")
    c = make("number", value="c", is_field=False)
    total = make("mul", constant(-2.0 * dims), make("mul", u, v))
    for dim, step in itertools.product(range(dims), (-1, 1)):
        total = make("add", total, shift(make("mul", u, v), tuple(step * (each == dim) for each in range(dims))))
    rough = make("sqrt", make("add", constant(1.0), make("mul", total, total)))
    chosen = make("where", make("less", u, v), make("absolute", rough), make("maximum", u, v))
    smooth = make("add", make("exp", make("mul", c, u)), make("sin", make("log", make("add", v, constant(1.0)))))
    return make("add", chosen, make("mul", c, total)), make("div", smooth, rough), shift(v, (0,) * (dims - 1) + (1,))


def sweeps(device: Device, dtype: np.dtype) -> Pairs:
    """Sweeps in one, two and three dims over a box inside of their arrays."""
    found = Pairs()
    random = np.random.default_rng(4)
    for shape in size(device, ((1001,), (77, 131), (23, 29, 131)), ((5,), (3, 5), (2, 3, 5))):
        dims = len(shape)
        sweep, box = GraphSweep(values(dims), dims), ((0,) * dims, shape)
        given = [random.random([n + 2 * HALO for n in shape]) for _ in range(2)]
        here = [np.zeros_like(given[0]) for _ in range(3)]
        there = [device.to_device(each) for each in (*here, *given)]
        reference.bind(sweep, *([Block(each, (HALO,) * dims) for each in of] for of in (here, given)), box)([0.3])
        blocks = [Block(each, (HALO,) * dims) for each in there]
        cuda.bind(sweep, blocks[:3], blocks[3:], box)([0.3])
        found |= {f"{dims} dims, {k}": (there[k], here[k]) for k in range(3)}
    found |= _members(device, random)
    return found


def _members(device: Device, random: np.random.Generator) -> Pairs:
    """Members of an ensemble, each with a number of its own."""
    (shape,), members = size(device, ((37, 41),), ((2, 3),)), 3
    sweep, box, own = GraphSweep(values(2), 2), ((0, 0), shape), np.array([0.3, -0.2, 0.7])
    given = [random.random([*(n + 2 * HALO for n in shape), members]) for _ in range(2)]
    here = [np.zeros_like(given[0]) for _ in range(3)]
    there = [device.to_device(each) for each in (*here, *given)]
    reference.bind(sweep, *([Block(each, (HALO,) * 2) for each in of] for of in (here, given)), box)([own])
    blocks = [Block(each, (HALO,) * 2) for each in there]
    cuda.bind(sweep, blocks[:3], blocks[3:], box, sweep.numbers)([own])
    return Pairs({f"members, {k}": (there[k], here[k]) for k in range(3)})


CHECKS = [Check("graphs", sweeps)]
