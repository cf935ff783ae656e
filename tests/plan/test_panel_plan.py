"""The exchange of a cubed sphere as a plan: proofs on any blocks, planted faults, its price and its way back."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.errors import InputError, PlanError
from hpckit.plan.grid import panels
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import EAST, NORTH, PANELS, SOUTH, WEST, PanelPlan, seams
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.pricing import price
from hpckit.plan.protocol import transposed
from hpckit.plan.proving import prove
from hpckit.plan.topology import Topology

BLOCKS = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (5, 1, 1), (6, 1, 1), (1, 2, 1), (2, 2, 2), (3, 1, 4), (6, 2, 3)]


def plan_of(sizes, n=13):
    return PanelPlan(Decomposition((PANELS, n, n), Topology(("panel", "y", "x"), sizes), halo=(0, 3, 3)))


@pytest.mark.parametrize("sizes", BLOCKS, ids=str)
def test_every_row_beyond_a_side_is_proved(sizes):
    """The claim finds each cell from its place on the cube, the steps from a table of seams."""
    plan = plan_of(sizes)
    assert prove(plan).ranks == np.prod(sizes)
    assert prove(transposed(plan)).ranks == np.prod(sizes)


def test_seams_lead_back():
    for panel in range(PANELS):
        for side in (WEST, EAST, SOUTH, NORTH):
            seam = seams()[panel][side]
            assert seams()[seam.panel][seam.side] == (panel, side, seam.turned)
    assert sum(seam.turned for sides in seams() for seam in sides) == 8  # four edges of the cube turn, from both sides


@pytest.mark.parametrize("fault", ["turned", "side", "panel"])
def test_a_wrong_seam_is_refused(monkeypatch, fault):
    table = [list(sides) for sides in seams()]
    seam = table[4][EAST]
    wrong = {
        "turned": seam._replace(turned=not seam.turned),
        "side": seam._replace(side=(seam.side + 1) % 4),
        "panel": seam._replace(panel=(seam.panel + 1) % PANELS),
    }[fault]
    table[4][EAST] = wrong
    monkeypatch.setattr(panels, "seams", lambda: table)
    with pytest.raises(PlanError):
        prove(plan_of((3, 1, 1)))


def test_what_is_no_cubed_sphere_is_refused():
    topology = Topology(("panel", "y", "x"), (1, 1, 1))
    for shape in ((5, 12, 12), (6, 12, 13), (6, 5, 5)):
        with pytest.raises(InputError, match="6 panels of n x n"):
            PanelPlan(Decomposition(shape, topology))


def test_more_ranks_send_less_each_and_it_has_a_price():
    machine = machine_of("infiniband")
    few, many = plan_of((6, 1, 1), 48), plan_of((6, 4, 4), 48)
    assert few.sent.max() > many.sent.max() > 0
    assert plan_of((1, 1, 1)).sent.tolist() == [0]
    assert price(few, machine, itemsize=32).seconds > 0
