"""Settings of the validation suite."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field

from hpckit.io.settings import InputFile, Section
from hpckit.report.settings import Report

SUMMARY = "validation suite of the weather and shallow-water apps: exact solutions, published benchmarks, orders"

Case = Literal[
    "straka",
    "rising_bubble",
    "linear_waves",
    "rest",
    "split",
    "bryan_fritsch",
    "mountains",
    "orographic_rain",
    "bomex",
    "dycoms",
    "storms",
    "adjustment",
    "geostrophic_jet",
    "kelvin",
    "poincare",
    "sphere",
    "dam_breaks",
    "lakes",
]
CASES: tuple[Case, ...] = get_args(Case)
LONG = ("bomex", "dycoms", "storms")  # each half an hour or more: by name


class Config(Section):
    """All settings of a run."""

    app: Literal["weather/validate"] = "weather/validate"
    cases: tuple[Case, ...] = Field(
        tuple(case for case in CASES if case not in LONG),
        min_length=1,
        description="cases to run; bomex, dycoms and storms take half an hour each, and run if they are named",
    )
    quick: bool = Field(False, description="coarser grids and fewer of them: two minutes on two cores")
    sounding: InputFile | None = Field(
        None, description="an observed column for the case `rest` (WRF input_sounding or Wyoming listing)"
    )
    report: Report = Field(default_factory=Report, description="contents of the report")


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {}
