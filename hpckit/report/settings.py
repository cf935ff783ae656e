"""The settings of a report: the section `report` of a run file, and options of `hpckit report`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from hpckit.io.settings import Section


class Report(Section):
    """Settings of the report; they change no result and can be given again to `hpckit report`."""

    variable: str = Field("", description="the main field, of the diagrams and the animation; empty: the first one")
    times: int = Field(6, ge=1, le=24, description="how many times of each field to draw")
    cut: Literal["extremum", "center"] = Field(
        "extremum", description="where fields in 3-D are cut: through the main field's extremum, or the middle"
    )
    scale: Literal["all", "each"] = Field(
        "all", description="color scale of a field's pictures: one for all times, or one for each time"
    )
    hovmoeller: Literal["auto", "mean", "extremum", "off"] = Field(
        "auto",
        description="diagrams of place and time: mean or extremum over the other dims; auto: the mean where it keeps"
        " the field's variance, else the extremum",
    )
    spectra: bool = Field(True, description="spectra against wavenumber")
    frames: int = Field(30, ge=0, le=120, description="frames of the animation, 0 for none")
    roofline: bool = Field(True, description="the phases against the measured peaks of the node")


def settings_of(resolved: dict[str, Any], problems: list[str], **options: Any) -> Report:
    """The resolved settings of a run with `options` over them; an option that does not fit is reported and left out."""
    values = resolved.get("values")
    given = values.get("report") if isinstance(values, dict) else None
    try:
        own = Report.model_validate(given if isinstance(given, dict) else {})
    except ValidationError as problem:
        problems.append(f"the settings of the report are not used: {problem.errors()[0]['msg']}")
        own = Report()
    return Report.model_validate({**own.model_dump(), **options})
