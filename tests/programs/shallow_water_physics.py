"""The shallow-water model against solutions that are known: `shallow_water_physics.py FOLDER`; figures as JSON."""

import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.shallow_water.config import Config
from hpckit.apps.shallow_water.layout import time_step
from hpckit.apps.shallow_water.model import Model
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer

comm = MPI.COMM_WORLD
found = {}


def run(settings: dict, end: float, steps: int = 0, watch=lambda model, time: None) -> dict[str, np.ndarray]:
    """Advance to `end` in `steps` equal steps (0: as `time_step` has it); the state at both ends, on every rank."""
    config = Config.model_validate(settings)
    grid, steps = config.grid, steps or math.ceil(end / time_step(config))
    with Mesh(comm, y=0, x=0, periodic=grid.periodic, shape=(grid.ny, grid.nx), halo=3) as mesh:
        model = Model(config, mesh)
        first, result = model.watch(), {f"{field.name}0": field.gather() for field in model.fields}
        for step in range(1, steps + 1):
            model.step(end / steps, PhaseTimer())
            watch(model, step * end / steps)
        last = model.watch()
        model.require_sound(last, end / steps)
        result |= {field.name: field.gather() for field in model.fields}
    for name in result:
        shape = np.array(np.shape(result[name]) or (0, 0))
        comm.Bcast(shape)
        result[name] = result[name] if comm.rank == 0 else np.empty(shape)
        comm.Bcast(result[name])
    rest = 0.5 * config.physics.gravity * first.mass**2 / (grid.width * grid.height)
    result["energy"] = np.array((last.energy - first.energy) / (first.energy - rest))
    result["mass"] = np.array(last.mass / first.mass - 1)
    return result


def orders(errors: list[float]) -> list[float]:
    """Order of each refinement by 2."""
    return [math.log2(a / b) for a, b in itertools.pairwise(errors)]


def energy() -> None:
    """Without friction only the time step changes the energy, in third order."""
    case = {
        "grid": {"nx": 48, "ny": 48},
        "physics": {"depth": 1000.0},
        "start": {"kind": "eddies", "speed": 8.0, "mode": 3},
        "bottom": {"kind": "seamount", "height": 200.0},
    }
    ends = [run(case, 6000.0, steps) for steps in (75, 150, 300, 600)]
    found["energy"] = [abs(float(end["energy"])) for end in ends]
    found["energy orders"] = orders(found["energy"])
    found["mass"] = max(abs(float(end["mass"])) for end in ends)


def adjustment() -> None:
    """A step in an endless sea: a third of the potential energy that is lost stays as kinetic energy."""
    depth, gravity, f, amplitude = 1000.0, 9.81, 1e-4, 0.1
    radius = math.sqrt(gravity * depth) / f
    per_radius, half = 16, 8
    case = {
        "grid": {"nx": 64 * per_radius, "ny": 6, "width": 64 * radius, "height": 1e9},
        "physics": {"depth": depth, "gravity": gravity, "f": f},
        "start": {"kind": "step", "amplitude": amplitude},
    }
    end, periods = 24 / f, 2
    begin, sums, count = end - periods * 2 * math.pi / f, {"h": 0.0, "v": 0.0}, [0]

    def add(model: Model, time: float) -> None:
        if time > begin:
            count[0] += 1
            for name in sums:
                whole = getattr(model, name).gather()
                sums[name] = sums[name] + whole[0] if comm.rank == 0 else 0.0

    run(case, end, 0, add)
    if comm.rank == 0:
        middle = slice((32 - half) * per_radius, (32 + half) * per_radius)
        surface, v = (sums[name][middle] / count[0] for name in ("h", "v"))
        lost = 0.5 * gravity * np.sum(amplitude**2 - (surface - depth) ** 2)
        found["adjustment"] = float(0.5 * depth * np.sum(v**2) / lost)
        place = (np.arange(surface.size) + 0.5) / per_radius - half
        exact = -np.sign(place) * amplitude * (1 - np.exp(-np.abs(place)))
        found["adjustment surface"] = float(np.abs(surface - depth - exact).max() / amplitude)


def jet() -> None:
    """A balanced jet moves only by what its balance lacks: second order in the cells."""
    errors = []
    for ny in (25, 50, 100):
        case = {
            "grid": {"nx": 6, "ny": ny, "width": 1e6, "sides": "channel"},
            "physics": {"depth": 500.0},
            "start": {"kind": "jet", "speed": 5.0, "radius": 80_000.0, "amplitude": 0.0},
            "time": {"max_speed": 6.0},
        }
        end = run(case, 86_400.0)
        errors.append(float(np.abs(end["u"] - end["u0"]).max()) / 5.0)
        assert (end["u"] == end["u"][:, :1]).all(), "a jet without a bump stays the same along x"
    found["jet"], found["jet orders"] = errors, orders(errors)


def waves() -> None:
    """Phase speeds of linear waves, relative errors, and their order."""
    depth, gravity, f = 100.0, 9.81, 1e-4
    c = math.sqrt(gravity * depth)
    for kind, sides in (("poincare", "periodic"), ("kelvin", "channel")):
        errors = []
        for n in (16, 32, 64):
            case = {
                "grid": {"nx": n, "ny": n, "width": 1e6, "height": 1e6, "sides": sides},
                "physics": {"depth": depth, "f": f},
                "start": {"kind": kind, "amplitude": 1e-4},
            }
            k = 2 * math.pi / 1e6
            omega = math.hypot(f, c * k) if kind == "poincare" else c * k
            end = run(case, 2 * math.pi / omega, 4 * n)
            first, last = (np.fft.rfft(end[name][0])[1] for name in ("h0", "h"))
            errors.append(abs(float(np.angle(last / first))) / (2 * math.pi))
        found[kind], found[f"{kind} orders"] = errors, orders(errors)


def rest() -> None:
    """A lake at rest over a hill or a trench stays so to the bit, with all forces on that do not drive."""
    for height in (97.7, -397.7):
        case = {
            "grid": {"nx": 31, "ny": 27, "sides": "closed", "slip": "none"},
            "physics": {"depth": 137.3, "beta": 2e-11, "viscosity": 100.0, "drag": 1e-5, "drag_quadratic": 1e-3},
            "bottom": {"kind": "seamount", "height": height, "radius": 150_000.0},
            "start": {"kind": "rest"},
        }
        end = run(case, 40_000.0)
        found[f"rest {height}"] = [float(np.abs(end[name] - end[f"{name}0"]).max()) for name in "huv"]
        found[f"rest depth {height}"] = float(end["h"][13, 15])


def resolution() -> None:
    """Nonlinear flow on finer and finer grids."""
    states = []
    for n in (32, 64, 128, 256):
        case = {
            "grid": {"nx": n, "ny": n},
            "physics": {"depth": 100.0},
            "start": {"kind": "eddies", "speed": 2.0, "mode": 2},
        }
        end = run(case, 10_000.0, 2 * n)
        states.append([end["h"], end["u"], end["v"]])
    means = [
        lambda h: (h[::2, ::2] + h[1::2, ::2] + h[::2, 1::2] + h[1::2, 1::2]) / 4,
        lambda u: (u[::2, ::2] + u[1::2, ::2]) / 2,
        lambda v: (v[::2, ::2] + v[::2, 1::2]) / 2,
    ]
    for field, mean in enumerate(means):
        pairs = itertools.pairwise(states)
        found[f"resolution {'huv'[field]}"] = orders(
            [float(np.abs(a[field] - mean(b[field])).mean()) for a, b in pairs]
        )


def forced() -> None:
    """Steady flows between wind and each kind of friction, over their exact speed."""
    base = {"grid": {"nx": 6, "ny": 12, "width": 5e3, "height": 1e4, "sides": "channel"}, "start": {"kind": "rest"}}
    wind = {"wind": {"stress": 0.01025, "shape": "uniform"}}  # 1e-5 m2/s2
    for name, friction, speed, end in (
        ("drag", {"drag": 1e-4}, 1e-5 / 10 / 1e-4, 2e5),
        ("drag_quadratic", {"drag_quadratic": 0.1}, 1e-2, 3e5),
    ):
        state = run({**base, **wind, "physics": {"depth": 10.0, "f": 0.0, **friction}}, end)
        found[name] = [float(state["u"].min()) / speed, float(state["u"].max()) / speed]
    physics = {"depth": 10.0, "f": 0.0, "viscosity": 1e3}
    state = run({**base, **wind, "grid": {**base["grid"], "slip": "none"}, "physics": physics}, 2e5)
    y = (np.arange(12) + 0.5) / 12
    exact = 1e-5 / 10 / 1e3 * 1e8 * y * (1 - y) / 2
    found["no slip"] = float(np.abs(state["u"][:, 0] / exact.max() - exact / exact.max()).max())
    state = run({**base, **wind, "physics": physics}, 2e4)
    found["free slip"] = [float(state["u"].min()) / 0.02, float(state["u"].max()) / 0.02]


for check in (energy, adjustment, jet, waves, rest, resolution, forced):
    check()
if comm.rank == 0:
    (Path(sys.argv[1]) / "physics.json").write_text(json.dumps(found))
