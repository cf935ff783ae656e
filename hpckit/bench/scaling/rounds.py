"""Which rounds of a scaling study count: those in which its ranks had their cores to themselves.

A rank says how long it was ready to run while something else had its core (Linux counts that for every thread). This
tells of other programs without looking at what the study measures, and of all numbers of ranks alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Turns = Sequence[Mapping[str, Any]]


def disturbance(turns: Turns, crowded: Collection[int]) -> float:
    """The largest share of a turn that a rank waited for its core; `crowded`: numbers of ranks that take each other's
    cores, whose turns do not tell.
    """
    return max((each["waited"] for each in turns if each["ranks"] not in crowded), default=0.0)


def calmest(turns: Turns, rounds: int, crowded: Collection[int]) -> dict[int, float]:
    """The so many rounds that were disturbed least, in their order, each with its `disturbance`."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for each in turns:
        found.setdefault(each["turn"], []).append(each)
    shares = {turn: disturbance(some, crowded) for turn, some in found.items()}
    return {turn: shares[turn] for turn in sorted(sorted(shares, key=shares.__getitem__)[:rounds])}


def times_of(turns: Turns, kind: str) -> dict[int, list[float]]:
    """Seconds a step by the number of ranks, in the order of the rounds."""
    found: dict[int, list[float]] = {}
    for each in sorted(turns, key=lambda one: (one["ranks"], one["turn"])):
        if each["kind"] == kind:
            found.setdefault(each["ranks"], []).append(each["seconds"])
    return found


def crowded(places: Turns, ranks: int) -> bool:
    """Whether the first so many ranks are more than the cores that they may use, on any host."""
    hosts: dict[str, list[set[int]]] = {}
    for place in places[:ranks]:
        hosts.setdefault(place["host"], []).append(set(place["cores"]))
    return any(len(sets) > len(set().union(*sets)) for sets in hosts.values())
