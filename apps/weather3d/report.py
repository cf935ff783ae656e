"""What reports of the box add: the base state, the line through linear waves; and the work of its phases."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.apps.atmosphere.report import profiles
from hpckit.report.draw.charts import beside
from hpckit.report.extension import Section, Work
from hpckit.report.field_file import FieldFile
from hpckit.report.page import caption
from hpckit.report.run_data import RunData
from hpckit.report.units import number

# Of the reference kernels, counted in tests/report/work_counts.py.
SWEEPS = {"x sweep": 261, "y sweep": 261, "z sweep": 288}
TURN, TURN_BYTES = 13, 8 * 5  # density and two momenta read, the momenta written
DIFFUSION, DIFFUSION_BYTES = 74, 8 * 9  # five fields read, four written


# Extremes of theta' (K) after 3000 s in the short channel, read from figure 1 of Skamarock and Klemp (1994).
WAVES = "Skamarock and Klemp (1994, Mon. Weather Rev. 122) show -1.5e-3 to 2.8e-3 K in the whole field at 3000 s."


def sections(run: RunData) -> Iterator[Section]:
    """The base state; theta' along x halfway up, of waves from a band of warm air."""
    yield from profiles(run)
    band = run.values.get("band") or {}
    if run.fields is None or not band.get("amplitude"):
        return
    with FieldFile(run.fields) as file:
        theta, frame = file.variables["theta"], len(file.times) - 1
        z, y, x = (dim.points for dim in theta.dims)
        up = len(z) // 2
        around = file.read(theta, frame, (slice(max(up - 1, 0), up + 1), len(y) // 2))
    height = 0.5 * (z[max(up - 1, 0)] + z[up]) if len(z) % 2 == 0 else z[up]
    values = around.mean(axis=0) if len(z) % 2 == 0 else around[-1]
    drawn = beside("theta'", x / 1000, values, {}, "x (km)", "K", residual=False)
    said = (
        f"At z = {height:g} m, t = {file.times[frame]:g} s: {number(values.min(), 3)} to {number(values.max(), 3)} K. "
    )
    said += WAVES if (band.get("x"), band.get("half_width")) == (100e3, 5e3) else ""
    numbers = {"z": float(height), "least": float(values.min()), "greatest": float(values.max())}
    yield Section("line", "Theta' through the waves", drawn + caption(said), numbers)


def work(run: RunData) -> Iterator[Work]:
    """The sweeps, each a third of the bytes that t_eff counts, the Coriolis force and constant diffusion."""
    if (run.values.get("dynamics") or {}).get("kind") == "hevi":
        return
    size = float(run.summary.get("bytes_per_cell_step", 0)) / len(SWEEPS)
    for phase, flops in SWEEPS.items():
        yield Work(phase, (phase,), size, flops)
    yield Work("coriolis", ("coriolis",), TURN_BYTES, TURN)
    if isinstance(run.values.get("diffusion"), (int, float)):
        yield Work("diffusion", ("diffusion",), DIFFUSION_BYTES, DIFFUSION)
