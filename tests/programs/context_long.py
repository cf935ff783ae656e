"""A long sample on ranks keeps for its backward pass what the formula says of its part: `context_long.py TOKENS`."""

import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.apps.train.layout import saved_numbers
from hpckit.apps.train.models import model_of
from hpckit.apps.train.settings.network import Model
from hpckit.apps.train.shape import shape_of
from hpckit.nn.loss import CrossEntropy

WORLD, TOKENS = MPI.COMM_WORLD, int(sys.argv[1])
shape = shape_of(Model(kind="llama", layers=1, width=32, heads=2, kv_heads=1, hidden=64, context=TOKENS), 64)
net = model_of(shape)
plan = hp.plan.training_plan(WORLD.size, len(net.layers), cp=WORLD.size, batch=1)
words = np.random.default_rng(0).integers(0, 64, (1, TOKENS + 1))
with hp.Mesh(WORLD, dp=1, pp=1, cp=WORLD.size) as mesh:
    it = hp.training.Pipeline(mesh, net, CrossEntropy(64), plan, context="ring")
    it.initialize(1)
    result = it.run(words[:, :-1], words[:, 1:], weigh=True)
    formula = 4 * sum(saved_numbers(shape, -(-TOKENS // WORLD.size)))
    assert 0.9 * formula < result.held < 1.05 * formula, (result.held, formula)
    assert abs(result.loss - np.log(64)) < 0.05
    assert result.targets == TOKENS
if WORLD.rank == 0:
    print("good", result.held, formula)
