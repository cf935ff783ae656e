"""Mixed precision without MPI: gradients against float64, recomputation and loss scales to the bit, master values."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from hpckit.errors import InputError
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Pass, Sequential
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameters
from hpckit.training.pipeline.stage import held_bytes
from hpckit.training.precision import LossScale, mixed

ORACLE = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
WORDS = np.random.default_rng(3).integers(0, 17, (4, 12)).astype(np.int32)
per_kind = pytest.mark.parametrize("kind", ORACLE)


def made(name, **more):
    if name == "gpt2":
        return gpt2(32, 2, 48, 4, 11, dropout=0.1, **more)
    return llama(32, 2, 48, 4, 2, 64, 11, **more)


def gradients(model, parameters, kind="", scale=1.0):
    """Loss, gradients and the bytes kept for backward, of a batch."""
    net, loss = Sequential(mixed(model.layers, kind)), CrossEntropy(17, 32)
    parameters.zero_grads()
    y, saved = net.forward(WORDS[:, :-1], Pass(step=1))
    held = held_bytes(saved)
    total, kept = loss.forward(y, WORDS[:, 1:])
    net.backward_input(saved, loss.backward(kept, scale / WORDS[:, 1:].size))
    net.backward_weight(saved, None)
    parameters.add_second_grads()
    return total, parameters.grads.copy(), held


@per_kind
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_gradients_are_those_of_float64_up_to_the_rounding(kind, name):
    model, exact = made(name), made(name)
    parameters, wide = Parameters(model.parameters(), kind), Parameters(exact.parameters(), np.float64)
    parameters.initialize(1)
    wide.initialize(1)
    for p, q in zip(parameters.list, wide.list, strict=True):
        q.value[...] = p.stored.view(ORACLE[kind]).astype(np.float64)  # the rounded weights
        single = np.full(p.shape, p.initial(1), np.float32)
        np.testing.assert_array_equal(p.stored.view(ORACLE[kind]), single.astype(ORACLE[kind]))
    loss, found, held = gradients(model, parameters, kind, scale=1024.0)
    expected_loss, expected, wide_held = gradients(exact, wide)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[kind]
    assert abs(loss - expected_loss) < unit * expected_loss
    assert np.linalg.norm(found / 1024 - expected) < 4 * unit * np.linalg.norm(expected)
    assert held < 0.3 * wide_held  # a fourth of the bytes of float64, and some statistics of rows


@per_kind
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_recomputation_and_a_power_of_two_change_no_bit(kind, name):
    found = []
    for more, scale in (
        ({}, 256.0),
        ({"recompute": True}, 256.0),
        ({}, 1024.0),
        ({"recompute": "attention"}, 256.0),
    ):
        model = made(name, **more)
        parameters = Parameters(model.parameters(), kind)
        parameters.initialize(1)
        loss, grads, held = gradients(model, parameters, kind, scale)
        found.append((loss, (grads / np.float32(scale)).tobytes(), held))
    assert found[1][:2] == found[0][:2]
    assert found[1][2] < 0.5 * found[0][2]
    assert found[3][:2] == found[0][:2]
    assert found[1][2] < found[3][2] < 0.8 * found[0][2]
    if kind == "bfloat16":  # float16 has numbers near its smallest one
        assert found[2][:2] == found[0][:2]


@per_kind
def test_master_values_keep_steps_that_16_bits_would_lose(kind):
    model = made("gpt2")
    parameters = Parameters(model.parameters(), kind)
    parameters.initialize(1)
    optimizer, start = AdamW(parameters, weight_decay=0.0), parameters.owned[0].values.copy()
    first = parameters.values.copy()
    parameters.grads[...] = 1
    for _ in range(4):
        optimizer.step(1e-7)
    np.testing.assert_allclose(start - parameters.owned[0].values, 4e-7, rtol=0.2, atol=2e-7)
    np.testing.assert_array_equal(parameters.values.view(ORACLE[kind]), parameters.owned[0].values.astype(ORACLE[kind]))
    name = "embed.token.weight"
    at = parameters.offsets[name]
    large = abs(start[at : at + 100]) > 1e-2
    assert (parameters.values[at : at + 100] == first[at : at + 100])[large].mean() > 0.9


def test_a_loss_scale_halves_grows_and_goes_on_from_its_state():
    scale = LossScale(8.0, growth=2)
    assert [scale.update(good) for good in (True, True, True, False, True)] == [True, True, True, False, True]
    assert (scale.value, scale.skipped, scale.good) == (8.0, 1, 1)
    other = LossScale()
    other.load(scale.state())
    assert vars(other) == {**vars(scale), "growth": other.growth}
    fixed = LossScale(1.0, growth=0)
    assert not fixed.update(math.isfinite(math.inf))
    assert fixed.value == 1
    for wrong in (3.0, 0.5, 2.0**30):
        with pytest.raises(InputError):
            LossScale(wrong)


def test_a_layer_without_values_in_16_bits_is_refused():
    model = made("gpt2")
    Parameters(model.parameters())
    with pytest.raises(InputError):
        mixed(model.layers, "bfloat16")[0].forward(WORDS[:, :-1], Pass())
    with pytest.raises(InputError):
        Parameters(model.parameters(), "int8")
