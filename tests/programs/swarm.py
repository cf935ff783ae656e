"""Swarms: fields of odd dtypes travel with their particles, ghosts are complete, flocks do not depend on the ranks."""

from __future__ import annotations

import itertools

import numpy as np
from refusals import refused

import hpckit as hp

COMM = hp.world()
COUNT = 97
FIELDS = {"heading": "f2", "spin": ("f4", 3), "tag": "S5", "alive": "?", "phase": "c8", "when": "M8[s]"}


def start(mesh, periodic_box=(2.0, -1.0, 0.5), lengths=(5.0, 3.0, 4.0)):
    """A swarm given by two ranks, and all of it as arrays."""
    dims = len(mesh.topology.names)
    rng = np.random.default_rng(8)
    lower = np.array(periodic_box[:dims])
    places = lower + rng.random((COUNT, dims)) * lengths[:dims]
    swarm = hp.Swarm(mesh, lower, lower + lengths[:dims], **FIELDS)
    own = slice(0, 40) if mesh.rank == 0 else slice(40, COUNT) if mesh.rank == mesh.size - 1 else slice(0, 0)
    own = slice(0, COUNT) if mesh.size == 1 else own
    ids = np.arange(COUNT)
    values = {
        "heading": ids.astype("f2"),
        "spin": np.outer(ids, [1, 2, 3]),
        "tag": np.array([f"p{i}" for i in ids], "S5"),
        "alive": ids % 2 == 0,
        "phase": ids * (1 - 2j),
        "when": ids.astype("M8[s]"),
    }
    swarm.add(places[own], **{name: each[own] for name, each in values.items()})
    return swarm, places, values


def test_walkers_keep_their_ids_and_fields(mesh):
    swarm, places, values = start(mesh)
    periodic = np.array([name in mesh.topology.periodic for name in mesh.topology.names])
    length = swarm.upper - swarm.lower
    rng = np.random.default_rng(9)
    for _ in range(20):
        step = 2.5 * rng.standard_normal(places.shape)
        places = places + step
        swarm["position"] += step[swarm["id"]]
        swarm.migrate()
        inside = np.where(periodic, swarm.lower + np.mod(places - swarm.lower, length), places)
        low, high = swarm.domains.owned(mesh.rank)
        own = swarm["position"]
        assert (own >= low[: own.shape[1]]).all()
        assert (own < high[: own.shape[1]]).all()
        assert np.allclose(own, inside[swarm["id"]], atol=1e-9)
    for root in {0, mesh.size - 1}:
        whole = swarm.gather(root)
        assert (whole is None) == (mesh.rank != root)
        if whole is not None:
            assert np.array_equal(whole["id"], np.arange(COUNT))
            assert all(np.array_equal(whole[name], values[name]) for name in FIELDS)
    assert swarm.count() == COUNT
    swarm.keep(swarm["alive"])
    swarm.add(None)
    assert swarm.count() == (COUNT + 1) // 2


def test_ghosts_are_all_that_is_near(mesh):
    swarm, places, _ = start(mesh)
    periodic = [name in mesh.topology.periodic for name in mesh.topology.names]
    length, rank = swarm.upper - swarm.lower, mesh.rank
    low, high = (corner[: len(periodic)] for corner in swarm.domains.bounds(rank))
    owners = swarm.domains.owners(np.pad(places, ((0, 0), (0, 3 - len(periodic)))))
    for reach in (0.0, 0.7, 6.5):  # the last is more than the box
        near = swarm.ghosts(reach)
        wanted = []
        for image in itertools.product(*(range(-3, 4) if closed else (0,) for closed in periodic)):
            moved = places + np.array(image) * length
            inside = ((moved >= low - reach) & (moved < high + reach)).all(axis=1)
            inside &= (owners != rank) | any(image)
            wanted += [(int(i), *moved[i]) for i in np.flatnonzero(inside)]
        found = [(int(one["id"]), *one["position"]) for one in near]
        assert np.allclose(sorted(found), sorted(wanted)) if wanted else not found
        assert (near["spin"] == np.outer(near["id"], [1, 2, 3])).all()


def test_particles_of_a_grid_are_with_their_cells(mesh):
    """Cells are dealt unevenly; what the particles deposit is what one rank finds."""
    shape, origin, spacing = (11, 17)[-len(mesh.topology.names) :], -1.5, 0.25
    shape = (*shape, 13)[: len(mesh.topology.names)]
    grid = hp.Decomposition(shape, mesh.topology)
    swarm = hp.Swarm.on_grid(grid, mesh, spacing, origin)
    places = origin + np.random.default_rng(4).random((COUNT, len(shape))) * spacing * shape
    swarm.add(places if mesh.rank == 0 else None)
    field = hp.Field.zeros(mesh, grid)
    cells = np.floor((swarm["position"] - origin) / spacing).astype(int) - np.array(grid.start(mesh.rank))
    assert (cells >= 0).all()
    assert (cells < np.array(grid.owned(mesh.rank))).all()
    np.add.at(field.interior, tuple(cells.T), 1)
    whole = field.gather()
    counted = np.histogramdd(places, [origin + spacing * np.arange(n + 1) for n in shape])[0]
    assert whole is None or np.array_equal(whole, counted)
    refused(lambda: hp.Swarm.on_grid(hp.Decomposition(shape, mesh.topology, location="face"), mesh, 1.0), "of cells")
    refused(lambda: hp.Swarm.on_grid(grid, mesh.topology, 1.0), "another mesh")


def flock(mesh):
    """Vicsek's model: each takes the mean direction of those within 1; numbers that must not depend on the ranks."""
    rng = np.random.default_rng(3)
    places, angles = 7 * rng.random((60, 2)), 2 * np.pi * rng.random(60)
    swarm = hp.Swarm(mesh, 0.0, 7.0, angle="f8")
    swarm.add(places if mesh.rank == 0 else None, **({"angle": angles} if mesh.rank == 0 else {}))
    for _ in range(15):
        everyone = np.concatenate([swarm.data, swarm.ghosts(1.0)])
        everyone = everyone[np.argsort(everyone["id"], kind="stable")]  # sums in one order
        apart = everyone["position"][None] - swarm["position"][:, None]
        near = (apart**2).sum(2) < 1.0
        swarm["angle"] = [np.arctan2(np.sin(a).sum(), np.cos(a).sum()) for a in (everyone["angle"][n] for n in near)]
        swarm["position"] += 0.3 * np.stack([np.cos(swarm["angle"]), np.sin(swarm["angle"])], 1)
        swarm.migrate()
    whole = swarm.gather()
    return None if whole is None else f"{np.sort(whole['angle']).sum():.10f} {whole['position'].sum():.10f}"


def twice(swarm, *ids):
    """The last rank gives these ids, the others nothing: all ranks are told where one is taken."""
    given = ids if swarm.mesh.rank == swarm.mesh.size - 1 else ()
    swarm.add(np.ones((len(given), swarm.dims)), id=np.array(given, int))


def test_refusals(mesh):
    swarm, _, _ = start(mesh)
    names = mesh.topology.names
    for wrong, words in (
        (lambda: hp.Swarm(mesh, 0.0, 0.0), "no volume"),
        (lambda: hp.Swarm(mesh, (0.0,) * 5, 1.0), "a corner"),
        (lambda: hp.Swarm(mesh, 0.0, 1.0, id="i4"), "cannot be"),
        (lambda: hp.Swarm(mesh, 0.0, 1.0, what=object), "objects"),
        (lambda: hp.Swarm(mesh, 0.0, 1.0, what="flaot"), "the field what"),
        (lambda: swarm["headnig"], "no field"),
        (lambda: swarm.add(np.zeros((2, len(names) + 1))), "positions are"),
        (lambda: swarm.add(np.zeros((2, len(names))), speed=1), "no field"),
        (lambda: swarm.add(np.zeros((2, len(names))), spin=np.zeros(7)), "spin of 2"),
        (lambda: swarm.add(np.full((1, len(names)), np.nan)), "not finite"),
        (lambda: swarm.ghosts(-1.0), "a length"),
        (lambda: swarm.ghosts("1"), "a length"),
        (lambda: hp.Swarm(mesh.topology, 0.0, 1.0), "lives on a mesh"),
        (lambda: swarm.add([["a"] * len(names)]), "numbers"),
        (lambda: twice(swarm, 5), "the id 5"),
        (lambda: twice(swarm, COUNT + 3, COUNT + 3), f"the id {COUNT + 3}"),
        (lambda: swarm.__setitem__("heading", np.zeros(COUNT + 1)), "heading of"),
        (lambda: swarm.keep(np.arange(len(swarm))), "a mask is bool"),
        (lambda: swarm.keep(np.ones(COUNT + 1, bool)), "a mask is bool"),
        (lambda: swarm.gather(mesh.size), "is not one"),
    ):
        refused(wrong, words)


if __name__ == "__main__":
    for axes, closed in ((("x",), "x"), (("y", "x"), "x"), (("z", "y", "x"), ("z", "x")), (("y", "x"), ())):
        with hp.Mesh(COMM, periodic=closed, **dict.fromkeys(axes, 0)) as the_mesh:
            test_walkers_keep_their_ids_and_fields(the_mesh)
            test_ghosts_are_all_that_is_near(the_mesh)
            test_particles_of_a_grid_are_with_their_cells(the_mesh)
            test_refusals(the_mesh)
    with hp.Mesh(COMM, y=0, x=0, periodic=("y", "x")) as the_mesh:
        hp.print_root(flock(the_mesh))
