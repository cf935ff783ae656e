"""What a report of a flood adds: the exact solution beside ours, where one is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import ValidationError

from hpckit.apps.exact.shallow_water import stoker
from hpckit.apps.flood.config import Config
from hpckit.apps.flood.setups import exact_depth, places
from hpckit.report.draw.charts import beside
from hpckit.report.extension import ReportSection
from hpckit.report.field_file import FieldFile
from hpckit.report.page import caption, grid
from hpckit.report.run_data import RunData
from hpckit.report.units import number
from hpckit.run.settings import with_common

SOURCES = {
    "dam": "Stoker (1957, Water Waves, ch. 10.8), over dry ground Ritter (1892)",
    "bowl_planar": "Thacker (1981, J. Fluid Mech. 107)",
    "bowl_radial": "Thacker (1981, J. Fluid Mech. 107)",
}


def sections(run: RunData) -> Iterator[ReportSection]:
    """Depth and velocity along x through the middle at the last time for which the exact solution is known."""
    try:
        config: Any = with_common(Config).model_validate({k: v for k, v in run.values.items() if k != "title"})
    except ValidationError:
        return
    if run.fields is None:
        return
    ny, nx = config.grid.ny, config.grid.nx
    row = (slice(ny // 2, ny // 2 + 1), slice(0, nx))
    with FieldFile(run.fields) as file:
        known = [
            n for n, time in enumerate(file.times) if time > 0 and exact_depth(config, row, float(time)) is not None
        ]
        if not known:
            return
        frame = known[-1]
        time = float(file.times[frame])
        depth, u = (file.read(file.variables[name], frame, (ny // 2,)) for name in ("depth", "u"))
    x = places(config)[1]
    scale, unit = (1000.0, "km") if np.ptp(x) >= 2000 else (1.0, "m")
    exact = exact_depth(config, row, time)
    assert exact is not None
    drawn = [beside("depth", x / scale, depth, {"exact": exact[0]}, f"x ({unit})", "m")]
    error = float(np.abs(depth - exact[0]).mean() / np.abs(exact[0]).mean())
    begin = config.start
    if begin.kind == "dam":
        speed = stoker(x - begin.x, time, begin.behind_level, max(begin.level, 0.0), config.physics.gravity)[1]
        drawn.append(beside("velocity along x", x / scale, u, {"exact": speed}, f"x ({unit})", "m/s"))
    said = f"At t = {time:g} s, along the middle of y; the depths differ by {number(100 * error, 2)} % in the mean."
    said += f" Source: {SOURCES[begin.kind]}."
    yield ReportSection(
        "exact", "Beside the exact solution", grid(drawn) + caption(said), {"time": time, "error": error}
    )
