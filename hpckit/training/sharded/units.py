"""Units of a flat vector of parameters: how each is cut into shards, and in which buffer its gradients live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hpckit.nn.parameters import Parameter, Parameters


@dataclass(frozen=True)
class Unit:
    """A contiguous part of the flat vector that is gathered and summed at once.

    bounds: where the shard of each replica begins and the last one ends, int64[replicas + 1]. shared: parameters in it
    that two layers use, each layer with its own gradient.
    """

    start: int
    end: int
    bounds: np.ndarray
    parameters: tuple[Parameter, ...]

    @property
    def counts(self) -> np.ndarray:
        """Elements of each replica's shard."""
        return np.diff(self.bounds)


def shard_bounds(parameters: Parameters, start: int, end: int, replicas: int) -> np.ndarray:
    """Cuts of the elements start to end into shards of nearly equal sizes, int64[replicas + 1].

    Cuts lie between the chunks of `hpckit.nn.parameters.Squares`, so that the norm of the gradients has the same bits
    for any number of replicas.
    """
    edges = np.concatenate([[start, end], *(parameters.offsets[p.name] + p.chunks for p in parameters.list)])
    places = np.unique(edges[(edges >= start) & (edges <= end)])
    ideal = start + (end - start) * np.arange(1, replicas) / replicas
    after = np.minimum(np.searchsorted(places, ideal), len(places) - 1)
    before = np.maximum(after - 1, 0)
    cuts = np.where(places[after] - ideal <= ideal - places[before], places[after], places[before])
    return np.concatenate([[start], cuts, [end]]).astype(np.int64)


def lifetimes(events: Iterable[tuple[int, bool]], units: int) -> list[int]:
    """A buffer for each unit: events are (unit, ends) in the order of the program; buffers are used again.

    A unit that never begins gets buffer 0.
    """
    place, free, made = [0] * units, list[int](), 0
    live: set[int] = set()
    for unit, ends in events:
        if not ends and unit not in live:
            live.add(unit)
            if not free:
                free.append(made)
                made += 1
            place[unit] = free.pop(0)
        elif ends and unit in live:
            live.discard(unit)
            free.append(place[unit])
    return place
