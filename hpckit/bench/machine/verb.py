"""Figures of this node: peaks for rooflines, and with --machine-file or --predict the price model of collectives."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import Any

from hpckit.bench.measure import Ratios, Rows, machine, result, spread
from hpckit.errors import InputError
from hpckit.jobs.process import cores
from hpckit.run.peaks import keep, measure
from hpckit.settings.config import user_cache

RANKS = {2: 45.0, 4: 60.0}  # ranks -> seconds of timing


def add_options(it: argparse.ArgumentParser) -> tuple[str, ...]:
    """Options of this benchmark; returns their names."""
    it.add_argument("--machine-file", metavar="FILE.toml", help="write the measured model, for hpckit plan --machine")
    it.add_argument("--predict", action="store_true", help="predict the all-reduces with it, beside measured times")
    return "machine_file", "predict"


def run(quick: bool = False, machine_file: str | None = None, predict: bool = False) -> dict[str, Any]:
    """Measure, keep the peaks for later reports on this host, and return a row for each number of cores; or the model
    of collectives on 2 and 4 ranks, with `predict` a row for each all-reduce.
    """
    if machine_file is not None or predict:
        return _collectives(quick, None if machine_file is None else Path(machine_file), predict)
    counts = sorted({1, cores()} if quick else {1, *(2**i for i in range(1, cores().bit_length())), cores()})
    rows = []
    for threads in counts:
        peaks = measure(threads)
        keep(socket.gethostname(), peaks, user_cache())
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
    return result("machine", rows, {})


def _collectives(quick: bool, path: Path | None, predict: bool) -> dict[str, Any]:
    """Time the steps, with `predict` in turn with the all-reduces; write the file."""
    from hpckit.bench.machine import calibrate
    from hpckit.bench.machine.times import measured
    from hpckit.plan.machine.machine import toml_of

    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InputError(f"no file can be written at {path}", do="give a file in a folder that is there")
    about = machine()
    times = {}
    for ranks, seconds in RANKS.items():
        cases = [*calibrate.probe_cases(ranks), *calibrate.memory_cases()]
        more = [*calibrate.all_reduce_cases(), *calibrate.default_cases()] if predict else []
        cases += [case for case in more if case not in cases]
        times[ranks] = measured(ranks, cases, 8.0 if quick else seconds)
    source = f"measured on {about['cpu']}, {about['cores']} cores, by hpckit bench machine"
    found = {ranks: each.undisturbed() for ranks, each in times.items()}
    model = calibrate.model(found, "this node" if path is None else path.stem, source)
    if path is not None:
        path.write_text(toml_of(model), encoding="utf-8")
    rows, ratios = Rows(), Ratios()
    for ranks in RANKS if predict else ():
        each = calibrate.predictions(model, ranks, times[ranks])
        unlike = calibrate.pairs(each, times[ranks])
        for key, (value, count) in calibrate.judged(each, unlike).items():
            ratios[f"predict_{key}_{ranks}ranks"] = spread([value], count)
        rows += each
        rows += [{"wrong_order": True, **pair} for pair in unlike if pair["predicted_ratio"] <= 1]
    if not predict:
        rows = [
            {
                "ranks": it.ranks,
                "messages": it.messages,
                "latency_us": round(1e6 * it.latency, 1),
                "bytes": int(nbytes),
                "stored_GB_per_s": round(1e-9 * stored, 2),
                "added_GB_per_s": round(1e-9 * added, 2),
            }
            for it in model.measured
            for nbytes, stored, added in zip(it.nbytes, it.stored, it.added, strict=True)
        ]
    return result("machine", rows, ratios)
