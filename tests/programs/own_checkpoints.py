"""A program of a user's own with checkpoints: `own_checkpoints.py FOLDER LAST` goes on from whatever is in FOLDER."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import hpckit as hp
from hpckit.errors import HpckitError

SHAPE = (13, 17)
CROWD = 41
FIELDS = {"tag": "U3", "when": "M8[s]", "spin": (">f4", 3), "steps": "i2"}


def plate(mesh):
    field = hp.Field.zeros(mesh, hp.Decomposition(SHAPE, mesh.topology), name="T", components=2)
    y, x = field.coords(1.0)
    field.interior[...] = np.stack([np.sin(x) + y, np.cos(y) * x])
    return field, hp.HaloExchange(mesh, field, {"y": hp.bc.mirror})


def advance(field, halo):
    halo(field)
    t = field.data
    t[:, 1:-1, 1:-1] += 0.2 * (t[:, :-2, 1:-1] + t[:, 2:, 1:-1] - 2 * t[:, 1:-1, 1:-1] + t[:, 1:-1, 2:])


def straight(mesh, steps):
    field, halo = plate(mesh)
    for _ in range(steps):
        advance(field, halo)
    return field.interior


def crowd(mesh):
    """Walkers with fields of dtypes that files have and have not, all given by the last rank."""
    swarm = hp.Swarm(mesh, 0.0, (7.0, 5.0), **FIELDS)
    ids = np.arange(CROWD if mesh.rank == mesh.size - 1 else 0)
    names = np.array([f"<{i}>" for i in ids], "U3")
    places = np.stack([7.0 - (ids % 7) / 3, 5.0 - (ids % 5) / 3], axis=1)  # most at the last rank's
    swarm.add(places, tag=names, when=ids.astype("M8[s]"), spin=np.outer(ids, [1, 2, 3]))
    return swarm


def walk(swarm):
    """A step that follows from id and number of steps, far enough to change the rank."""
    angle = swarm["id"] + 0.37 * swarm["steps"]
    swarm["position"] += 1.5 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    swarm["steps"] += 1
    swarm.migrate()


def same_crowd(one, other):
    return (one is None and other is None) or all((one[name] == other[name]).all() for name in one.dtype.names)


def refused(words, *arguments, call=hp.Checkpoints, **options):
    try:
        call(*arguments, **options)
    except HpckitError as error:
        assert words in error.report(), error.report()
    else:
        raise AssertionError(f"taken: {words}")


if __name__ == "__main__":
    folder, last = sys.argv[1], int(sys.argv[2])
    with hp.Mesh(hp.world(), y=0, x=0, periodic="x", shape=SHAPE) as the_mesh:
        T, exchange = plate(the_mesh)
        walkers, nobody = crowd(the_mesh), hp.Swarm(the_mesh, 0.0, 1.0)
        parts = {"walkers": walkers, "nobody": nobody}
        with hp.Checkpoints(the_mesh, folder, T, every=5, asynchronous=last > 10, **parts) as saved:
            step, time = saved.step, saved.values.get("time", 0.0)
            begin, stopped, many = step, False, saved.values.get("many", [])
            assert saved.values.get("seed", 7) == 7
            assert saved.values.get("rest", [0.0, 1.0]) == [0.0, 1.0]
            for values, words in (({"v": {1, 2}}, "set"), ({"v": 1j}, "complex")):
                refused(words, call=lambda values=values: saved.edge(1, **values))
            while step < last and not stopped:
                advance(T, exchange)
                walk(walkers)
                step, time = step + 1, time + 0.5
                if step == 17 and the_mesh.rank == the_mesh.size - 1:
                    os.kill(os.getpid(), signal.SIGUSR1)  # as Slurm does before the time is up
                many.append(float(step))
                stopped = saved.edge(np.int64(step), time=time, many=many, rest=np.arange(2.0), seed=np.int64(7))
            refused("whole number, not '5'", call=lambda: saved.edge("5"))
        assert time == step * 0.5
        assert many == [1.0 + n for n in range(step)]
        assert (T.interior == straight(the_mesh, step)).all()
        unbroken = crowd(the_mesh)
        for _ in range(step):
            walk(unbroken)
        assert same_crowd(walkers.gather(), unbroken.gather())
        assert walkers.count() == CROWD
        assert nobody.count() == 0
        if stopped:  # the same ranks again: their particles come in the same order
            again = hp.Swarm(the_mesh, 0.0, (7.0, 5.0), **FIELDS)
            hp.Checkpoints(the_mesh, folder, every="never", walkers=again).close()
            assert same_crowd(walkers.data, again.data)
        other = hp.Field.zeros(the_mesh, hp.Decomposition((14, 17), the_mesh.topology), name="T")
        refused("(14, 17) points has (2, 13, 17)", the_mesh, folder, other)
        nameless = hp.Field.zeros(the_mesh, T.decomposition)
        refused("U of (13, 17) points is not there", the_mesh, folder, U=nameless)
        refused("need different names", the_mesh, folder, nameless)
        refused("need different names", the_mesh, folder, T, T=nameless)
        refused("'θ' is not a valid name", the_mesh, folder, θ=nameless)
        refused("a swarm has no name", the_mesh, folder, walkers)
        refused("evry, which is not an option", the_mesh, folder, T, evry="10 min")
        refused("invalid option", the_mesh, folder, T, every="often")
        refused("'5' is not a time span", the_mesh, folder, T, limit=5)
        refused("a mesh or a communicator", the_mesh.topology, folder, T)
        refused("HPK-300", the_mesh, __file__, T)
        refused("crowd is not there", the_mesh, folder, crowd=walkers)
        refused("another tag", the_mesh, folder, walkers=hp.Swarm(the_mesh, 0.0, 1.0, **FIELDS | {"tag": "U4"}))
        refused("has the fields", the_mesh, folder, walkers=nobody)
        refused("box from [0.0, 0.0] to [7.0, 5.0]", the_mesh, folder, walkers=hp.Swarm(the_mesh, 0.0, 7.0, **FIELDS))
        hp.print_root(begin, step, stopped)
