"""The figures of a run's fields, each computed once; a figure that fails is left out with a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hpckit.errors import CorruptDataError
from hpckit.io.fields.frames import missing_sources
from hpckit.report.draw.animation import Animation, animate, animation_numbers
from hpckit.report.draw.hovmoeller import diagrams, hovmoeller_numbers
from hpckit.report.draw.spectra import Spectrum
from hpckit.report.field_file import FieldFile
from hpckit.report.run_data import RunData
from hpckit.report.sections.fields import cross_sections, cut_place
from hpckit.report.sections.slices import Slices, cropped, drawn_as_lines, read_slices, still_dim
from hpckit.report.sections.spectra import spectra, spectra_numbers
from hpckit.report.settings import Report

Record = dict[str, Any]
T = TypeVar("T")


@dataclass
class Figures:
    """The figures beside the fields themselves."""

    hovmoeller: tuple[list[Slices], str] = field(default_factory=lambda: ([], "off"))
    spectra: list[Spectrum] = field(default_factory=list)
    animation: Animation | None = None

    def numbers(self) -> Record:
        """The numbers of all of them, for `report.json`."""
        return {
            "hovmoeller": hovmoeller_numbers(*self.hovmoeller),
            "spectra": spectra_numbers(self.spectra),
            "animation": animation_numbers(self.animation),
        }


def make_figures(run: RunData, settings: Report, most_bytes: int) -> Figures:
    """The diagrams, spectra and animation (of at most `most_bytes`) of the main field."""
    made = Figures()
    if run.fields is None:
        return made
    try:
        with FieldFile(run.fields, run.periodic, run.frame_unit) as file:
            if not file.variables or not len(file.times):
                return made
            main = file.main(settings.variable)
            if settings.hovmoeller != "off":
                made.hovmoeller = _try(
                    run,
                    "diagrams of place and time",
                    made.hovmoeller,
                    lambda: diagrams(file, main, settings.hovmoeller),
                )
            if settings.spectra:
                made.spectra = _try(run, "spectra", [], lambda: spectra(file, main))
            if settings.frames:
                place = cut_place(file, main, settings.cut)
                made.animation = _try(
                    run, "animation", None, lambda: animate(file, main, place, settings.frames, most_bytes)
                )
    except (OSError, KeyError):
        pass  # reported with the fields
    return made


def read_fields(run: RunData, points: int, settings: Report) -> tuple[list[Slices], list[Slices]]:
    """The fields that can be read, and the sections through the main one of a 3-D run."""
    if run.fields is None:
        return [], []
    try:
        missing = missing_sources(run.fields)
        if missing:
            run.tell(f"values of the fields are missing, with their files: {', '.join(missing[:3])}")
        with FieldFile(run.fields, run.periodic, run.frame_unit) as file:
            if not file.variables or not len(file.times):
                return [], []
            main = file.main(settings.variable)
            place = cut_place(file, main, settings.cut)
            slices = read_slices(file, settings.times, points, main.name, place)
            cuts: list[Slices] = _try(run, "sections", [], lambda: cross_sections(file, main, settings.cut, points))
            telling = [one for one in cuts if still_dim(one) is None]
            return cropped([drawn_as_lines(one) for one in slices], main.name), telling
    except (OSError, CorruptDataError, KeyError) as problem:
        run.tell(f"the fields cannot be read: {problem}")
        return [], []


def _try(run: RunData, what: str, otherwise: T, make: Callable[[], T]) -> T:
    """What `make` returns; if the output does not allow it, a note for the reader."""
    try:
        return make()
    except (OSError, CorruptDataError, KeyError, ValueError, MemoryError) as problem:
        run.tell(f"no {what}: {problem}")
        return otherwise
