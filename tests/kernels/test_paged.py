"""Attention over blocks: against the reference, and bits that do not depend on pieces, neighbors or places."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hpckit.kernels.nn.paged import dispatch, reference
from hpckit.kernels.nn.paged.pages import PAGE, page_shapes
from hpckit.kernels.nn.tile.tile import width_of

GROUPS, BLOCKS = 2, 9


class Texts:
    """Texts of random queries, keys and values in blocks that are dealt at random."""

    def __init__(self, lengths, heads, width, seed=0):
        random = np.random.default_rng([seed, heads, width])
        self.qkv = [random.normal(0, 2, (n, GROUPS, heads + 2, width)).astype(np.float32) for n in lengths]
        shapes = page_shapes(GROUPS, BLOCKS, width, width_of("float32"))
        self.keys, self.values = (np.zeros(shape, np.float32) for shape in shapes)
        order = iter(random.permutation(BLOCKS).tolist())
        self.tables = np.zeros((len(lengths), -(-max(lengths) // PAGE)), np.int64)
        for text, length in enumerate(lengths):
            self.tables[text, : -(-length // PAGE)] = [next(order) for _ in range(-(-length // PAGE))]
        turns = np.random.default_rng(7).uniform(0, 7, (99, width // 2)).astype(np.float32)
        self.turns = np.cos(turns), np.sin(turns)

    def run(self, form, pieces, window=0):
        """The rows of pieces (text, begin, end), which are kept first."""
        qkv = np.concatenate([self.qkv[text][begin:end] for text, begin, end in pieces])
        positions = np.concatenate([np.arange(begin, end) for _, begin, end in pieces])
        owner = np.concatenate([np.full(end - begin, text) for text, begin, end in pieces])
        slots = self.tables[owner, positions // PAGE] * PAGE + positions % PAGE
        form.keep(qkv, self.keys, self.values, positions, slots, *self.turns)
        out = np.full((len(qkv), GROUPS * (qkv.shape[2] - 2) * qkv.shape[3]), np.nan, np.float32)
        rows = np.concatenate([[0], np.cumsum([end - begin for _, begin, end in pieces])])
        starts = np.array([begin for _, begin, _ in pieces])
        tables = self.tables[[text for text, _, _ in pieces]]
        form.attend(qkv, self.keys, self.values, rows, starts, tables, window, out)
        return out


@pytest.mark.parametrize(("heads", "width"), [(1, 6), (3, 40)])
@pytest.mark.parametrize("window", [0, 1, 37])
def test_a_step_of_pieces_has_the_numbers_of_the_reference(heads, width, window):
    lengths = [1, 71, PAGE, 45]
    here, oracle = (Texts(lengths, heads, width) for _ in range(2))
    for pieces in ([(1, 0, 40), (3, 0, 44)], [(0, 0, 1), (1, 40, 71), (2, 0, PAGE), (3, 44, 45)]):
        found, expected = here.run(dispatch, pieces, window), oracle.run(reference, pieces, window)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(here.keys, oracle.keys, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(here.values, oracle.values)


@pytest.mark.parametrize(("heads", "width"), [(1, 6), (3, 40)])
@pytest.mark.parametrize("window", [0, 20])
def test_bits_depend_on_the_text_alone(heads, width, window):
    length = 75
    whole = Texts([length], heads, width).run(dispatch, [(0, 0, length)], window)
    random = np.random.default_rng(heads)
    for seed in range(4):
        texts = Texts([length, 50], heads, width)
        texts.tables = random.permutation(BLOCKS)[: texts.tables.size].reshape(texts.tables.shape)
        cuts = [0, *sorted(random.choice(np.arange(1, length), 1 + seed * 5, replace=False).tolist()), length]
        found = []
        for begin, end in pairwise(cuts):
            beside = (1, 0, int(random.integers(1, 50)))
            found.append(texts.run(dispatch, [beside, (0, begin, end)], window)[beside[2] :])
        np.testing.assert_array_equal(np.concatenate(found), whole)


def test_arrays_that_do_not_fit_are_refused():
    texts = Texts([3], 1, 6)
    with pytest.raises(ValueError, match="do not fit queries"):
        dispatch.keep(texts.qkv[0][:, :1], texts.keys, texts.values, *[np.zeros(3, np.int64)] * 2, *texts.turns)
    with pytest.raises(ValueError, match="does not go to"):
        dispatch.attend(
            texts.qkv[0], texts.keys, texts.values, np.array([0, 3]), np.array([0]), texts.tables, 0, np.zeros((3, 5))
        )
