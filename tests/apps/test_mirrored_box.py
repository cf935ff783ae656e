"""A box that is mirrored gives the mirrored flow: its low and its high sides are alike."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from mpi4py import MPI

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer

GRID = {"nx": 17, "ny": 13, "nz": 11, "width": 17e3, "length": 16e3, "height": 12e3, "lowest": 400.0}


def flow(sign: float, ground: np.ndarray | None, path, **more) -> dict[str, np.ndarray]:
    """The fields after some steps; sign -1: of the box mirrored in x, mirrored back."""
    settings = {
        "grid": GRID,
        "dynamics": {"kind": "hevi", "step": 4.0},
        "base": {"kind": "stable", "u": 7.0 * sign, "v": -4.0},
        "sides": {"x": "open", "y": "open", "width": 3000.0},
        "lid": {"depth": 3000.0},
        "bubbles": [{"amplitude": 8.0, "x": 8500.0 - 4000.0 * sign, "y": 7000.0, "radius_x": 4000.0}],
        "coriolis": 1e-3 * sign,
        **more,
    }
    if ground is not None:
        np.save(path / "ground.npy", ground[:, :: int(sign)])
        settings["terrain"] = {"kind": "file", "file": str(path / "ground.npy")}
    config = Config.model_validate(settings)
    with mesh_for(config, MPI.COMM_SELF) as mesh:
        model = SplitModel(config, mesh)
        for _ in range(6):
            model.step(4.0, PhaseTimer())
        fields = model.output()
    flip = slice(None, None, int(sign))
    return {name: (sign if name == "u" else 1.0) * values[..., flip] for name, values in fields.items()}


@pytest.mark.parametrize("hilly", by_day([False, True], False))
def test_open_sides_and_lid(tmp_path, hilly):
    ground = np.random.default_rng(1).random((13, 17)) * 300.0 if hilly else None
    one, mirrored = (flow(sign, ground, tmp_path) for sign in (1.0, -1.0))
    assert np.abs(one["u"] - 7.0).max() > 0.5
    for name, values in one.items():
        np.testing.assert_allclose(mirrored[name], values, rtol=0, atol=1e-11 * np.abs(values).max(), err_msg=name)
