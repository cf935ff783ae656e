"""Traced steps on ranks: dot-product and Taylor tests, many steps, ensembles; the same bits on any number of ranks."""

from __future__ import annotations

import hashlib
import sys

import numpy as np

import hpckit as hp
from hpckit.plan.machine.machine import Level, Machine

A = hp.adjoint
SHAPE = (19, 17)
FOLDER = sys.argv[1]  # of checkpoints
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


@A.model(walls={"u": {"y": hp.bc.mirror}, "v": {"y": hp.bc.antisymmetric}})
def drift(u, v, nu, drag):
    """A step of two fields with a number and a map as parameters."""

    def advanced(w):
        around = w[0, 1] + w[0, -1] + w[1, 0] + w[-1, 0] - 4 * w
        return w - 0.05 * (u * (w[0, 1] - w[0, -1]) + v * (w[1, 0] - w[-1, 0])) + nu * around

    return advanced(u) - 0.1 * drag * u, advanced(v)


@A.model(walls={"y": hp.bc.mirror})
def share(u, k):
    """A step whose cells read sums over all cells, and a number."""
    q, size = u / u.sum(), A.sqrt((u * u).sum()) * A.exp(-k)
    return u + k * (q[1, 0] + q[-1, 0] - 2 * q) + 0.01 * A.where(u * size > size, u / size, q[0, 1])


@A.model
def misfit(u, v, mask, seen):
    return (mask * (u - seen) ** 2).sum() + 0.5 * (v * v).sum()


def widened(field):
    """The field with a halo of 2."""
    found = hp.Field.zeros(field.mesh, hp.Decomposition(SHAPE, field.mesh.topology, 2))
    found.interior[...] = field.interior
    return found


def windows(mesh):
    """Gradients of many steps: the same bits however many states are kept, and a forecast of order 2."""
    dec, rng = hp.Decomposition(SHAPE, mesh.topology, 1), np.random.default_rng(5)
    u, v, drag, mask, seen = (whole(dec, mesh, rng) for _ in range(5))
    args = u, v, 0.02, drag
    checked = A.check(drift, *args)
    assert checked.passed, checked
    found = []
    for memory in (1e9, 8 * 35 * 33 * 2 * 7, 0):
        window = A.Window(drift, 23, misfit, at=(0, 7, 8, 23), data=lambda k: (mask, seen), memory=memory)
        value, slopes = window.gradient(*args)
        assert abs(value - window.value(*args)) < 1e-12 * value
        gathered = [each.gather() if isinstance(each, hp.Field) else np.array(each) for each in slopes]
        found.append(b"" if mesh.rank else b"".join(each.tobytes() for each in (*gathered, np.array(value))))
    assert found[0] == found[1] == found[2]
    level = Level("network", 0, 0.0, 1e10)
    twice = drift.repeated(4, Machine("slow memory", (level,), 0.0, 1.0))  # two in one pass
    wide = [arg if isinstance(arg, float) else widened(arg) for arg in args]
    assert twice.graph(*wide).joins
    u, v = wide[:2]
    for _ in range(4):
        u, v = drift(u, v, 0.02, drag)
    for one, other in zip(twice(*wide), (u, v), strict=True):
        assert np.array_equal(one.interior, other.interior)
    u, v = args[:2]
    resumed(mesh, args, mask, seen, found[0])
    changes = [whole(dec, mesh, rng), whole(dec, mesh, rng), 0.3, whole(dec, mesh, rng)]
    slope = sum(g * d if isinstance(d, float) else g.dot(d, repro=True) for g, d in zip(slopes, changes, strict=True))

    def moved(arg, change, h):
        if isinstance(arg, float):
            return arg + h * change
        there = arg.like()
        there.interior[...] = arg.interior + h * change.interior
        return there

    errors = [
        abs(window.value(*(moved(*pair, h) for pair in zip(args, changes, strict=True))) - value - h * slope)
        for h in (1e-4, 1e-5)
    ]
    assert 95 < errors[0] / errors[1] < 105, errors
    if mesh.rank == 0:
        print(hashlib.sha256(found[0]).hexdigest())


@A.model(walls={"y": hp.bc.mirror})
def closed(u, v, cells, image, k):
    """A step with an MLP of what a cell sees, and a convolution of what was computed."""
    a, b = cells(u[0, 1] - u[0, -1], u[1, 0] * v, v[-1, -1], k)
    c = image(u, a * b)
    return u + 0.1 * (a.hold({"y": hp.bc.mirror})[1, 0] - u) + 0.1 * c, v + 0.1 * b * k


def networks(mesh):
    """Gradients of steps with networks within, in fields, weights and a number."""
    nn = hp.nn
    dec, rng = hp.Decomposition(SHAPE, mesh.topology, 1), np.random.default_rng(3)
    mlp = nn.mlp([4, 8, 2], "gelu")
    layers = nn.Convolution(2, 3, padding=1, name="a"), nn.SiLU(), nn.Convolution(3, 1, padding=1, name="b")
    u, v = whole(dec, mesh, rng), whole(dec, mesh, rng)
    total = A.model(lambda u, v: (u * u + v * u).sum())
    for dtype in (np.float64, np.float32):
        args = u, v, A.Network(mlp, dtype=dtype), A.Network(nn.Sequential(layers), dtype=dtype), 0.3
        found = A.check(closed, *args)
        assert found.passed, found
        value, slopes = A.Window(closed, 3, total, memory=0).gradient(*args)
        gathered = [each.gather() if isinstance(each, hp.Field) else np.array(each) for each in slopes]
        if mesh.rank:
            continue
        assert [np.ndim(each) for each in gathered] == [2, 2, 1, 1, 0]
        assert all(abs(each).max() > 0 for each in gathered)
        print(hashlib.sha256(b"".join(each.tobytes() for each in (*gathered, np.array(value)))).hexdigest())


def thin(mesh):
    """Blocks thinner than what a step reads, and its adjoint beyond walls that mirror."""
    fills = hp.bc.antisymmetric, hp.bc.mirror
    periodic = [name for name in ("y", "x") if mesh.topology.is_periodic(name)]
    walls = {name: fills for name in ("y", "x") if name not in periodic}

    @A.model(walls=walls)
    def far(u, v):
        held = (u[3, -2] * v[-4, 1]).at(u).hold(walls)
        return 0.3 * u[0, 4] * u[0, -3] + held[2, -3] * u[-2, 1], (v + 0.1 * u.at(v) * v[-1, 3]).at(v)

    total = A.model(lambda u, v: (u * u).sum() + (v * v).sum())
    dec, rng = hp.Decomposition((13, 14), mesh.topology, 1), np.random.default_rng(9)
    args = []
    for each in (dec, dec.at(("face", "face"))):
        values = rng.uniform(-1.0, 1.0, each.global_shape)
        args.append(hp.Field.from_global(mesh, each, values if mesh.rank == 0 else None))
    found = A.check(far, *args)
    assert found.passed, found
    value, slopes = A.Window(far, 2, total, memory=0).gradient(*args)
    faces = hp.Field.zeros(mesh, hp.Decomposition((3, 6), mesh.topology, 1, ("center", "face")))
    faces.interior[...] = (1.0 + np.arange(7.0) ** 2)[faces.decomposition.global_slices(mesh.rank)[1]]
    now, pull = A.vjp(A.model(lambda v: v[0, 1] * v - v[0, -1], walls=walls), faces)  # blocks as thick as the halo
    gathered = [each.gather() for each in (*far(*args), *slopes, now, *pull(now))]
    if mesh.rank == 0:
        print(hashlib.sha256(b"".join(each.tobytes() for each in gathered) + np.array(value).tobytes()).hexdigest())


def long(mesh):
    """The gradient of 200 steps, with all states kept, some, and few."""
    dec, rng = hp.Decomposition(SHAPE, mesh.topology, 1), np.random.default_rng(8)
    u, v, drag, mask, seen = (whole(dec, mesh, rng) for _ in range(5))
    for each in (u, v):
        each.interior[...] *= 0.3  # stable for 200 steps
    found = []
    for memory in (1e9, 8 * 35 * 33 * 2 * 20, 8 * 35 * 33 * 2 * 7):
        window = A.Window(drift, 200, misfit, at=(0, 99, 200), data=lambda k: (mask, seen), memory=memory)
        value, slopes = window.gradient(u, v, 0.02, drag)
        gathered = [each.gather() if isinstance(each, hp.Field) else np.array(each) for each in slopes]
        found.append(b"" if mesh.rank else b"".join(each.tobytes() for each in (*gathered, np.array(value))))
        assert np.isfinite(value)
        assert mesh.rank or all(np.isfinite(each).all() and abs(each).max() > 0 for each in gathered)
    assert len(set(found)) == 1
    if mesh.rank == 0:
        print(hashlib.sha256(found[0]).hexdigest())


def resumed(mesh, args, mask, seen, expected):
    """One rank is cut off in the middle of a gradient; others go on from its checkpoint, with the same bits."""
    asked = []

    def data(k):
        asked.append(k)
        if k == 7 and mesh.size == 1:
            raise InterruptedError
        return mask, seen

    times = {"at": (0, 7, 8, 23), "data": data, "memory": 8 * 35 * 33 * 2 * 7}
    window = A.Window(drift, 23, misfit, folder=FOLDER, every=3, **times)
    try:
        value, slopes = window.gradient(*args)
    except InterruptedError:
        assert asked == [23, 8, 7]
        return
    assert 23 not in asked
    gathered = [each.gather() if isinstance(each, hp.Field) else np.array(each) for each in slopes]
    assert expected == (b"" if mesh.rank else b"".join(each.tobytes() for each in (*gathered, np.array(value))))
    asked.clear()
    window.gradient(*args[:2], 0.03, args[3])  # other arguments: from the beginning
    assert asked[0] == 23


def ensembles(mesh):
    """Each member has the bits of its run alone."""
    dec, rng = hp.Decomposition(SHAPE, mesh.topology, 1), np.random.default_rng(6)
    starts = [(whole(dec, mesh, rng), whole(dec, mesh, rng)) for _ in range(3)]
    drag = whole(dec, mesh, rng)
    with A.Ensemble(mesh, 3) as ensemble:
        u, v = (ensemble.stack(each) for each in zip(*starts, strict=True))
        drags = ensemble.stack([drag] * 3)
        window = A.Window(drift, 3, A.model(lambda u, v: (u * u + v).sum()), at=(1, 3), memory=0)
        value, slopes = window.gradient(u, v, 0.02, drags)
        for m, state in enumerate(starts):
            alone, own = window.gradient(*state, 0.02, drag)
            assert (value[m], slopes[2][m]) == (alone, own[2])
            for k in (0, 1, 3):
                assert np.array_equal(ensemble.member(slopes[k], m).interior, own[k].interior)
        found = A.check(drift, u, v, 0.02, drags)
        assert found.passed, found
        unused = A.Window(A.model(lambda u, k: u * 1.0), 1, A.model(lambda u: u.sum())).gradient(u, 0.1)[1][1]
        assert np.array_equal(unused, np.zeros(3))
        shares = A.Window(share, 2, A.model(lambda u: ((u / u.sum() - 0.01) ** 2).sum()), at=(1, 2), memory=0)
        rates = np.array([0.1, 0.3, 0.2])
        found = A.check(share, u, rates)
        assert found.passed, found
        value, (slope, own) = shares.gradient(u, rates)
        for m, (state, _) in enumerate(starts):
            alone, (one, number) = shares.gradient(state, float(rates[m]))
            assert (value[m], own[m]) == (alone, number)
            assert np.array_equal(ensemble.member(slope, m).interior, one.interior)
        net = A.Network(hp.nn.mlp([2, 3, 1], "gelu"))
        learned = A.Window(
            A.model(lambda u, net: u + net(u, u[1, -1]), walls={"y": 0.0}), 2, A.model(lambda u: u.sum())
        )
        _, (_, slopes) = learned.gradient(u, net)
        for m, (state, _) in enumerate(starts):
            assert np.array_equal(slopes[m], learned.gradient(state, net)[1][1])
        for _ in range(2):
            u, v = drift(u, v, 0.02, drags)
        for m, state in enumerate(starts):
            for _ in range(2):
                state = drift(*state, 0.02, drag)
            assert np.array_equal(ensemble.member(u, m).interior, state[0].interior)
            assert np.array_equal(ensemble.member(v, m).interior, state[1].interior)
        every = u.interior
        np.testing.assert_allclose(ensemble.mean(u).interior, every.mean(-1), rtol=1e-14)
        np.testing.assert_allclose(ensemble.spread(u).interior, every.std(-1, ddof=1), rtol=1e-12)
        a, b = every - every.mean(-1, keepdims=True), v.interior - v.interior.mean(-1, keepdims=True)
        np.testing.assert_allclose(ensemble.covariance(u, v).interior, (a * b).sum(-1) / 2, rtol=1e-10, atol=1e-13)
        b = np.array([each.gather() for each in (ensemble.member(v, m) for m in range(3))])
        b = mesh.comm.bcast(b[:, 11, 5] if mesh.rank == 0 else None)
        far = ensemble.covariance(u, v, at=(11, 5))
        np.testing.assert_allclose(far.interior, (a * (b - b.mean())).sum(-1) / 2, rtol=1e-10, atol=1e-13)


def thin_ranks(comm):
    """All ranks along one axis, between walls and around a ring."""
    for periodic in ("x", ()):
        with hp.Mesh(comm, y=1, x=comm.size, periodic=periodic) as mesh:
            thin(mesh)


def main():
    comm = hp.world()
    with hp.Mesh(comm, y=0, x=0, shape=SHAPE, periodic="x", halo=5) as mesh:
        if sys.argv[2:] == ["long"]:
            long(mesh)
            return
        windows(mesh)
        if sys.argv[2:] == ["windows"]:
            return
        networks(mesh)
        ensembles(mesh)
    thin_ranks(comm)
    if sys.argv[2:] != ["all"]:
        return
    with hp.Mesh(comm, y=0, x=0, shape=SHAPE, periodic="x", halo=5) as mesh:
        run(mesh, WALLS, {"y": hp.bc.antisymmetric})
    with hp.Mesh(comm, y=0, x=0, periodic=("y", "x"), shape=SHAPE) as mesh:
        run(mesh, {}, None)
    with hp.Mesh(comm, y=0, x=0, shape=SHAPE, halo=5) as mesh:
        run(mesh, WALLS, {"x": hp.bc.mirror, "y": hp.bc.zero_gradient})


if __name__ == "__main__":
    sys.exit(main())
