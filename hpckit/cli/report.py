"""`hpckit report DIR`: build the report of a run again, and print where it is."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpckit.errors import InputError
from hpckit.run_directory import RunDirectory


def main(arguments: list[str]) -> int:
    """The verb `report`."""
    it = argparse.ArgumentParser(prog="hpckit report", description="Build report/index.html of a run directory.")
    it.add_argument("directory", type=Path, metavar="DIR", help="a run directory; `hpckit ls` lists them")
    options = it.parse_args(arguments)
    directory = RunDirectory(options.directory)
    if not (directory.path / "resolved.json").exists():
        raise InputError(f"{directory.path} is no run directory: it has no resolved.json", do="hpckit ls")
    from hpckit.report.build import build_report

    print(build_report(directory.path))
    return 0
