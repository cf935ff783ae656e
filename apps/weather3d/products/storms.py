"""What reports say of storms: rain, swaths and tracks of rotating updrafts from the maps, and trajectories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import h5py
import numpy as np

from hpckit.apps.weather3d.products.maps import MAPS
from hpckit.apps.weather3d.products.parcels import PARCELS
from hpckit.apps.weather3d.settings.physics import AT_GROUND
from hpckit.io.fields.master import MASTER
from hpckit.report.data import map_link, with_data
from hpckit.report.extension import ReportSection
from hpckit.report.page import caption, grid
from hpckit.report.run_data import RunData
from hpckit.report.style import SERIES, pyplot, to_svg
from hpckit.report.units import number

ROTATES = 25.0  # m2/s2: updraft helicity from which an updraft has a track
KINDS = {"right": ("updraft_helicity", 1.0), "left": ("updraft_helicity_min", -1.0)}


def storms(run: RunData) -> Iterator[ReportSection]:
    """Rain at the ground, the swath of updraft helicity, and the tracks of its greatest and its least values.

    The numbers: rain (kg) and its greatest depth (mm), extremes of updraft helicity (m2/s2) and w (m/s), and the tracks
    of the right- and the left-turning storm: lists of time (s), x and y (m).
    """
    path = run.fields.with_name(MAPS) / MASTER if run.fields is not None else None
    if path is None or not path.is_file():
        return
    with h5py.File(path) as file:
        times, x, y = (np.asarray(file[name][...], np.float64) for name in ("time", "x", "y"))
        maps = {name: np.asarray(file[name][:, 0], np.float64) for name in file if np.ndim(file[name]) == 4}
    if len(times) < 2:
        return
    swath = {kind: sign * (sign * maps[name]).max(axis=0) for kind, (name, sign) in KINDS.items()}
    tracks = {kind: track(times, y, x, sign * maps[name]) for kind, (name, sign) in KINDS.items()}
    strongest = np.where(swath["right"] > -swath["left"], swath["right"], swath["left"])
    shown = [("updraft helicity, strongest (m² s⁻²)", strongest, "RdBu_r")]
    numbers = {
        "updraft_helicity": float(swath["right"].max()),
        "updraft_helicity_min": float(swath["left"].min()),
        "w": float(maps["updraft"].max()),
        "tracks": {
            kind: {name: row.tolist() for name, row in zip("tyx", rows, strict=True)} for kind, rows in tracks.items()
        },
    }
    for kind in AT_GROUND:
        if f"{kind}_at_ground" in maps:
            depth = maps[f"{kind}_at_ground"][-1]
            shown.append((f"{kind} at the ground (mm{' of water' if kind != 'rain' else ''})", depth, "Blues"))
            area = (x[1] - x[0]) * (y[1] - y[0]) if len(x) > 1 and len(y) > 1 else np.nan
            numbers |= {kind: float(depth.sum() * area), f"{kind}_depth": float(depth.max())}
    drawn = []
    for title, values, colors in shown:
        figure, axes = pyplot().subplots(figsize=(3.7, 3.3), layout="constrained", dpi=130)
        most = float(np.abs(values).max()) or 1.0
        limits = (-most, most) if colors == "RdBu_r" else (0.0, most)
        image = axes.pcolormesh(
            x / 1000, y / 1000, values, shading="nearest", rasterized=True, cmap=colors, vmin=limits[0], vmax=limits[1]
        )
        for (_, rows), color in zip(tracks.items(), ("black", "0.45"), strict=True):
            if len(rows[0]):
                axes.plot(rows[2] / 1000, rows[1] / 1000, color=color, linewidth=1.0, marker="o", markersize=2.5)
        figure.colorbar(image, ax=axes)
        axes.set(title=title, xlabel="x (km)", ylabel="y (km)", aspect="equal" if y[-1] > 0.2 * x[-1] else "auto")
        links = map_link(title, {"y (m)": y, "x (m)": x}, title, values)
        drawn.append(f"<figure>{to_svg(figure, title, 'chart')}{links}</figure>")
    low, high = (number(numbers[f"updraft_helicity{end}"], 3) for end in ("_min", ""))
    said = (
        f"From {len(times)} maps: the strongest rotation of updrafts from 2 to 5 km, between {low} and {high} m² s⁻²,"
    )
    said += f" and where it was at each map from {ROTATES:g} m² s⁻² on"
    said += " (black: cyclonic, gray: anticyclonic)."
    for kind in AT_GROUND:
        if kind in numbers:
            said += f" {number(numbers[kind], 3)} kg of {kind}, at most {number(numbers[f'{kind}_depth'], 3)} mm."
    yield ReportSection("storms", "Storms: rain, swaths and tracks", grid(drawn) + caption(said), numbers)


def track(times: np.ndarray, y: np.ndarray, x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Times (s) at which the greatest of values [times, ny, nx] rotates, and its y and x (m)."""
    flat = values.reshape(len(values), -1)
    at, strong = flat.argmax(axis=1), flat.max(axis=1) >= ROTATES
    row, column = np.unravel_index(at[strong], values.shape[1:])
    return times[strong], y[row], x[column]


def trajectories(run: RunData) -> Iterator[ReportSection]:
    """Paths of the parcels over the ground and by height, the ones that rise most in color.

    The numbers: count, greatest rise of a parcel (m), and how many rise by 1 km or more.
    """
    path = run.fields.with_name(PARCELS) if run.fields is not None else None
    if path is None or not path.is_file():
        return
    with h5py.File(path) as file:
        times, x, y, z = (np.asarray(file[name][...], np.float64) for name in ("time", "x", "y", "height"))
    if len(times) < 2:
        return
    rise = z.max(axis=0) - z[0]
    chosen = np.argsort(-rise, kind="stable")[: len(SERIES)]
    figure, (plan, up) = pyplot().subplots(1, 2, figsize=(7.6, 3.3), layout="constrained", dpi=130)
    for parcel in [*(set(range(len(rise))) - set(chosen.tolist())), *chosen]:
        rank = np.flatnonzero(chosen == parcel)
        style = {"color": SERIES[rank[0]], "linewidth": 1.2} if rank.size else {"color": "0.8", "linewidth": 0.6}
        for line in _unbroken(x[:, parcel], y[:, parcel]):
            plan.plot(x[line, parcel] / 1000, y[line, parcel] / 1000, **style)
        up.plot(times / 60, z[:, parcel] / 1000, **style)
    plan.set(xlabel="x (km)", ylabel="y (km)", title="over the ground")
    up.set(xlabel="time (min)", ylabel="z (km)", title="height")
    columns = {"time (s)": times.tolist(), **{f"z of {n} (m)": z[:, n].tolist() for n in chosen}}
    drawn = with_data(to_svg(figure, "trajectories", "wide"), "trajectories", columns)
    numbers = {"count": len(rise), "greatest_rise": float(rise.max()), "rise_1km": int((rise >= 1000).sum())}
    said = (
        f"{len(rise)} parcels, from {PARCELS}: {numbers['rise_1km']} rise by 1 km or more, one by {rise.max():.0f} m."
    )
    yield ReportSection("trajectories", "Trajectories", drawn + caption(said), numbers)


def _unbroken(x: np.ndarray, y: np.ndarray) -> list[slice]:
    """Parts of a path between its passages through periodic sides."""
    jumps = [np.abs(np.diff(each)) > 0.5 * max(np.ptp(each), 1.0) for each in (x, y)]
    far = [
        each & (np.abs(np.diff(row)) > 10 * (np.median(np.abs(np.diff(row))) + 1.0))
        for each, row in zip(jumps, (x, y), strict=True)
    ]
    cuts = [0, *(np.flatnonzero(far[0] | far[1]) + 1).tolist(), len(x)]
    return [slice(low, high) for low, high in itertools.pairwise(cuts)]
