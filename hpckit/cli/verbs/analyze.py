"""`hpckit analyze FILE`: structure and motion of the particles of a file, whichever program wrote it."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.md.output.observed import observed
from hpckit.comm.agree import plain
from hpckit.errors import InputError
from hpckit.io.files import write_file
from hpckit.io.particles.frames import read_frames, with_images
from hpckit.md.observables.measurements import Measured, Measurements, least_width
from hpckit.md.units import UNITS
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.report.page import caption, escape, page, section
from hpckit.report.units import with_error
from hpckit.settings.table import Parser

SPACINGS = 4.0  # mean distances between particles that g(r) reaches to by itself
MOST_PLACES = 10**6  # bins, shells, slabs, lags
MOST_WAVES = 1e8  # S(k) looks at all of them to choose some
LEAST_FRAMES = 5  # of which motion is measured
AXES = ("x", "y", "z")


def main(arguments: list[str]) -> int:
    """The verb `analyze`."""
    options = _parser().parse_args(arguments)
    found = analyze(options)
    if options.json:
        print(json.dumps(plain(found)))
    else:
        _print(found)
    if options.report:
        _write_page(options.report, found)
        print(options.report)
    return 0


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit analyze",
        description="g(r), S(k), density, speeds, displacement and velocity correlation from a file of particles.",
    )
    it.add_argument("file", type=Path, metavar="FILE", help="a LAMMPS dump or data file, extended XYZ or H5MD")
    it.add_argument(
        "--frames", default="", metavar="FIRST:STOP:STEP", help="which frames, counted from 0; default: all"
    )
    it.add_argument("--reach", type=float, default=0.0, help="longest distance of g(r); default: 4 mean distances")
    it.add_argument("--bins", type=int, default=200, help="bins of g(r)")
    it.add_argument("--k-max", type=float, default=0.0, help="longest wave vector of S(k); default: no S(k)")
    it.add_argument("--shells", type=int, default=80, help="shells of wave vectors that S(k) is averaged over")
    it.add_argument("--axis", choices=(*AXES, "r"), default="", help="axis of a density profile; r: around the middle")
    it.add_argument("--slabs", type=int, default=100, help="slabs or shells of the density profile")
    it.add_argument("--lags", type=int, default=200, help="how many frames motion reaches back")
    it.add_argument("--spacing", type=int, default=5, help="frames between two time origins of motion")
    it.add_argument("--interval", type=float, help="time between two frames of the file, where it does not say it")
    it.add_argument("--masses", help="of each type, with commas between; default: the file's")
    it.add_argument("--units", choices=tuple(UNITS), help="names of the units; default: the file's, or lj")
    it.add_argument("--periodic", default="xyz", help="periodic dims of a LAMMPS data file, which does not say them")
    it.add_argument("--json", action="store_true", help="print all results as one JSON object")
    it.add_argument("--report", type=_page, metavar="PAGE.html", help="write a page with the curves")
    return it


def _page(text: str) -> Path:
    if not Path(text).name or Path(text).is_dir():  # told before the work, not after it
        raise argparse.ArgumentTypeError(f"{text!r} is not a file name")
    return Path(text)


def analyze(options: argparse.Namespace) -> dict[str, Any]:
    """The results of `Measurements`, and what they are of. Raises `InputError` for what cannot be."""
    frames = _frames(options)
    first = next(frames, None)
    if first is None or not first.count:
        raise InputError("there are no particles to analyze in it", where=str(options.file))
    types = int(first.types.max()) + 1 if first.masses is None else len(first.masses)
    made = Measurements(_measured(options, first), types)
    motion, notes, count, last = True, list[str](), 0, first
    for frame in chain([first], frames):
        made.add_structure(frame)
        if motion:
            problem = _add_motion(made, frame, first)
            motion = not problem
            notes += [f"motion is that of the first {count} frames only: {problem}"] if problem else []
        count, last = count + 1, frame
    found = made.result()
    if count < LEAST_FRAMES or found.get("motion", {}).get("frames", 0) < LEAST_FRAMES:
        found.pop("motion", None)
    about = {
        "file": str(options.file),
        "source": "trajectory",
        "frames": count,
        "particles": first.count,
        "types": types,
        "edges": first.edges.tolist(),
        "periodic": "".join(axis for axis, wraps in zip(AXES, first.periodic, strict=True) if wraps),
        "steps": [first.step, last.step],
        "units": options.units or first.units or "lj",
        "notes": notes,
    }
    return about | found


def _frames(options: argparse.Namespace) -> Iterator[Snapshot]:
    """The frames that are wanted, with times, images and masses."""
    if not set(options.periodic) <= set(AXES):
        raise InputError(f"--periodic is {options.periodic!r}", do="give some of x, y and z, as xy")
    x, y, z = (axis in options.periodic for axis in AXES)
    if options.interval is not None and not 0 < options.interval < math.inf:
        raise InputError(f"--interval is {options.interval:g}", do="give a time above 0")
    masses = _masses(options.masses) if options.masses else None
    chosen = _chosen(options.frames)
    step = chosen[2] or 1
    for number, frame in enumerate(islice(with_images(read_frames(options.file, (x, y, z))), *chosen)):
        time = frame.time if options.interval is None else number * step * options.interval
        yield replace(frame, time=time, masses=_checked(masses, frame) if masses is not None else frame.masses)


def _chosen(text: str) -> tuple[int | None, int | None, int | None]:
    """The slice that FIRST:STOP:STEP says."""
    words = text.split(":")
    if text and (not 2 <= len(words) <= 3 or not all(word == "" or word.isdigit() for word in words)):
        raise InputError(
            f"--frames is {text!r}", do="give FIRST:STOP:STEP of whole numbers from 0, as 100: or 0:500:10"
        )
    first, stop, step = ([int(word) if word else None for word in words] + [None] * 3)[:3]
    if step == 0:
        raise InputError(f"--frames is {text!r}: its step is 0", do="give a step of 1 or more")
    return first, stop, step


def _masses(text: str) -> np.ndarray:
    try:
        masses = np.array([float(word) for word in text.split(",")])
    except ValueError:
        masses = np.zeros(1)
    if not (np.isfinite(masses).all() and (masses > 0).all()):
        raise InputError(f"--masses is {text!r}", do="give a number above 0 for each type, as 1.0,2.5")
    return masses


def _checked(masses: np.ndarray, frame: Snapshot) -> np.ndarray:
    highest = int(frame.types.max(initial=0)) + 1
    if highest > len(masses):
        raise InputError(f"--masses has {len(masses)} numbers, and there are particles of type {highest}")
    return masses


def _measured(options: argparse.Namespace, first: Snapshot) -> Measured:
    shortest = least_width(first.cell.widths, first.periodic)
    reach = options.reach or min(SPACINGS * float((np.prod(first.edges) / first.count) ** (1 / 3)), 0.5 * shortest)
    for name in ("bins", "shells", "slabs", "lags", "spacing"):
        if not 1 <= getattr(options, name) <= MOST_PLACES:
            raise InputError(f"--{name} is {getattr(options, name)}", do=f"give a whole number from 1 to {MOST_PLACES}")
    if not 0 < reach <= 0.5 * shortest:
        raise InputError(f"--reach is {reach:g}", do=f"give a distance up to half the box, {0.5 * shortest:g}")
    if not 0 <= options.k_max < math.inf or (options.k_max and not all(first.periodic)):
        raise InputError("--k-max asks for S(k)", do="give a number above 0, and a box that is periodic in x, y and z")
    waves = float(np.prod(options.k_max / np.pi * first.edges + 1)) if options.k_max else 0.0
    if waves > MOST_WAVES:
        raise InputError(
            f"--k-max is {options.k_max:g}: this box has {waves:.2g} wave vectors up to it", do="give a smaller one"
        )
    return Measured(
        reach=float(reach),
        bins=options.bins,
        k_max=options.k_max,
        shells=options.shells,
        axis=options.axis,
        slabs=options.slabs,
        lags=options.lags,
        spacing=options.spacing,
    )


def _add_motion(made: Measurements, frame: Snapshot, first: Snapshot) -> str:
    """Why the motion of the frames before does not go on with this one; '' where it does."""
    if not np.array_equal(frame.ids, first.ids):
        return "then there are other particles"
    try:
        made.add_motion(frame)
    except InputError as error:
        return f"{error.message} (--interval gives times to frames)"
    return ""


def _print(found: dict[str, Any]) -> None:
    names = UNITS[found["units"]].names
    length, time = names["length"], names["time"]
    edges = " x ".join(f"{edge:.5g}" for edge in found["edges"])
    print(f"{found['file']}: {found['frames']} frames of {found['particles']} particles, box {edges} {length}")
    rows = []
    radial = found["radial"]
    rows.append(("g(r) is highest", f"{radial['peak'][1]:.4g}", f"at r = {radial['peak'][0]:.4g} {length}"))
    if found.get("structure"):
        k, s = np.array(found["structure"]["k"]), np.array(found["structure"]["s"])
        rows.append(("S(k) is highest", f"{s.max():.4g}", f"at k = {k[s.argmax()]:.4g} / {length}"))
    if found.get("speeds"):
        said = "from Maxwell and Boltzmann, of the cumulative distribution"
        rows.append(("speeds differ", f"{found['speeds']['distance']:.2g}", said))
    for key, name in (("einstein", "displacement"), ("green_kubo", "velocity correlation")):
        if key in found.get("motion", {}):
            one = found["motion"][key]
            value, error = with_error(one["diffusion"], math.nan if one["error"] is None else one["error"])
            said = f"{value} ± {error}" if error else value
            rows.append(("diffusion coefficient", said, f"{length}²/{time}, from the {name}"))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, value, said in rows:
        print(f"  {name:{widths[0]}}  {value:{widths[1]}}  {said}")
    for note in found["notes"]:
        print(f"note: {note}")


def _write_page(path: Path, found: dict[str, Any]) -> None:
    parts = [section(one.title, one.html) for one in chain.from_iterable(observed(found, found["units"]))]
    said = caption(f"{found['frames']} frames of {found['particles']} particles. {' '.join(found['notes'])}")
    write_file(path, page(found["file"], f"<h1>{escape(Path(found['file']).name)}</h1>", said, *parts).encode())
