"""Bus bandwidth as nccl-tests define it (their doc/PERFORMANCE.md): a rate to hold against that of a link."""

from __future__ import annotations


def busbw_factor(operation: str, ranks: int) -> float:
    """What algbw, the bytes of the largest buffer over the time, is multiplied by.

    On p ranks 2 (p - 1) / p of an all-reduce's buffer must pass each link, all of a broadcast's or reduce's that of the
    root, and (p - 1) / p of the other operations' buffers, whose own block stays where it is.
    """
    if operation in ("broadcast", "reduce"):
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
