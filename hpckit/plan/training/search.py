"""The choice of a mesh: every legal split of a model over some ranks, the quickest that fits the memory first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpckit.errors import InputError
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.pipeline.program import OVERLAPPED
from hpckit.plan.pricing import price
from hpckit.plan.training.block import BlockTimes
from hpckit.plan.training.cost import Blocks, StepCost, blocks_of, share, step_cost
from hpckit.plan.training.links import compute_of
from hpckit.plan.training.memory import memory
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.step import TrainingStep, reached
from hpckit.plan.training.strategy import AXES, EXPERT_AXES, RECOMPUTE, SCHEDULES, Strategy, divisors, require

HEADROOM = 0.92  # of the memory; the rest is for libraries, fragments, buffers of messages
FAR = 1.5  # a mesh that takes so many times as long as the best is not looked at any further
MOST_CONTEXT_RANKS = 64
MOST_EXPERT_PARTS = 8  # ranks of etp work on the tokens of all of them
MICROBATCHES = (1, 2, 4, 8, 16)
CHUNKS = (2, 3, 4, 6, 8)
SHORT_STAGES, SHORT_MICROBATCHES = 4, 8  # ranks of the short pipeline that `pairs_pay` prices; microbatches for each
ORDER = ("interleaved", "1f1b", "zb_h1", "zb_v", "dualpipe_v")


Mesh = tuple[int, int, int, int, int, int]  # dp, pp, cp, tp, ep, etp


@dataclass(frozen=True)
class PricedStrategy:
    """A strategy with its cost, and its memory by kind, bytes."""

    strategy: Strategy
    cost: StepCost
    memory: dict[str, float]

    @property
    def bytes(self) -> float:
        """All memory of the fullest rank."""
        return sum(self.memory.values())


@dataclass(frozen=True)
class SearchResult:
    """The result of a search. best: the quickest that fits; others: quickest of each other mesh, in order.

    examined: how many strategies; tight: the one that needs least memory, if none fits (best is None then).
    """

    best: PricedStrategy | None
    others: list[PricedStrategy]
    examined: int
    tight: PricedStrategy | None


def search(
    model: LanguageModel,
    ranks: int,
    machine: Machine,
    batch: int,
    context: int,
    fixed: dict[str, Any] | None = None,
    only: Collection[Mesh] | None = None,
) -> SearchResult:
    """All legal meshes of so many ranks, with the microbatch, schedule, ZeRO stage and recomputation that suit each.

    fixed: fields of `Strategy` that are given. only: the meshes to look at. More is recomputed only where less does not
    fit, as it takes longer. The best has microbatches in pairs if `pairs_pay`; of the others formulas alone are known.
    Raises `InputError` if no mesh is legal.
    """
    room, given = compute_of(machine).memory * HEADROOM, fixed or {}
    best: dict[Mesh, PricedStrategy] = {}
    tight: PricedStrategy | None = None
    examined, quickest = 0, float("inf")
    for mesh in meshes(model, ranks, batch, context, given):
        key = mesh_of(mesh)
        if only is not None and key not in only:
            continue
        for size in _microbatches(mesh, given):
            forms = _Forms(model, replace(mesh, microbatch=size), machine, given)
            for schedule, chunks, sharding in _orders(model, forms.mesh, given):
                for recompute in forms.recompute:
                    strategy, block = forms.of(recompute, chunks)
                    if strategy.microbatches * block.seconds > FAR * quickest:
                        examined += 1
                        break
                    it = replace(strategy, schedule=schedule, sharding=sharding, paired=given.get("paired", True))
                    examined += 1
                    held = memory(model, it)
                    total = sum(held.values())
                    if total > room:
                        if tight is None or total < tight.bytes:
                            tight = PricedStrategy(it, step_cost(model, it, machine, block), held)
                        continue
                    cost = step_cost(model, it, machine, block)
                    old = best.get(key)
                    if old is None or _better(cost, total, old):
                        best[key] = PricedStrategy(it, cost, held)
                        quickest = min(quickest, cost.seconds)
                    break
    if not examined and only is None:
        require(model, _nearest(ranks, batch, context, given))
        raise InputError(
            f"no mesh of {ranks} ranks suits {model.name} with a batch of {batch} samples of {context} tokens",
            do=f"the batch divides into dp replicas, {model.heads} heads into tp, {model.layers} layers into pp, the "
            f"context into 2 cp{_dealt(model)}: give other numbers of ranks or samples, or leave axes open",
        )
    ordered = _ordered(model, machine, [*best.values()], given)
    return SearchResult(ordered[0] if ordered else None, ordered[1:], examined, tight)


def _ordered(
    model: LanguageModel, machine: Machine, found: list[PricedStrategy], fixed: dict[str, Any]
) -> list[PricedStrategy]:
    """The quickest first; unless it is given, its microbatches go in pairs only where that pays."""
    ordered = sorted(found, key=lambda it: it.cost.seconds)
    while ordered and "paired" not in fixed:
        first, *rest = ordered
        if not first.strategy.paired or pairs_pay(model, first.strategy, machine):
            break
        it = replace(first.strategy, paired=False)
        apart = PricedStrategy(it, step_cost(model, it, machine), first.memory)
        ordered = sorted([apart, *rest], key=lambda it: it.cost.seconds)
    return ordered


def _nearest(ranks: int, batch: int, context: int, fixed: dict[str, Any]) -> Strategy:
    """The given axes, with one rank along those that are left open and the remaining ranks along dp, which then has a
    batch that it divides. Raises `InputError` if the ranks do not divide by the given axes.
    """
    it = replace(Strategy(batch, context), **{name: fixed[name] for name in (*AXES, *EXPERT_AXES) if name in fixed})
    others = it.pp * it.cp * it.tp
    if "dp" not in fixed and ranks % others == 0:
        return replace(it, dp=ranks // others, batch=ranks // others * batch)
    if "dp" in fixed and ranks % it.ranks == 0:
        return it
    given = " x ".join(f"{name}={fixed[name]}" for name in AXES if name in fixed)
    fit = ", ".join(map(str, divisors(ranks)))
    raise InputError(f"{given} does not divide {ranks} ranks", do=f"give axes whose product is one of {fit}")


def _dealt(model: LanguageModel) -> str:
    it = model.experts
    return "" if it is None else f", {it.count} experts into ep, {it.hidden} numbers inside each into etp"


class _Forms:
    """A mesh with its microbatch under each recomputation, made when asked for."""

    def __init__(self, model: LanguageModel, mesh: Strategy, machine: Machine, fixed: dict[str, Any]) -> None:
        self.mesh = mesh
        self.recompute = [fixed["recompute"]] if "recompute" in fixed else RECOMPUTE
        self._made: dict[str, list[tuple[Strategy, Blocks]]] = {}
        self._shares: dict[tuple[str, int], tuple[Strategy, BlockTimes]] = {}
        self._model, self._machine, self._fixed = model, machine, fixed

    def of(self, recompute: str, chunks: int) -> tuple[Strategy, BlockTimes]:
        """The strategy with the way of its context axis that takes least, and the times of a rank's blocks."""
        if recompute not in self._made:
            ways = ["ring"] if self.mesh.cp == 1 else _ways(self._model, self.mesh, self._fixed)
            made = [replace(self.mesh, recompute=recompute, context_by=way) for way in ways]
            self._made[recompute] = [(it, blocks_of(self._model, it, self._machine)) for it in made]
        if (recompute, chunks) not in self._shares:
            each = [(replace(it, chunks=chunks), blocks) for it, blocks in self._made[recompute]]
            shares = [(it, share(self._model, it, self._machine, blocks)) for it, blocks in each]
            self._shares[recompute, chunks] = min(shares, key=lambda pair: pair[1].seconds)
        return self._shares[recompute, chunks]


def mesh_of(it: Strategy) -> Mesh:
    """The sizes of its axes."""
    return it.dp, it.pp, it.cp, it.tp, it.ep, it.etp


def _better(cost: StepCost, total: float, old: PricedStrategy) -> bool:
    """Quicker; or as quick within a thousandth, with less memory."""
    if cost.seconds < old.cost.seconds * 0.999:
        return True
    return cost.seconds <= old.cost.seconds * 1.001 and total < old.bytes


def meshes(model: LanguageModel, ranks: int, batch: int, context: int, fixed: dict[str, Any]) -> Iterator[Strategy]:
    """Every mesh that the ranks, the model and the batch allow."""

    def options(axis: str, found: list[int]) -> list[int]:
        return [fixed[axis]] if axis in fixed else found

    for tp in options("tp", [n for n in divisors(ranks) if model.heads % n == 0]):
        if ranks % tp or model.hidden % tp or model.kv_heads % tp:  # as training cuts layers
            continue
        for cp in options("cp", [n for n in divisors(ranks // tp) if n <= MOST_CONTEXT_RANKS]):
            if ranks % (tp * cp) or (cp > 1 and context % (2 * cp)):
                continue
            for pp in options("pp", [n for n in divisors(ranks // (tp * cp)) if n <= model.layers + 2]):
                dp = ranks // (tp * cp * pp)
                if ranks % (tp * cp * pp) or batch % dp or ("dp" in fixed and dp != fixed["dp"]):
                    continue
                for ep, etp in _expert_ranks(model, dp * cp * tp, fixed):
                    it = Strategy(batch, context, dp, pp, cp, tp, ep, etp)
                    yield replace(it, precision=fixed.get("precision", it.precision))


def _expert_ranks(model: LanguageModel, ranks: int, fixed: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """The ranks of ep and etp.

    Unless it is asked for, experts are cut only where they cannot be dealt to as many ranks: whole ones send less.
    """
    count, hidden = (model.experts.count, model.experts.hidden) if model.experts is not None else (1, 1)
    for ep in [fixed["ep"]] if "ep" in fixed else divisors(count):
        cut = [n for n in divisors(hidden) if n == 1 or (n <= MOST_EXPERT_PARTS and count % (ep * n))]
        for etp in [fixed["etp"]] if "etp" in fixed else cut:
            if ranks % (ep * etp) == 0 and count % ep == 0 and hidden % etp == 0:
                yield ep, etp


def _microbatches(mesh: Strategy, fixed: dict[str, Any]) -> list[int]:
    own = mesh.batch // mesh.dp
    sizes = [fixed["microbatch"]] if "microbatch" in fixed else MICROBATCHES
    return [size for size in sizes if own % size == 0]


def _ways(model: LanguageModel, mesh: Strategy, fixed: dict[str, Any]) -> list[str]:
    if "context_by" in fixed:
        return [fixed["context_by"]]
    return ["ring", "gather", *(["ulysses"] if model.kv_heads % (mesh.cp * mesh.tp) == 0 else [])]


def _orders(model: LanguageModel, it: Strategy, fixed: dict[str, Any]) -> list[tuple[str, int, int]]:
    """The schedules, chunks and ZeRO stages."""
    stages = [fixed["sharding"]] if "sharding" in fixed else [0, 1, 2, 3] if it.dp * it.cp > 1 else [0]
    return [(*order, stage) for order in _schedules(model, it, fixed) for stage in stages]


def _schedules(model: LanguageModel, it: Strategy, fixed: dict[str, Any]) -> Iterator[tuple[str, int]]:
    if it.pp == 1:
        yield "1f1b", 1
        return
    m, p = it.microbatches, it.pp
    for name in [fixed["schedule"]] if "schedule" in fixed else ORDER:
        held, least, multiple = SCHEDULES[name]
        if m < least * p - (least == 2) or (multiple and m % p):
            continue
        for chunks in [held] if held else [fixed["chunks"]] if "chunks" in fixed else CHUNKS:
            if p * chunks <= model.layers + 2:
                yield name, chunks


def altered(machine: Machine, network: float = 1.0, memory: float = 1.0) -> Machine:
    """The machine with links between nodes, or memories, so many times as large."""
    levels = tuple(_scaled(level, number, machine, network) for number, level in enumerate(machine.levels))
    compute = compute_of(machine)
    return replace(machine, levels=levels, compute=replace(compute, memory=compute.memory * memory))


def _scaled(level: Level, number: int, machine: Machine, network: float) -> Level:
    inner = number == 0 and len(machine.levels) > 1
    return replace(level, bandwidth=level.bandwidth * (1 if inner else network), uplink=level.uplink * network)


def may_pair(it: Strategy) -> bool:
    """Whether ranks have messages to experts, and a schedule that takes passes in pairs."""
    return it.pp > 1 and it.ep * it.etp > 1 and it.schedule in OVERLAPPED and it.microbatches >= it.pp


def pairs_pay(model: LanguageModel, it: Strategy, machine: Machine) -> bool:
    """Whether a step is at least as quick with microbatches in pairs as without, by the prices of its plan with both.

    What pairs gain or lose is the same again with every few microbatches and with every stage, so a short pipeline with
    the same blocks a stage is priced, and as few replicas as exchange tokens. True where there are no pairs.
    """
    if not may_pair(it):
        return True
    short, brief = _short(model, it)
    each = [replace(brief, paired=flag) for flag in (True, False)]
    seconds = [price(TrainingStep(short, one, machine, it.together), reached(machine)).seconds for one in each]
    return seconds[0] <= seconds[1]


def _short(model: LanguageModel, it: Strategy) -> tuple[LanguageModel, Strategy]:
    """A pipeline of fewer ranks, with the same blocks a stage, and as many microbatches for each of them."""
    pp = min(it.pp, SHORT_STAGES)
    layers = math.ceil(model.layers / (it.pp * it.chunks)) * pp * it.chunks
    assert model.experts is not None
    experts = replace(model.experts, first=round(model.experts.first * layers / model.layers))
    microbatches = min(max(math.ceil(it.microbatches * pp / it.pp), 2 * pp - 1), SHORT_MICROBATCHES * pp)
    batch = microbatches * it.dp * it.microbatch
    return replace(model, layers=layers, experts=experts), replace(it, pp=pp, batch=batch)
