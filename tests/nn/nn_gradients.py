"""The oracle of layers: gradients against central differences, deferred W against W at once."""

from __future__ import annotations

import numpy as np

from hpckit.nn.layer import Pass, backward
from hpckit.nn.parameters import Parameters

STEP = 1e-5


def check(layer, x, tolerance=1e-6, step=None):
    """All gradients of a layer in float64, of the sum of y times random numbers; returns its Parameters."""
    step = step or Pass(training=True, seed=3)
    random = np.random.default_rng(7)
    parameters = Parameters(layer.parameters(), np.float64)
    for p in parameters.list:
        p.value[...] = random.normal(0, 0.5, p.shape)
    x0 = x.copy()
    y, saved = layer.forward(x, step)
    np.testing.assert_array_equal(x, x0)
    dy = random.normal(size=y.shape)

    def loss():
        return float((layer.forward(x, step)[0] * dy).sum())

    keep = dy.copy()
    dx = layer.backward_input(saved, dy)
    np.testing.assert_array_equal(dy, keep)
    assert not parameters.grads.any()
    layer.backward_weight(saved, dy)
    parameters.add_second_grads()
    if dx is not None:
        np.testing.assert_allclose(dx, differences(loss, x), rtol=tolerance, atol=tolerance)
    for p in parameters.list:
        np.testing.assert_allclose(p.grad, differences(loss, p.value), rtol=tolerance, atol=tolerance, err_msg=p.name)
    _accumulates(layer, parameters, x, dy, step, dx)
    return parameters


def _accumulates(layer, parameters, x, dy, step, dx):
    """Two microbatches: W at once and W deferred give the same bits, and twice the gradient of one."""
    once = parameters.grads.copy()
    results = []
    for deferred in (False, True):
        parameters.zero_grads()
        waiting = []
        for _ in range(2):
            _, saved = layer.forward(x, step)
            if deferred:
                again = layer.backward_input(saved, dy)
                waiting.append(saved)
            else:
                again = backward(layer, saved, dy)
            if dx is not None:
                np.testing.assert_array_equal(again, dx)
        for saved in waiting:
            layer.backward_weight(saved, dy)
        parameters.add_second_grads()
        results.append(parameters.grads.copy())
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], 2 * once, rtol=1e-12, atol=1e-12)


def differences(loss, values):
    """The gradient of loss() in `values`, changed in place and restored, by central differences."""
    found = np.empty_like(values)
    for place in np.ndindex(values.shape):
        kept = values[place]
        values[place] = kept + STEP
        high = loss()
        values[place] = kept - STEP
        found[place] = (high - loss()) / (2 * STEP)
        values[place] = kept
    return found
