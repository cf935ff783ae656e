"""What checkpoints cost: a whole one against the raw disk, and the stall of one that is written beside the run."""

from __future__ import annotations

from statistics import median
from typing import Any

from hpckit.bench.ranks import run_ranks
from hpckit.bench.measure import ratio

Figures = dict[str, dict[str, float]]
MODULE = "hpckit.bench.overhead.checkpoint_ranks"
RANKS = 2
MIB, ROUNDS = 512, 5  # a rank; rounds of raw disk, checkpoint, checkpoint out of an array with halo, and stall
QUICK_MIB, QUICK_ROUNDS = 64, 3
FEW_ROUNDS = 3  # beside faults, whose time is limited


def checkpoint_costs(quick: bool = False, few: bool = False) -> tuple[list[dict[str, Any]], Figures]:
    """Rows and ratios. ckpt_vs_raw: seconds of a raw O_DIRECT write, a file a rank, with fsync, over those of a whole
    checkpoint (copied out of an array with halo, hashed, synced, committed); ckpt_stall: seconds that a run stands
    still for an asynchronous one, in copies of the state in memory. few: fewer rounds.
    """
    mib, rounds = (QUICK_MIB, QUICK_ROUNDS) if quick else (MIB, FEW_ROUNDS if few else ROUNDS)
    found = run_ranks(MODULE, RANKS, ((mib, rounds),))[0]
    times: dict[str, list[float]] = found["seconds"]
    rows = [
        {
            "what": f"{RANKS} x {mib} MiB: {name}",
            "seconds": median(seconds),
            "GiB/s": RANKS * mib / 1024 / median(seconds),
        }
        for name, seconds in times.items()
    ]
    ratios = {
        "ckpt_vs_raw": ratio(times["raw O_DIRECT write"], times["checkpoint"]),
        "ckpt_contiguous_vs_raw": ratio(times["raw O_DIRECT write"], times["checkpoint without halo"]),
        "ckpt_stall": ratio(times["stall"], times["copy in memory"]),
    }
    return rows, ratios
