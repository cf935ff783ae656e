"""The smallest collective plans, whose times make a machine model: one message at once, half as many as ranks, or all.

Each is a chain of steps, so that a step begins when the one before is over. With `+` what arrives is added.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpckit.plan.collective.plan import CollectivePlan, messages
from hpckit.plan.protocol import NOBODY, Step

PROBES = ("one", "pairs", "exchange")
STEPS = 4
LONG = "*3"  # marks a chain three times as long


def at_once(probe: str, ranks: int) -> int:
    """How many messages a step has."""
    return {"one": 1, "pairs": ranks // 2, "exchange": ranks}[probe]


def share(probe: str) -> float:
    """The part of the buffer in a message."""
    return 0.5 if probe.startswith("exchange") else 1.0


def probe_plan(probe: str, ranks: int) -> CollectivePlan:
    """one: the buffer goes from rank to rank. pairs: so do two or more at once, half as many as ranks. exchange:
    every rank sends one half to the next and takes the other half, which it passes on in the next step.
    """
    name, reduce = probe.removesuffix(LONG).rstrip("+"), "+" in probe
    length = 3 * STEPS if probe.endswith(LONG) else STEPS
    rank, none, one = np.arange(ranks), np.zeros(ranks, np.int64), np.ones(ranks, np.int64)
    steps: dict[str, Callable[[int], Step]] = {
        "one": lambda i: messages(np.where(rank == i % ranks, (rank + 1) % ranks, NOBODY), none, one, reduce=reduce),
        "pairs": lambda i: messages(np.where(rank % 2 == i % 2, (rank + 1) % ranks, NOBODY), none, one, reduce=reduce),
        "exchange": lambda i: messages(
            (rank + 1) % ranks, none + i % 2, one + i % 2, into=none + (i + 1) % 2, reduce=reduce
        ),
    }
    return CollectivePlan("all_reduce", probe, ranks, 2 if name == "exchange" else 1, length, steps[name])
