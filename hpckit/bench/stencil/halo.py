"""Halo exchange on 2 ranks against Sendrecv with NumPy slices, and against the package mpiarray.

All three dims periodic, ranks along the first, width 1, corners included, double precision. Cells are per rank.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from hpckit.bench.measure import Ratios, Rows, ratio, result
from hpckit.bench.ranks import run_ranks

RANKS = 2
# Cells an edge, fields, rounds, with mpiarray.
FULL = ((64, 1, 41, True), (128, 1, 31, True), (256, 1, 21, True), (32, 5, 41, False))
QUICK = ((64, 1, 15, True), (128, 1, 9, True), (256, 1, 5, True), (32, 5, 15, False))


def run(quick: bool = False) -> dict[str, Any]:
    """Start the ranks, and turn their times into rows and ratios."""
    rows: Rows = []
    ratios: Ratios = {}
    for one in run_ranks("hpckit.bench.stencil.halo_ranks", RANKS, QUICK if quick else FULL):
        n, fields, times = one["cells"], one["fields"], one["times"]
        key = f"halo_{n}" if fields == 1 else f"halo_{n}x{fields}"
        row = {"cells": f"{n}^3", "fields": fields, "sent_bytes": one["sent_bytes"]}
        for name, seconds in times.items():
            row[f"{name}_us"] = round(median(seconds) * 1e6, 1)
        rows.append(row)
        ratios[key] = ratio(times["sendrecv"], times["hpckit"])
        if "mpiarray" in times:
            ratios[f"{key}_vs_mpiarray"] = ratio(times["mpiarray"], times["hpckit"])
    if not any(key.endswith("_vs_mpiarray") for key in ratios):
        rows.append({"note": "mpiarray is not installed: pip install 'hpckit[bench]' to have it measured too"})
    return result("halo", rows, ratios, about={"ranks": RANKS})
