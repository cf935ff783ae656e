"""What reports of the weather apps add: the base state over height."""

from __future__ import annotations

from collections.abc import Iterator

import h5py
import numpy as np

from hpckit.kernels.euler.constants import GRAVITY
from hpckit.report.data import with_data
from hpckit.report.extension import ReportSection
from hpckit.report.field_file import text_of
from hpckit.report.page import caption, grid
from hpckit.report.run_data import RunData
from hpckit.report.style import SERIES, pyplot, to_svg
from hpckit.report.units import number, pretty

PROFILES = ("theta_base", "rho_base", "pressure_base")


def profiles(run: RunData) -> Iterator[ReportSection]:
    """The base state over height; nothing where the file of fields has none."""
    if run.fields is None:
        return
    try:
        with h5py.File(run.fields) as file:
            z = file["z"][:] / 1000
            shown = [
                (text_of(file[name], "long_name"), file[name][:], text_of(file[name], "units")) for name in PROFILES
            ]
    except (OSError, KeyError):
        return
    pictures = []
    for (title, values, unit), color in zip(shown, SERIES, strict=False):
        values, unit = (values / 100, "hPa") if unit == "Pa" else (values, unit)
        figure, axes = pyplot().subplots(figsize=(3.7, 2.5), layout="constrained")
        axes.plot(values, z, color=color)
        axes.set_title(f"{title.removesuffix(' of the base state')} ({pretty(unit)})")
        axes.locator_params(axis="x", nbins=4)
        if np.ptp(values) < 1e-6 * abs(values).max():
            axes.set_xlim(values[0] - 1, values[0] + 1)
        axes.grid(axis="x")
        axes.set_ylabel("z (km)")
        pictures.append(with_data(to_svg(figure, f"{title} over height", "chart"), title, {"z (km)": z, title: values}))
    theta = shown[0][1]
    squared = GRAVITY * np.gradient(np.log(theta), 1000 * z) if len(z) > 1 else np.zeros(1)
    mean = float(np.sqrt(max(squared.mean(), 0.0)))
    said = "theta and rho in the other pictures are deviations from these. "
    said += f"Mean Brunt-V\u00e4is\u00e4l\u00e4 frequency: {number(mean, 3)} 1/s." if mean > 1e-6 else "It is neutral."
    yield ReportSection("base", "Base state", grid(pictures) + caption(said), {"brunt_vaisala": mean})
