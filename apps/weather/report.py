"""What reports of the slab add: the base state, published figures, exact waves; and the work of its phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import ValidationError

from hpckit.apps.atmosphere.report import profiles
from hpckit.apps.exact.gravity_waves import WaveChannel, waves
from hpckit.apps.weather.config import Config
from hpckit.kernels.euler.constants import CP, GRAVITY, RD
from hpckit.report.draw.charts import beside
from hpckit.report.extension import PhaseWork, ReportSection
from hpckit.report.field_file import FieldFile
from hpckit.report.page import caption, grid, table
from hpckit.report.run_data import RunData
from hpckit.report.units import number
from hpckit.run.settings import with_common

# Of the reference kernels, counted in tests/report/work_counts.py.
FLOPS = {"x sweep": 228, "z sweep": 237}


LINEAR = "linear waves of Baldauf and Brdar (2013, Q. J. R. Meteorol. Soc. 139)"
# Front (m) and least theta' (K) of the density current after 900 s, by what its amplitude perturbs.
CURRENTS = {
    "temperature": (15_537.0, -9.77, "Straka et al. (1993), reference solution on 25 m"),
    "theta": (14_767.0, None, "Giraldo and Restelli (2008), their finest grid"),
}


def sections(run: RunData) -> Iterator[ReportSection | Iterator[ReportSection]]:
    """The base state; a density current of Straka et al. and the waves of Baldauf and Brdar beside what is known."""
    yield profiles(run)
    try:
        config: Any = with_common(Config).model_validate({k: v for k, v in run.values.items() if k != "title"})
    except ValidationError:
        return
    if run.fields is not None:
        with FieldFile(run.fields) as file:
            yield _current(config, file)
            yield _waves(config, file)


def front(x: np.ndarray, theta: np.ndarray) -> float:
    """The farthest place (m) where theta' of a row falls to -1 K, linear between cells; NaN where none does."""
    cold = np.flatnonzero(theta <= -1.0)
    if not cold.size or cold[-1] + 1 >= len(x):
        return float("nan")
    i = cold[-1]
    return float(x[i] + (x[i + 1] - x[i]) * (-1.0 - theta[i]) / (theta[i + 1] - theta[i]))


def _current(config: Config, file: FieldFile) -> Iterator[ReportSection]:
    """Front and extremes of the benchmark, at 900 s."""
    here = np.flatnonzero(np.isclose(file.times, 900.0))
    if len(config.bubbles) != 1 or config.base.kind != "neutral" or config.diffusion != 75.0 or not here.size:
        return
    cold = config.bubbles[0]
    if (cold.amplitude, cold.z, cold.radius_x, cold.radius_z, cold.keeps) != (
        -15.0,
        3000.0,
        4000.0,
        2000.0,
        "pressure",
    ):
        return
    variable = file.variables["theta"]
    theta, x = file.read(variable, int(here[0])), variable.dims[1].points
    place, least, source = CURRENTS[cold.of]
    ours = front(x, theta[0]) - cold.x
    rows = [
        ("front: theta' = -1 K at the ground, from the center", number(ours, 5), number(place, 5), "m", source),
        ("least theta'", number(theta.min(), 4), number(least, 3) if least else "", "K", source if least else ""),
        ("greatest theta'", number(theta.max(), 2), "0", "K", "nothing is warmed"),
    ]
    said = f"On cells of {config.grid.dx:g} m x {config.grid.dz:g} m; coarser grids than the published ones are slower."
    listing = table(("at 900 s", "ours", "published", "unit", "source"), rows, (1, 2))
    numbers = {"front": ours, "least": float(theta.min()), "greatest": float(theta.max())}
    yield ReportSection(
        "published", "Beside the published density current", listing + caption(said), numbers, "headline"
    )


def _waves(config: Config, file: FieldFile) -> Iterator[ReportSection]:
    """Theta' and w in the middle of the channel at the end, beside the exact linear solution."""
    wave, base, end = config.wave, config.base, float(file.times[-1])
    if not wave.amplitude or end <= 0 or config.bubbles or config.diffusion or config.source.amplitude:
        return
    grid_ = config.grid
    channel = WaveChannel(
        grid_.width,
        grid_.height,
        base.temperature,
        base.u,
        wave.amplitude,
        wave.x,
        wave.half_width,
        0.0,
        GRAVITY,
        RD,
        CP,
    )
    theta = file.variables["theta"]
    x, z = theta.dims[1].points, theta.dims[0].points
    row = len(z) // 2
    exact = waves(channel, end, x, z[row : row + 1])
    drawn = [
        beside(
            name,
            x / 1000,
            file.read(file.variables[key], len(file.times) - 1, (row,)),
            {"exact": exact[key][0]},
            "x (km)",
            unit,
        )
        for key, name, unit in (("theta", "theta'", "K"), ("w", "w", "m/s"))
    ]
    said = f"Along z = {z[row]:.0f} m at t = {end:g} s. Exact: {LINEAR}."
    ours = file.read(theta, len(file.times) - 1, (row,))
    error = float(np.linalg.norm(ours - exact["theta"][0]) / np.linalg.norm(exact["theta"][0]))
    numbers = {"z": float(z[row]), "time": end, "error": error}
    yield ReportSection("exact", "Beside the exact solution", grid(drawn) + caption(said), numbers)


def work(run: RunData) -> Iterator[PhaseWork]:
    """Both sweeps; each moves half the bytes of t_eff."""
    size = float(run.summary.get("bytes_per_cell_step", 0)) / len(FLOPS)
    for phase, flops in FLOPS.items():
        yield PhaseWork(phase, (phase,), size, flops)
