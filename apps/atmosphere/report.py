"""What reports of the weather apps add: the base state over height."""

from __future__ import annotations

from collections.abc import Iterator

import h5py
import numpy as np

from hpckit.kernels.euler.constants import GRAVITY
from hpckit.report.extension import Section
from hpckit.report.field_file import text_of
from hpckit.report.page import caption
from hpckit.report.run_data import RunData
from hpckit.report.style import SERIES, pyplot, to_svg
from hpckit.report.units import number, pretty

PROFILES = ("theta_base", "rho_base", "pressure_base")


def profiles(run: RunData) -> Iterator[Section]:
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
    figure, axes = pyplot().subplots(1, 3, figsize=(7.6, 2.4), layout="constrained", sharey=True)
    for panel, (title, values, unit), color in zip(axes, shown, SERIES, strict=False):
        panel.plot(values, z, color=color)
        panel.set_title(f"{title.removesuffix(' of the base state')} ({pretty(unit)})")
        panel.locator_params(axis="x", nbins=4)
        if np.ptp(values) < 1e-6 * abs(values).max():
            panel.set_xlim(values[0] - 1, values[0] + 1)
        panel.grid(axis="x")
    axes[0].set_ylabel("z (km)")
    theta = shown[0][1]
    squared = GRAVITY * np.gradient(np.log(theta), 1000 * z) if len(z) > 1 else np.zeros(1)
    mean = float(np.sqrt(max(squared.mean(), 0.0)))
    said = "theta and rho in the other pictures are deviations from these. "
    said += f"Mean Brunt-V\u00e4is\u00e4l\u00e4 frequency: {number(mean, 3)} 1/s." if mean > 1e-6 else "It is neutral."
    picture = to_svg(figure, "the base state over height", "wide")
    yield Section("base", "Base state", picture + caption(said), {"brunt_vaisala": mean})
