"""Time per phase of a program, on one rank."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PhaseTimer:
    """Seconds spent in named phases: `with timer("halo"): …`.

    Phases do not nest: time spent in an inner phase would count twice. `seconds` maps a name to the total so far, in
    the order in which the phases first ran.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of the block to the phase `name`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def reset(self) -> None:
        """Forget all times, as after warm-up steps that compile the kernels."""
        self.seconds.clear()


def t_eff(nbytes: float, seconds: float) -> float:
    """Effective memory throughput in GB/s: the bytes that must move (each input read once, each output written once)
    over the time (Räss et al. 2022, ImplicitGlobalGrid / ParallelStencil).
    """
    return nbytes / seconds / 1e9
