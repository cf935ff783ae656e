"""Every app goes on from its checkpoints on other numbers of ranks as if it had never stopped."""

from __future__ import annotations

from pathlib import Path


def test_grids_resume_on_other_ranks_with_the_same_bits(mpirun, tmp_path: Path) -> None:
    cases = ["diffusion", "weather", "weather_diffusion", "weather3d", "shallow_water", "flood"]
    mpirun(4, "resumed_apps.py", tmp_path, *cases, timeout=280)
