"""Layers of image networks: gradients against central differences and against torch, late weights, odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day

from hpckit.nn.convolution import Convolution, Flatten, MaxPool
from hpckit.nn.layer import Pass, Sequential
from hpckit.nn.parameters import Parameters

IMAGES = (2, 7, 5, 3)


def numbers(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def bound(layer, dtype=np.float64):
    parameters = Parameters(layer.parameters(), dtype)
    parameters.initialize(4)
    parameters.values += 0.1  # biases too
    return parameters


LAYERS = [
    Convolution(3, 4, 3, padding=1, name="a"),
    Convolution(3, 2, 2, stride=2, name="b"),
    Convolution(3, 5, 3, stride=2, padding=2, name="c"),
    MaxPool(2),
    Flatten(),
    Sequential([Convolution(3, 4, 3, name="d"), MaxPool(3), Flatten()]),
]


@pytest.mark.parametrize("layer", LAYERS, ids=range(len(LAYERS)))
def test_gradients_are_those_of_central_differences(layer):
    parameters = bound(layer)
    x, h = numbers(IMAGES), 1e-6
    y, saved = layer.forward(x, Pass())
    weights = numbers(y.shape, 1)

    def value(at):
        return float((layer.forward(at, Pass())[0] * weights).sum())

    dx = layer.backward_input(saved, weights.copy())
    layer.backward_weight(saved, weights)
    for way in (numbers(IMAGES, 2), numbers(IMAGES, 3)):
        slope = (value(x + h * way) - value(x - h * way)) / (2 * h)
        assert (dx * way).sum() == pytest.approx(slope, rel=1e-6)
    before = parameters.values.copy()
    for parameter in parameters.list:
        way = numbers(parameter.shape, 5)
        sides = []
        for sign in (1, -1):
            parameter.value += sign * h * way
            sides.append(value(x))
            parameters.values[...] = before
        assert (parameter.grad * way).sum() == pytest.approx((sides[0] - sides[1]) / (2 * h), rel=1e-6)


@pytest.mark.parametrize(("size", "stride", "padding"), by_day([(3, 1, 1), (2, 2, 0), (5, 3, 2)], (5, 3, 2)))
def test_a_convolution_is_that_of_torch(size, stride, padding):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    layer = Convolution(3, 4, size, stride=stride, padding=padding, name="a")
    bound(layer, np.float32)
    x = numbers(IMAGES).astype(np.float32)
    y, saved = layer.forward(x, Pass())
    dy = numbers(y.shape, 1).astype(np.float32)
    theirs = torch.nn.Conv2d(3, 4, size, stride, padding)
    with torch.no_grad():
        theirs.weight[...] = torch.from_numpy(layer.weight.value).permute(3, 2, 0, 1)
        theirs.bias[...] = torch.from_numpy(layer.bias.value)
    image = torch.from_numpy(x).permute(0, 3, 1, 2).requires_grad_()
    out = theirs(image)
    out.backward(torch.from_numpy(dy).permute(0, 3, 1, 2))
    np.testing.assert_allclose(y, out.detach().permute(0, 2, 3, 1), atol=1e-5)
    np.testing.assert_allclose(layer.backward_input(saved, dy), image.grad.permute(0, 2, 3, 1), atol=1e-5)
    layer.backward_weight(saved, dy)
    np.testing.assert_allclose(layer.weight.grad, theirs.weight.grad.permute(2, 3, 1, 0), atol=3e-5)
    np.testing.assert_allclose(layer.bias.grad, theirs.bias.grad, atol=1e-5)


def test_late_weights_have_the_same_bits_and_add_up():
    layer = Convolution(3, 4, 3, padding=1, input_gradient=False)
    parameters = bound(layer, np.float32)
    parts = [numbers((n, 7, 5, 3), n).astype(np.float32) for n in (1, 2)]
    dys = [numbers((n, 7, 5, 4), 9 + n).astype(np.float32) for n in (1, 2)]
    found = []
    for late in (False, True):
        parameters.zero_grads()
        kept = []
        for x, dy in zip(parts, dys, strict=True):
            _, saved = layer.forward(x, Pass())
            assert layer.backward_input(saved, dy) is None
            kept.append((saved, dy))
            if not late:
                layer.backward_weight(*kept.pop())
        for saved, dy in kept:
            layer.backward_weight(saved, dy)
        found.append(parameters.grads.copy())
    np.testing.assert_array_equal(*found)
    assert found[0].any()
