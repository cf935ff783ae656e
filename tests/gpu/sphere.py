"""Checks of the cubed sphere's kernels; they compute in double precision alone."""

from __future__ import annotations

import numpy as np

from hpckit.comm.device import Device
from hpckit.grid.cubed_sphere import CubedSphere
from hpckit.kernels.sphere import cuda, reference
from hpckit.kernels.sphere.constants import HALO, Physics
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import PanelPlan
from hpckit.plan.topology import Topology
from tests.gpu.checks import Check, Pairs, size


def case(device: Device, dtype: np.dtype) -> Pairs:
    """A stage with what precedes it, of a rank with seams on some sides and a neighbor of its panel on others."""
    found = Pairs()
    n, sizes = size(device, (61, (6, 1, 1)), (9, (6, 3, 1)))
    decomposition = Decomposition((6, n, n), Topology(("panel", "y", "x"), sizes), halo=(0, HALO, HALO))
    plan, random = PanelPlan(decomposition), np.random.default_rng(2)
    panels, high, wide = decomposition.owned(1)
    cells = len(plan.needed(1))
    tables = CubedSphere(n, 6e6).tables(decomposition, 1)
    noise = random.normal(size=(4, panels, high + 2 * HALO, wide + 2 * HALO))
    state = noise + np.array([1000.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1, 1)
    ghosts = random.normal(size=(4, cells)) + np.array([[1000.0], [0.0], [0.0], [0.0]])
    bottom, heights = random.normal(size=state.shape[1:]), random.normal(size=(1, cells))
    base, physics = 0.9 * state, Physics(9.8, 1e-5, 2e-5, 3e-5)
    here = [state.copy(), np.zeros((panels, 4, n)), np.zeros_like(state)]
    there = [device.to_device(each) for each in here]
    on_device = [device.to_device(each) for each in (ghosts, heights, base, bottom)]
    its = type(tables)(*(device.to_device(each) for each in tables))
    places = np.arange(7), np.arange(3, 10)
    for form, table, (now, seams, out), (beyond, high_ground, old, ground), (first, last) in (
        (reference, tables, here, (ghosts, heights, base, bottom), places),
        (cuda, its, there, on_device, tuple(map(device.to_device, places))),
    ):
        form.copy(now.reshape(4, -1), first, beyond, last)
        form.fill(now, beyond, table)
        form.seam_flux(beyond, high_ground, table, physics, seams)
        form.stage(now, old, ground, seams, table, physics, 50.0, 0.25, out)
    for name, got, wanted in zip(("filled", "seams", "stage"), there, here, strict=True):
        found[name] = (got, wanted)
    return found


CHECKS = [Check("sphere", case)]
