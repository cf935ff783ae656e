"""Checks of shallow water with shocks and dry land."""

from __future__ import annotations

import numpy as np

from hpckit.bench.gpu.figures import DRY, FLOOD_DT, GRAVITY, rough
from hpckit.comm.device import Device
from hpckit.kernels.compile.cuda.jit import compiling
from hpckit.kernels.flood.constants import HALO, HU, HV, H, Physics
from hpckit.kernels.flood.dispatch import diagnose, ends, found_by, stage
from tests.gpu.checks import Check, Pairs, size

FORCES = (0.0, 0.0, 0.0), (1e-2, 0.03, 0.002)  # Coriolis parameter, Manning's n, drag
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))


def case(device: Device, dtype: np.dtype) -> Pairs:
    """Both stages, with and without friction, over rough ground with dry places, and what is watched."""
    now, start, bottom = (each.astype(dtype) for each in rough(*size(device, (150, 507), (7, 11))))
    there = [device.to_device(each) for each in (now, start, bottom)]
    here = [each.astype(np.float64) for each in (now, start, bottom)]
    pairs: Pairs = {}
    for weight, forces in zip((1.0, 0.5), FORCES, strict=True):
        numbers = (weight, FLOOD_DT, Physics(GRAVITY, 1.0, 1.1, *forces, DRY))
        got, expected = device.to_device(np.zeros_like(now)), np.zeros(now.shape)
        found, found_here = found_by(got), found_by(expected)
        stage(got, *there, *numbers, found)
        if not compiling():
            stage(expected, *here, *numbers, found_here)
            pairs[f"ends, weight {weight:g}"] = (device.to_device(ends(found)), ends(found_here))
        for name, k in (("h", H), ("hu", HU), ("hv", HV)):
            pairs[f"{name}, weight {weight:g}"] = (got[k][OWNED], expected[k][OWNED])
    physics = Physics(GRAVITY, 1.0, 1.1, dry=DRY)
    found = diagnose(there[0], there[2], physics)
    if not compiling():
        for k, value in enumerate(diagnose(here[0], here[2], physics)):
            pairs[f"watch, {k}"] = (device.to_device(found[k : k + 1]), np.array([value]))
    return pairs


CHECKS = [Check("flood", case, 1e-5)]
