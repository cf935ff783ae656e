"""The sections of what a run measures: structure, motion, speeds and profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hpckit.apps.md.output.charts import lines
from hpckit.md.observables.measurements import FIT
from hpckit.md.units import UNITS
from hpckit.report.extension import ReportSection
from hpckit.report.page import caption, grid, table
from hpckit.report.units import pretty, with_error

TO_CM2_PER_S = {"real": 0.1, "metal": 1e-4}  # of angstrom^2 per fs and per ps


def observed(found: dict[str, Any], units: str) -> tuple[Iterator[ReportSection], ...]:
    """The sections of the results of `Measurements`, in parts; `found["source"]` names their source."""
    names = symbols(UNITS[units].names)
    return _structure(found, names), _motion(found, units, names), _speeds(found), _profile(found, names)


def symbols(names: Mapping[str, str]) -> dict[str, str]:
    """Units as they are printed."""
    return {what: pretty(unit) for what, unit in names.items()}


def _structure(found: dict[str, Any], names: dict[str, str]) -> Iterator[ReportSection]:
    radial = found.get("radial")
    if not radial:
        return
    length = names.get("length", "")
    drawn = [
        lines("g(r)", {"": (radial["r"], radial["g"])}, f"r ({length})", level=1.0),
        lines("neighbors within r", {"": (radial["r"], radial["coordination"])}, f"r ({length})"),
    ]
    if radial["partial"]:
        each = {name: (radial["r"], g) for name, g in radial["partial"].items()}
        drawn.insert(1, lines("g(r) of pairs of types", each, f"r ({length})", level=1.0))
    numbers = {"peak": radial["peak"], "frames": radial["frames"], "source": found["source"]}
    said = f"Highest at r = {radial['peak'][0]:.4g} {length}, g = {radial['peak'][1]:.4g}."
    if found.get("structure"):
        k, s = np.array(found["structure"]["k"]), np.array(found["structure"]["s"])
        drawn.append(lines("S(k)", {"": (k, s)}, f"k (1/{length})", level=1.0))
        numbers["structure_peak"] = [float(k[s.argmax()]), float(s.max())]
        said += f" S(k) is highest at k = {k[s.argmax()]:.4g} / {length}, {s.max():.4g}."
    yield ReportSection(
        "structure", "Structure", grid(drawn) + caption(f"{said} {_source(found, radial['frames'])}"), numbers
    )


def _motion(found: dict[str, Any], units: str, names: dict[str, str]) -> Iterator[ReportSection]:
    motion = found.get("motion")
    if not motion or len(motion["time"]) < 2:
        return
    time, length = names.get("time", ""), names.get("length", "")
    each = {"all": motion} | {f"type {number}": one for number, one in enumerate(motion["types"], 1)}
    drawn = [lines("mean square displacement", _series(each, "msd"), f"time ({time})", f"{length}\u00b2", fit=FIT)]
    if motion["vacf"]:
        drawn.append(
            lines("velocity autocorrelation", _series(each, "vacf"), f"time ({time})", level=0.0, relative=True)
        )
    factor = TO_CM2_PER_S.get(units)
    rows, numbers = [], dict[str, Any]()
    for who, one in each.items():
        for key, name in (("einstein", "slope of the displacement"), ("green_kubo", "integral of the correlation")):
            if key not in one:
                continue
            value, error = one[key]["diffusion"], one[key]["error"]
            error = float("nan") if error is None else error
            row = [who, name, *with_error(value, error), f"{length}\u00b2/{time}"]
            if factor:
                shown, about = with_error(value * factor, error * factor, 3)
                row[-1] += f"; {shown}" + (f" \u00b1 {about}" if about else "") + " cm\u00b2/s"
            rows.append(row)
            numbers.setdefault(who, {})[key] = one[key]
    listing = table(("particles", "diffusion coefficient from", "D", "error", "unit"), rows, (2, 3))
    said = (
        f"The line is fitted from {FIT[0]:.0%} of the longest time on; errors from the spread over groups of particles."
    )
    shown = grid(drawn) + listing + caption(f"{said} {_source(found, motion['frames'])}")
    yield ReportSection("motion", "Motion", shown, numbers)


def _speeds(found: dict[str, Any]) -> Iterator[ReportSection]:
    speeds = found.get("speeds")
    if not speeds:
        return
    both = {"measured": (speeds["u"], speeds["density"]), "Maxwell and Boltzmann": (speeds["u"], speeds["exact"])}
    drawn = lines("speeds", both, "v \u221a(m / k T)", "density", dots=True)
    said = f"Largest difference of the cumulative distributions: {speeds['distance']:.2g}. "
    said += "T is that of each frame. " + _source(found, speeds["frames"])
    yield ReportSection("speeds", "Speeds", grid([drawn]) + caption(said), {"distance": speeds["distance"]})


def _profile(found: dict[str, Any], names: dict[str, str]) -> Iterator[ReportSection]:
    profile = found.get("profile")
    if not profile:
        return
    length = names.get("length", "")
    drawn = lines(
        "density", {"": (profile["x"], profile["density"])}, f"{profile['axis']} ({length})", f"1/{length}\u00b3"
    )
    numbers = {"least": min(profile["density"]), "largest": max(profile["density"])}
    said = _source(found, profile["frames"])
    if profile["axis"] == "r" and (radius := _half_radius(profile)):
        numbers["radius"] = radius
        said = f"The density is halfway between inside and outside at r = {radius:.4g} {length}. {said}"
    yield ReportSection("profile", "Density profile", grid([drawn]) + caption(said), numbers)


def _half_radius(profile: dict[str, Any]) -> float | None:
    """Where a radial density first falls through the mean of its inner and its outer fifth; None without a droplet."""
    r, density = np.array(profile["x"]), np.array(profile["density"])
    fifth = max(1, len(r) // 5)
    weights = r[:fifth] ** 2
    inside, outside = float(density[:fifth] @ weights / weights.sum()), float(density[-fifth:].mean())
    below = np.flatnonzero(density[fifth // 2 :] < 0.5 * (inside + outside)) + fifth // 2
    if not inside > 2 * outside or not below.size or below[0] == fifth // 2:
        return None
    k = below[0]
    share = (density[k - 1] - 0.5 * (inside + outside)) / (density[k - 1] - density[k])
    return float(r[k - 1] + share * (r[k] - r[k - 1]))


def _series(each: dict[str, Any], name: str) -> dict[str, tuple[Any, Any]]:
    return {who if len(each) > 1 else "": (one["time"], one[name]) for who, one in each.items() if one[name]}


def _source(found: dict[str, Any], frames: int) -> str:
    where = {"run": "during the run", "trajectory": "in the trajectory"}.get(found["source"], "at the end")
    return f"Measured {where}, in {frames} frame{'s' * (frames != 1)}."
