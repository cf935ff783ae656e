"""Fixed parts of a microbatch that go through layers together: the bits of one part after the other."""

import numpy as np
import pytest
from conftest import by_day
from mpi4py import MPI

import hpckit as hp
from hpckit.errors import InputError
from hpckit.nn.gpt import gpt2
from hpckit.nn.layer import Pass
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameter, Parameters
from hpckit.plan.pipeline.training import training_plan
from hpckit.training.grouped import Grouped, of_part

STARTS = (0, 2, 3, 3, 6)  # the third part has no samples
STEP = Pass(tokens=(6, 16), parts=STARTS)


class Counted:
    """y = gain x, which notes how many samples come at once. slip: what its numbers owe to their number."""

    def __init__(self, slip):
        self.gain, self.slip, self.samples = Parameter("gain", (24,), 1.0), slip, []

    def parameters(self):
        return [self.gain]

    def forward(self, x, step):
        self.samples.append(len(x))
        return x * self.gain.value + np.float32(self.slip * len(x)), x

    def backward_input(self, saved, dy):
        return dy * self.gain.value

    def backward_weight(self, saved, dy):
        self.gain.grad += (saved * dy).reshape(-1, 24).sum(axis=0)


def passed(slip, tokens):
    """Samples at once in a pass behind the trials; its y, gradients of x and gain; the layer, x and dy."""
    layer = Counted(slip)
    Parameters(layer.parameters()).initialize(1)
    x, dy = np.random.default_rng(1).standard_normal((2, 6, tokens, 24), np.float32)
    it = Grouped(layer)
    it.forward(x, STEP)
    layer.samples.clear()
    y, saved = it.forward(x, STEP)
    dx = it.backward_input(saved, dy)
    it.backward_weight(saved, dy)
    return layer.samples.copy(), (y, dx, layer.gain.grad.copy()), (layer, x, dy)


@pytest.mark.parametrize(("slip", "tokens", "at_once"), [(0.0, 16, [6]), (0.01, 16, [2, 1, 3]), (0.0, 5, [2, 1, 3])])
def test_parts_go_together_where_that_changes_no_bit(slip, tokens, at_once):
    samples, (y, dx, grad), (layer, x, dy) = passed(slip, tokens)
    assert samples == at_once
    leaves = []
    for first, end in [(0, 2), (2, 3), (3, 6)]:
        own, saved = layer.forward(x[first:end], Pass())
        assert np.array_equal(y[first:end], own)
        assert np.array_equal(dx[first:end], layer.backward_input(saved, dy[first:end]))
        layer.gain.grad[...] = 0
        layer.backward_weight(saved, dy[first:end])
        leaves.append(layer.gain.grad.copy())
    assert np.array_equal(grad, (leaves[0] + leaves[1]) + leaves[2])


def test_what_is_saved_is_cut_by_samples():
    tokens, flat = np.arange(12).reshape(4, 3), np.arange(8)
    found = of_part({"a": (tokens, [flat, None]), "pass": STEP}, slice(1, 3), 4)
    assert np.array_equal(found["a"][0], tokens[1:3])
    assert np.array_equal(found["a"][1][0], flat[2:6])
    assert found["pass"] is STEP


def test_microbatches_of_parts():
    plan = training_plan(1, 4, batch=13, parts=8, microbatches=2)
    assert (plan.microbatches, plan.grouped, plan.cuts(13)) == (2, 4, [slice(0, 8), slice(8, 13)])
    assert plan.part_starts(13) == [(0, 2, 4, 6, 8), (0, 2, 3, 4, 5)]
    assert plan.part_starts(3) == [(0, 1, 2, 3, 3), (0, 0, 0, 0, 0)]
    three = training_plan(3, 4, batch=13, parts=8)
    assert [three.part_starts(3, replica) for replica in (1, 2)] == [[(0, 2, 3)]] * 2
    assert training_plan(2, 4, batch=13, parts=8, pp=2).microbatches == 8
    for how in ({"microbatches": 3}, {"microbatches": 16}, {"microbatches": 2, "tp": 2}):
        with pytest.raises(InputError):
            training_plan(how.get("tp", 1), 4, batch=13, parts=8, **how)


@pytest.mark.parametrize("dtype", by_day([np.float32, np.float64, "bfloat16"], np.float32))
def test_microbatches_change_no_bit(dtype):
    tokens = np.random.default_rng(3).integers(0, 64, (8, 33))

    def trained(microbatches):
        model = gpt2(64, 1, 128, 2, 32, tied=True, dropout=0.1)
        plan = training_plan(1, len(model.layers), batch=8, parts=4, microbatches=microbatches, tied=True)
        short = "" if dtype == np.float64 else "bfloat16"
        it = hp.training.Pipeline(
            hp.Mesh(MPI.COMM_SELF, pp=1), model, CrossEntropy(64), plan, dtype=dtype, gradients=short
        )
        it.initialize(1)
        optimizer, losses = AdamW(it.parameters), []
        for step in range(2):
            it.zero_grads()
            losses.append(it.run(tokens[:, :-1], tokens[:, 1:], Pass(step=step)).loss)
            optimizer.step(1e-2)
        return losses, it.parameters.values.tobytes()

    assert trained(1) == trained(2) == trained(4)
