"""Spectra on the page: lines at several times, power laws beside them, and where waves are no longer resolved."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.report.data import with_data
from hpckit.report.draw.spectra import BELOW, FIT_END, PowerLaw, Spectrum, binned, fit, spectrum
from hpckit.report.field_file import FieldFile, FileField
from hpckit.report.page import caption, grid, section
from hpckit.report.style import MUTED, WARM, pyplot, to_svg
from hpckit.report.units import length_scale, moment, number, power_of_ten, pretty, with_units

Record = dict[str, Any]
DEPTH = 1e-14  # of the highest value: what lies lower is rounding
LAWS = ((-5 / 3, "\u22125/3"), (-3.0, "\u22123"))


def spectra(file: FieldFile, variable: FileField) -> list[Spectrum]:
    """The kinetic energy per mass of the velocities there are (at least two), and the main field's variance."""
    winds = [one for one in (file.velocity(axis) for axis in "xyz") if one is not None]
    made = []
    if len(winds) > 1 and len({len(one.dims) for one in winds}) == 1:
        made.append(spectrum(file, winds, "kinetic energy", "m3 s-2", 0.5))
    if variable not in winds or not made:
        made.append(
            spectrum(file, [variable], variable.long_name, density_units(variable.units, variable.dims[-1].units), 1.0)
        )
    return [one for one in made if one is not None]


def density_units(units: str, length: str = "m") -> str:
    """Units of the variance per wavenumber in rad/`length`: the square of the field's times that of lengths; `m s-1`
    gives `m3 s-2`.
    """
    powers = {} if length in ("", "1") else {length: 1}
    for name, power in re.findall(r"([A-Za-z]+)(-?\d+)?", units):
        powers[name] = powers.get(name, 0) + 2 * int(power or 1)
    return " ".join(name if power == 1 else f"{name}{power}" for name, power in powers.items() if power)


def spectra_section(made: Sequence[Spectrum]) -> str:
    """The spectra side by side, each with its slope and resolution."""
    if not made:
        return ""
    notes = [f"{one.name.capitalize()}: {one.said}. {_found(one, law_of(one))}" for one in made]
    text = (
        " The area below a curve is the variance (of kinetic energy: the energy per mass); the mean value is left out."
        f" Dashed: a power law fitted to the mean of the later times, from 1.5 times the peak's wavenumber to waves of"
        f" {FIT_END:.0f} cells; shaded: where the spectrum stays below {BELOW:g} of it, and waves are not resolved"
        " (after Skamarock 2004). The axis ends at waves of 2 cells. Rings are drawn a sixth of an octave together."
    )
    return section("Spectra", grid(_picture(one) for one in made), *(caption(note) for note in notes), caption(text))


def spectra_numbers(made: Sequence[Spectrum]) -> list[Record]:
    """Every value drawn, and the fits."""
    records = []
    for one in made:
        law = law_of(one)
        records.append(
            {
                "name": one.name,
                "units": one.units,
                "said": one.said,
                "times": one.times,
                "wavenumber_rad_per_m": one.k[: one.rings].tolist(),
                "ring_width_rad_per_m": one.dk,
                "density": one.density[:, : one.rings].tolist(),
                "variance": one.variance.tolist(),
                "slope": law.slope if law else None,
                "fit_from_to_rad_per_m": [law.first, law.last] if law else None,
                "effective_resolution_m": 2 * math.pi / law.cutoff if law and law.cutoff else None,
                "effective_resolution_cells": 2 * math.pi / law.cutoff / one.spacing if law and law.cutoff else None,
            }
        )
    return records


def law_of(one: Spectrum) -> PowerLaw | None:
    """The power law of the mean of the later times."""
    return fit(one.k[: one.rings], one.mean[: one.rings], one.spacing)


def _found(one: Spectrum, law: PowerLaw | None) -> str:
    """Slope and effective resolution in words."""
    if law is None:
        return "No power law between the peak and waves of 12 cells."
    text = f"Slope {number(law.slope, 3)}"
    if law.cutoff is None:
        return f"{text}; it holds to the shortest wave."
    wave = 2 * math.pi / law.cutoff
    scale, unit = length_scale(wave, one.length_unit)
    size = f"{number(wave / scale, 3)} {unit}, " if unit else ""
    return f"{text}; effective resolution {size}{number(wave / one.spacing, 2)} cells."


def _picture(one: Spectrum) -> str:
    plt = pyplot()
    wavenumber = "rad" if one.length_unit == "1" else f"rad {pretty(one.length_unit + '-1')}"
    figure, axes = plt.subplots(figsize=(3.7, 2.9), layout="constrained")
    k = one.k[: one.rings]
    lines = [binned(k, row[: one.rings]) for row in one.density]
    top = max(float(density.max()) for _, density in lines if density.size)
    floor = max(top * DEPTH, min(float(density.min()) for _, density in lines if density.size))
    shades = plt.get_cmap("viridis")(np.linspace(0.85, 0.1, len(one.times)))
    for time, (places, density), color in zip(one.times, lines, shades, strict=True):
        seen, label = density >= floor, moment(time, one.times[-1], one.time_unit)
        if seen.any():
            axes.loglog(places[seen], density[seen], color=color, marker="." if seen.sum() < 3 else None, label=label)
    law = law_of(one)
    if law is not None:
        inside = k[(k >= law.first) & (k <= (law.cutoff or k[-1]))]
        axes.loglog(inside, law.at(inside), color=WARM, linestyle="--", linewidth=1.0)
        if law.cutoff is not None:
            axes.axvspan(law.cutoff, k[-1], color=WARM, alpha=0.10, linewidth=0)
    _laws(axes, *binned(k, one.mean[: one.rings]))
    axes.set_ylim(floor * 0.5, top * 4)
    axes.set_xlim(k[0] * 0.9, k[-1])
    axes.xaxis.set_major_formatter(power_of_ten)
    axes.yaxis.set_major_formatter(power_of_ten)
    axes.xaxis.set_minor_formatter("")
    axes.set(xlabel=f"wavenumber ({wavenumber})", ylabel=with_units("density", one.units), title=one.name)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", handlelength=1.2)
    columns = {f"wavenumber ({wavenumber})": k} | {
        moment(time, one.times[-1], one.time_unit): row[: one.rings]
        for time, row in zip(one.times, one.density, strict=True)
    }
    return with_data(to_svg(figure, f"spectrum of {one.name}", "chart"), f"spectrum of {one.name}", columns)


def _laws(axes: Any, k: Any, mean: Any) -> None:
    """Lines of the slopes -5/3 and -3 above the middle of the spectrum."""
    if len(k) < 8 or not (mean > 0).any():
        return
    a, b = k[len(k) // 3], k[3 * len(k) // 4]
    level = 3 * float(mean[(k >= a) & (k <= b)].max())
    for slope, name in LAWS:
        axes.loglog([a, b], [level, level * (b / a) ** slope], color=MUTED, linewidth=0.8, linestyle=":")
        at = (b, level * (b / a) ** slope)
        text = axes.annotate(name, at, fontsize=9.2, color=MUTED, xytext=(2, 0), textcoords="offset points")
        text.set_bbox({"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.6})
