"""The ranks of `hpckit bench halo`: our exchange and its rivals in turn on the same data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.ranks import answer, seconds_a_call
from hpckit.comm.mesh import Mesh
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.plan.grid.decomposition import Decomposition

Candidate = Callable[[], object]
NAMES = ("z", "y", "x")


def sendrecv(mesh: Mesh, arrays: list[np.ndarray]) -> Candidate:
    """The exchange as most programs write it: Sendrecv with copies of NumPy slices, dim by dim, corners included."""
    comm, topology = mesh.comm, mesh.topology
    neighbors = [[int(topology.all_shifted(name, n)[mesh.rank]) for n in (-1, +1)] for name in NAMES]

    def layer(dim: int, first: int, last: int) -> tuple[slice, ...]:
        return tuple(slice(first, last) if d == dim else slice(None) for d in range(3))

    def exchange() -> None:
        for a in arrays:
            for dim, (low, high) in enumerate(neighbors):
                n = a.shape[dim]
                edges = ((n - 2, n - 1, high, low, 0, 1), (1, 2, low, high, n - 1, n))
                for tag, (first, last, to, source, into, end) in enumerate(edges):
                    outgoing = np.ascontiguousarray(a[layer(dim, first, last)])
                    incoming = np.empty_like(outgoing)
                    comm.Sendrecv(outgoing, to, tag, incoming, source, tag)
                    a[layer(dim, into, end)] = incoming

    return exchange


def mpiarray_update(mesh: Mesh, n: int) -> tuple[Candidate, np.ndarray] | None:
    """`update_halos` of the PyPI package mpiarray on the same blocks, None if it is not installed."""
    try:
        import mpiarray
    except ImportError:
        return None
    array = mpiarray.zeros((n * mesh.size, n, n), halo=1, periodic=(True,) * 3, split=0, comm=mesh.comm)
    return array.update_halos, array._data


def coded(mesh: Mesh, n: int, halo: bool) -> np.ndarray:
    """The number of the global cell of each local cell, wrapped."""
    w = int(halo)
    z = (np.arange(-w, n + w) + mesh.rank * n) % (n * mesh.size)
    across = np.arange(-w, n + w) % n
    return (z[:, None, None] * n + across[None, :, None]) * float(n) + across[None, None, :]


def refill(arrays: list[np.ndarray], interior: np.ndarray) -> None:
    """Write new data, so that every exchange starts with an unfilled halo and the same cache state as its rivals."""
    for a in arrays:
        a[...] = -1.0
        a[1:-1, 1:-1, 1:-1] = interior


def time_in_turn(
    mesh: Mesh, n: int, candidates: dict[str, tuple[Candidate, list[np.ndarray]]], rounds: int
) -> dict[str, list[float]]:
    """Seconds an exchange of each candidate, in turn; the slowest rank's time counts. Checks each result first."""
    interior, expected = coded(mesh, n, halo=False), coded(mesh, n, halo=True)
    calls = max(10, min(200, 4_000_000 // (n * n * len(next(iter(candidates.values()))[1]) * 16)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for name, (candidate, arrays) in candidates.items():
        refill(arrays, interior)
        candidate()
        if not all(np.array_equal(a, expected) for a in arrays):
            raise RuntimeError(f"{name} fills wrong halos at {n}^3 on rank {mesh.rank}")
    for _ in range(rounds):
        for name, (candidate, arrays) in candidates.items():
            refill(arrays, interior)
            times[name].append(seconds_a_call(mesh.comm, candidate, calls))
    return times


def case(n: int, count: int, rounds: int, rival: bool) -> dict[str, Any]:
    """Times for `count` fields of n^3 cells a rank, all dims periodic, ranks along z."""
    with Mesh(MPI.COMM_WORLD, z=0, y=1, x=1, periodic=NAMES) as mesh:
        decomposition = Decomposition((n * mesh.size, n, n), mesh.topology, halo=1)
        fields = [Field.zeros(mesh, decomposition) for _ in range(count)]
        halo = HaloExchange(mesh, fields)
        plain = [np.zeros(field.data.shape) for field in fields]
        candidates: dict[str, tuple[Candidate, list[np.ndarray]]] = {
            "hpckit": (lambda: halo(fields), [field.data for field in fields]),
            "sendrecv": (sendrecv(mesh, plain), plain),
        }
        other = mpiarray_update(mesh, n) if rival else None
        if other is not None:
            candidates["mpiarray"] = (other[0], [other[1]])
        times = time_in_turn(mesh, n, candidates, rounds)
        return {"cells": n, "fields": count, "sent_bytes": halo.nbytes, "times": times}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
