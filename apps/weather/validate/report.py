"""The suite's sections of the report: computed numbers against expected ones, curves, and pictures of the cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpckit.apps.common.validation import VALIDATION
from hpckit.io.fields.reader import find_fields
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.data import columns_of, with_data
from hpckit.report.draw.maps import colorbar, panels
from hpckit.report.extension import ReportSection
from hpckit.report.field_file import FieldFile
from hpckit.report.page import caption, escape, grid, table
from hpckit.report.run_data import RunData
from hpckit.report.sections.fields import cut_place
from hpckit.report.sections.slices import read_slice, section_of
from hpckit.report.style import SERIES, pyplot, to_svg
from hpckit.report.units import few_ticks, number, signs


def sections(run: RunData) -> Iterable[ReportSection]:
    """The verdicts, the curves and the pictures."""
    path = run.directory / VALIDATION
    if not path.is_file():
        return
    record = parse_json(read_bytes(path, "the record"))
    checks = record["checks"]
    passed = sum(check["passed"] for check in checks)
    numbers = {"passed": passed, "missed": len(checks) - passed, "checks": checks}
    said = caption(
        f"{passed} of {len(checks)} numbers are what they should be. The runs are in the folder cases/, each complete."
    )
    yield ReportSection(
        "validation", "Our numbers beside the published and the exact", said + verdicts(checks), numbers
    )
    if record["curves"]:
        yield ReportSection("curves", "Ours and exact", grid(map(curves, record["curves"])))
    drawn = "".join(picture(run, one) for one in record["pictures"])
    yield ReportSection("pictures", "The cases", drawn)


def verdicts(checks: Iterable[dict[str, Any]]) -> str:
    """The table, what misses first."""
    rows = [
        (
            "pass" if check["passed"] else "MISSES",
            check["case"],
            check["quantity"],
            "not finite" if check["ours"] is None else number(check["ours"]),
            signs(check["allowed"]),
            check["unit"],
            check["source"],
        )
        for check in sorted(checks, key=lambda check: check["passed"])
    ]
    return table(("", "case", "number", "ours", "should be", "unit", "source"), rows, (3,))


def curves(record: dict[str, Any]) -> str:
    """Lines of ours and of the exact solution, or errors over resolution, as SVG."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(3.7, 2.4), layout="constrained")
    for (name, (x, y)), color in zip(record["lines"].items(), SERIES * 9, strict=False):
        marker = "o" if len(x) < 8 else None
        axes.plot(x, y, color=color, label=name, marker=marker, markersize=3)
    if record["logarithmic"]:
        axes.set_xscale("log")
        axes.set_yscale("log")
        spacings = sorted({one for x, _ in record["lines"].values() for one in x})
        axes.set_xticks(spacings, [f"{one:g}" for one in spacings], minor=False)
        axes.set_xticks([], minor=True)
        few_ticks(axes.yaxis)
    else:
        axes.ticklabel_format(scilimits=(-3, 6))
    axes.grid(axis="y")
    axes.set_title(record["title"])
    axes.set_xlabel(record["x_label"])
    axes.set_ylabel(record["y_label"])
    figure.legend(loc="outside lower left", ncols=2, handlelength=1.2)
    return with_data(
        to_svg(figure, record["title"], "chart"), record["title"], columns_of(record["lines"], record["x_label"])
    )


def picture(run: RunData, record: dict[str, str]) -> str:
    """The last frame of a field of a nested run; a line that says why where it cannot be read.

    A field of 3 dims is cut through its extremum: in the middle between two storms is little to see.
    """
    try:
        path = find_fields(run.directory / "cases" / record["run"])
        with FieldFile(path) as file:
            variable = file.variables[record["field"]]
            place = cut_place(file, variable, "extremum")
            field = read_slice(file, variable, [len(file.times) - 1], 300, section_of(variable, place))
    except Exception as problem:  # a picture less, and the page says so
        return caption(f"{record['title']}: cannot be drawn: {problem}")
    where = caption(f"{field.note}, through the extremum") if field.note else ""
    return f"<h3>{escape(record['title'])}</h3>{where}{colorbar(field)}{grid(panels(field))}"
