"""Proofs of plans: all ranks are executed symbolically, without MPI.

Each contribution of a rank is a random 64-bit number, and a sum of contributions is the sum of their numbers: a lost,
doubled or misplaced contribution, or data of no rank, is detected with probability 1 - 2^-64.
"""

from __future__ import annotations

import numpy as np

from hpckit.errors import HpckitError, PlanError
from hpckit.plan.proof.execution import Execution, Proof
from hpckit.plan.proof.form import MALFORMED
from hpckit.plan.proof.strands import prove_strands
from hpckit.plan.protocol import NOBODY, Claim, Plan, Strands, require_plan


def prove(plan: Plan) -> Proof:
    """Execute a plan on all ranks symbolically; raise `PlanError` unless it does exactly what it claims.

    Checked first: the types, lengths and limits of all numbers of the claim and of each step; what is malformed is a
    `PlanError`, too. Checked for all ranks: each send meets one receive of the same extent, within the existing cells,
    so steps cannot deadlock (their receives can be posted before their sends); data that is sent or used was complete
    `lag` steps before; messages under way together do not store into each other's cells, and no two between the same
    ranks share a tag; cells move between cells of the same size; fixed cells are never written; steps in shared memory
    stay within a node, and no rank writes what another reads; each cell of the claim ends with each contribution to its
    index once. The error names the rank and the step.
    """
    require_plan(plan)
    try:
        claim = plan.claim()
    except HpckitError:
        raise
    except MALFORMED as error:
        raise PlanError(f"the claim of a plan is malformed: {error}") from error
    if isinstance(claim, Claim):
        return Execution(plan, claim).run()
    if isinstance(claim, Strands):
        return prove_strands(plan, claim)
    try:
        for factor in claim.plans:
            prove(factor)
    except PlanError:
        return prove(claim.whole())  # it names the fault by its rank
    return _counted(plan)


def _counted(plan: Plan) -> Proof:
    steps = messages = copies = 0
    for step in plan.steps():
        rank, peer = step.sends.ranks(), step.sends.peer
        own = int(np.count_nonzero(rank == peer))
        copies += own
        messages += int(np.count_nonzero(peer != NOBODY)) - own
        steps += 1
    return Proof(plan.ranks, steps, messages, copies)
