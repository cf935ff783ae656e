"""Halos on a GPU: checks of the slab kernels, the cost of an exchange, and two ranks on one GPU against one core."""

from __future__ import annotations

import numpy as np

from hpckit.bench.gpu.cases import Check, Figure, Pairs, Ratios, Rows, size
from hpckit.bench.ranks import run_ranks
from hpckit.device import Device
from hpckit.kernels.pack import reference, slab_kernels

SHAPES = ((3, 11, 1), (2, 9, 5), (1, 12, 7))  # [outer, n, inner]
EDGES, QUICK_EDGES = (64, 128, 256, 512), (64, 256)
RANKS = (1, 2)


def slabs(device: Device, dtype: np.dtype) -> Pairs:
    """Pack, unpack, add, clear, wrap and fold, with one layer and with three."""
    kernels = slab_kernels(dtype, device.is_gpu)
    rng = np.random.default_rng(0)
    pairs: Pairs = {}
    for shape in SHAPES:
        for layers in (1, 3):
            values = rng.normal(size=shape).astype(dtype)
            buffer = rng.normal(size=shape[0] * layers * shape[2]).astype(dtype)
            for name in ("pack_slab", "unpack_slab", "add_slab", "clear_slab", "wrap_ends", "fold_ends"):
                host, beside = values.astype(np.float64), buffer.astype(np.float64)
                there, buffer_there = device.to_device(values), device.to_device(buffer)
                if name.endswith("ends"):
                    getattr(reference, name)(host, layers)
                    getattr(kernels, name)(there, layers)
                elif name == "clear_slab":
                    reference.clear_slab(host, 2, layers)
                    kernels.clear_slab(there, 2, layers)
                else:
                    getattr(reference, name)(host, 2, layers, beside)
                    getattr(kernels, name)(there, 2, layers, buffer_there)
                pairs[f"{name} {layers} of {shape}"] = (there, host)
                if name == "pack_slab":
                    pairs[f"{name} {layers} of {shape}, buffer"] = (buffer_there, beside)
    return pairs


def exchanges(device: Device, quick: bool, copy: float) -> tuple[Rows, Ratios]:
    """Microseconds of an exchange of an n^3 block a rank, and the heat equation on two ranks against one core."""
    edges = size(device, QUICK_EDGES if quick else EDGES, (6,))
    rows: Rows = []
    for ranks in RANKS:
        found = run_ranks("hpckit.bench.gpu.ranks", ranks, (*(("halo", n) for n in edges), ("heat", 0)))
        rows += [{**row, "ranks": ranks} for row in found]
    return rows, {}


CHECKS = [Check("slabs", slabs)]
FIGURES = [Figure("halo exchange", exchanges)]
