"""Functions of arrays for many samples at once: what a loop over the samples has; and what cannot be mapped."""

from __future__ import annotations

import numpy as np
import pytest

import hpckit as hp
from hpckit.errors import InputError

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((7, 5)), RNG.standard_normal((7, 5))
A = RNG.standard_normal((7, 5, 5)) + 5 * np.eye(5)
W, V = RNG.standard_normal((3, 5)), RNG.standard_normal(5)


def rolled_by_hand(x, y):
    """Changes in place, slices, a loop with shapes known before the run."""
    made = 0 * x
    for k in range(len(x)):
        made[k] = x[k] * y[-1 - k]
    made[1:] += made[:-1]
    return made, made[None, :] - made[:, None]


FUNCTIONS = {
    "pointwise": (lambda x, y: np.sqrt(x**2 + 1.0) / (2 - np.tanh(y)) + np.maximum(x, y) - abs(x) % 0.3, (X, Y)),
    "shared": (lambda x, y: W @ x + 0.5 * (V @ y) + V[:3] * np.sum(x * V), (X, Y)),
    "choices": (lambda x, y: np.where((x > y) & ~(x < 0), x, 1.0 - y), (X, Y)),
    "sums": (lambda x, y: (x.sum(), np.mean(x * y), x.max(), np.argmin(y), np.std(y), np.linalg.norm(x)), (X, Y)),
    "matrices": (
        lambda a, x: (a @ x, x @ a.T @ x, a @ a, np.einsum("ij,i,k->jk", a, x, V), a.sum(axis=0), a.sum()),
        (A, X),
    ),
    "solutions": (lambda a, x: (np.linalg.solve(a, x), np.linalg.det(a), np.linalg.inv(a)[0]), (A, X)),
    "eigen": (lambda a: np.linalg.eigh(a @ a.T), (A,)),
    "shapes": (lambda a: (a.reshape(25)[3::4], a.reshape(-1, 25).T, a[..., 2], a[1:, None, 0]), (A,)),
    "joined": (lambda x, y: (np.concatenate([x, V, y]), np.stack([x, y], axis=-1), np.stack([x, V])), (X, Y)),
    "in place": (rolled_by_hand, (X, Y)),
    "constant": (lambda x: (V, 3.0, x.shape[0]), (X,)),
}


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_samples_have_what_one_has(name):
    function, args = FUNCTIONS[name]
    found = as_tuple(hp.vmap(function)(*args))
    alone = zip(*(as_tuple(function(*each)) for each in zip(*args, strict=True)), strict=True)
    for got, wanted in zip(found, alone, strict=True):
        wanted = np.array(wanted)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(abs(got) if name == "eigen" else got, abs(wanted) if name == "eigen" else wanted,
                                   rtol=1e-12, atol=1e-13)  # fmt: skip


def test_axes_of_samples_are_those_that_are_said():
    found = hp.vmap(lambda x, w, s: (w @ x) * s, in_axes=(1, None, None), out_axes=1)(X.T, W, 2.0)
    np.testing.assert_allclose(found, 2 * W @ X.T, rtol=1e-13)
    first, shared = hp.vmap(lambda x: (x, V), out_axes=(-1, None))(X)
    assert np.array_equal(first, X.T)
    assert shared is V
    nested = hp.vmap(hp.vmap(lambda a: a.sum()))(A)
    np.testing.assert_allclose(nested, A.sum(axis=2), rtol=1e-13)
    apart = hp.vmap(hp.vmap(lambda x, y: x - y, in_axes=(0, None)), in_axes=(None, 0), out_axes=1)
    assert np.array_equal(apart(X, Y), X[:, None] - Y)


REFUSED = {
    "a branch": lambda x: x if x[0] > 0 else -x,
    "a number": lambda x: __import__("math").sqrt(x[0]),
    "an index": lambda x: V[np.argmax(x)] if False else x[np.argmax(x)],
    "a function": lambda x: np.fft.fft(x),
    "an array": lambda x: np.array([x[0], 1.0]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_mapped_is_refused_with_what_to_write(what):
    with pytest.raises(InputError) as refused:
        hp.vmap(REFUSED[what])(X)
    assert refused.value.do


def test_numbers_of_samples_that_differ_are_refused():
    with pytest.raises(InputError, match=r"\(7, 5\), \(6, 5\)"):
        hp.vmap(lambda x, y: x + y)(X, Y[:6])
    with pytest.raises(InputError, match="no axis 2"):
        hp.vmap(lambda x: x, in_axes=2)(X)
    with hp.Mesh(hp.world(), x=1) as mesh, pytest.raises(InputError, match="was given a Field"):
        hp.vmap(lambda x: x)(hp.Field.zeros(mesh, hp.Decomposition((7,), mesh.topology)))
    with pytest.raises(InputError, match="out_axes has 3 axes"):
        hp.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(X)
