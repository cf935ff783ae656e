"""A traced step of centers and faces between walls, and its derivatives, with fields on a GPU: as on the host."""

from __future__ import annotations

import numpy as np

import hpckit as hp
from hpckit.comm.device import HOST
from hpckit.comm.gpu import find_gpu

A = hp.adjoint
SHAPE = (4, 5)
WALLS = {"h": {"y": hp.bc.mirror}, "u": {"y": hp.bc.antisymmetric}, "v": {"y": hp.bc.antisymmetric}}
mesh = hp.Mesh(hp.world(), y=0, x=1, periodic="x", shape=SHAPE)


@A.model(walls=WALLS)
def step(h, u, v, dt):
    deep, wide = 0.5 * (h + h[0, -1]) * u, 0.5 * (h + h[-1, 0]) * v
    v = (v - dt * (h * h[-1, 0] * (v[+1, 0] - v[-1, 0]) + h - h[-1, 0])).hold({"y": (0.0, None)})
    u = u - dt * (0.25 * (v + v[0, -1] + v[+1, 0] + v[+1, -1]) * (u[+1, 0] - u[-1, 0]) + h - h[0, -1])
    return h - dt * (deep[0, +1] - deep + wide[+1, 0] - wide), u, v


def results(device):
    """The next state, the sensitivities to the last, and a sum of faces."""
    random = np.random.default_rng(1)
    fields = []
    for location in (("center", "center"), ("center", "face"), ("face", "center")):
        points = hp.Decomposition(SHAPE, mesh.topology, 1, location)
        fields.append(hp.Field.zeros(mesh, points, device=device))
        fields[-1].set_from_host(random.random(points.global_shape)[points.global_slices(mesh.rank)])
    now, pull = A.vjp(step, *fields, 0.1)
    value, (_, slope) = A.gradient(A.model(lambda h, v: (0.5 * (h + h[-1, 0]) * v * v).sum(), walls=WALLS["h"]))(
        fields[0], fields[2]
    )
    *back, number = pull(*now)
    return [each.to_host() for each in (*now, *back, slope)] + [np.array(value), np.array(number)]


def shares(device):
    """Of two members a part of their sums, by numbers of their own, and its gradients."""
    random, cost = np.random.default_rng(2), A.model(lambda h, k: ((h / h.sum() * k) ** 2).sum())
    points = hp.Decomposition(SHAPE, mesh.topology, 0)
    with A.Ensemble(mesh, 2) as two:
        h = two.zeros(hp.Field.zeros(mesh, points, device=device))
        h.set_from_host(random.random((*SHAPE, 2))[points.global_slices(mesh.rank)])
        value, (slope, number) = A.gradient(cost)(h, np.array([0.5, 1.5]))
    return [value, slope.to_host(), number]


def learned(device, activation, dtype=np.float64):
    """A step with a network within, its derivatives in fields and weights, forward and backward."""
    layers = hp.nn.Convolution(1, 2, padding=1, name="a"), activation, hp.nn.Linear(2, 1, name="b")
    net = A.Network(hp.nn.Sequential(layers), seed=1, dtype=dtype)
    step = A.model(lambda h, net: net(h).hold({"y": 0.0})[1, 0], walls={"y": hp.bc.mirror})
    h = hp.Field.zeros(mesh, hp.Decomposition(SHAPE, mesh.topology, 1), device=device)
    h.set_from_host(np.random.default_rng(3).random(SHAPE)[h.decomposition.global_slices(mesh.rank)])
    found, pull = A.vjp(step, h, net)
    slope, weights = pull(h)
    _, moved = A.jvp(step, (h, net), (h, weights))
    return [found.to_host(), slope.to_host(), weights, moved.to_host()]


for dtype, bound in (np.float64, 1e-14), (np.float32, 1e-6):  # the simulator's multiply-add rounds twice
    for layer in hp.nn.ReLU, hp.nn.SiLU:
        pairs = zip(learned(find_gpu(hp.world()), layer(), dtype), learned(HOST, layer(), dtype), strict=True)
        for there, here in pairs:
            np.testing.assert_allclose(there, here, rtol=bound, atol=bound)
for there, here in zip(shares(find_gpu(hp.world())), shares(HOST), strict=True):
    np.testing.assert_allclose(there, here, rtol=1e-13, atol=1e-14)
for there, here in zip(results(find_gpu(hp.world())), results(HOST), strict=True):
    np.testing.assert_allclose(there, here, rtol=1e-13, atol=1e-14)
hp.print_root("alike")
