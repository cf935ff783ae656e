"""The array form of the shallow-water bench computes what the kernels do."""

from __future__ import annotations

import numpy as np

from hpckit.bench.shallow_water.verb import TOLERANCE, Basin, _step_of


def test_array_form_is_the_same_scheme():
    basin, advance = Basin(48), _step_of(np)
    state = tuple(field.copy() for field in basin.owned())
    first = state
    for _ in range(10):
        basin.step()
        state = advance(*state)
    for ours, theirs, before in zip(basin.owned(), state, first, strict=True):
        assert np.abs(ours - theirs).max() < TOLERANCE * np.ptp(ours)
        assert np.abs(ours - before).max() > 1e-3 * np.ptp(ours)
