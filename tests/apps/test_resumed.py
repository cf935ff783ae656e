"""Every app goes on from its checkpoints on other numbers of ranks as if it had never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_apps_resume_on_other_ranks_with_the_same_bits(mpirun, tmp_path: Path) -> None:
    cases = ["weather", "weather3d", "shallow_water", "flood", "md_langevin"]
    mpirun(4, "resumed_apps.py", tmp_path, *cases, timeout=280)


@pytest.mark.nightly
def test_the_other_cases_resume_with_the_same_bits(mpirun, tmp_path: Path) -> None:
    cases = ["diffusion", "weather_diffusion", "md_nve", "md_bussi", "md_nose_hoover"]
    mpirun(4, "resumed_apps.py", tmp_path, *cases, timeout=280)
