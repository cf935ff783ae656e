"""Every app goes on from its checkpoints on other numbers of ranks as if it had never stopped."""

from __future__ import annotations

import pytest

from hpckit.bench.fault_cases.rank_programs import rows_of
from hpckit.bench.fault_cases.resize_cases import CASES, MORE

USUAL = ["weather3d", "shallow_water", "md", "train"]  # staggered and not, particles, layers


def test_apps_resume_on_other_ranks_with_the_same_bits() -> None:
    cases = [name for name in CASES if name in USUAL]
    assert len(cases) == len(USUAL)
    rows = list(rows_of("resizing", "resize", 4, "20261121", cases))
    assert [row["case"] for row in rows if not row["passed"]] == []
    assert len(rows) == 6 * len(cases), "six pairs of each"


@pytest.mark.nightly
def test_the_other_cases_resume_with_the_same_bits() -> None:
    others = [name for name in (*CASES, *MORE) if name not in USUAL]
    rows = list(rows_of("resizing", "resize", 4, "20261122", others))
    assert [row["case"] for row in rows if not row["passed"]] == []
