"""Shallow water with shocks and dry land on a GPU: checks of all kernels, and a step's t_eff (120 bytes a cell: two
stages that read and write three fields, the second one the start too) over the bandwidth of a copy.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np

from hpckit.bench.gpu_cases import Check, Figure, Pairs, Ratios, Rows, seconds, share, size
from hpckit.comm.device import Device
from hpckit.comm.observe.timer import t_eff
from hpckit.kernels.compile.cuda_jit import compiling
from hpckit.kernels.flood.constants import HALO, HU, HV, H, Physics
from hpckit.kernels.flood.dispatch import diagnose, ends, found_by, stage

SIZE = 2048
GRAVITY, SPACING, DT, DRY = 9.81, 1.0, 0.01, 1e-3
FORCES = (0.0, 0.0, 0.0), (1e-2, 0.03, 0.002)  # Coriolis parameter, Manning's n, drag
STEP_BYTES = 2 * 48 + 24  # a cell
OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))


def case(device: Device, dtype: np.dtype) -> Pairs:
    """Both stages, with and without friction, over rough ground with dry places, and what is watched."""
    now, start, bottom = (each.astype(dtype) for each in _rough(*size(device, (150, 507), (7, 11))))
    there = [device.to_device(each) for each in (now, start, bottom)]
    here = [each.astype(np.float64) for each in (now, start, bottom)]
    pairs: Pairs = {}
    for weight, forces in zip((1.0, 0.5), FORCES, strict=True):
        numbers = (weight, DT, Physics(GRAVITY, 1.0, 1.1, *forces, DRY))
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


def figure(device: Device, quick: bool, copy: float) -> tuple[Rows, Ratios]:
    """Both stages of a step over rough, partly dry ground, in both precisions."""
    n = size(device, SIZE, 8)
    rows, ratios = [], {}
    for dtype in size(device, (np.float64, np.float32), (np.float32,)):
        now, _, bottom = (device.to_device(each.astype(dtype)) for each in _rough(n, n))
        middle, new = device.to_device(device.to_host(now)), device.to_device(device.to_host(now))
        found, numbers = found_by(now), (DT, Physics(GRAVITY, SPACING, SPACING, *FORCES[0], DRY))

        def step(now=now, middle=middle, new=new, bottom=bottom, found=found, numbers=numbers) -> None:  # type: ignore[no-untyped-def]
            stage(middle, now, now, bottom, 1.0, *numbers, found)
            stage(new, middle, now, bottom, 0.5, *numbers, found)

        times = seconds(device, partial(step))
        nbytes = STEP_BYTES * n**2 * np.dtype(dtype).itemsize // 8
        ratios[f"gpu_flood{'' if dtype == np.float64 else '_float32'}_vs_copy"] = share(times, nbytes, copy)
        rows.append(
            {
                "case": f"flood {n}^2, step",
                "dtype": np.dtype(dtype).name,
                "milliseconds": median(times) * 1e3,
                "ns_per_cell_step": median(times) / n**2 * 1e9,
                "t_eff_GB_per_s": t_eff(nbytes, median(times)),
            }
        )
    return rows, ratios


def _rough(ny: int, nx: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A state, another one to start from, and a bottom, with halo: about a third of the cells are dry."""
    rng = np.random.default_rng(3)
    shape = (ny + 2 * HALO, nx + 2 * HALO)
    now = np.zeros((3, *shape))
    now[H] = np.maximum(0.0, rng.normal(size=shape) + 0.5)
    now[HU:] = rng.normal(size=(2, *shape)) * now[H]
    start = now * (1.0 + 0.1 * rng.random(shape))
    return now, start, 0.5 * rng.normal(size=shape)


CHECKS = [Check("flood", case, 1e-5)]
FIGURES = [Figure("flood", figure)]
