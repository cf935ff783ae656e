"""What reports of the box add: the base state, the line through linear waves; and the work of its phases."""

from __future__ import annotations

from collections.abc import Iterator

import h5py
import numpy as np

from hpckit.apps.atmosphere.report import profiles
from hpckit.apps.weather3d.products.statistics import FILE
from hpckit.apps.weather3d.products.storms import storms, trajectories
from hpckit.apps.weather3d.settings.physics import AT_GROUND, WATER
from hpckit.report.data import from_file, map_link, with_data
from hpckit.report.draw.charts import beside
from hpckit.report.extension import PhaseWork, ReportSection
from hpckit.report.field_file import FieldFile, text_of
from hpckit.report.page import caption, grid, table
from hpckit.report.run_data import RunData
from hpckit.report.style import SERIES, pyplot, to_svg
from hpckit.report.units import moment, number, time_scale, with_units

# Of the reference kernels, counted in tests/report/work_counts.py.
SWEEPS = {"x sweep": 261, "y sweep": 261, "z sweep": 288}
TURN, TURN_BYTES = 13, 8 * 5  # density and two momenta read, the momenta written
DIFFUSION, DIFFUSION_BYTES = 74, 8 * 9  # five fields read, four written


FORCED = {
    "surface": ("heat", "vapor", "exchange", "friction"),
    "forcing": ("cooling", "drying", "subsidence"),
}
PICTURES = ("theta", "theta_flux", "w_variance", "theta_subgrid_flux", *WATER, "vapor_flux")
DOWNWARD = 0.01  # of the greatest flux: less is noise of a layer that does not mix yet
# Extremes of theta' (K) after 3000 s in the short channel, read from figure 1 of Skamarock and Klemp (1994).
WAVES = "Skamarock and Klemp (1994, Mon. Weather Rev. 122) show -1.5e-3 to 2.8e-3 K in the whole field at 3000 s."


def sections(run: RunData) -> Iterator[ReportSection | Iterator[ReportSection]]:
    """The base state; theta' along x halfway up, of waves from a band of warm air."""
    yield profiles(run)
    yield parcel(run)
    yield columns(run)
    yield statistics(run)
    yield over_terrain(run)
    yield budgets(run)
    yield storms(run)
    yield trajectories(run)
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
    yield ReportSection("line", "Theta' through the waves", drawn + caption(said), numbers)


BUDGETS = {"water_budget": ("water", "kg"), "latent_heat_budget": ("heat of water that changes its kind", "J")}
SAID = {
    "in_air": "in the air at the end",
    "change": "change in the air",
    "entered": "entered by fluxes and forcings",
    "warmed": "warmth that the air gained",
    "released": "latent heat that water gave",
    **{kind: f"{kind} at the ground" for kind in AT_GROUND},
}


def budgets(run: RunData) -> Iterator[ReportSection]:
    """The budgets of moist air: water, and with ice the latent heat; what is unexplained is rounding."""
    found = {name: run.summary[name] for name in BUDGETS if isinstance(run.summary.get(name), dict)}
    rows = [
        [BUDGETS[name][0], SAID.get(part, part), f"{value:.6g} {BUDGETS[name][1]}"]
        for name, parts in found.items()
        for part, value in parts.items()
    ]
    if rows:
        said = "Of the whole box; unexplained is what rounding leaves."
        yield ReportSection(
            "budgets", "Budgets", table(("budget", "part", "amount"), rows, numeric=(2,)) + caption(said), found
        )


def over_terrain(run: RunData) -> Iterator[ReportSection]:
    """Vertical wind, theta', cloud and rain in a section along x through the highest ground, at the last frame.

    The numbers: greatest w (m/s), greatest height of the ground (m), and the y of the section (m).
    """
    if run.fields is None or (run.values.get("terrain") or {}).get("kind", "flat") == "flat":
        return
    with h5py.File(run.fields) as file:
        ground = np.asarray(file["surface_altitude"][...])
        row = int(ground.max(axis=1).argmax())
        z = np.asarray(file["altitude"][:, row], np.float64)
    with FieldFile(run.fields) as file:
        level, y, x = (np.asarray(dim.points) for dim in file.variables["w"].dims)
        frame, time = len(file.times) - 1, file.times[-1]
        names = [name for name in ("w", "theta", "cloud", "rain") if name in file.variables]
        read = {name: np.asarray(file.read(file.variables[name], frame, (slice(None), row))) for name in names}
        units = {name: file.variables[name].units for name in read}
    drawn = []
    for name, values in read.items():
        figure, axes = pyplot().subplots(figsize=(3.7, 2.5), layout="constrained", dpi=130)
        most = float(np.abs(values).max()) or 1.0
        wide = np.broadcast_to(x / 1000, z.shape)
        image = axes.contourf(wide, z / 1000, values, np.linspace(-most, most, 25), cmap="RdBu_r")
        axes.fill_between(x / 1000, 0.0, ground[row] / 1000, color="0.35", linewidth=0)
        figure.colorbar(image, ax=axes, ticks=pyplot().MaxNLocator(5))
        axes.set(title=with_units(name, units[name]), xlabel="x (km)", ylabel="altitude (km)")
        links = map_link(f"{name} over terrain", {"z over flat ground (m)": level, "x (m)": x}, name, values)
        drawn.append(f"<figure>{to_svg(figure, f'{name} over terrain', 'chart')}{links}{from_file(name)}</figure>")
    said = (
        f"At t = {time:g} s, y = {y[row]:g} m, ground up to {number(ground.max(), 3)} m. Heights are true ones; in the"
    )
    said += " other pictures z is that of the levels over ground at 0 m."
    numbers = {"w": float(np.abs(read["w"]).max()), "ground": float(ground.max()), "y": float(y[row])}
    yield ReportSection("terrain", "Flow over terrain", grid(drawn) + caption(said), numbers)


def parcel(run: RunData) -> Iterator[ReportSection]:
    """CAPE, CIN and levels of a parcel lifted from the ground through the base state, of moist base states."""
    lifted = run.summary.get("parcel")
    if not isinstance(lifted, dict):
        return
    names = {"cape": "CAPE (J/kg)", "cin": "CIN (J/kg)", "lcl": "LCL (m)", "lfc": "LFC (m)", "el": "EL (m)"}
    rows = [
        [kind, *("none" if found.get(name) is None else f"{found[name]:.0f}" for name in names)]
        for kind, found in lifted.items()
    ]
    said = (
        "Of the parcel at the ground, by virtual temperatures: what condenses falls out (pseudo) or stays (reversible)."
    )
    shown = table(("adiabat", *names.values()), rows, numeric=range(1, 6))
    yield ReportSection("parcel", "Parcel lifted from the ground", shown + caption(said), lifted)


def columns(run: RunData) -> Iterator[ReportSection]:
    """Means, resolved fluxes and variances over height at the last frame, of runs that are forced from outside.

    The numbers are lists over height: z (m), mean of theta (K), flux of theta (K m/s), of vapor (m/s) and of u (m2/s2),
    variances of w and u (m2/s2) and theta (K2), of deviations from the mean of a level.
    """
    is_forced = any(any((run.values.get(part) or {}).get(name) for name in names) for part, names in FORCED.items())
    if run.fields is None or not is_forced:
        return
    with FieldFile(run.fields) as file:
        frame, time = len(file.times) - 1, file.times[-1]
        z = np.asarray(file.variables["w"].dims[0].points)
        names = [name for name in ("theta", "u", "w", "vapor") if name in file.variables]
        values = {name: np.asarray(file.read(file.variables[name], frame, (slice(None),) * 3)) for name in names}
    with h5py.File(run.fields) as file:
        base = np.asarray(file["theta_base"][...], np.float64)
    means = {name: each.mean(axis=(1, 2), dtype=np.float64) for name, each in values.items()}
    off = {name: each - means[name][:, None, None] for name, each in values.items()}
    found = {
        "mean of theta (K)": base + means["theta"],
        "flux of theta (K m/s)": (off["w"] * off["theta"]).mean(axis=(1, 2)),
        "flux of u (m2/s2)": (off["w"] * off["u"]).mean(axis=(1, 2)),
        "variance of w (m2/s2)": (off["w"] ** 2).mean(axis=(1, 2)),
        "variance of u (m2/s2)": (off["u"] ** 2).mean(axis=(1, 2)),
        "variance of theta (K2)": (off["theta"] ** 2).mean(axis=(1, 2)),
    }
    if "vapor" in off:
        found["flux of vapor (m/s)"] = (off["w"] * off["vapor"]).mean(axis=(1, 2))
    drawn = []
    for (title, row), color in zip(found.items(), SERIES * 2, strict=False):
        figure, axes = pyplot().subplots(figsize=(3.7, 2.5), layout="constrained")
        axes.plot(row, z / 1000, color=color)
        what, _, unit = title.removesuffix(")").rpartition(" (")
        axes.set_title(with_units(what, unit))
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x")
        axes.set_ylabel("z (km)")
        shown = to_svg(figure, f"{title} over height", "chart")
        drawn.append(with_data(shown, title, {"z (km)": (z / 1000).tolist(), title: row.tolist()}))
    at = moment(float(time), float(time), run.frame_unit)
    said = f"At t = {at}, of what the grid resolves: deviations from the mean of each level."
    numbers = {"z": z.tolist(), **{title.rpartition(" (")[0]: row.tolist() for title, row in found.items()}}
    yield ReportSection("columns", "Means, fluxes and variances", grid(drawn) + caption(said), numbers)


def statistics(run: RunData) -> Iterator[ReportSection]:
    """Means, fluxes and variances by height and time, of runs with statistics, and the inversion.

    The numbers: time (s), and inversion (m), the height of the least (most downward) flux of theta, which is where warm
    air is drawn into a mixed layer (Sullivan et al. 1998, J. Atmos. Sci. 55); None at times without a downward flux.
    """
    path = run.fields.with_name(FILE) if run.fields is not None else None
    if path is None or not path.exists():
        return
    with h5py.File(path) as file:
        times, z = np.asarray(file["time"][...]), np.asarray(file["z"][...])
        shown = [name for name in PICTURES if name in file and file[name].shape[0] > 1]
        read = {name: (np.asarray(file[name][...]), text_of(file[name], "units")) for name in shown}
        told = {name: text_of(file[name], "long_name") for name in shown}
    if not shown:
        return
    inversion = lowest_flux(z, *(read[name][0] for name in ("theta_flux", "theta_subgrid_flux") if name in read))
    per, unit = time_scale(float(times[-1]), run.frame_unit)
    drawn = []
    for name, (values, units) in read.items():
        figure, axes = pyplot().subplots(figsize=(3.7, 2.6), layout="constrained", dpi=130)
        most = float(np.abs(values).max()) or 1.0
        signed = {"cmap": "RdBu_r", "vmin": -most, "vmax": most} if values.min() < 0 else {"cmap": "viridis"}
        image = axes.pcolormesh(times / per, z / 1000, values.T, shading="nearest", rasterized=True, **signed)
        if name == "theta":
            axes.plot(times / per, inversion / 1000, color="white", linewidth=1.2)
        figure.colorbar(image, ax=axes)
        axes.set(title=with_units(told[name], units), xlabel=f"time ({unit})", ylabel="z (km)")
        dims = {f"time ({run.frame_unit})": times, "z (m)": z}
        link = map_link(f"{name} by height and time", dims, f"{name} ({units})", values)
        drawn.append(f"<figure>{to_svg(figure, f'{told[name]} by height and time', 'chart')}{link}</figure>")
    said = f"Means of each level at {len(times)} times, from {FILE}."
    found = inversion[np.isfinite(inversion)]
    if found.size:
        said += " The white line is the inversion, the height of the least flux of theta (resolved and subgrid):"
        said += f" {found[0]:.0f} m when the flux begins to point downward, {found[-1]:.0f} m at the end."
    numbers = {"time": times.tolist(), "inversion": [float(z) if np.isfinite(z) else None for z in inversion]}
    yield ReportSection("statistics", "Statistics over time", grid(drawn) + caption(said), numbers)


def lowest_flux(z: np.ndarray, *fluxes: np.ndarray) -> np.ndarray:
    """The height of the least flux at each time, NaN where none points downward by more than 1 % of the greatest.

    z: heights (m), float64[nz]. fluxes: float64[times, nz], which are added.
    """
    flux = np.sum(fluxes, axis=0) if fluxes else np.zeros((1, len(z)))
    downward = flux.min(axis=1) < -DOWNWARD * np.abs(flux).max(axis=1)
    return np.where(downward, z[flux.argmin(axis=1)], np.nan)


def work(run: RunData) -> Iterator[PhaseWork]:
    """The sweeps, each a third of the bytes that t_eff counts, the Coriolis force and constant diffusion."""
    if (run.values.get("dynamics") or {}).get("kind") == "hevi":
        return
    size = float(run.summary.get("bytes_per_cell_step", 0)) / len(SWEEPS)
    for phase, flops in SWEEPS.items():
        yield PhaseWork(phase, (phase,), size, flops)
    yield PhaseWork("coriolis", ("coriolis",), TURN_BYTES, TURN)
    if isinstance(run.values.get("diffusion"), (int, float)):
        yield PhaseWork("diffusion", ("diffusion",), DIFFUSION_BYTES, DIFFUSION)
