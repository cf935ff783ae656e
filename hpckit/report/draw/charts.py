"""Line charts over time, phase times over ranks, and the decomposition, each as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hpckit.report.data import columns_of, with_data
from hpckit.report.run_data import RunData
from hpckit.report.style import INK, MUTED, PHASE_COLORS, PHASES, SERIES, pyplot, to_svg
from hpckit.report.units import MINUS, time_scale

Record = dict[str, Any]
SAME = 1e-6  # relative: smaller differences of a series are drawn flat
NO_CHANGE = 1e-14  # relative: rounding of a sum
TENSOR = ("_xx", "_yy", "_zz"), ("_xy", "_xz", "_yz")
MOST_BARS = 24
MOST_BOLD = 200  # values of a line; more of them would merge into a band
MOST_BLOCKS = 1024


def over_time(
    title: str, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], zero: bool = False, unit: str = "s"
) -> str:
    """Values over simulated time, whose unit is `unit`; `zero` draws a line at 0."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(3.7, 2.0), layout="constrained")
    end = max((times[-1] for times, _ in lines.values() if times), default=1.0)
    own, (scale, unit) = unit, time_scale(end, unit)
    if zero:
        axes.axhline(0.0, color="#aab4bd", linewidth=0.7)
    for (name, (times, values)), color in zip(lines.items(), SERIES * 9, strict=False):
        marker = "o" if len(times) < 3 else None
        width = 1.4 if len(times) <= MOST_BOLD else 0.7
        at = [t / scale for t in times]
        axes.plot(at, values, color=color, label=name, marker=marker, markersize=3, linewidth=width)
    axes.grid(axis="y")
    axes.margins(x=0.01)
    axes.set_xlabel("step" if unit == "steps" else f"time ({unit})")
    axes.set_title(title)
    if limits := least_span([value for _, values in lines.values() for value in values], zero):
        axes.set_ylim(*limits)
    axes.locator_params(axis="y", nbins=5)
    if unit == "steps":
        axes.locator_params(axis="x", integer=True)
    if len(lines) > 1:
        axes.legend(loc="best", handlelength=1.2)
    columns = columns_of(lines, own if own == "steps" else f"time ({own})")
    return with_data(to_svg(figure, f"{title} over time", "chart"), title, columns)


def beside(
    title: str,
    x: Any,
    ours: Any,
    other: Mapping[str, Any],
    x_label: str,
    unit: str = "",
    residual: bool = True,
) -> str:
    """Our curve with others over it, dashed; below the difference from the first of them, unless `residual` is off."""
    heights = {"height_ratios": (3, 1)} if residual else None
    size = (3.7, 2.9 if residual else 2.2)
    figure, rows = pyplot().subplots(
        1 + residual, 1, figsize=size, layout="constrained", sharex=True, squeeze=False, gridspec_kw=heights
    )
    axes = rows[0, 0]
    axes.plot(x, ours, color=SERIES[0], label="ours", linewidth=1.6)
    for (name, values), color in zip(other.items(), (INK, *SERIES[1:]), strict=False):
        axes.plot(x, values, color=color, label=name, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.legend(loc="best", handlelength=2.2)
    axes.set_title(f"{title} ({unit})" if unit else title)
    axes.grid(axis="y")
    if residual:
        name, values = next(iter(other.items()))
        rows[1, 0].axhline(0.0, color="#aab4bd", linewidth=0.7)
        rows[1, 0].plot(x, ours - values, color=SERIES[1], linewidth=0.9)
        rows[1, 0].set_title(f"ours {MINUS} {name}", fontsize="small")
        rows[1, 0].locator_params(axis="y", nbins=3)
    rows[-1, 0].set_xlabel(x_label)
    rows[-1, 0].margins(x=0.01)
    rows[-1, 0].ticklabel_format(axis="x", style="plain", useOffset=False)
    columns = {x_label: x, "ours": ours, **other}
    return with_data(to_svg(figure, f"{title}: ours beside {', '.join(other)}", "chart"), title, columns)


def least_span(values: Sequence[float], zero: bool = False) -> tuple[float, float] | None:
    """Limits of an axis for values that are equal but for rounding; None if they differ enough to fill it.

    `zero`: the values are relative changes; other values count as equal if they differ by 1e-6 of their size.
    """
    good = [value for value in values if math.isfinite(value)]
    if not good:
        return None
    low, high = min(good), max(good)
    size = max(abs(low), abs(high))
    if zero:
        return (-NO_CHANGE, NO_CHANGE) if size < NO_CHANGE else None
    if high - low >= SAME * size > 0.0:
        return None
    middle, half = (low + high) / 2, max(SAME * size / 2, 1e-300)
    return middle - half, middle + half


def relative_change(run: RunData, name: str) -> str:
    """A chart of a conserved quantity's change over time, relative to its first value; '' without a series."""
    times, changes = run.changes(name)
    if len(changes) < 2:
        return ""
    return over_time(f"{name}: relative change", {name: (times, changes)}, True, run.time_unit)


def metric_groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Metrics that belong on one chart: theta_min and theta_max, the components of a tensor; the others alone."""
    groups: dict[str, list[str]] = {}
    for name in names:
        ends = next((ends for ends in TENSOR if name.endswith(ends)), ())
        if len(there := [end[1:] for end in ends if name[:-3] + end in names]) > 1:
            groups.setdefault(f"{name[:-3]} {', '.join(there)}", []).append(name)
            continue
        stem = name.removesuffix("_min").removesuffix("_max")
        paired = stem != name and f"{stem}_min" in names and f"{stem}_max" in names
        groups.setdefault(f"{stem}, least and largest" if paired else name, []).append(name)
    return groups


def phase_colors(names: Sequence[str]) -> dict[str, str]:
    """A color for each phase; lost time has colors of its own."""
    rest = iter(PHASES * (1 + len(names)))
    return {name: PHASE_COLORS.get(name) or next(rest) for name in names}


def phase_bars(rows: Mapping[str, Record]) -> str:
    """Stacked bars of seconds, one a rank; for many ranks a selection that holds the fastest and the slowest."""
    plt = pyplot()
    count = max(len(row["ranks"]) for row in rows.values())
    ranks = _selection(rows, count)
    height = 0.5 + 0.26 * len(ranks)
    figure, axes = plt.subplots(figsize=(7.6, height), layout="constrained")
    left = [0.0] * len(ranks)
    for name, color in phase_colors(list(rows)).items():
        widths = [rows[name]["ranks"][rank] for rank in ranks]
        axes.barh(range(len(ranks)), widths, left=left, height=0.72, color=color, linewidth=0)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.set_ylim(len(ranks) - 0.4, -0.6)  # rank 0 above, and room around the bars
    axes.set_xlabel("seconds")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0)
    columns = {"rank": list(range(count))} | {name: row["ranks"] for name, row in rows.items()}
    return with_data(to_svg(figure, "phase times of the ranks", "wide"), "phases, seconds", columns)


def _selection(rows: Mapping[str, Record], count: int) -> list[int]:
    if count <= MOST_BARS:
        return list(range(count))
    busy = [
        sum(row["ranks"][rank] for name, row in rows.items() if name not in ("wait", "other")) for rank in range(count)
    ]
    order = sorted(range(count), key=busy.__getitem__)
    chosen = {order[round(i * (count - 1) / (MOST_BARS - 1))] for i in range(MOST_BARS)}
    return sorted(chosen)


def decomposition_picture(record: Record) -> str:
    """The blocks of the ranks on the grid's last two dims (the first layer of blocks in 3-D), a color a host.

    '' when the record lacks its blocks.
    """
    blocks = record.get("blocks") or []
    shape = record.get("shape") or []
    if not blocks or not shape:
        return ""
    blocks = [block for block in blocks if len(shape) < 3 or block["start"][0] == 0][:MOST_BLOCKS]
    hosts = list(dict.fromkeys(block.get("host", "") for block in blocks))
    names = [str(axis) for axis in record.get("axes") or [f"dim {d}" for d in range(len(shape))]]
    plt = pyplot()
    width = shape[-1]
    height = shape[-2] if len(shape) > 1 else max(1, width // 8)
    tall = min(max(height / width, 0.12), 0.9)
    figure, axes = plt.subplots(figsize=(3.7, 3.3 * tall + 0.5), layout="constrained")
    for block in blocks:
        x, dx = block["start"][-1], block["shape"][-1]
        z, dz = (block["start"][-2], block["shape"][-2]) if len(shape) > 1 else (0, height)
        color = SERIES[hosts.index(block.get("host", "")) % len(SERIES)]
        axes.add_patch(plt.Rectangle((x, z), dx, dz, facecolor=color, alpha=0.22, linewidth=0))
        axes.add_patch(plt.Rectangle((x, z), dx, dz, fill=False, edgecolor=color, linewidth=1.0))
        if len(blocks) <= 64:
            text = f"rank {block['rank']}" if len(blocks) <= 6 else str(block["rank"])
            axes.text(x + dx / 2, z + dz / 2, text, ha="center", va="center", fontsize=9.5, color=INK)
    axes.locator_params(axis="x", nbins=5, steps=(1, 2, 5, 10))
    axes.locator_params(axis="y", nbins=max(1, round(6 * tall)), steps=(1, 2, 5, 10))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_xlabel(f"{names[-1]} (cells)")
    if len(shape) > 1:
        axes.set_ylabel(f"{names[-2]} (cells)")
    else:
        axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, labelcolor=MUTED)
    return to_svg(figure, f"the grid over {len(record['blocks'])} ranks", "chart")
