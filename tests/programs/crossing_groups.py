"""Collectives under way at once on groups of a node that share ranks: every order of waiting comes to its end."""

import sys

import numpy as np

import hpckit as hp

comm = hp.world()
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
shape = {2: (1, 2), 3: (1, 3), 4: (2, 2), 6: (2, 3)}[comm.size]
with hp.Mesh(comm, y=shape[0], x=shape[1]) as mesh:
    random = np.random.default_rng(comm.rank)
    everyone = [np.random.default_rng(rank) for rank in range(comm.size)]
    for axis in (mesh["y"], mesh["x"], comm):  # the first use of an axis is collective
        hp.all_reduce(np.ones(8), axis).wait()
    for turn in range(rounds):
        size = (50_000, 300_000, 1_000_000, 5_000_000)[turn % 4]
        kinds = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
        kind = kinds[turn // 4 % len(kinds)]
        requests = []
        for name in random.permutation(("y", "x", "all")).tolist():
            axis = comm if name == "all" else mesh[name]
            ranks = comm.size if name == "all" else axis.size
            data = np.full(size // ranks * ranks, 1.0 + comm.rank)
            if kind == "all_gather":
                out = np.zeros(data.size)
                requests.append((hp.all_gather(data[: data.size // ranks].copy(), axis, out), name, out))
            elif kind == "all_to_all":
                out = np.zeros(data.size)
                requests.append((hp.all_to_all(data, axis, out), name, out))
            else:
                requests.append((getattr(hp, kind)(data, axis), name, data))
        order = random.permutation(len(requests))
        for number in order:
            request, name, kept = requests[number]
            result = request.wait()
            members = {
                "all": list(range(comm.size)),
                "y": [rank for rank in range(comm.size) if rank % shape[1] == comm.rank % shape[1]],
                "x": [rank for rank in range(comm.size) if rank // shape[1] == comm.rank // shape[1]],
            }[name]
            values = [1.0 + rank for rank in members]
            if kind in ("all_reduce", "reduce_scatter"):
                wanted = np.full(result.size, sum(values))
            elif kind == "broadcast":
                wanted = np.full(result.size, values[0])
            else:
                wanted = np.repeat(values, kept.size // len(values))
            np.testing.assert_array_equal(result, wanted, err_msg=f"{kind} {name}")
if comm.rank == 0:
    print("every order came to its end")
