"""Every app goes on from its checkpoints on other numbers of ranks as if it had never stopped.

By night: by day `python -m tests.faults --tier T0`, a stage of CI, does all of them.
"""

from __future__ import annotations

import pytest

from tests.faults.jobs import rows_of
from tests.faults.programs.cases import CASES, MORE

USUAL = "diffusion"


@pytest.mark.nightly
def test_an_app_resumes_on_other_ranks_with_the_same_bits() -> None:
    rows = list(rows_of("resizing", "resize", 4, "20261121", [USUAL]))
    assert [row["case"] for row in rows if not row["passed"]] == []
    assert len(rows) == 6, "six pairs"


@pytest.mark.nightly
def test_the_other_cases_resume_with_the_same_bits() -> None:
    others = [name for name in (*CASES, *MORE) if name != USUAL]
    rows = list(rows_of("resizing", "resize", 4, "20261122", others))
    assert [row["case"] for row in rows if not row["passed"]] == []
