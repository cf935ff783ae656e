"""The peaks of this node, for rooflines: memory, caches and floating-point rate, on one core and on all of them."""

from __future__ import annotations

import socket
from typing import Any

from hpckit.bench.measure import machine
from hpckit.cli.peaks import keep
from hpckit.peaks import cores, measure


def run(quick: bool = False) -> dict[str, Any]:
    """Measure, keep the peaks for later reports on this host, and return a row for each number of cores."""
    counts = sorted({1, cores()} if quick else {1, *(2**i for i in range(1, cores().bit_length())), cores()})
    rows = []
    for threads in counts:
        peaks = measure(threads)
        keep(socket.gethostname(), peaks)
        rows.append(
            {
                "cores": threads,
                "copy_GB_per_s": round(peaks["copy"], 2),
                "triad_GB_per_s": round(peaks["triad"], 2),
                **{f"{level}_triad_GB_per_s": round(rate, 1) for level, rate in peaks["caches"].items()},
                "GFLOP_per_s": round(peaks["flops"], 2),
                "undisturbed": peaks["undisturbed"],
                "flop_per_byte_at_the_ridge": round(peaks["flops"] / max(peaks["copy"], peaks["triad"]), 2),
            }
        )
    return {"bench": "machine", "machine": machine(), "results": rows, "ratios": {}}
