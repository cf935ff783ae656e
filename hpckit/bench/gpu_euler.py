"""Slab and box on a GPU: checks of all kernels, and steps against what must move at the bandwidth of a copy.

A sweep reads and writes each field once: 128 bytes a cell and step for the slab (two sweeps of four fields), 240 for
the box (three of five), half of it in single precision. The share of the copy's bandwidth says how close a step is to
that floor; the arithmetic of a step is about as much work for a GPU as moving those bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState, base_state
from hpckit.apps.atmosphere.profiles import neutral
from hpckit.bench.gpu_cases import Check, Figure, Pairs, Ratios, Rows, seconds, share, size
from hpckit.comm.device import Device
from hpckit.comm.observe.timer import t_eff
from hpckit.kernels.compile.cuda_jit import compiling, simulating
from hpckit.kernels.device_array import empty, is_device_array
from hpckit.kernels.euler.box import dispatch as box_kernels
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab import dispatch as slab_kernels
from hpckit.kernels.euler.status import new_status, read_status

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


class Steps:
    """Steps of a periodic slab or box at rest with a warm spot, on the device, as the models take them."""

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: Any) -> None:
        self.three, self.cells, self.count = len(shape) == 3, int(np.prod(shape)), 0
        fields = 5 if self.three else 4
        base: BaseState = base_state(neutral(300.0), shape[0], 10_000.0 / shape[0])
        state = np.zeros((fields, shape[0], *[n + 2 * HALO for n in shape[1:]]), dtype)
        warm: Any = tuple(slice(n // 3, n // 2) for n in state.shape[1:])
        state[-1][warm] = 1.0
        self.states = [device.to_device(state), device.to_device(state)]
        faces = base.faces_3d if self.three else base.faces
        tables = {"column": base.column, "faces": faces, "ghost": base.ghost, "none": NONE, "no_inflow": NONE}
        self.on = SimpleNamespace(**{name: device.to_device(each.astype(dtype)) for name, each in tables.items()})
        self.kernels = box_kernels if self.three else slab_kernels
        self.status = new_status(self.states[0])
        self.spacing = 10_000.0 / shape[0]
        self.dt = 1.25 * self.spacing / 400.0
        self.nbytes = self.cells * fields * np.dtype(dtype).itemsize * 2 * len(shape)

    def step(self) -> None:
        """One step."""
        numbers = (Sweep(self.spacing, self.dt, BETA, self.count), self.status)
        order = "xyz" if self.three else "xz"
        for direction in order if self.count % 2 == 0 else reversed(order):
            state, states, none, on = self.states[0], tuple(self.states), self.on.none, self.on
            if direction == "x":
                state[..., :HALO], state[..., -HALO:] = state[..., -2 * HALO : -HALO], state[..., HALO : 2 * HALO]
                more = (none,) if self.three else (none, none, True, True)
                self.kernels.sweep_x(*states, on.column, *more, *numbers)
            elif direction == "y":
                state[:, :, :HALO] = state[:, :, -2 * HALO : -HALO]
                state[:, :, -HALO:] = state[:, :, HALO : 2 * HALO]
                self.kernels.sweep_y(*states, on.column, none, *numbers)
            else:
                self.kernels.sweep_z(*states, on.faces, on.ghost, none, *numbers)
            self.states.reverse()
        self.count += 1


def steps_figure(shapes: tuple, device: Device, quick: bool, copy: float) -> tuple[Rows, Ratios]:
    """Steps in both precisions: ns per cell and step, t_eff, the share of the copy's bandwidth."""
    rows, ratios = [], {}
    for shape, key in shapes[: size(device, None, 1)]:
        real_shape = size(device, shape, (6,) * len(shape))
        for dtype in size(device, (np.float64, np.float32), (np.float32,)):
            case = Steps(device, real_shape, dtype)
            times = seconds(device, case.step)
            name = f"{key}{'' if dtype == np.float64 else '_float32'}_vs_copy"
            ratios[name] = share(times, case.nbytes, copy)
            rows.append(
                {
                    "case": f"{'box' if case.three else 'slab'} {' x '.join(map(str, reversed(real_shape)))}",
                    "dtype": np.dtype(dtype).name,
                    "milliseconds": median(times) * 1e3,
                    "ns_per_cell_step": median(times) / case.cells * 1e9,
                    "t_eff_GB_per_s": t_eff(case.nbytes, median(times)),
                    "share_of_floor": ratios[name]["median"],
                }
            )
    return rows, ratios


SLABS = (((1000, 2000), "gpu_euler2d"), ((200, 400), "gpu_euler2d_small"))
BOXES = (((128, 128, 128), "gpu_euler3d"), ((256, 256, 256), "gpu_euler3d_big"))
CHECKS = [Check("euler2d", slab_case, SINGLE), Check("euler3d", box_case, SINGLE)]
FIGURES = [Figure("euler2d", partial(steps_figure, SLABS)), Figure("euler3d", partial(steps_figure, BOXES))]
