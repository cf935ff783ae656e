"""What layers take, by a clock that stands still but where it is told to go on."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.comm.mesh import Mesh
from hpckit.nn.feedforward import mlp
from hpckit.nn.loss import CrossEntropy
from hpckit.plan.pipeline.training import training_plan
from hpckit.training.pipeline import stage, step
from hpckit.training.pipeline.pipeline import Pipeline
from hpckit.training.pipeline.stage import measure_layers


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class SlowLoss(CrossEntropy):
    """Takes 2 s forward and 3 s backward."""

    def __init__(self, clock):
        super().__init__(2)
        self.clock = clock

    def forward(self, logits, targets):
        self.clock.now += 2.0
        return super().forward(logits, targets)

    def backward(self, saved, scale):
        self.clock.now += 3.0
        return super().backward(saved, scale)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (stage, step):
        monkeypatch.setattr(module, "perf_counter", made)
    return made


class HeldUpLoss(SlowLoss):
    """Held up for 100 s, once in the first turn that counts."""

    turns = 0

    def forward(self, logits, targets):
        self.turns += 1
        self.clock.now += 100.0 * (self.turns == 2)
        return super().forward(logits, targets)


X, TARGETS = np.ones((8, 5), np.float32), np.zeros(8, np.int64)


def test_the_loss_counts_to_the_last_layer(clock):
    """It is on the critical path of the last stage: a balance and a simulation without it would be too good."""
    model = mlp([5, 4, 2])
    times = measure_layers(model, SlowLoss(clock), X, TARGETS)
    assert [tuple(layer[1:]) for layer in times] == [(0.0, 0.0, 0.0)] * (len(times) - 1) + [(2.0, 3.0, 0.0)]
    plan = training_plan(1, len(model.layers), batch=8, microbatches=4)
    with Mesh(MPI.COMM_SELF, pp=1) as mesh:
        pipeline = Pipeline(mesh, model, SlowLoss(clock), plan)
        pipeline.initialize(0)
        pipeline.run(X, TARGETS)
        assert pipeline.layer_times() == times
        measured = pipeline.measured()
    assert measured.price.busy == (4 * 5.0,)
    assert (measured.times.forward, measured.times.backward_input) == ([2.0], [3.0])


def test_a_process_that_is_held_up_makes_no_layer_slow(clock):
    times = measure_layers(mlp([5, 4, 2]), HeldUpLoss(clock), X, TARGETS)
    assert tuple(times[-1][1:]) == (2.0, 3.0, 0.0)
