"""Checks of the slab and the box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral
from hpckit.comm.device import Device
from hpckit.kernels.compile.cuda.jit import compiling, simulating
from hpckit.kernels.device_array import empty, is_device_array
from hpckit.kernels.euler.box import dispatch as box_kernels
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab import dispatch as slab_kernels
from hpckit.kernels.euler.status import new_status, read_status
from tests.gpu.checks import Check, Pairs, size

DX, DZ, DT, BETA = 50.0, 60.0, 0.1, 0.05
SCALES = {4: (0.004, 2.0, 2.0, 1.0), 5: (0.004, 2.0, 2.0, 2.0, 1.0)}  # of deviations, by fields of a state
SINGLE = 1e-5  # fluxes are sums of terms far larger than what they change
NONE = np.zeros((0, 0))


def noise(shape: tuple[int, ...], dtype: np.dtype, strong: float) -> np.ndarray:
    """Noise in all cells, halo included; `strong` times as much heat in one of them."""
    normal = np.random.default_rng(len(shape)).normal(size=shape)
    state = normal * np.array(SCALES[shape[0]]).reshape(-1, *[1] * (len(shape) - 1))
    state[(-1, *[n // 2 for n in shape[1:]])] *= strong
    return state.astype(dtype)


def _there(device: Device, dtype: np.dtype, values: np.ndarray) -> tuple[Any, np.ndarray]:
    """Values on the device, and the same values for the CPU, in double precision."""
    return device.to_device(values.astype(dtype)), values.astype(dtype).astype(np.float64)


def _pairs(label: str, device: Device, found: tuple[Any, Any], expected: tuple[np.ndarray, Any]) -> Pairs:
    """The owned cells of each field of a state, and what the kernel returned."""
    owned = (slice(None), *[slice(HALO, -HALO)] * (expected[0].ndim - 2))
    pairs: Pairs = {}
    for field, one in enumerate(expected[0]):
        pairs[f"{label}, field {field}"] = (found[0][field][owned], one[owned])
    if expected[1] is not None:
        values = np.atleast_1d(np.asarray(found[1], np.float64))
        pairs[f"{label}, result"] = (device.to_device(values), np.atleast_1d(np.asarray(expected[1], np.float64)))
    return pairs


def on_both(
    label: str, device: Device, dtype: np.dtype, call: Callable, state: np.ndarray, *arrays: np.ndarray
) -> Pairs:
    """A kernel on the device and on the CPU. call: with the state and the arrays."""
    there, here = zip(*(_there(device, dtype, each) for each in (state, *arrays)), strict=True)
    found, expected = call(*there), None if compiling() else call(*here)
    return _pairs(label, device, (there[0], found), (here[0], expected))


def swept(sweep: Callable, spacing: float, state: Any, *arguments: Any) -> int:
    """Advance a state by a sweep, in place on the host; returns what its status has seen."""
    out, status = empty(state.shape, state) if is_device_array(state) else state, new_status(state)
    sweep(state, out, *arguments, Sweep(spacing, DT, BETA, 1), status)
    state[...] = out
    return read_status(status)[0]


def slab_case(device: Device, dtype: np.dtype) -> Pairs:
    """All operations of the slab: with and without force and inflow, in and out of the range of the series."""
    nz, nx = size(device, (37, 533), (5, 13))
    base = base_state(neutral(300.0), nz, DZ)
    rows = np.zeros((2, nz))
    rows[:, nz // 2 : nz // 2 + 2] = [[50.0], [298.0]]
    force = 1e-2 * np.random.default_rng(5).normal(size=(nz, nx + 2 * HALO))
    pairs: Pairs = {}
    for label, source, inflow, strong in (("plain", NONE, np.zeros((2, 0)), 1.0), ("driven", force, rows, 100.0)):
        state = noise((4, nz, nx + 2 * HALO), dtype, strong)

        def along(s: Any, column: Any, source: Any, inflow: Any) -> Any:
            return swept(slab_kernels.sweep_x, DX, s, column, source, inflow, True, True)

        def across(s: Any, faces: Any, ghost: Any, source: Any) -> Any:
            return swept(slab_kernels.sweep_z, DZ, s, faces, ghost, source)

        pairs |= on_both(f"x sweep, {label}", device, dtype, along, state, base.column, source, inflow)
        pairs |= on_both(f"z sweep, {label}", device, dtype, across, state, base.faces, base.ghost, source)
    return pairs | on_both("watch", device, dtype, slab_kernels.diagnose, state, base.column, base.height)


def box_case(device: Device, dtype: np.dtype) -> Pairs:
    """All operations of the box."""
    nz, ny, nx = shape = size(device, (21, 37, 301), (4, 6, 6))
    base = base_state(neutral(300.0), nz, DZ)
    state, work = noise((5, nz, ny + 2 * HALO, nx + 2 * HALO), dtype, 1.0), None
    pairs: Pairs = {}
    for dim, direction in enumerate("zyx"):
        faces = [n + (d == dim) for d, n in enumerate(shape)]
        tables = (base.faces_3d, base.ghost) if direction == "z" else (base.column,)
        sweep = getattr(box_kernels, f"sweep_{direction}")
        told = device.to_device(np.zeros(faces, dtype)), np.zeros(faces)

        def plain(s: Any, *tables: Any, sweep: Any = sweep) -> Any:
            return swept(sweep, DX, s, *tables, box_kernels.NO_FLUX)

        def fluxed(s: Any, *tables: Any, sweep: Any = sweep, told: Any = told) -> Any:
            return swept(sweep, DX, s, *tables, told[not is_device_array(s)])

        if not simulating():  # twice the time, and nothing new
            pairs |= on_both(f"{direction} sweep", device, dtype, plain, state, *tables)
        pairs |= on_both(f"{direction} sweep that tells its mass flux", device, dtype, fluxed, state, *tables)
        pairs[f"mass flux in {direction}"] = told
    wind, calm = (np.random.default_rng(3).normal(size=(k, nz)) for k in (2, 4))
    work = np.zeros_like(state)
    pairs |= on_both("turn", device, dtype, lambda s, c, w: box_kernels.turn(s, c, w, 0.3), state, base.column, wind)
    pairs |= on_both(
        "diffusion", device, dtype, lambda s, c, b, w: box_kernels.diffuse(s, c, b, (DX, DX, DZ), 30.0, w), state,
        base.column, calm, work,
    )  # fmt: skip
    return pairs | on_both("watch", device, dtype, box_kernels.diagnose, state, base.column, base.height)


CHECKS = [Check("euler2d", slab_case, SINGLE), Check("euler3d", box_case, SINGLE)]
