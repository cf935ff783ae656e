"""`hpckit report DIR`: rebuild the report of a run, or draw one picture of it, and print its path."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from hpckit.errors import HpckitError, InputError
from hpckit.io.probe import hdf5_files, require_intact
from hpckit.run.directory import RunDirectory
from hpckit.settings.apps import app_of
from hpckit.settings.table import Parser

CHOICES = {"cut": ("extremum", "center"), "scale": ("all", "each"), "hovmoeller": ("auto", "mean", "extremum", "off")}


def main(arguments: list[str]) -> int:
    """Run the verb."""
    it = Parser(
        prog="hpckit report",
        description="Build report/index.html of a run directory. Options left out are those of the run file.",
    )
    it.add_argument(
        "directory", type=Path, metavar="DIR", help="a run directory; `hpckit ls` lists them; or that of --record"
    )
    it.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw one field at several times to FILE (png, svg, pdf)"
    )
    it.add_argument(
        "--variable", help="the main field: of the picture, the diagrams and the animation; default: the first"
    )
    it.add_argument("--times", type=int, help="how many times to draw; default 6, in a picture 3")
    it.add_argument("--scale", choices=CHOICES["scale"], help="one color scale for all times, or one for each")
    it.add_argument("--cut", choices=CHOICES["cut"], help="where fields in 3-D are cut")
    it.add_argument("--hovmoeller", choices=CHOICES["hovmoeller"], help="what diagrams of place and time show")
    it.add_argument("--frames", type=int, help="frames of the animation, 0 for none; default 30")
    it.add_argument("--no-spectra", dest="spectra", action="store_false", default=None, help="leave the spectra out")
    it.add_argument("--no-roofline", dest="roofline", action="store_false", default=None, help="leave the roofline out")
    options = it.parse_args(arguments)
    if (options.directory / "serving.jsonl").exists():
        from hpckit.serving.server.page import build_page

        print(build_page(options.directory))
        return 0
    directory = RunDirectory(options.directory)
    if not (directory.path / "resolved.json").exists():
        raise InputError(f"{directory.path} is not a run directory: it has no resolved.json", do="hpckit ls")
    if options.times is not None and not 1 <= options.times <= 24:
        raise InputError(f"--times is {options.times}; draw 1 to 24")
    if options.frames is not None and not 0 <= options.frames <= 120:
        raise InputError(f"--frames is {options.frames}; give 0 (no animation) to 120")
    require_intact(hdf5_files(directory.path / "output"))  # the run may come from an untrusted source
    if options.picture:
        from hpckit.report.draw.picture import save_picture

        print(save_picture(directory.path, options.picture, options.variable or "", options.times or 3))
        return 0
    names = ("variable", "times", "scale", "cut", "hovmoeller", "frames", "spectra", "roofline")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    print(build(directory, **given))
    return 0


def build(directory: RunDirectory, **options: Any) -> Path:
    """Build the report of a run with its app's part; `options` override those of the run file."""
    from hpckit.report.build import build_report
    from hpckit.report.settings import settings_of
    from hpckit.run.peaks import peaks_of_run
    from hpckit.settings.config import user_cache

    extension = extension_of(directory)
    settings = settings_of(directory.read_json("resolved.json") or {}, [], **options)
    draws = settings.roofline and hasattr(extension, "work") and directory.path.joinpath("summary.json").exists()
    machine = peaks_of_run(directory, user_cache()) if draws else None
    return build_report(directory.path, extension, machine, **options)


def extension_of(directory: RunDirectory) -> ModuleType | None:
    """The module `report` of the run's app; None for apps without one or that are not installed here."""
    try:
        return app_of(directory.read_json("resolved.json") or {}).report_module
    except (HpckitError, ImportError, LookupError, ValueError):
        return None
