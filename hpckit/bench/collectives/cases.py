"""What `hpckit bench collectives` measures where no operation of one's own is asked for, and for `--tune`."""

from __future__ import annotations

from typing import Any

from hpckit.plan.algorithms import ALGORITHMS

KiB, MiB = 1024, 1024**2
P2P = ("recursive_doubling", "halving_doubling", "ring")
IN_NODE = ("flat", "staged", "symmetric")
EVERY = ("mpi", "gloo", *P2P, "ordered", *IN_NODE, "auto", "auto_symmetric")
QUICK = ("mpi", "gloo", "ring", *IN_NODE, "auto")
FLAT_MOST = 64 * KiB
# Bytes, rounds.
SIZES = (
    (8, 41),
    (512, 41),
    (4 * KiB, 41),
    (32 * KiB, 41),
    (256 * KiB, 41),
    (MiB, 41),
    (8 * MiB, 21),
    (64 * MiB, 15),
    (256 * MiB, 5),
)
QUICK_SIZES = ((8, 21), (32 * KiB, 21), (MiB, 21), (64 * MiB, 7))


def default_cases(quick: bool) -> tuple[tuple[Any, ...], ...]:
    """One case a size: the operation, bytes, names, rounds."""
    return tuple(
        (
            "all_reduce",
            nbytes,
            [name for name in (QUICK if quick else EVERY) if nbytes <= FLAT_MOST or name != "flat"],
            rounds,
        )
        for nbytes, rounds in (QUICK_SIZES if quick else SIZES)
    )


def tuning_cases(quick: bool) -> tuple[tuple[Any, ...], ...]:
    """Every algorithm of every operation that has a choice, at every size."""
    sizes = [nbytes for nbytes, _ in (QUICK_SIZES if quick else SIZES) if nbytes <= 64 * MiB]
    rounds, found = 5 if quick else 11, list[tuple[Any, ...]]()
    for operation in ALGORITHMS:
        for nbytes in sizes:
            names = ["mpi", *P2P, *(name for name in IN_NODE if nbytes <= FLAT_MOST or name != "flat")]
            if operation == "all_reduce":
                found.append((operation, nbytes, names, rounds))
            elif len(ALGORITHMS[operation]) > 1:
                found.append((operation, nbytes, rounds))
    return tuple(found)
