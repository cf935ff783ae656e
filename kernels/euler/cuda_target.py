"""Where a sweep on a GPU leaves its result and its status, and which part of the grid it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.kernels.device_array import empty_like, from_host, to_host
from hpckit.kernels.euler.constants import HALO, INNER, WHOLE

NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Target:
    """out: an array like the state, whose owned cells take the result. status: flags on the device, see `new_status`.

    mark: a number of the caller's, told by the status where a value is not finite: the least of all.
    """

    out: Any
    status: Any
    mark: int = 0


def new_status(like: Any) -> Any:
    """Flags on the device of `like`, int32[2]: the sum of what sweeps have seen, the least mark of NOT_FINITE."""
    return from_host(np.array([0, NEVER], np.int32), like)


def read_status(status: Any) -> tuple[int, int | None]:
    """Waits for the device: the flags, and the least mark under which a value was not finite."""
    flags, mark = (int(value) for value in to_host(status))
    return flags, None if mark == NEVER else mark


def target_of(state: Any, target: Target | None) -> Target:
    """The target given, or one of its own."""
    return target if target is not None else Target(empty_like(state), new_status(state))


def settle(state: Any, given: Target | None, used: Target) -> int:
    """With no target given: the result into the state, and its status read; else 0, and nothing is waited for."""
    if given is not None:
        return 0
    owned = (..., slice(HALO, -HALO)) if state.ndim == 3 else (..., slice(HALO, -HALO), slice(HALO, -HALO))
    state[owned] = used.out[owned]
    return read_status(used.status)[0]


def parts(count: int, length: int, part: int) -> tuple[int, int, int]:
    """The pieces of `length` of a direction of `count` cells that belong to a part: the first, the stride, how many.

    The first and the last piece need the halo, and the last but one where the last is thinner than the halo.
    """
    pieces = -(-count // length)
    if part == WHOLE or pieces < 3 or length < HALO or count - (pieces - 1) * length < HALO:
        return 0, 1, 0 if part == INNER else pieces
    return (1, 1, pieces - 2) if part == INNER else (0, pieces - 1, 2)


def stage_numbers(dtype: np.dtype, spacing: float, dt: float, beta: float, gravity: float) -> tuple:
    """For each stage its time step, that over the spacing, the hyperviscosity; then gravity; in the state's type."""
    numbers: list[float] = []
    for stage in range(3):
        step = dt / (3 - stage)
        numbers += [step, step / spacing, beta * spacing / (16.0 * step)]
    return tuple(dtype.type(number) for number in (*numbers, gravity))
