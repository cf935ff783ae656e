"""gray_scott has the bits of a NumPy program on 1 and on 2 ranks: `pytest`, in the folder of the app."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpckit.apps.gray_scott.config import Config

NY, NX, STEPS = 21, 27, 60


def reference() -> tuple[np.ndarray, np.ndarray]:
    """U and v after all steps, in plain NumPy."""
    y, x = np.ogrid[:NY, :NX]
    square = (abs(y - NY // 2) < NY // 10) & (abs(x - NX // 2) < NX // 10)
    noise = 0.02 * np.sin(12.9898 * y + 78.233 * x)
    u, v = np.where(square, 0.5, 1.0) + noise, np.where(square, 0.25, 0.0) + abs(noise)
    it = Config().reaction
    for _ in range(STEPS):
        reacted = u * v * v
        lu, lv = (np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a for a in (u, v))
        u, v = (
            u + (it.du * lu - reacted + it.feed * (1 - u)),
            v + (it.dv * lv + reacted - (it.feed + it.kill) * v),
        )
    return u, v


@pytest.mark.parametrize("ranks", [1, 2])
def test_any_number_of_ranks_has_the_bits_of_numpy(tmp_path: Path, ranks: int) -> None:
    """Rows of blocks of different sizes, and frames written by both ranks."""
    words = [f"grid.ny={NY}", f"grid.nx={NX}", f"time.steps={STEPS}", "-n", str(ranks), "--no-report"]
    command = [sys.executable, "-m", "hpckit.cli.main", "run", str(Path(__file__).parent), *words]
    subprocess.run([*command, "--directory", str(tmp_path / "run")], check=True)
    with h5py.File(tmp_path / "run" / "output" / "fields.h5") as file:
        for name, expected in zip("uv", reference(), strict=True):
            np.testing.assert_array_equal(file[name][-1], expected)
