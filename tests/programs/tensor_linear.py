"""A column-parallel and a row-parallel map are the two whole ones: results, gradients, initial values."""

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.errors import InputError
from hpckit.nn.layer import Pass, Sequential, backward
from hpckit.nn.linear import Linear
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameters
from hpckit.training import ColumnParallel, RowParallel

WORLD = MPI.COMM_WORLD


class Square:
    """Works number by number."""

    def parameters(self):
        return []

    def forward(self, x, step):
        return x * x, x

    def backward_input(self, saved, dy):
        return 2 * saved * dy

    def backward_weight(self, saved, dy):
        pass


def trained(layers, x, target):
    """Results, gradients and values after some steps, by the names of the whole."""
    model = Sequential(layers)
    parameters = Parameters(model.parameters(), np.float64)
    parameters.initialize(seed=3)
    optimizer, found = AdamW(parameters), []
    for step in range(3):
        parameters.zero_grads()
        y, saved = model.forward(x, Pass(step=step))
        dx = backward(model, saved, y - target)
        found.append((y, dx, {p.name: (p, p.value.copy(), p.grad.copy()) for p in model.parameters()}))
        optimizer.step(1e-2)
    return found


def maps(bias):
    return Linear(6, 11, "up", bias), Linear(11, 5, "down", bias)


random = np.random.default_rng(1)
with hp.Mesh(WORLD, tp=WORLD.size) as mesh:
    axis = mesh["tp"]
    for shape, chunks, bias in (((2, 7), 1, True), ((2, 7), 3, True), ((4,), 9, False), ((0,), 2, True)):
        x, target = random.standard_normal((*shape, 6)), random.standard_normal((*shape, 5))
        up, down = maps(bias)
        whole = trained([up, Square(), down], x, target)
        up, down = maps(bias)
        up, down = ColumnParallel(up, axis, chunks), RowParallel(down, axis, chunks)
        assert up.first == down.first
        assert up.count == down.count
        assert sum(axis.allgather(up.count)) == 11
        parts = trained([up, Square(), down], x, target)
        for (y, dx, own), (y0, dx0, every) in zip(parts, whole, strict=True):
            np.testing.assert_allclose(y, y0, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(dx, dx0, rtol=1e-12, atol=1e-13)
            assert len({each.tobytes() for each in axis.allgather(dx)}) == 1  # the same bits on all ranks
            for parameter, value, grad in own.values():
                _, value0, grad0 = every[parameter.origin]
                np.testing.assert_allclose(value, parameter.own(value0), rtol=1e-11, atol=1e-13)
                np.testing.assert_allclose(grad, parameter.own(grad0), rtol=1e-11, atol=1e-13)
        for one, other in zip(parts[0][2].values(), own.values(), strict=True):
            if one[1].size and shape != (0,):
                assert not np.array_equal(one[1], other[1])  # they were trained
    for wrong, said in (
        (lambda: ColumnParallel(Linear(9, max(1, WORLD.size - 1)), axis), "outputs for"),
        (lambda: RowParallel(Linear(max(1, WORLD.size - 1), 9), axis), "at most"),
        (lambda: RowParallel(Linear(9, 9), axis, 0), "chunks"),
    ):
        if WORLD.size == 1 and said != "chunks":
            continue
        try:
            wrong()
        except InputError as error:
            assert said in str(error) + str(error.do), error
        else:
            raise AssertionError(said)

if WORLD.rank == 0:
    print("good")
