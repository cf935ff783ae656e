"""The diffusion app: the same bits on any number of ranks, modes that decay at their exact rate, mistakes explained."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from pydantic import ValidationError

from hpckit.apps.diffusion.config import PRESETS, Config
from hpckit.apps.diffusion.layout import dry_run, time_step
from hpckit.apps.diffusion.run import is_frame
from hpckit.apps.diffusion.start import start
from hpckit.plan.blocks import block

PLAIN = {"single": False, "frames": 3}
CASES = {
    "walls": {
        "grid": {"shape": [23, 31], "lengths": [0.7, 1.0]},
        "walls": {"x_low": 340.0, "y_high": 280.0},
        "start": {"radius": 0.2},
        "time": {"steps": 57, "monitor": 10},
        "output": PLAIN,
    },
    "block": {
        "grid": {"shape": [9, 11, 13], "lengths": [0.9, 1.0, 1.1], "periodic": ["y"]},
        "start": {"radius": 0.2},
        "time": {"end": 400.0, "monitor": 7},
        "output": PLAIN,
    },
    "mode": {
        "grid": {"shape": [20, 14], "lengths": [1.0, 2.0], "periodic": ["y"]},
        "walls": {"x_low": 300.0},
        "start": {"kind": "sine", "modes": [3, 2], "background": 300.0, "amplitude": 10.0},
        "time": {"steps": 40, "safety": 0.5},
        "output": PLAIN,
    },
    "stop": {"grid": {"shape": [12, 13]}, "time": {"steps": 1000, "monitor": 5}, "output": PLAIN},
    "blow-up": {"grid": {"shape": [12, 17]}, "time": {"steps": 5000, "safety": 1.2, "monitor": 20}},
}


def settings(**given) -> Config:
    return Config.model_validate_json(json.dumps(given), strict=True)


def read(folder: Path, name: str, ranks: int) -> dict:
    directory = folder / f"{name}-{ranks}"
    with h5py.File(directory / "output" / "fields.h5") as file:
        frames = file["temperature"][...]
    metrics = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return {"frames": frames, "metrics": metrics, "summary": json.loads((directory / "summary.json").read_text())}


@pytest.mark.parametrize("counts", [(1, 4), pytest.param((1, 2, 3), marks=pytest.mark.nightly)], ids=str)
def test_the_bits_do_not_depend_on_the_ranks(tmp_path, mpirun, counts):
    """One launch a number of ranks runs all cases; what each of them shows is looked at after."""
    folder = tmp_path
    (folder / "cases.json").write_text(json.dumps(CASES))
    for ranks in counts:
        mpirun(ranks, "diffusion_app.py", folder, timeout=120)
    for name in ("walls", "block", "mode", "stop"):
        one = read(folder, name, 1)
        for ranks in counts[1:]:
            other = read(folder, name, ranks)
            np.testing.assert_array_equal(other["frames"], one["frames"], err_msg=f"{name} on {ranks} ranks")
            assert other["metrics"] == one["metrics"]
            assert other["summary"]["decomposition"]["shape"] == CASES[name]["grid"]["shape"]
            assert other["summary"]["ranks"] == ranks
        assert not np.array_equal(one["frames"][0], one["frames"][-1])
    check_heat(folder, counts[-1])
    check_mode(folder, counts[-1])
    check_stop(folder, counts[-1])
    check_blow_up(folder, counts)


def check_heat(folder: Path, ranks: int) -> None:
    """An insulated or periodic body keeps its heat; between held walls nothing is said about it."""
    block = read(folder, "block", ranks)
    heat = block["summary"]["conserved"]["heat"]
    assert abs(heat["relative_change"]) < 1e-14
    volume = 0.9 * 1.0 * 1.1 / (9 * 11 * 13)
    assert heat["initial"] == pytest.approx(block["frames"][0].sum() * volume, rel=1e-12)
    spread = [line["temperature_max"] - line["temperature_min"] for line in block["metrics"]]
    assert all(later < earlier for earlier, later in itertools.pairwise(spread))
    assert block["summary"]["simulated_seconds"] == pytest.approx(400.0, rel=1e-14)
    assert len(block["frames"]) == 4
    walls = read(folder, "walls", 1)
    assert walls["summary"]["conserved"] == {}
    assert walls["summary"]["status"] == "done"
    assert walls["metrics"][0]["cfl"] == pytest.approx(0.9)


def check_mode(folder: Path, ranks: int) -> None:
    """Periodic in y, held at 300 K on one side of x and insulated on the other: 3 waves and 1 3/4 half waves.

    The wave along x is sin(1.5 pi x / L): each step multiplies the mode by 1 - dt D sum_d (2 - 2 cos(k_d h_d)) / h_d^2.
    """
    mode = read(folder, "mode", ranks)
    (ny, nx), (ly, lx), wave = (20, 14), (1.0, 2.0), (2 * math.pi * 3 / 1.0, 1.5 * math.pi / 2.0)
    hy, hx = ly / ny, lx / nx
    shape = np.sin(wave[0] * (np.arange(ny) + 0.5) * hy)[:, None] * np.sin(wave[1] * (np.arange(nx) + 0.5) * hx)
    dt = 0.5 / (2 * 1.1e-4 * (1 / hy**2 + 1 / hx**2))
    rate = (2 - 2 * math.cos(wave[0] * hy)) / hy**2 + (2 - 2 * math.cos(wave[1] * hx)) / hx**2
    np.testing.assert_allclose(mode["frames"][0], 300 + 10 * shape, rtol=0, atol=1e-12)
    expected = 300 + 10 * (1 - dt * 1.1e-4 * rate) ** 40 * shape
    np.testing.assert_allclose(mode["frames"][-1], expected, rtol=0, atol=1e-11)


def check_stop(folder: Path, ranks: int) -> None:
    """An early stop comes at the first edge of a step, and the summary says so."""
    stopped = read(folder, "stop", ranks)["summary"]
    assert stopped["status"] == "stopped"
    assert stopped["steps"] == 1


def check_blow_up(folder: Path, counts: tuple[int, ...]) -> None:
    """A step beyond the stability limit is found, and named with field, cell, rank and step."""
    for ranks in counts:
        text = (folder / f"blow-up-{ranks}.txt").read_text()
        assert text.startswith("HPK-400")
        for words in ("rank ", "step ", "cell (y ", "x ", "field temperature", "time.safety is 1.2"):
            assert words in text


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid_and_their_start_does_not_depend_on_blocks(preset):
    config = settings(**PRESETS[preset][1])
    shape = config.grid.shape
    whole = start(config, tuple(slice(0, n) for n in shape))
    assert whole.shape == shape
    assert whole.max() > whole.min()
    first, n = block(shape[0], 3, 1)
    part = (slice(first, first + n), *(slice(0, n) for n in shape[1:]))
    np.testing.assert_array_equal(start(config, part), whole[part])
    plan = dry_run(config, 3)
    assert plan.steps == time_step(config)[1]
    assert plan.frames == 1 + sum(is_frame(config, step, plan.steps) for step in range(1, plan.steps + 1))
    assert plan.output_bytes == 4 * plan.frames * math.prod(shape)
    assert plan.halo_bytes >= 2 * 8 * min(shape)
    assert plan.memory_per_rank >= 16 * math.prod(shape) / 3


def test_gaussian_is_centered_and_wraps_around_a_periodic_axis():
    config = settings(
        grid={"shape": [10, 16], "lengths": [1.0, 1.6], "periodic": ["y", "x"]},
        start={"kind": "gaussian", "radius": 0.3, "background": 1.0, "amplitude": 2.0},
    )
    values = start(config, (slice(0, 10), slice(0, 16)))
    np.testing.assert_allclose(values, values[::-1, ::-1], rtol=1e-13)
    assert values[5, 8] == pytest.approx(1 + 2 * math.exp(-(0.05**2) / 0.3**2), rel=1e-12)


def test_the_step_divides_the_end_and_keeps_the_limit():
    config = settings(time={"end": 10.0, "safety": 0.7})
    dt, steps = time_step(config)
    hy, hx = config.grid.spacing
    assert dt * steps == pytest.approx(10.0)
    assert dt <= 0.7 / (2 * 1.1e-4 * (1 / hy**2 + 1 / hx**2)) < dt * steps / (steps - 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"grid": {"shape": [8, 8, 8]}}, "shape has 3 dims and lengths has 2"),
        ({"grid": {"shape": [8, 1]}}, "at least 2 cells"),
        ({"grid": {"lengths": [1.0, 0.0]}}, "above 0 m"),
        ({"grid": {"periodic": ["z"]}}, "periodic names the axis 'z'"),
        ({"grid": {"periodic": ["x"]}, "walls": {"x_low": 300.0}}, "walls.x_low is given, but x is periodic"),
        ({"walls": {"z_high": 300.0}}, "has no axis z"),
        ({"walls": {"x_high": -1.0}}, "not below 0 K"),
        ({"walls": {"x_high": "hot"}}, "insulated"),
        ({"start": {"kind": "sine", "modes": [1, 1, 1]}}, "one number for each"),
        ({"start": {"kind": "sine", "modes": [1, 301]}}, "resolve 0 to 300"),
        ({"diffusivty": 1.0}, "diffusivty"),
        ({"time": {"steps": 0}}, "greater than or equal to 1"),
    ],
)
def test_mistakes_are_told(given, message):
    with pytest.raises(ValidationError, match=message):
        settings(**given)
