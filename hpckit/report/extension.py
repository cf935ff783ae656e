"""What an app adds to the report of its runs: sections of its own, and the work of its phases for the roofline.

An app brings a module `report` beside `config` and `run` with any of

    def sections(run: RunData) -> Iterable[ReportSection | Iterable[ReportSection]]
    def work(run: RunData) -> Iterable[PhaseWork | Iterable[PhaseWork]]

The front end finds it by the app's name and passes it to `build_report`; the report itself knows no app. A failure of
the module is noted on the page, and the rest of the page is built. What is yielded as an iterable (another generator,
say) is a part by itself: where one fails, what it gave before and the other parts stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hpckit.report.page import section
from hpckit.report.run_data import RunData

PLACES = ("headline", "fields", "conservation", "phases")


@dataclass(frozen=True)
class ReportSection:
    """An app's own part of the page.

    `title` is its heading, `html` its content (made with the functions of `hpckit.report.page`, which escape what
    comes from a run, and pictures from `hpckit.report.style.to_svg`), `numbers` its entry `key` in
    `report.json`. `after`: the part of the page before it, one of "headline", "fields", "conservation", "phases".
    `metrics`: the metrics in its charts, which no other chart then shows.
    """

    key: str
    title: str
    html: str
    numbers: Any = field(default_factory=dict)
    after: str = "fields"
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.after not in PLACES:
            raise ValueError(f"a section stands after one of {', '.join(PLACES)}, not {self.after!r}")


@dataclass(frozen=True)
class PhaseWork:
    """The work of one or more phases of an app's timer per cell and step.

    `bytes`: the least traffic between memory and cores (each input read once, each output written once); `flops`:
    additions, multiplications, divisions, roots and powers of the reference kernel, one each.
    """

    name: str
    phases: tuple[str, ...]
    bytes: float
    flops: float


def app_sections(extension: Any, run: RunData) -> list[ReportSection]:
    """The sections of the app, [] without any."""
    return _call(extension, "sections", ReportSection, run)


def app_work(extension: Any, run: RunData) -> list[PhaseWork]:
    """The work of the app's phases, [] if it gives none."""
    return _call(extension, "work", PhaseWork, run)


def placed(brought: Iterable[ReportSection], after: str) -> str:
    """The HTML of the sections that follow a part of the page."""
    return "".join(section(one.title, one.html) for one in brought if one.after == after)


def _call(extension: Any, name: str, kind: type, run: RunData) -> list[Any]:
    function: Callable[[RunData], Iterable[Any]] | None = getattr(extension, name, None)
    if function is None:
        return []

    def whole() -> Iterator[Any]:
        yield function(run)

    return list(_given(whole(), kind, name, run))


def _given(part: Iterable[Any], kind: type, name: str, run: RunData) -> Iterator[Any]:
    """What a part and the parts in it give; what fails is noted: an error in an app's code must not stop the report."""
    try:
        for each in part:
            if isinstance(each, kind):
                yield each
            elif isinstance(each, Iterable) and not isinstance(each, str):
                yield from _given(each, kind, getattr(each, "__name__", name), run)
            else:
                raise TypeError(f"expected a {kind.__name__}, not {each!r:.60}")
    except Exception as problem:
        run.tell(f"the app's {name} of the report failed: {type(problem).__name__}: {problem}")
