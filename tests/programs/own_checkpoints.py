"""A program of a user's own with checkpoints: `own_checkpoints.py FOLDER LAST` goes on from whatever is in FOLDER."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import hpckit as hp
from hpckit.errors import InputError

SHAPE = (13, 17)


def plate(mesh):
    field = hp.Field.zeros(hp.Decomposition(SHAPE, mesh.topology), mesh, name="T", components=2)
    y, x = field.coords(1.0)
    field.interior[...] = np.stack([np.sin(x) + y, np.cos(y) * x])
    return field, hp.HaloExchange(mesh, field, {"y": hp.mirror})


def advance(field, halo):
    halo(field)
    t = field.data
    t[:, 1:-1, 1:-1] += 0.2 * (t[:, :-2, 1:-1] + t[:, 2:, 1:-1] - 2 * t[:, 1:-1, 1:-1] + t[:, 1:-1, 2:])


def straight(mesh, steps):
    field, halo = plate(mesh)
    for _ in range(steps):
        advance(field, halo)
    return field.interior


def refused(words, *arguments, **options):
    try:
        hp.Checkpoints(*arguments, **options)
    except InputError as error:
        assert words in error.report(), error.report()
    else:
        raise AssertionError(f"taken: {words}")


if __name__ == "__main__":
    folder, last = sys.argv[1], int(sys.argv[2])
    with hp.Mesh(hp.world(), y=0, x=0, periodic="x", shape=SHAPE) as the_mesh:
        T, exchange = plate(the_mesh)
        with hp.Checkpoints(the_mesh, folder, T, every=5, asynchronous=last > 10) as saved:
            step, time = saved.step, saved.values.get("time", 0.0)
            begin, stopped = step, False
            while step < last and not stopped:
                advance(T, exchange)
                step, time = step + 1, time + 0.5
                if step == 17 and the_mesh.rank == the_mesh.size - 1:
                    os.kill(os.getpid(), signal.SIGUSR1)  # as Slurm does before the time is up
                stopped = saved.edge(step, time=time)
        assert time == step * 0.5
        assert (T.interior == straight(the_mesh, step)).all()
        other = hp.Field.zeros(hp.Decomposition((14, 17), the_mesh.topology), the_mesh, name="T")
        refused("(14, 17) points has (2, 13, 17)", the_mesh, folder, other)
        refused("is not there", the_mesh, folder, hp.Field.zeros(T.decomposition, the_mesh, name="U"))
        refused("by their names", the_mesh, folder, hp.Field.zeros(T.decomposition, the_mesh))
        refused("cannot be made so", the_mesh, folder, T, every="often")
        hp.print_root(begin, step, stopped)
