"""Layers: gradients by central differences, parameters, losses, optimizers; PyTorch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from nn_gradients import check, differences

from hpckit.errors import InputError
from hpckit.nn.activations import GELU, ExactGELU, ReLU, SiLU
from hpckit.nn.feedforward import mlp
from hpckit.nn.layer import Pass, Sequential, backward
from hpckit.nn.linear import Linear
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import SGD, AdamW, clip_scale, warmup_cosine
from hpckit.nn.parameters import Parameters


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    check(Linear(5, 3, bias=bias), numbers(2, 7, 5))


def test_what_does_not_fit_a_linear_map_is_named():
    with pytest.raises(InputError, match="head maps 0 numbers to 2"):
        Linear(0, 2, name="head")
    layer = Linear(3, 2, name="head")
    with pytest.raises(InputError, match=r"head\.weight has no values yet"):
        layer.forward(np.ones((4, 3)), Pass())
    Parameters(layer.parameters())
    with pytest.raises(InputError, match=r"head\.weight takes float32\[\.\.\., 3\], not float64\[4, 3\]") as caught:
        layer.forward(np.ones((4, 3)), Pass())
    assert "x.astype(np.float32)" in caught.value.do
    with pytest.raises(InputError, match=r"not float32\[4, 5\]"):
        layer.forward(np.ones((4, 5), np.float32), Pass())


@pytest.mark.parametrize("activation", [ReLU, GELU, ExactGELU, SiLU])
def test_activations(activation):
    check(activation(), numbers(3, 7))


def test_an_activation_that_there_is_not_is_refused_where_none_is_used_too():
    for sizes in ([5, 3], [5, 7, 3]):
        with pytest.raises(InputError, match="'reul'"):
            mlp(sizes, "reul")


def test_mlp_gives_no_gradient_to_data():
    model = mlp([5, 7, 3], activation="gelu")
    assert [p.name for p in model.parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    check(model, numbers(11, 5))
    _, saved = model.forward(numbers(2, 5), Pass())
    assert model.backward_input(saved, numbers(2, 3)) is None


def test_cross_entropy():
    logits, targets, loss = numbers(3, 5, 8), np.array([[0, 1, 6, 6, 2]] * 3), CrossEntropy(7, 8)
    total, saved = loss.forward(logits.copy(), targets)
    wanted = differences(lambda: loss.forward(logits.copy(), targets)[0] / 15, logits)
    np.testing.assert_allclose(loss.backward(saved, 1 / 15), wanted, rtol=1e-6, atol=1e-9)
    z = logits[..., :7]
    by_hand = np.log(np.exp(z).sum(-1)) - np.take_along_axis(z, targets[..., None], -1)[..., 0]
    assert total == pytest.approx(by_hand.sum(), rel=1e-13)
    some = np.where(np.arange(5) == 2, -1, targets)  # a negative target counts for nothing
    total, saved = loss.forward(logits.copy(), some)
    assert total == pytest.approx(by_hand[:, [0, 1, 3, 4]].sum(), rel=1e-13)
    slope = loss.backward(saved, 0.5)
    assert not slope[:, 2].any()
    np.testing.assert_allclose(slope[:, 4], 7.5 * wanted[:, 4], rtol=1e-6, atol=1e-9)
    with pytest.raises(InputError, match="7 classes"):
        loss.forward(logits.copy(), targets + 1)
    with pytest.raises(InputError, match=r"targets .* float64"):
        loss.forward(logits.copy(), targets.astype(float))
    with pytest.raises(InputError, match="need logits"):
        loss.forward(logits[..., :7].copy(), targets)
    with pytest.raises(InputError, match="do not fit"):
        CrossEntropy(7, 6)


def test_parameters_lie_in_flat_vectors():
    model = mlp([5, 7, 3])
    parameters = Parameters(model.parameters(), np.float64)
    assert parameters.offsets == {"0.weight": 0, "0.bias": 48, "1.weight": 64, "1.bias": 96}
    assert (parameters.size, parameters.count, len(parameters)) == (112, 66, 4)
    parameters.initialize(5)
    part = Sequential([mlp([5, 7, 3]).layers[1]])
    other = Parameters(part.parameters(), np.float64)
    other.initialize(5)
    np.testing.assert_array_equal(other.named()["1.weight"].value, parameters.named()["1.weight"].value)
    assert np.count_nonzero(parameters.values) == 66
    parameters.values[:] = 1
    assert (model.layers[1].weight.value == 1).all()
    with pytest.raises(InputError, match=r"linear\.bias, linear\.weight"):
        Parameters([*Linear(2, 2).parameters(), *Linear(2, 2).parameters()])


def test_a_shared_parameter_gets_both_gradients_once():
    first, second = Linear(3, 2, "first"), Linear(3, 2, "second")
    first.weight.shared = True
    parameters = Parameters([*first.parameters(), *second.parameters()], np.float64)
    first.weight.grad[...], first.weight.second_grad[...], second.weight.grad[...] = 1, 2, 4
    parameters.add_second_grads()
    parameters.add_second_grads()
    assert (first.weight.grad == 3).all()
    assert (second.weight.grad == 4).all()
    first.weight.second_grad[...] = 5
    parameters.zero_grads()
    assert parameters.squared_norm() == 0


def test_settings_that_no_optimizer_has_are_told_together():
    layer = Linear(5, 3)
    parameters = Parameters(layer.parameters())
    with pytest.raises(InputError, match=r"betas\[1\] = 1.0 .*; weight_decay = nan"):
        AdamW(parameters, (0.9, 1.0), weight_decay=float("nan"))
    with pytest.raises(InputError, match=r"momentum = -0\.1"):
        SGD(parameters, -0.1)
    with pytest.raises(InputError, match="not a Linear"):
        AdamW(layer)


@pytest.mark.parametrize("name", ["adamw", "sgd", "nesterov"])
def test_optimizers_step_as_published(name):
    """By the formulas of Loshchilov and Hutter (2019), algorithm 2, and of Sutskever et al. (2013) as in PyTorch."""
    layer = Linear(5, 3)
    parameters = Parameters(layer.parameters(), np.float64)
    parameters.initialize(2)
    values = {p.name: p.value.copy() for p in parameters.list}
    mean, square = {}, {}
    rate, decay, scale = 0.1, 0.3, 0.5
    if name == "adamw":
        optimizer = AdamW(parameters, (0.8, 0.9), 1e-3, decay)
    else:
        optimizer = SGD(parameters, 0.7, decay, nesterov=name == "nesterov")
    for count in range(1, 4):
        for number, p in enumerate(parameters.list):
            p.grad[...] = numbers(*p.shape, seed=10 * count + number)
            value, gradient, lost = values[p.name], scale * p.grad, decay * (p is layer.weight)  # no decay of a bias
            old, older = mean.get(p.name, 0.0), square.get(p.name, 0.0)
            if name == "adamw":
                mean[p.name], square[p.name] = 0.8 * old + 0.2 * gradient, 0.9 * older + 0.1 * gradient**2
                move = mean[p.name] / (1 - 0.8**count) / (np.sqrt(square[p.name] / (1 - 0.9**count)) + 1e-3)
                values[p.name] = value - rate * lost * value - rate * move
            else:
                gradient = gradient + lost * value
                mean[p.name] = 0.7 * old + gradient
                values[p.name] = value - rate * (gradient + 0.7 * mean[p.name] if name == "nesterov" else mean[p.name])
        optimizer.step(rate, scale)
        for p in parameters.list:
            np.testing.assert_allclose(p.value, values[p.name], rtol=1e-12, atol=1e-15)


def test_clipping_and_rates():
    assert clip_scale(25.0, 10.0) == 1
    assert clip_scale(25.0, 1.0) == 0.2
    assert clip_scale(25.0, 0.0) == 1
    rates = [warmup_cosine(step, 2.0, 4, 14, 0.5) for step in range(16)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates[9] == pytest.approx(1.25)
    assert rates[14:] == [0.5, 0.5]
    assert warmup_cosine(0, 1.0, 0, 0) == 0


def train(model, parameters, optimizer, steps=5):
    losses, loss, random = [], CrossEntropy(3), np.random.default_rng(1)
    x, targets = random.normal(size=(13, 5)).astype(parameters.dtype), random.integers(0, 3, 13)
    for _ in range(steps):
        parameters.zero_grads()
        y, saved = model.forward(x, Pass())
        total, kept = loss.forward(y, targets)
        backward(model, saved, loss.backward(kept, 1 / 13))
        optimizer.step(0.1, clip_scale(parameters.squared_norm(), 0.5))
        losses.append(total / 13)
    return losses


def test_a_state_that_is_loaded_goes_on_with_the_same_bits():
    for kind in (AdamW, SGD):
        runs = []
        for stop in (5, 2):
            model = mlp([5, 7, 3])
            parameters = Parameters(model.parameters())
            parameters.initialize(1)
            optimizer = kind(parameters, weight_decay=0.1)
            train(model, parameters, optimizer, stop)
            if stop < 5:
                state = {name: value.copy() for name, value in optimizer.state().items()}
                optimizer = kind(parameters, weight_decay=0.1)
                optimizer.load(state)
                train(model, parameters, optimizer, 5 - stop)
            runs.append(parameters.values.copy())
        np.testing.assert_array_equal(*runs)


@pytest.mark.parametrize("name", ["adamw", "sgd", "nesterov"])
def test_mlp_trains_as_in_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours_and_theirs = ("gelu", "tanh") if name == "adamw" else ("gelu_erf", "none")
    model = mlp([5, 7, 3], activation=ours_and_theirs[0])
    parameters = Parameters(model.parameters(), np.float64)
    parameters.initialize(0)
    gelu = torch.nn.GELU(ours_and_theirs[1])
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 7), gelu, torch.nn.Linear(7, 3)).double()
    with torch.no_grad():
        for mine, linear in ((0, theirs[0]), (1, theirs[2])):
            linear.weight[...] = torch.from_numpy(parameters.named()[f"{mine}.weight"].value.T)
            linear.bias[...] = torch.from_numpy(parameters.named()[f"{mine}.bias"].value)
    groups = [
        {"params": [theirs[0].weight, theirs[2].weight], "weight_decay": 0.1},
        {"params": [theirs[0].bias, theirs[2].bias], "weight_decay": 0.0},
    ]
    if name == "adamw":
        ours, optimizer = AdamW(parameters, weight_decay=0.1), torch.optim.AdamW(groups, lr=0.1)
    else:
        nesterov = name == "nesterov"
        ours = SGD(parameters, 0.9, weight_decay=0.1, nesterov=nesterov)
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=nesterov)
    losses = train(model, parameters, ours)
    random, wanted = np.random.default_rng(1), []
    x, targets = torch.from_numpy(random.normal(size=(13, 5))), torch.from_numpy(random.integers(0, 3, 13))
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(x), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        wanted.append(loss.item())
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert losses[-1] < losses[0]
