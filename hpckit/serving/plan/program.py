"""What a rank of a stage computes in a step: the list that `ServedModel` runs, and that a `ServingPlan` proves.

A rank writes its columns of an array that its replica shares, and all of the replica wait before they read it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

EMBED, ATTEND, PROJECT, RAISE, LOWER, ANSWER = "embed", "attend", "project", "raise", "lower", "answer"
SHOWN = {ATTEND: "mixed", PROJECT: "branch", RAISE: "hidden", LOWER: "branch"}  # the array that an action writes to
ARRAYS = "mixed", "branch", "hidden", "logits"


class Computation(NamedTuple):
    """What a rank computes next, in layer `block` of its stage, and the array whose columns it shows to its replica
    before it goes on; "" for none.
    """

    does: str
    block: int = 0
    shows: str = ""


@cache
def program(stage: int, stages: int, layers: int) -> tuple[Computation, ...]:
    """What every rank of a stage with so many layers does in a step, between the rows that come and those that leave.

    After an array "branch" the rows are those before it plus the branch.
    """
    begin = [] if stage else [Computation(EMBED)]
    blocks = [Computation(does, block, shows) for block in range(layers) for does, shows in SHOWN.items()]
    return (*begin, *blocks, *([Computation(ANSWER)] if stage == stages - 1 else []))
