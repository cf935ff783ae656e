"""Values that change by themselves: NaN, flipped bits in a step, flipped bits in messages; each is found and named."""

from __future__ import annotations

import pytest

from hpckit.bench.fault_cases.rank_programs import rows_of
from hpckit.bench.fault_cases.resize_cases import CASES
from hpckit.bench.fault_cases.taken_out import SAFEGUARDS


def test_changed_values_are_named_and_not_saved() -> None:
    names = [f"{kind}:{app}" for app in ("diffusion", "md", "train") for kind in ("nan", "gate", "flip")]
    rows = list(rows_of("injecting", "value", 2, "20261121", names))
    assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []
    assert len(rows) == len(names)


@pytest.mark.nightly
def test_changed_values_of_every_app() -> None:
    names = [f"{kind}:{app}" for app in CASES for kind in ("nan", "gate", "flip")]
    for seed in "123":
        rows = list(rows_of("injecting", "value", 2, seed, names))
        assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []


@pytest.mark.parametrize("app", ["diffusion", "md"])
def test_changed_messages_name_sender_and_receiver(app: str) -> None:
    rows = list(rows_of("injecting", "message", 2, "5", [f"message:{app}"]))
    assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []


@pytest.mark.nightly
@pytest.mark.parametrize("app", CASES)
def test_changed_messages_of_every_app(app: str) -> None:
    for seed in "12":
        rows = list(rows_of("injecting", "message", 2, seed, [f"message:{app}"]))
        assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []


@pytest.mark.nightly
def test_every_safeguard_of_jobs_is_tested() -> None:
    from hpckit.bench.fault_cases.mutants import NOTICED_BY

    assert set(NOTICED_BY) == set(SAFEGUARDS)
    for name, (program, ranks, case) in NOTICED_BY.items():
        assert any(not row["passed"] for row in rows_of(program, case, ranks, "1", [case], without=name)), name
