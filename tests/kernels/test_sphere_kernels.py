"""The kernels of a cubed sphere: the Numba form against NumPy, on blocks with and without seams; refusals."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.grid.cubed_sphere import CubedSphere
from hpckit.kernels.sphere import dispatch, reference, simd
from hpckit.kernels.sphere.constants import HALO, Physics
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import PanelPlan
from hpckit.plan.topology import Topology


def given(sizes, n, rank):
    decomposition = Decomposition((6, n, n), Topology(("panel", "y", "x"), sizes), halo=(0, HALO, HALO))
    cells, random = len(PanelPlan(decomposition).needed(rank)), np.random.default_rng(3)
    panels, high, wide = decomposition.owned(rank)
    tables = CubedSphere(n, 6e6).tables(decomposition, rank)
    offset = np.array([1000.0, 0.0, 0.0, 0.0])
    state = random.normal(size=(4, panels, high + 6, wide + 6)) + offset.reshape(4, 1, 1, 1)
    ghosts, heights = random.normal(size=(4, cells)) + offset[:, None], random.normal(size=(1, cells))
    return tables, state, ghosts, heights, random.normal(size=state.shape[1:]), np.zeros((panels, 4, n))


@pytest.mark.parametrize(("sizes", "rank"), [((2, 1, 1), 1), ((6, 3, 1), 7), ((1, 2, 2), 3), ((6, 3, 3), 4)], ids=str)
def test_numba_is_numpy(sizes, rank):
    physics, found = Physics(9.8, 1e-5, 2e-5, 3e-5), []
    for form in (reference, simd):
        tables, state, ghosts, heights, bottom, seams = given(sizes, 13, rank)
        form.fill(state, ghosts, tables)
        form.seam_flux(ghosts, heights, tables, physics, seams)
        out, base = np.zeros_like(state), 0.9 * state
        form.stage(state, base, bottom, seams, tables, physics, 50.0, 0.25, out)
        form.stage(out, base, bottom, seams, tables, physics, 50.0, 2.0 / 3.0, base)
        found.append((state, seams, out, base))
    for name, numpy, numba in zip(("state", "seams", "out", "base"), *found, strict=True):
        scale = np.maximum(np.abs(numpy).max(axis=tuple(range(1, numpy.ndim)), keepdims=True), 1e-300)
        np.testing.assert_allclose(numba / scale, numpy / scale, rtol=0, atol=1e-13, err_msg=name)
        assert np.abs(numpy).max() > 0 or sizes == (6, 3, 3)


def test_interpolation_beyond_a_seam_is_of_sixth_order():
    """A smooth function of the place, read along the rows of the next panel."""
    errors = []
    for n in (12, 24, 48):
        sphere = CubedSphere(n, 1.0)
        first, weights = sphere.interpolation()
        step = np.pi / 2 / n
        tan = np.tan(np.pi / 4 + 0.5 * step)  # the nearest row beyond the east of panel 0

        def value(x, y):
            return np.sin(3 * x + 1) * np.cos(2 * y)

        along = value(0.3, sphere.middles)
        wanted = value(0.3, np.arctan(np.tan(sphere.middles) / tan))
        places = first[0][:, None] + np.arange(6)
        errors.append(np.abs((weights[0] * along[places]).sum(axis=1) - wanted).max())
    assert errors[0] / errors[1] > 40
    assert errors[1] / errors[2] > 40


def test_geometry():
    sphere = CubedSphere(16, 2.0)
    assert 6 * sphere.area.sum() == pytest.approx(16 * np.pi, rel=1e-14)
    np.testing.assert_allclose(np.linalg.norm(sphere.centers, axis=0), 1.0, rtol=1e-15)
    panel, y, x = sphere.places(sphere.latitude, sphere.longitude)
    np.testing.assert_array_equal(panel, np.arange(6)[:, None, None] + np.zeros((6, 16, 16), int))
    np.testing.assert_allclose(y, np.broadcast_to(np.arange(16.0)[:, None], y.shape), atol=1e-12)
    np.testing.assert_allclose(x, np.broadcast_to(np.arange(16.0), x.shape), atol=1e-12)


def test_wrong_arrays_are_refused():
    tables, state, ghosts, _, bottom, seams = given((2, 1, 1), 12, 0)
    physics = Physics(9.8, 0.0, 0.0, 0.0)
    with pytest.raises(TypeError, match="float64"):
        dispatch.fill(state.astype(np.float32), ghosts, tables)
    with pytest.raises(ValueError, match="components"):
        dispatch.fill(state[:, :1].copy(), ghosts, tables)
    with pytest.raises(ValueError, match="fit"):
        dispatch.stage(state, state[:, :1].copy(), bottom, seams, tables, physics, 1.0, 1.0, np.zeros_like(state))
