"""A figure of a GPU: the time of steps, and their share of the bandwidth of a copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.measure import Ratios, Rows, spread
from hpckit.comm.device import Device
from hpckit.comm.observe.timer import t_eff
from hpckit.comm.simulated_gpu import SimulatedGpu

PAUSE = 0.02  # seconds that a timing takes at least: launches are asynchronous


def size(device: Device, real: Any, simulated: Any) -> Any:
    """The size or shape for a GPU, or the one for the simulator."""
    return simulated if isinstance(device, SimulatedGpu) else real


def seconds(device: Device, call: Callable[[], object], rounds: int = 9) -> list[float]:
    """Seconds a call, `rounds` times; enough calls together to hide the start and the end of a timing."""
    if isinstance(device, SimulatedGpu):  # times are meaningless there, and long
        return [_timed(device, call, 1)]
    call()
    device.wait()
    calls = 1
    while (took := _timed(device, call, calls)) < PAUSE:
        calls = min(4 * calls, max(calls + 1, int(1.2 * calls * PAUSE / max(took, 1e-6))))
    return [_timed(device, call, calls) / calls for _ in range(rounds)]


def share(times: Sequence[float], nbytes: float, copy: float) -> dict[str, float]:
    """t_eff over the bandwidth of a copy: a ratio as the benchmarks print it."""
    return spread([nbytes / one / copy for one in times])


def dtypes(device: Device) -> tuple[Any, ...]:
    """The precisions that are measured."""
    return size(device, (np.float64, np.float32), (np.float32,))


def step_figure(
    key: str, case: str, times: Sequence[float], cells: int, nbytes: int, dtype: Any, copy: float
) -> tuple[Rows, Ratios]:
    """The row of a step that must move `nbytes`, and its share of the copy's bandwidth."""
    found = share(times, nbytes, copy)
    row = {
        "case": case,
        "dtype": np.dtype(dtype).name,
        "milliseconds": median(times) * 1e3,
        "ns_per_cell_step": median(times) / cells * 1e9,
        "t_eff_GB_per_s": t_eff(nbytes, median(times)),
        "share_of_floor": found["median"],
    }
    return [row], {f"{key}{'' if dtype == np.float64 else '_float32'}_vs_copy": found}


def joined(found: Iterable[tuple[Rows, Ratios]]) -> tuple[Rows, Ratios]:
    """Rows and ratios of several figures."""
    each = list(found)
    return [row for rows, _ in each for row in rows], {key: one for _, ratios in each for key, one in ratios.items()}


def _timed(device: Device, call: Callable[[], object], calls: int) -> float:
    device.wait()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    device.wait()
    return time.perf_counter() - begin
