"""The figures of `hpckit bench gpu`: steps of every app, against their least memory traffic at the bandwidth of a copy.

Each is `measure(device, quick, copy)` -> rows and ratios; `copy` is the measured bandwidth of a copy, bytes/s.

A step of the heat equation moves 16 bytes a cell, 24 with a coefficient field; of the slab 128 (two sweeps that read
and write four fields), of the box 240 (three of five); of shallow water 48 for each of three tendencies; of a flood 120
(two stages that read and write three fields, the second one the start too); half of it in single precision.
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
from hpckit.bench.gpu.figure import dtypes, joined, seconds, share, size, step_figure
from hpckit.bench.gpu.train import training
from hpckit.bench.measure import Ratios, Rows
from hpckit.bench.ranks import run_ranks
from hpckit.bench.shallow_water.verb import CORIOLIS, DT, EVALUATION, GRAVITY, SPACING, STAGES, Basin
from hpckit.comm.device import Device
from hpckit.comm.observe.timer import t_eff
from hpckit.kernels import stencil
from hpckit.kernels.euler.box import dispatch as box_kernels
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab import dispatch as slab_kernels
from hpckit.kernels.euler.status import new_status
from hpckit.kernels.flood import constants as flood
from hpckit.kernels.flood.dispatch import found_by, stage
from hpckit.kernels.shallow_water import constants as shallow
from hpckit.kernels.shallow_water.dispatch import step, step_free

EDGE = 640  # of the heat equation's cube
CONSTANT, VARIABLE = 16, 24  # bytes that must move per cell, double
HALO_EDGES, QUICK_HALO_EDGES = (64, 128, 256, 512), (64, 256)
SLABS = (((1000, 2000), "gpu_euler2d"), ((200, 400), "gpu_euler2d_small"))
BOXES = (((128, 128, 128), "gpu_euler3d"), ((256, 256, 256), "gpu_euler3d_big"))
BETA = 0.05
SIZE = 2048  # cells along an edge of a basin
FLOOD_BYTES = 2 * 48 + 24  # a cell and step
FLOOD_DT, FLOOD_SPACING, DRY = 0.01, 1.0, 1e-3
MELTS, RANKS = (20, 40, 80), (1, 2)  # lattice cells of 4 particles; ranks on the GPU
CUTOFF = 2.5
Found = tuple[Rows, Ratios]


def heat3d(device: Device, quick: bool, copy: float) -> Found:
    """One step at 640^3 (320^3 with `quick`), double: rows and ratios to a copy."""
    n = size(device, EDGE // 2 if quick else EDGE, 6)
    rng = np.random.default_rng(0)
    pair = [device.to_device(rng.random((n, n, n))) for _ in range(2)]
    coefficient = device.to_device(0.5 + 0.5 * rng.random((n, n, n)))

    def step(factor: Any) -> None:
        stencil.diffuse(pair[1], pair[0], factor, 0.15, 1.0)
        pair.reverse()

    rows: Rows = []
    ratios: Ratios = {}
    for name, factor, nbytes in (("const", 0.8, CONSTANT), ("var", coefficient, VARIABLE)):
        times = seconds(device, partial(step, factor))
        rate = t_eff(nbytes * n**3, median(times))
        rows.append(
            {
                "case": f"heat3d {n}^3, coefficient {name}",
                "milliseconds": median(times) * 1e3,
                "t_eff_GB_per_s": rate,
            }
        )
        ratios[f"gpu_heat3d_{name}_vs_copy"] = share(times, nbytes * n**3, copy)
    return rows, ratios


def exchanges(device: Device, quick: bool, copy: float) -> Found:
    """Microseconds of an exchange of an n^3 block a rank, with one and with two ranks on the GPU."""
    edges = size(device, QUICK_HALO_EDGES if quick else HALO_EDGES, (6,))
    cases = [("halo", n) for n in edges]
    return [{**row, "ranks": n} for n in RANKS for row in run_ranks("hpckit.bench.gpu.ranks", n, cases)], {}


class WarmSpotSteps:
    """Steps of a periodic slab or box at rest with a warm spot, on the device, as the models take them."""

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: Any) -> None:
        self.three, self.cells, self.count = len(shape) == 3, int(np.prod(shape)), 0
        fields = 5 if self.three else 4
        base: BaseState = base_state(neutral(300.0), shape[0], 10_000.0 / shape[0])
        state = np.zeros((fields, shape[0], *[n + 2 * HALO for n in shape[1:]]), dtype)
        warm: Any = tuple(slice(n // 3, n // 2) for n in state.shape[1:])
        state[-1][warm] = 1.0
        self.states = [device.to_device(state), device.to_device(state)]
        none, faces = np.zeros((0, 0)), base.faces_3d if self.three else base.faces
        tables = {"column": base.column, "faces": faces, "ghost": base.ghost, "none": none}
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


def air(shapes: tuple, device: Device, quick: bool, copy: float) -> Found:
    """Steps of slabs or boxes in both precisions."""

    def figure(shape: tuple[int, ...], key: str, dtype: Any) -> Found:
        case = WarmSpotSteps(device, shape, dtype)
        title = f"{'box' if case.three else 'slab'} {' x '.join(map(str, reversed(shape)))}"
        return step_figure(key, title, seconds(device, case.step), case.cells, case.nbytes, dtype, copy)

    return joined(
        figure(size(device, shape, (6,) * len(shape)), key, dtype)
        for shape, key in shapes[: size(device, None, 1)]
        for dtype in dtypes(device)
    )


def shallow_water(device: Device, quick: bool, copy: float) -> Found:
    """A step of a periodic basin, free and with all terms, in both precisions."""
    n, w = size(device, SIZE, 8), shallow.HALO

    def figure(full: bool, dtype: Any) -> Found:
        basin = Basin(n)
        pair = [[device.to_device(each.astype(dtype)) for each in (basin.h, basin.u, basin.v)] for _ in range(2)]
        tables = (basin.bottom, basin.rows, basin.columns, np.full(n + 2 * w, CORIOLIS))
        bottom, rows, columns, coriolis = (device.to_device(each.astype(dtype)) for each in tables)

        def advance() -> None:
            for field in pair[0]:
                field[:, :w], field[:, -w:] = field[:, -2 * w : -w], field[:, w : 2 * w]
                field[:w], field[-w:] = field[-2 * w : -w], field[w : 2 * w]
            fields = tuple(pair[0]), tuple(pair[1])
            if full:
                step(*fields, bottom, rows, columns, shallow.Physics(GRAVITY, SPACING, SPACING, 1.0, 1e-7, 1e-3), DT)
            else:
                step_free(*fields, coriolis, shallow.Physics(GRAVITY, SPACING, SPACING), DT)
            pair.reverse()

        nbytes = STAGES * EVALUATION * n**2 * np.dtype(dtype).itemsize // 8
        key, title = ("gpu_shallow_water_all_terms", "step with all terms") if full else ("gpu_shallow_water", "step")
        return step_figure(key, f"shallow water {n}^2, {title}", seconds(device, advance), n**2, nbytes, dtype, copy)

    return joined(figure(full, dtype) for dtype in dtypes(device) for full in (False, True))


def rough(ny: int, nx: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A state, another one to start from, and a bottom, with halo: about a third of the cells are dry."""
    rng = np.random.default_rng(3)
    shape = (ny + 2 * flood.HALO, nx + 2 * flood.HALO)
    now = np.zeros((3, *shape))
    now[flood.H] = np.maximum(0.0, rng.normal(size=shape) + 0.5)
    now[flood.HU :] = rng.normal(size=(2, *shape)) * now[flood.H]
    start = now * (1.0 + 0.1 * rng.random(shape))
    return now, start, 0.5 * rng.normal(size=shape)


def floods(device: Device, quick: bool, copy: float) -> Found:
    """Both stages of a step over rough, partly dry ground, in both precisions."""
    n = size(device, SIZE, 8)

    def figure(dtype: Any) -> Found:
        now, _, bottom = (device.to_device(each.astype(dtype)) for each in rough(n, n))
        middle, new = (device.to_device(device.to_host(now)) for _ in range(2))
        rest = FLOOD_DT, flood.Physics(GRAVITY, FLOOD_SPACING, FLOOD_SPACING, dry=DRY), found_by(now)

        def advance() -> None:
            stage(middle, now, now, bottom, 1.0, *rest)
            stage(new, middle, now, bottom, 0.5, *rest)

        nbytes = FLOOD_BYTES * n**2 * np.dtype(dtype).itemsize // 8
        return step_figure("gpu_flood", f"flood {n}^2, step", seconds(device, advance), n**2, nbytes, dtype, copy)

    return joined(figure(dtype) for dtype in dtypes(device))


def melts(device: Device, quick: bool, copy: float) -> Found:
    """The melt at three sizes in both precisions: atom-steps/s on a rank, and the force kernel's share of its limits.

    vs_gather: seconds of a kernel that only adds up the positions of the same neighbors, over those of the forces;
    vs_copy: bytes that forces must move (each entry, record and force once) a second, over the bandwidth of a copy.
    """
    edges = size(device, MELTS[:2] if quick else MELTS, (2,))
    cutoff = size(device, CUTOFF, 1.0)
    cases = tuple(("melt", edge, precision, cutoff) for edge in edges for precision in ("double", "mixed"))
    rows: Rows = []
    ratios: Ratios = {}
    for ranks in RANKS:
        found = run_ranks("hpckit.bench.gpu.ranks", ranks, cases[: len(cases) // ranks])
        for (_, edge, precision, _), row in zip(cases, found, strict=False):
            times = row.pop("step_seconds"), row.pop("force_seconds"), row.pop("gather_seconds")
            steps, forces, gathers = (median(each) for each in times)
            bandwidth = row.pop("gathered_bytes") / gathers
            moved = row.pop("bytes")
            rows.append({**row, "ranks": ranks, "force_share": forces / steps, "gather_GB_per_s": bandwidth / 1e9})
            if ranks == 1:
                name = f"gpu_md_{4 * edge**3 // 1000}k_{precision}"
                ratios[f"{name}_vs_gather"] = share(times[1], gathers, 1.0)
                ratios[f"{name}_vs_copy"] = share(times[1], moved, copy)
    return rows, ratios


FIGURES: dict[str, Callable[[Device, bool, float], Found]] = {
    "heat3d": heat3d,
    "halos": exchanges,
    "euler2d": partial(air, SLABS),
    "euler3d": partial(air, BOXES),
    "shallow_water": shallow_water,
    "flood": floods,
    "md": melts,
    "train": training,
}
