"""Traced steps on ranks: the dot-product and Taylor tests, and the same bits for any number of ranks."""

from __future__ import annotations

import hashlib
import sys

import numpy as np

import hpckit as hp

A = hp.adjoint
SHAPE = (19, 17)
WALLS = {
    "u": {"y": hp.bc.mirror, "x": (hp.bc.antisymmetric, 1.5)},
    "v": {"y": (hp.bc.antisymmetric, hp.bc.zero_gradient), "x": hp.bc.zero_gradient},
}


def step(u, v, nu, *, held):
    """Products, choices and roots of neighbors, a field of its own in the middle, and neighbors of neighbors."""

    def advanced(w):
        east, west, north, south = w.shift(x=1), w.shift(x=-1), w[1, 0], w[-1, 0]
        return w - 0.05 * (u * (east - west) + v * (north - south)) + nu * (east + west + north + south - 4 * w)

    f = np.sqrt(1 + u[1, 1] * u[1, 1] * v * v)
    g = (f * nu + A.where(v > 0.2, A.sqrt(abs(v)), v * v)).hold(held)
    return (
        advanced(u) + f[1, 0] * g[0, -1],
        A.maximum(advanced(v), 0.1 * u) + A.exp(-g[1, 1] * f[0, 1]) / (2 + v),
    )


def whole(dec, mesh, rng):
    return hp.Field.from_global(mesh, dec, rng.random(SHAPE) if mesh.rank == 0 else None)


def run(mesh, walls, held):
    model = A.model(step, walls=walls)
    dec, rng = hp.Decomposition(SHAPE, mesh.topology, 1), np.random.default_rng(3)
    u, v = whole(dec, mesh, rng), whole(dec, mesh, rng)
    found = A.check(model, u, v, 0.1, held=held)
    assert found.passed, found

    @A.model(walls=walls)
    def cost(u, v, nu, *, held):
        a, b = step(u, v, nu, held=held)
        return (a * a).sum() + 0.5 * (b * A.sin(a[0, 1] if not held else a)).sum()

    value, (gu, gv, gn) = A.gradient(cost, held=held)(u, v, 0.1)
    assert value == cost(u, v, 0.1, held=held)
    fields = [each.gather() for each in (*model(u, v, 0.1, held=held), gu, gv)]
    if mesh.rank == 0:
        said = hashlib.sha256(b"".join(each.tobytes() for each in fields) + np.array([value, gn]).tobytes())
        print(said.hexdigest())


def main():
    comm = hp.world()
    with hp.Mesh(comm, y=0, x=0, shape=SHAPE, periodic="x", halo=5) as mesh:
        run(mesh, WALLS, {"y": hp.bc.antisymmetric})
    if sys.argv[1:] != ["all"]:
        return
    with hp.Mesh(comm, y=0, x=0, periodic=("y", "x"), shape=SHAPE) as mesh:
        run(mesh, {}, None)
    with hp.Mesh(comm, y=0, x=0, shape=SHAPE, halo=5) as mesh:
        run(mesh, WALLS, {"x": hp.bc.mirror, "y": hp.bc.zero_gradient})


if __name__ == "__main__":
    sys.exit(main())
