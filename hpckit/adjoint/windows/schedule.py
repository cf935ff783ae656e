"""Which states of a run are kept, so that it can be walked backward in little memory: binomial checkpoints.

A run of n steps backward needs every state once, last first. With s states kept at a time, the least number of steps
forward is that of Griewank and Walther (2000, ACM TOMS 26, 19-45): no step is made more than r times, where r is the
smallest number with C(s + r, s) >= n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hpckit.errors import InputError


@dataclass(frozen=True)
class Move:
    """`forward` from state `at` to the next, which is kept if `keep`; `back` over the step from state `at`; `drop`
    state `at`.
    """

    kind: str
    at: int
    keep: bool = False


def binomial_schedule(steps: int, kept: int) -> Iterator[Move]:
    """The moves of a run of `steps` steps, there and back, with `kept` states kept at a time beside the first.

    State 0 is given. Raises `InputError` for less than one step or a negative number of states.
    """
    if steps < 1 or kept < 0:
        raise InputError(f"a run backward has 1 step or more and keeps 0 states or more, not {steps} and {kept}")
    stack: list[tuple[str, int, int, int]] = [("walk", 0, steps, kept)]
    while stack:
        kind, first, last, free = stack.pop()
        length = last - first
        if kind == "drop":
            yield Move("drop", first)
        elif length == 1:
            yield Move("back", first)
        elif free == 0:
            for end in range(last - 1, first - 1, -1):
                yield from (Move("forward", at) for at in range(first, end))
                yield Move("back", end)
        else:
            middle = first + _split(length, free + 1)
            yield from (Move("forward", at, at + 1 == middle) for at in range(first, middle))
            stack += [("walk", first, middle, free), ("drop", middle, middle, 0), ("walk", middle, last, free - 1)]


def straight_schedule(steps: int) -> Iterator[Move]:
    """The moves where the way back reads no state, as with a linear step: none is kept, no step is made twice."""
    yield from (Move("forward", at) for at in range(steps - 1))
    yield from (Move("back", at) for at in reversed(range(steps)))


def forward_steps(steps: int, kept: int) -> int:
    """How many steps forward the schedule makes: (r + 1) n - C(s + r, s - 1) - n, with s = kept + 1 and r as above."""
    states = kept + 1
    turns = _turns(steps, states)
    return turns * steps - math.comb(states + turns, states + 1)


def _turns(steps: int, states: int) -> int:
    turns = 0
    while math.comb(states + turns, states) < steps:
        turns += 1
    return turns


def _split(length: int, states: int) -> int:
    """After how many steps the next state is kept."""
    turns = _turns(length, states)
    left = math.comb(states + turns - 2, states) if turns > 1 else 1
    return max(1, length - math.comb(states - 1 + turns, states - 1), left)
