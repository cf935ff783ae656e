"""Why a mesh was chosen: the runner-up, what more or less of each axis costs, and what would change the choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from hpckit.errors import InputError
from hpckit.plan.machine.machine import Machine
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.search import PricedStrategy, SearchResult, altered, mesh_of, search
from hpckit.plan.training.strategy import EXPERT_AXES

WATCHED = 60  # of the quickest meshes are looked at again under other conditions


def reasons(found: SearchResult) -> Iterator[str]:
    """For each axis of the choice, what the best mesh with more or less of it costs."""
    best = found.best
    assert best is not None
    for axis in ("tp", "cp", "pp", "dp", *EXPERT_AXES):
        size = getattr(best.strategy, axis)
        less = next((it for it in found.others if getattr(it.strategy, axis) < size), None)
        more = next((it for it in found.others if getattr(it.strategy, axis) > size), None)
        said = [f"{name}, {compared(best, it)}" for name, it in (("less", less), ("more", more)) if it is not None]
        if said:
            yield f"{axis}={size}: " + "; ".join(said)


def compared(best: PricedStrategy, other: PricedStrategy) -> str:
    """How much longer another choice takes, and by what."""
    longer = other.cost.seconds / best.cost.seconds - 1
    parts = {name: other.cost.parts[name] - best.cost.parts[name] for name in best.cost.parts}
    worst = max(parts, key=lambda name: parts[name])
    gain = min(parts, key=lambda name: parts[name])
    text = f"as {other.strategy}, takes {100 * longer:+.1f} %: {worst} {parts[worst]:+.3g} s"
    return text + (f", {gain} {parts[gain]:+.3g} s" if parts[gain] < 0 else "")


def other_conditions(
    model: LanguageModel, ranks: int, machine: Machine, batch: int, context: int, found: SearchResult
) -> Iterator[tuple[str, SearchResult]]:
    """The choice with half and twice the network between nodes, memory, batch; of the meshes that were quick."""
    quick = [it for it in [found.best, *found.others][:WATCHED] if it is not None]
    only = {mesh_of(it.strategy) for it in quick}
    for name, changed, samples in (
        ("half the network", altered(machine, network=0.5), batch),
        ("twice the network", altered(machine, network=2.0), batch),
        ("half the memory", altered(machine, memory=0.5), batch),
        ("twice the memory", altered(machine, memory=2.0), batch),
        ("half the batch", machine, batch // 2),
        ("twice the batch", machine, 2 * batch),
    ):
        if samples < 1:
            continue
        again = search(model, ranks, changed, samples, context, only=only)
        if again.best is None:
            with suppress(InputError):  # a batch that no mesh divides
                yield name, search(model, ranks, changed, samples, context)
            continue
        yield name, again
