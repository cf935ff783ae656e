"""The form of steps and claims: the types, lengths and limits of their arrays, which a proof checks first."""

from __future__ import annotations

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.protocol import EMPTY, IN_ORDER, NOTHING, Claim, Ends, Plan, Step, Work

# What code that makes a malformed step raises.
MALFORMED = (IndexError, KeyError, ValueError, TypeError, ZeroDivisionError, OverflowError)


def malformed(step: Step) -> str:
    """What is wrong with the form of a step, apart from what its numbers say; mostly nothing."""
    if not isinstance(step, Step):
        return f"a plan yields steps, not a {type(step).__name__}"
    for end in (step.sends, step.receives):
        if not isinstance(end, Ends):
            return f"an end is an `Ends`, not a {type(end).__name__}"
        for name in ("peer", "first", "last", "rank", "cells"):
            given = getattr(end, name)
            if not (given is None and name in ("rank", "cells")) and not _are_ints(given):
                return f"`{name}` of an end is an array of whole numbers, one a message, not {given!r:.80}"
        amount = end.amount
        if amount is not None and not (
            isinstance(amount, np.ndarray) and amount.ndim == 1 and amount.dtype.kind in "iuf"
        ):
            return f"`amount` of an end is an array of numbers, one a message, not {amount!r:.80}"
    for name, least in (("lag", 1), ("tag", IN_ORDER), ("parts", 0)):
        value = getattr(step, name)
        if not isinstance(value, int | np.integer) or value < least:
            return f"`{name}` is a whole number, {least} or more, not {value!r:.80}"
    if step.place not in ("messages", "memory"):
        return f'`place` is "messages" or "memory", not {step.place!r:.80}'
    if not isinstance(step.itemsize, int | float | np.number) or not 0 <= step.itemsize < np.inf:
        return f"`itemsize` is a number of bytes, 0 or more, not {step.itemsize!r:.80}"
    return ""


def malformed_work(work: Work, ranks: int, cells: int) -> str:
    """What is wrong with the arrays of computations."""
    tables = (work.reads, work.needs, work.writes, work.makes)
    if not _are_ints(work.rank) or not all(isinstance(it, np.ndarray) and it.dtype.kind in "iu" for it in tables):
        return "the arrays of computations are of whole numbers"
    n = len(work.rank)
    if any(it.ndim != 2 or len(it) != n for it in tables) or len(work.seconds) != n:
        return f"the arrays of computations have a row for each of the {n} entries"
    if work.reads.shape != work.needs.shape or work.writes.shape != work.makes.shape:
        return "a computation needs an index in each cell that it reads, and makes one in each that it writes"
    if ((work.rank < 0) | (work.rank >= ranks)).any():
        return f"a computation is of a rank that is not one of {ranks}"
    for at, index in ((work.reads, work.needs), (work.writes, work.makes)):
        if (index < NOTHING).any() or ((index != NOTHING) & ((at < 0) | (at >= cells))).any():
            return f"a computation has cells outside the {cells} of its rank"
    return ""


def _are_ints(given: object) -> bool:
    return isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "iu"


def check_claim(plan: Plan, claim: Claim) -> None:
    """Raise `PlanError` unless the arrays of a claim are of the right types and shapes."""
    ranks, title = plan.ranks, plan.title()
    if not isinstance(ranks, int | np.integer) or ranks < 1:
        raise PlanError(f"{title}: a plan has a whole number of ranks, 1 or more, not {ranks!r}")
    for name in ("start", "end"):
        given = getattr(claim, name)
        if not isinstance(given, np.ndarray) or given.ndim != 2 or given.dtype.kind not in "iu":
            raise PlanError(f"{title}: the claim's {name} is an array of whole numbers, a row a rank")
        if len(given) not in (1, ranks) or given.shape[1] != claim.start.shape[1]:
            raise PlanError(f"{title}: the claim's {name} is {given.shape}, and needs a row for each of {ranks} ranks")
        if given.strides[0] and given.size and given.min() < EMPTY:
            raise PlanError(f"{title}: the claim's {name} has the global index {given.min()}")
    shape = ranks, claim.start.shape[1]
    if claim.fixed is not None and (np.shape(claim.fixed) != shape or claim.fixed.dtype != bool):
        raise PlanError(f"{title}: the claim's fixed cells are {shape} flags")
    if claim.node is not None and (not _are_ints(np.asarray(claim.node)) or len(claim.node) != ranks):
        raise PlanError(f"{title}: the claim's nodes are a whole number for each of {ranks} ranks")
