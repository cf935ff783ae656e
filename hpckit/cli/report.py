"""`hpckit report DIR`: build the report of a run again, or draw one picture of it; print where it is."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpckit.errors import InputError
from hpckit.run_directory import RunDirectory


def main(arguments: list[str]) -> int:
    """Run the verb."""
    it = argparse.ArgumentParser(prog="hpckit report", description="Build report/index.html of a run directory.")
    it.add_argument("directory", type=Path, metavar="DIR", help="a run directory; `hpckit ls` lists them")
    it.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw one field at several times to FILE (png, svg, pdf)"
    )
    it.add_argument(
        "--variable", default="", help="the field to draw; default: a temperature perturbation or the first"
    )
    it.add_argument("--times", type=int, default=3, help="how many times to draw; default 3")
    options = it.parse_args(arguments)
    directory = RunDirectory(options.directory)
    if not (directory.path / "resolved.json").exists():
        raise InputError(f"{directory.path} is no run directory: it has no resolved.json", do="hpckit ls")
    if options.picture:
        if options.times < 1:
            raise InputError(f"--times is {options.times}; draw at least 1")
        from hpckit.report.picture import save_picture

        print(save_picture(directory.path, options.picture, options.variable, options.times))
        return 0
    from hpckit.report.build import build_report

    print(build_report(directory.path))
    return 0
