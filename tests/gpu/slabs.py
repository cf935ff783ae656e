"""Checks of the kernels that pack and unpack halos."""

from __future__ import annotations

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.pack import reference, slab_kernels
from tests.gpu.checks import Check, Pairs

SHAPES = ((3, 11, 1), (2, 9, 5), (1, 12, 7))  # [outer, n, inner]


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


CHECKS = [Check("slabs", slabs)]
