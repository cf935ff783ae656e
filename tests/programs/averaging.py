"""Gossip, local SGD and the parameter server on the ranks of the job."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.errors import InputError
from hpckit.plan.collective.gossip import GRAPHS, mixing_matrix

COMM = hp.world()
P, RANK = COMM.size, COMM.rank


def refused(call, *said):
    try:
        call()
    except InputError as error:
        assert all(text in error.report() for text in said), error.report()
        return
    raise AssertionError(f"nothing was refused: {said}")


def gossip_mixes_as_its_matrix():
    """Three rounds against the matrix of the plan; the mean stays, dtypes, sizes, several at once."""
    for graph in GRAPHS:
        if graph == "hypercube" and P & (P - 1):
            refused(lambda: hp.training.gossip(np.ones(3), COMM, "hypercube"), "hypercube has 2, 4, 8")
            continue
        for dtype, rounding in (("f8", 1e-14), ("f4", 1e-6), ("f2", 2e-2)):
            for size in (0, 1, 13):
                every = np.cos(np.arange(P)[:, None] * 3 + np.arange(size)).astype(dtype)
                mine, expected = every[RANK].copy(), every.astype("f8")
                for turn in range(3):
                    assert hp.training.gossip(mine, COMM, graph, turn).wait() is mine
                    expected = mixing_matrix(hp.plan.gossip_plan(graph, P, turn)) @ expected
                assert mine.dtype == dtype
                np.testing.assert_allclose(mine.astype("f8"), expected[RANK], atol=rounding)
                np.testing.assert_allclose(expected.mean(0), every.astype("f8").mean(0), atol=1e-14)
        first, second = np.full((2, 3), float(RANK)), np.full(4, -float(RANK))
        works = [hp.training.gossip(first, COMM, graph), hp.training.gossip(second, COMM, graph)]
        works[1].wait()
        works[0].wait()
        assert np.array_equal(first.reshape(-1)[:4], -second)
    turns = (P - 1).bit_length()
    mine = np.array([2.0**RANK])
    for turn in range(turns):
        hp.training.gossip(mine, COMM, "exponential", turn).wait()
    if P & (P - 1) == 0:
        assert mine[0] == (2.0**P - 1) / P  # exact
    refused(lambda: hp.training.gossip(np.ones(3, int), COMM), "mean")
    refused(lambda: hp.training.gossip(np.ones(3), COMM, "rinng"), "did you mean 'ring'")
    refused(lambda: hp.training.LocalSGD(COMM, every=0), "1 or more")
    refused(lambda: hp.training.LocalSGD(COMM, graph="star"), "no graph 'star'")


def gradient(rank, x):
    """Of |x - target of the rank|^2 / 2: the minimum of the sum is at the mean of the targets."""
    return x - np.sin(rank + np.arange(x.size))


def local_sgd_finds_the_minimum_of_all():
    best = np.mean([np.sin(rank + np.arange(5)) for rank in range(P)], axis=0)
    x, y = np.zeros(5), np.zeros(5)
    each = hp.training.LocalSGD(COMM)
    for _ in range(8):  # an average each step is synchronous SGD
        g = gradient(RANK, y)
        hp.all_reduce(g, COMM, "mean").wait()
        y -= 0.3 * g
        x -= 0.3 * gradient(RANK, x)
        assert each.step(x)
    np.testing.assert_allclose(x, y, atol=1e-14)
    hp.prove(each.plan)
    few = hp.training.LocalSGD(COMM, every=4)
    done = [few.step(x) for _ in range(8)]
    assert done == [False, False, False, True] * 2
    for graph in (None, "ring", "exponential"):
        x = np.full(5, float(RANK))
        averaging = hp.training.LocalSGD(COMM, every=2, graph=graph)
        hp.prove(averaging.plan)
        rates = 0.5 / (1 + np.arange(100) / 4)
        for rate in rates:
            x -= rate * gradient(RANK, x)
            averaging.step(x)
        # Gradients are linear and averaging keeps the mean: that of the ranks goes as one rank would.
        mean = hp.all_reduce(x.copy(), COMM, "mean").wait()
        np.testing.assert_allclose(mean, best + ((P - 1) / 2 - best) * np.prod(1 - rates), atol=1e-13)
        np.testing.assert_allclose(x, best, atol=0.2)


def synchronous_server_has_the_bits_of_an_all_reduce(servers):
    workers = COMM.Split(servers <= RANK, RANK)
    start = np.linspace(-1, 1, 23).reshape(1, 23).astype("f4")

    def optimizer():
        momentum = [np.float32(0)]

        def update(part, mean):
            momentum[0] = np.float32(0.9) * momentum[0] + mean
            part -= np.float32(0.1) * momentum[0]

        return update

    def noisy(x, step):
        return (x * np.float32(1.7) + np.random.default_rng([RANK, step]).standard_normal(x.shape)).astype("f4")

    x = start.copy()
    with hp.training.ParameterServer(COMM, start, optimizer(), servers=servers) as server:
        assert server.is_worker == (servers <= RANK)
        for step in range(12 if server.is_worker else 0):
            server.pull(x)
            server.push(noisy(x, step))
        if not server.is_worker:
            refused(lambda: server.push(x), "is a server")
        else:
            refused(lambda: server.push(x.astype("f8")), "float32", "float64")
    served = server.pull(np.empty_like(start))
    if servers <= RANK:
        x, update = start.copy(), optimizer()
        for step in range(12):
            g = noisy(x, step)
            hp.all_reduce(g, workers, "mean", deterministic=True).wait()
            update(x, g)
        assert x.tobytes() == served.tobytes()
    workers.Free()


def staleness_is_bounded_and_used():
    """Parameter r counts the pushes of worker r: what a worker at clock c sees is at least c - s of every worker."""
    workers, ahead = P - 1, 3
    mine = RANK - 1

    def one_push():
        return np.eye(workers)[mine] * workers

    def add(part, gradient):
        part += gradient

    seen = np.zeros(workers)
    with hp.training.ParameterServer(COMM, seen, add, staleness=ahead) as server:
        if mine == 0:
            # The first worker goes ahead as far as it may before the others are allowed to begin.
            for _ in range(ahead):
                server.pull(seen)
                server.push(one_push())
            server.pull(seen)
            assert seen.tolist() == [ahead] + [0] * (workers - 1)
            for worker in range(1, workers):
                COMM.Send(np.zeros(1), 1 + worker)
        elif mine > 0:
            COMM.Recv(np.zeros(1), 1)
        if server.is_worker:
            for clock in range(ahead if mine == 0 else 0, 25):
                server.pull(seen)
                assert seen[mine] == clock  # a worker sees its own
                assert seen.min() >= clock - ahead, (clock, seen)
                server.push(one_push())
    assert server.pull(seen).tolist() == [25.0] * workers
    with hp.training.ParameterServer(COMM, seen, add, staleness=None) as server:
        for _ in range(RANK if server.is_worker else 0):  # no bound, and not equally many
            server.push(one_push())
            server.pull(seen)
    assert server.pull(seen).tolist() == [25.0 + worker + 1 for worker in range(workers)]


def mistakes():
    x = np.zeros(3)
    for options, said in (
        ({"servers": 0}, "0 servers"),
        ({"servers": P}, f"{P} servers"),
        ({"staleness": -1}, "staleness of -1"),
        ({"staleness": RANK}, "staleness is"),
    ):
        refused(lambda options=options: hp.training.ParameterServer(COMM, x, lambda part, mean: None, **options), said)
    refused(lambda: hp.training.ParameterServer(COMM, x.astype("f2"), lambda part, mean: None), "float32 or float64")


gossip_mixes_as_its_matrix()
local_sgd_finds_the_minimum_of_all()
if P > 1:
    synchronous_server_has_the_bits_of_an_all_reduce(1)
    staleness_is_bounded_and_used()
    mistakes()
if P > 3:
    synchronous_server_has_the_bits_of_an_all_reduce(2)
assert MPI.COMM_WORLD.size == P
