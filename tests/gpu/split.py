"""Checks of the split dynamics of a box and of its mixing."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import levels_state
from hpckit.apps.atmosphere.profiles import neutral
from hpckit.apps.weather3d.split.state import level_tables
from hpckit.comm.device import Device
from hpckit.kernels.compile.cuda.jit import compiling
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.hevi import dispatch as hevi
from hpckit.kernels.euler.hevi.constants import HALO, WORKS, LargeStage, Substep, upwind_weights
from hpckit.kernels.euler.hevi.stress import dispatch as stress
from hpckit.kernels.euler.hevi.terrain import dispatch as sloping
from hpckit.kernels.euler.hevi.terrain.constants import METRICS, Ground
from hpckit.kernels.euler.hevi.terrain.constants import WORKS as SLOPING_WORKS
from hpckit.kernels.euler.hevi.terrain.stress import dispatch as sloping_stress
from hpckit.kernels.euler.hevi.terrain.stress.constants import ROWS
from hpckit.kernels.euler.rain import dispatch as rain
from hpckit.kernels.euler.rain.ice import dispatch as ice
from hpckit.kernels.euler.tracers.dispatch import borrow
from tests.gpu.checks import Check, Pairs, size
from tests.gpu.euler import noise

DX, DY = 50.0, 40.0
SINGLE = 5e-5


def _inputs(device: Device, dtype: np.dtype) -> tuple[tuple[int, int, int], dict[str, np.ndarray]]:
    """Shape, and what the kernels read: levels that grow by a tenth each."""
    nz, ny, nx = shape = size(device, (21, 37, 301), (4, 6, 7))
    edges = np.concatenate([[0.0], np.cumsum(40.0 * 1.02 ** np.arange(nz))])
    base = levels_state(neutral(300.0), edges)
    cells = (5, nz, ny + 2 * HALO, nx + 2 * HALO)
    state = noise(cells, dtype, 1.0)
    state[3, 0] = 0.0
    state[4] *= 10.0  # or its tendency is small beside the terms that it is the difference of
    still = np.zeros(nz)
    water = 0.01 * np.random.default_rng(3).random(cells[1:])
    return shape, {
        "start": noise(cells, dtype, 2.0),
        "state": state,
        "water": water,
        "column": base.column,
        "levels": level_tables(edges),
        "rest": np.array([still + 1.0, still, still, base.theta]),
        "work": np.zeros((WORKS, *cells[1:])),
        "slow": np.zeros(cells),
        "fast": np.zeros(cells),
        "pressure": np.zeros((nz, ny + 2, nx + 2)),
        "mu": np.zeros(cells[1:]),
        "x": np.zeros((nz, ny, nx + 1)),
        "y": np.zeros((nz, ny + 1, nx)),
        "z": np.zeros((nz + 1, ny, nx)),
        "weights": upwind_weights(5),
    }


def _stage(of: dict[str, Any]) -> None:
    rest = of["rest"][:2], of["weights"], LargeStage(DX, DY, 1e-2), of["slow"], of["start"], of["pressure"]
    hevi.linearize(of["state"], of["water"], of["column"], of["levels"], of["work"], *rest)
    numbers = Substep(DX, DY, 0.02, 0.6, 0.1, 0.5)
    fluxes = of["x"], of["y"], of["z"]
    states = of["start"], of["state"]
    hevi.substep(*states, of["work"], of["slow"], of["pressure"], of["levels"], *fluxes, numbers)


def _mixing(of: dict[str, Any]) -> Any:
    hevi.prepare(of["state"], of["water"], of["column"], of["levels"], of["work"], False)
    most = stress.viscosity(of["state"], of["work"], of["column"], of["levels"], (DX, DY), 0.2, 1 / 3, 1.0, of["mu"])
    stress.mix(of["state"], of["work"], of["mu"], of["rest"], of["levels"], (DX, DY), 0.1, 1 / 3, 1.0)
    return most


def stage_case(device: Device, dtype: np.dtype) -> Pairs:
    """A whole stage: tendencies, an acoustic substep, the mean fluxes."""
    there, here = _both(device, dtype)
    _stage(there)
    if not compiling():
        _stage(here)
    return _pairs_of(there, here)


def _pairs_of(there: dict[str, Any], here: dict[str, Any]) -> Pairs:
    inner = (slice(None), slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
    pairs: Pairs = {name: (there[name], here[name]) for name in "xyz"}
    for field in range(5):
        for name in ("slow", "state"):
            pairs[f"{name} {field}"] = (there[name][inner][field], here[name][inner][field])
    return pairs


def _over_terrain(of: dict[str, Any]) -> None:
    ground = Ground(of["base"], of["metric"], of["winds"], of["tilt"])
    sloping.prepare(of["state"], of["water"], ground, of["levels"], of["work"])
    stage = LargeStage(DX, DY, 1e-2)
    sloping.tendencies(of["state"], of["work"], ground, of["column"], of["levels"], of["weights"], stage, of["slow"])
    hevi.begin(of["start"], of["work"], of["pressure"])
    states, rest = (of["start"], of["state"]), (of["slow"], of["pressure"], of["levels"], of["x"], of["y"], of["z"])
    sloping.substep(*states, of["work"], ground, *rest, Substep(DX, DY, 0.02, 0.6, 0.1, 0.5))
    sloping.relax(of["state"], ground, of["levels"], of["lid"], 2.0)
    state, rows, mu = of["mixed air"], of["rows"], of["mu"]
    sloping.prepare(state, of["water"], ground, of["levels"], of["work"])
    sloping_stress.viscosity(state, of["work"], ground, of["levels"], (DX, DY), 0.2, 1 / 3, 1.0, rows, mu)
    sloping_stress.mix(state, of["work"], mu, ground, of["levels"], (DX, DY), 0.1, 1 / 3, 1.0, rows, of["fast"])
    of["q"] -= 0.2
    borrow(of["q"], of["base"][:1])
    sloping_stress.mix_carried(of["q"], of["mixed"], state, mu, ground, of["levels"], (DX, DY), 0.1)


def terrain_case(device: Device, dtype: np.dtype) -> Pairs:
    """A stage over terrain in moist air, its sponge, and mixing."""
    inputs, rng = _inputs(device, dtype)[1], np.random.default_rng(9)
    cells, nz = inputs["state"].shape[1:], inputs["state"].shape[1]
    column = np.concatenate([inputs["column"], np.full((1, nz), 0.01)])[:, :, None, None]
    metric = rng.uniform(-0.2, 0.2, (METRICS, *cells))
    metric[[0, 1, 4, 5, 8]] += 1.0
    inputs |= {
        "base": column * (1 + 0.01 * rng.random((4, *cells))),
        "metric": metric,
        "rows": np.zeros((ROWS, *cells)),
        "q": rng.random((2, nz, *(n - 2 * (HALO - REACH) for n in cells[1:]))),
        "mixed": np.zeros((2, nz, *(n - 2 * (HALO - REACH) for n in cells[1:]))),
        "mixed air": np.array(inputs["state"]),
        "winds": rng.normal(size=(2, *cells)),
        "tilt": rng.normal(size=(2, nz)) / 40.0,
        "lid": np.linspace(0.0, 0.1, nz),
        "work": np.zeros((SLOPING_WORKS, *cells)),
    }
    (there, here), names = _copies(device, dtype, list(inputs.values())), list(inputs)
    both = dict(zip(names, there, strict=True)), dict(zip(names, here, strict=True))
    for of in both[:1] if compiling() else both:
        _over_terrain(of)
    inner = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
    more = {"terrain mu": tuple(of["mu"][inner] for of in both), "terrain mixed": tuple(of["mixed"] for of in both)}
    for field in range(5):
        more[f"mixed {field}"] = tuple(of["mixed air"][field][inner] for of in both)
    return {**_pairs_of(*both), **more}


def mixing_case(device: Device, dtype: np.dtype) -> Pairs:
    """Eddy viscosity and stresses."""
    there, here = _both(device, dtype)
    found, expected = _mixing(there), 0.0 if compiling() else _mixing(here)
    inner = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
    value = np.atleast_1d(0.0 if compiling() else float(found))
    pairs: Pairs = {"greatest": (device.to_device(value), np.atleast_1d(expected))}
    pairs |= {f"field {field}": (there["state"][field][inner], here["state"][field][inner]) for field in range(5)}
    return pairs | {"mu": (there["mu"][inner], here["mu"][inner])}


def rain_case(device: Device, dtype: np.dtype) -> Pairs:
    """Kessler's rain, saturation adjustment, diffusion of mixing ratios."""
    nz, ny, nx = size(device, (21, 37, 301), (4, 3, 5))
    rng, z = np.random.default_rng(8), 500.0 * np.arange(nz)[:, None, None] + np.zeros((nz, ny, nx))
    exner = 1 - 9.8 * z / (1004 * 320)
    theta, pressure = 300 + 0.004 * z + rng.normal(size=z.shape), 1e5 * exner ** (1004 / 287)
    water = rng.random((3, *z.shape)) * np.array([0.02, 0.004, 0.004])[:, None, None, None] * np.exp(-z / 3000)
    rho = pressure / (287 * exner * theta)
    parts = [theta, water, rho, exner, pressure, 500.0 * rng.uniform(0.8, 1.2, z.shape), np.zeros((ny, nx))]
    there, here = _copies(device, dtype, parts)
    for of in (there,) if compiling() else (there, here):
        theta, water, rho, exner, pressure, thickness, rained = of
        rain.kessler(theta, water, rho, exner, pressure, thickness, 10.0, rained)
        rain.saturate(theta, water, exner, pressure)
        rain.condense(theta, water, rho, exner, pressure)
    inputs = _inputs(device, dtype)[1]
    shape = inputs["mu"].shape
    cells = shape[0], *(n - 2 * HALO for n in shape[1:])
    carried = 0.01 * rng.random((4, cells[0], *(n + 2 * REACH for n in cells[1:])))
    column = np.broadcast_to(inputs["column"][:, :, None, None], (3, *shape)).copy()
    sizes = rng.uniform(0.8, 1.2, shape)
    parts = [inputs["state"], column, sizes, carried, np.zeros((4, *cells)), np.zeros((3, *cells)), np.zeros(shape)]
    unpacked = _copies(device, dtype, parts)
    for of in unpacked[:1] if compiling() else unpacked:
        state, column, size_of, carried, air, parcels, whole = of
        rain.air_of(state, column, size_of, carried, air, parcels)
        air[0] *= 1.01
        parcels *= 0.5
        rain.put_back(air, parcels, column, size_of, state, carried)
        rain.total(carried, 3, whole)
    labels = dict(zip(("moist state", "carried", "air", "parcels", "total"), (0, 3, 4, 5, 6), strict=True))
    moist = {label: (unpacked[0][k], unpacked[1][k]) for label, k in labels.items()}
    flux = [inputs[name] + rng.normal(size=inputs[name].shape) for name in "xyz"]
    parts = [inputs["state"], inputs["start"] * 0.01, carried, inputs["column"], inputs["levels"], *flux]
    pressed = _copies(device, dtype, parts)
    for of in pressed[:1] if compiling() else pressed:
        rain.compress(*of, (DX, DY), 0.1)
    moist["compressed"] = (pressed[0][0], pressed[1][0])
    pairs: Pairs = moist | {"theta": (there[0], here[0]), "water": (there[1], here[1]), "rained": (there[6], here[6])}
    q = rng.random((2, *[n - 2 * (HALO - REACH) * (d > 0) for d, n in enumerate(inputs["mu"].shape)]))
    parts = [q, np.zeros_like(q), inputs["state"], inputs["mu"] + 5.0, inputs["column"], inputs["levels"]]
    there, here = _copies(device, dtype, parts)
    for of in (there,) if compiling() else (there, here):
        stress.mix_carried(*of, (DX, DY), 0.5)
    return pairs | {"mixed": (there[1], here[1])}


def ice_case(device: Device, dtype: np.dtype) -> Pairs:
    """Six kinds of water, from warm air to -50 degrees Celsius."""
    nz, ny, nx = size(device, (21, 37, 301), (6, 3, 5))
    rng, z = np.random.default_rng(8), np.linspace(0.0, 10e3, nz)[:, None, None] + np.zeros((nz, ny, nx))
    exner = 1 - 9.8 * z / (1004 * 320)
    theta, pressure = 297 + 0.0025 * z + rng.normal(size=z.shape), 1e5 * exner ** (1004 / 287)
    most = np.array([0.02, 0.003, 0.003, 0.001, 0.003, 0.004])[:, None, None, None]
    water = rng.random((6, *z.shape)) * most * np.exp(-z / 4000)
    rho = pressure / (287 * exner * theta)
    thick = 500.0 * rng.uniform(0.8, 1.2, z.shape)
    parts = [theta, water, rho, exner, pressure, thick, np.zeros((3, ny, nx)), np.zeros((2, ny, nx))]
    there, here = _copies(device, dtype, parts)
    for of in (there,) if compiling() else (there, here):
        ice.microphysics(*of[:6], 10.0, *of[6:])
    labels = {"theta": 0, "water": 1, "fallen": 6, "heated": 7}
    return {label: (there[k], here[k]) for label, k in labels.items()}


def _copies(device: Device, dtype: np.dtype, arrays: list[np.ndarray]) -> tuple[list[Any], list[np.ndarray]]:
    """The arrays on the device, and the same values on the host in double precision."""
    rounded = [array.astype(dtype) for array in arrays]
    return [device.to_device(array) for array in rounded], [array.astype(np.float64) for array in rounded]


def _both(device: Device, dtype: np.dtype) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the kernels take on the device, and the same values on the host in double precision."""
    rounded = {name: each.astype(dtype) for name, each in _inputs(device, dtype)[1].items()}
    return (
        {name: device.to_device(each) for name, each in rounded.items()},
        {name: each.astype(np.float64) for name, each in rounded.items()},
    )


CHECKS = [
    Check("split dynamics", stage_case, SINGLE),
    Check("split dynamics over terrain", terrain_case, SINGLE),
    Check("staggered mixing", mixing_case, SINGLE),
    Check("ice", ice_case, 2e-4),
    Check("rain", rain_case, 2e-4),  # a little vapor that condenses is a small difference of large numbers
]
