"""The roofline of a run: the rates of its phases and the measured peaks of the node (Williams, Waterman and Patterson
2009, Commun. ACM 52, 65-76).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpckit.report.extension import PhaseWork
from hpckit.report.page import caption, section, table
from hpckit.report.style import INK, MUTED, SERIES, pyplot, to_svg
from hpckit.report.units import number, percent

Record = dict[str, Any]
FORMULAS = (
    "flop per byte = flop per cell-step / bytes per cell-step; GFLOP/s = flop per cell-step times cells times steps"
    " over the seconds of the phase (the mean over ranks); t_eff the same with bytes; roof = the lesser of the peak"
    " GFLOP/s and flop per byte times GB/s from memory. Bytes are those that must move, as in t_eff; flops are the"
    " additions, multiplications, divisions, roots and powers of the reference kernel. Points above the memory slope"
    " keep their data in a cache, or move less than an algorithm without fused phases would."
)
FIGURE = (5.6, 3.2)  # inches
DISTURBED = " Other processes used the cores during this measurement: the true peaks are higher."


def roofline(values: Record, work: Sequence[PhaseWork], machine: Record) -> Record | None:
    """Points and peaks: everything drawn, or `{"reason": …}`; None for an app that does not state its work.

    `values` are the numbers of the report, `machine` as `hpckit.run.peaks.peaks_of_run` gives it.
    """
    if not work:
        return None
    if "peaks" not in machine:
        return {"reason": str(machine.get("reason") or "no peaks of the node are known")}
    cells, steps, rows = values.get("cells"), values.get("steps"), values["phases"]
    if not cells or not steps:
        return {"reason": "the run has no steps to measure"}
    nodes, peaks = int(machine.get("nodes") or 1), machine["peaks"]
    roofs = {
        "nodes": nodes,
        "cores": nodes * int(peaks["threads"]),
        "cpu": peaks["cpu"],
        "copy": nodes * peaks["copy"],
        "triad": nodes * peaks["triad"],
        "caches": {level: nodes * rate for level, rate in peaks["caches"].items()},
        "flops": nodes * peaks["flops"],
        "undisturbed": bool(peaks.get("undisturbed")),
    }
    points = [_point(one, rows, cells * steps, roofs) for one in work]
    found = [point for point in points if point is not None]
    return {"peaks": roofs, "points": found} if found else {"reason": "no phase with known work took any time"}


def _point(work: PhaseWork, rows: Record, cell_steps: float, roofs: Record) -> Record | None:
    seconds = sum(rows[name]["mean"] for name in work.phases if name in rows)
    if seconds <= 0 or work.bytes <= 0 or work.flops <= 0:
        return None
    intensity = work.flops / work.bytes
    rate = work.flops * cell_steps / seconds / 1e9
    moved = work.bytes * cell_steps / seconds / 1e9
    roof = min(roofs["flops"], intensity * max(roofs["copy"], roofs["triad"]))
    return {
        "name": work.name,
        "seconds": seconds,
        "bytes_per_cell_step": work.bytes,
        "flops_per_cell_step": work.flops,
        "flops_per_byte": intensity,
        "gflops": rate,
        "t_eff": moved,
        "roof_gflops": roof,
        "share_of_roof": rate / roof,
        "share_of_peak_flops": rate / roofs["flops"],
        "share_of_copy": moved / roofs["copy"],
    }


def roofline_section(record: Record | None) -> str:
    """The picture, the table of its points, and the formulas."""
    if record is None:
        return ""
    if "reason" in record:
        return section("Roofline", caption(f"Not drawn: {record['reason']}."))
    peaks = record["peaks"]
    head = (
        "phase", "bytes per cell-step", "flop per cell-step", "flop per byte", "GFLOP/s", "of the roof", "t_eff (GB/s)",
        "of copy",
    )  # fmt: skip
    rows = [
        (
            point["name"],
            number(point["bytes_per_cell_step"], 3),
            number(point["flops_per_cell_step"], 3),
            number(point["flops_per_byte"], 3),
            number(point["gflops"], 3),
            percent(point["share_of_roof"]),
            number(point["t_eff"], 3),
            percent(point["share_of_copy"]),
        )
        for point in record["points"]
    ]
    caches = "".join(f", {level} {number(rate, 3)}" for level, rate in peaks["caches"].items())
    cores = f"{peaks['cores']} core" + "s" * (peaks["cores"] != 1)
    said = (
        f"Measured on {cores} of {peaks['cpu']}"
        + (f" ({peaks['nodes']} nodes, assumed equal)" if peaks["nodes"] > 1 else "")
        + f": copy {number(peaks['copy'], 3)} GB/s, triad {number(peaks['triad'], 3)} GB/s from memory{caches};"
        f" {number(peaks['flops'], 3)} GFLOP/s of multiply-adds in double precision."
    )
    said += "" if peaks["undisturbed"] else DISTURBED
    numeric = tuple(range(1, len(head)))
    return section(
        "Roofline",
        f'<div class="pan">{_picture(record)}</div>',
        caption(said),
        table(head, rows, numeric),
        caption(FORMULAS),
    )


def _picture(record: Record) -> str:
    """Log-log axes; the slopes of memory and caches end at the flat roof."""
    plt = pyplot()
    peaks, points = record["peaks"], record["points"]
    memory, flops = max(peaks["copy"], peaks["triad"]), peaks["flops"]
    low = 0.5 * min([point["flops_per_byte"] for point in points] + [flops / max([memory, *peaks["caches"].values()])])
    high = 4 * max([point["flops_per_byte"] for point in points] + [flops / memory])
    lowest = min([point["gflops"] for point in points] + [low * memory])
    bottom, top = 0.5 * lowest, 2.2 * flops
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    # A slope of one in logarithms, as an angle on the page.
    angle = math.degrees(math.atan2(0.78 * FIGURE[1] / math.log(top / bottom), 0.88 * FIGURE[0] / math.log(high / low)))
    for name, rate in {**peaks["caches"], "memory": memory}.items():
        start = max(low, 1.05 * bottom / rate)
        color, width = (INK, 1.4) if name == "memory" else (MUTED, 0.7)
        if flops / rate <= start:
            continue
        axes.loglog([start, flops / rate], [start * rate, flops], color=color, linewidth=width)
        style = {"fontsize": 9, "color": color, "rotation": angle, "rotation_mode": "anchor"}
        at = (start, start * rate)
        axes.annotate(f"{name} {number(rate, 3)} GB/s", at, xytext=(6, 7), textcoords="offset points", **style)
    axes.loglog([flops / memory, high], [flops, flops], color=INK)
    style = {"fontsize": 9, "color": INK, "ha": "right"}
    axes.annotate(f"{number(flops, 3)} GFLOP/s", (high, flops), xytext=(0, 4), textcoords="offset points", **style)
    for point, color in zip(points, SERIES * 9, strict=False):
        axes.loglog([point["flops_per_byte"]], [point["gflops"]], "o", color=color, label=point["name"], markersize=6)
    for axis, ends in ((axes.xaxis, (low, high)), (axes.yaxis, (bottom, top))):
        axis.set_major_locator(plt.LogLocator(subs=(1.0, 2.0, 5.0) if ends[1] < 200 * ends[0] else (1.0,)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    axes.grid(which="major")
    axes.set(xlabel="flop per byte that must move", ylabel="GFLOP/s")
    axes.legend(loc="lower right")
    return to_svg(figure, "roofline: phases against the measured peaks of the node", "roof")
