"""The report of a run: `report/index.html`, one file with inline pictures, and `report/report.json`, its numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpckit import __version__
from hpckit.comm.agree import plain
from hpckit.errors import InputError, write_error
from hpckit.io.files import replace_file
from hpckit.report.data import MOST_POINTS
from hpckit.report.draw.animation import animation_section
from hpckit.report.draw.figures import Figures, make_figures, read_fields
from hpckit.report.draw.hovmoeller import hovmoeller_section
from hpckit.report.extension import PhaseWork, ReportSection, app_sections, app_work, placed
from hpckit.report.field_file import variable_names
from hpckit.report.numbers import numbers
from hpckit.report.page import page
from hpckit.report.run_data import RunData, load_run
from hpckit.report.sections import sections
from hpckit.report.sections.fields import fields_section
from hpckit.report.sections.findings import find
from hpckit.report.sections.goodput import goodput, goodput_section
from hpckit.report.sections.roofline import roofline, roofline_section
from hpckit.report.sections.spectra import spectra_section
from hpckit.report.sections.trace import trace_section
from hpckit.report.settings import Report, settings_of

Record = dict[str, Any]
MOST_BYTES = 3_000_000
POINTS = (400, 250, 150, 90)  # of a field's longer side, until the page is small enough; then it has no animation


def build_report(directory: Path, extension: Any = None, machine: Record | None = None, **options: Any) -> Path:
    """Write the report of the run in `directory`, whatever state it is in; returns the path of the page.

    `extension`: the app's module `report` (see `hpckit.report.extension`), None without one. `machine`: the
    measured peaks of the node, or the reason for their absence (`hpckit.run.peaks`), for the roofline.
    `options` are fields of `hpckit.report.settings.Report` and override those of the run file.

    Raises `InputError` when `directory` holds no run, `SetupError` without matplotlib (extra `analysis`) or when the
    report cannot be written.
    """
    run = load_run(Path(directory))
    settings = settings_of(run.resolved, run.problems, **options)
    if options.get("variable"):
        _require_variable(run, settings.variable)
    brought = app_sections(extension, run)
    work = app_work(extension, run) if settings.roofline else []
    figures = make_figures(run, settings, MOST_BYTES * 3 // 10)  # base64 makes four bytes of three
    for points in (*POINTS, POINTS[-1]):
        text, record = compose(run, points, settings, figures, brought, work, machine or {})
        if len(text.encode()) < MOST_BYTES:
            break
        if points == POINTS[-1] and figures.animation is not None:
            run.tell(f"no animation: the page would be larger than {MOST_BYTES / 1e6:g} MB")
            figures.animation = None
    target = run.directory / "report"
    try:
        target.mkdir(exist_ok=True)
        replace_file(target / "report.json", json.dumps(record, indent=1, allow_nan=False).encode())
        replace_file(target / "index.html", text.encode())
    except OSError as problem:
        raise write_error(problem, target) from problem
    return target / "index.html"


def _require_variable(run: RunData, variable: str) -> None:
    try:
        names = variable_names(run.fields) if run.fields else []
    except OSError:
        return  # reported with the fields
    if variable not in names:
        raise InputError(f"the run has no field {variable!r}", do=f"choose one of {', '.join(names)}" if names else "")


def compose(
    run: RunData,
    points: int,
    settings: Report,
    figures: Figures,
    brought: Sequence[ReportSection],
    work: Sequence[PhaseWork],
    machine: Record,
) -> tuple[str, dict[str, Any]]:
    """The page, and the numbers in it, with fields of at most `points` points a dim, their numbers thinned alike."""
    fields, cuts = read_fields(run, points, settings)
    values = plain({**numbers(run, fields), **figures.numbers()})
    values["roofline"] = plain(roofline(values, work, machine))
    values["goodput"] = plain(goodput(run))
    values["sections"] = {one.key: plain(one.numbers) for one in brought}
    found = find(values)
    values["findings"] = [finding.to_dict() for finding in found]
    text = page(
        run.title,
        sections.header(run, values),
        sections.failure(values),
        sections.headline(values),
        sections.findings(found),
        placed(brought, "headline"),
        fields_section(fields, cuts, settings.scale == "each", MOST_POINTS * points // POINTS[0]),
        animation_section(figures.animation),
        hovmoeller_section(*figures.hovmoeller),
        spectra_section(figures.spectra),
        placed(brought, "fields"),
        sections.conservation(run, values),
        sections.history(run, values, {name for one in brought for name in one.metrics}),
        placed(brought, "conservation"),
        sections.phases(values),
        trace_section(run.directory),
        goodput_section(values["goodput"]),
        roofline_section(values["roofline"]),
        placed(brought, "phases"),
        sections.decomposition(values),
        sections.provenance(values),
        sections.configuration(values),
        f"<footer>Written by hpckit {__version__}. The same numbers: report.json."
        + (" The fields: output/fields.h5, for xarray and ParaView." if run.fields else "")
        + "</footer>",
    )
    return text, values
