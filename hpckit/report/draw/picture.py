"""One picture of a run for a README or a talk: a field at several times."""

from __future__ import annotations

import io
from pathlib import Path

from hpckit.errors import InputError
from hpckit.io.fields.reader import find_fields
from hpckit.io.files import write_file
from hpckit.report.draw.maps import draw, extend_of, shown_range
from hpckit.report.field_file import FieldFile
from hpckit.report.sections.slices import Slices, read_slices
from hpckit.report.style import pyplot
from hpckit.report.units import with_units

KINDS = ("png", "svg", "pdf")


def save_picture(directory: Path, file: Path, variable: str = "", times: int = 3) -> Path:
    """Draw a 2-D field of the run at `times` times, the first and the last among them, in one row with one color scale.

    `variable`: its name; by default a temperature perturbation if there is one, else the first. The name of `file`
    decides the format (png, svg, pdf). Raises `InputError` for a run without such a field or an unknown
    kind, `SetupError` without matplotlib or when the file cannot be written.
    """
    file = Path(file)
    kind = file.suffix.lower().lstrip(".")
    if kind not in KINDS:
        raise InputError(f"no picture can be written as {file.name}", do=f"use a name that ends in {', '.join(KINDS)}")
    plt = pyplot()
    with FieldFile(find_fields(directory)) as fields:
        slices = read_slices(fields, most_times=times, most_points=800)
    field = _choose([item for item in slices if item.values.ndim == 3], variable)
    figure, axes = plt.subplots(
        1,
        len(field.times),
        figsize=(3.3 * len(field.times) + 0.6, 2.4),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for index in range(len(field.times)):
        image = draw(axes[0, index], field, index)
        axes[0, index].set_title(field.moment(index))
        if index:
            axes[0, index].set_ylabel("")
    bar = figure.colorbar(image, ax=axes, pad=0.01, shrink=0.85, extend=extend_of(field))
    bar.ax.set_ylim(*shown_range(field))
    bar.outline.set_visible(False)
    figure.suptitle(with_units(field.long_name, field.units), x=0.005, ha="left", fontsize=9.5)
    figure.patch.set_facecolor("white")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160, facecolor="white")
    plt.close(figure)
    write_file(file, buffer.getvalue())
    return file


def _choose(fields: list[Slices], variable: str) -> Slices:
    names = [field.name for field in fields]
    if not fields or (variable and variable not in names):
        raise InputError(
            f"no field {variable!r} to draw" if variable else "the run has no field of two dims or more",
            do=f"choose one of {', '.join(names)}" if names else "",
        )
    if variable:
        return fields[names.index(variable)]
    warm = [field for field in fields if "temperature" in field.long_name.lower() and field.middle == 0]
    return (warm or fields)[0]
