"""Tokens to experts as a plan: proved in one level and in two; a token goes to a node once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpckit.errors import PlanError
from hpckit.plan.drawing import draw
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.pricing import price
from hpckit.plan.proving import prove
from hpckit.plan.training.dispatch import DispatchPlan


def homes(ranks, tokens, choices, seed=1):
    """Choices of different experts, two a rank; some ranks have fewer tokens."""
    random = np.random.default_rng(seed)
    found = np.argsort(random.random((ranks, tokens, 2 * ranks)), axis=2)[:, :, :choices] // 2
    found[1, tokens // 2 :] = -1
    return found


@pytest.mark.parametrize(("ranks", "node"), [(2, 0), (6, 0), (6, 2), (6, 3), (8, 4), (4, 4)])
def test_every_dispatch_is_proved(ranks, node):
    for given in (homes(ranks, 7, 3), np.zeros((ranks, 5, 1), np.int64), np.full((ranks, 3, 2), -1)):
        plan = DispatchPlan(given, node)
        prove(plan)
        prove(replace(plan, combine=False))
        assert draw(plan)


def test_a_token_goes_to_a_node_once():
    given = homes(8, 50, 4)
    plan = DispatchPlan(given, 4, itemsize=1024.0)
    nodes = [set((row[row >= 0] // 4).tolist()) for row in given.reshape(-1, 4)]
    own = np.repeat(np.arange(8), 50) // 4
    sent = plan.sent()
    assert sent["between nodes"] == sum(len(other - {at}) for other, at in zip(nodes, own.tolist(), strict=True))
    assert sent["between nodes in one level"] == int((given[given >= 0] // 4 != np.nonzero(given >= 0)[0] // 4).sum())
    assert sent["between nodes"] < 0.6 * sent["between nodes in one level"]
    assert DispatchPlan(given).sent() == {"rows": int((given[given >= 0] != np.nonzero(given >= 0)[0]).sum())}
    machine = machine_of("infiniband")
    assert price(plan, machine, itemsize=1).seconds > 0


def test_a_dispatch_that_errs_is_found():
    plan = DispatchPlan(homes(6, 7, 2), 2)

    class Astray(DispatchPlan):
        def steps(self):
            """Two relayed tokens in each other's place."""
            first, *others = super().steps()
            cells = first.receives.cells.copy()
            cells[:2] = cells[1::-1]
            yield replace(first, receives=replace(first.receives, cells=cells))
            yield from others

    with pytest.raises(PlanError):
        prove(Astray(plan.homes, 2))
    with pytest.raises(PlanError, match="6 ranks, of which 4 share a node"):
        prove(DispatchPlan(plan.homes, 4))
    with pytest.raises(PlanError, match="are ranks"):
        prove(DispatchPlan(plan.homes[0]))
