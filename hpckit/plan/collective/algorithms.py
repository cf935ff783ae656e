"""Every algorithm of every collective operation by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpckit.errors import InputError, did_you_mean
from hpckit.plan.collective import all_reduce
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.collective.plan import CollectivePlan, backward, joined, segmented
from hpckit.plan.collective.rows import one_line
from hpckit.plan.collective.spreading import (
    chain,
    doubling_gather,
    from_root,
    pairwise,
    scatter_from_root,
    scatter_tree,
    tree,
)
from hpckit.plan.inputs.numbers import count as whole
from hpckit.plan.proving import prove

Builder = Callable[..., CollectivePlan]


def _gather_ring(ranks: int, segments: int = 1) -> CollectivePlan:
    return segmented(all_reduce.flat_ring(ranks), segments)


def _scatter_ring(ranks: int, segments: int = 1) -> CollectivePlan:
    return segmented(backward(all_reduce.flat_ring(ranks), "reduce_scatter"), segments)


def _scatter_halving(ranks: int) -> CollectivePlan:
    return replace(backward(doubling_gather(ranks), "reduce_scatter"), algorithm="halving")


def _broadcast_tree(ranks: int, root: int = 0, segments: int = 1) -> CollectivePlan:
    return segmented(tree(one_line(ranks, root), 1, root=root), segments)


def _broadcast_chain(ranks: int, root: int = 0, segments: int = 16) -> CollectivePlan:
    return segmented(chain(one_line(ranks, root), 1, root), segments)


def _broadcast_naive(ranks: int, root: int = 0) -> CollectivePlan:
    return from_root(one_line(ranks, root), 1, root)


def _broadcast_scatter(ranks: int, root: int = 0) -> CollectivePlan:
    """Scatter, then all-gather: 2 n (p - 1) / p through each link in place of n log2(p) (van de Geijn 1994)."""
    return joined("broadcast", "scatter_gather", scatter_tree(ranks, root), all_reduce.flat_ring(ranks))


def _reduce_scattered(ranks: int, root: int = 0) -> CollectivePlan:
    """Reduce-scatter, then gather (Rabenseifner 2004)."""
    halves = (_scatter_ring(ranks), backward(scatter_tree(ranks, root), "gather"))
    return replace(joined("reduce", "scatter_gather", *halves), root=root)


def _backward(build: Builder, operation: str) -> Builder:
    return lambda ranks, **options: backward(build(ranks, **options), operation)


# Operation -> algorithm -> (what makes its plan, the options that it takes).
ALGORITHMS: dict[str, dict[str, tuple[Builder, tuple[str, ...]]]] = {
    "all_reduce": {
        "ring": (all_reduce.ring, ("segments",)),
        "recursive_doubling": (all_reduce.recursive_doubling, ()),
        "halving_doubling": (all_reduce.halving_doubling, ()),
        "tree": (all_reduce.binomial_tree, ("segments",)),
        "naive": (all_reduce.naive, ()),
        "parameter_server": (all_reduce.parameter_server, ("servers",)),
        "hierarchical": (all_reduce.hierarchical, ("node_size",)),
        "torus": (all_reduce.torus, ("shape",)),
    },
    "reduce_scatter": {
        "ring": (_scatter_ring, ("segments", "counts")),
        "halving": (_scatter_halving, ("counts",)),
    },
    "all_gather": {
        "ring": (_gather_ring, ("segments", "counts")),
        "doubling": (doubling_gather, ("counts",)),
    },
    "broadcast": {
        "tree": (_broadcast_tree, ("root", "segments")),
        "chain": (_broadcast_chain, ("root", "segments")),
        "scatter_gather": (_broadcast_scatter, ("root",)),
        "naive": (_broadcast_naive, ("root",)),
    },
    "reduce": {
        "tree": (_backward(_broadcast_tree, "reduce"), ("root", "segments")),
        "chain": (_backward(_broadcast_chain, "reduce"), ("root", "segments")),
        "scatter_gather": (_reduce_scattered, ("root",)),
        "naive": (_backward(_broadcast_naive, "reduce"), ("root",)),
    },
    "scatter": {
        "tree": (scatter_tree, ("root", "counts")),
        "naive": (scatter_from_root, ("root", "counts")),
    },
    "gather": {
        "tree": (_backward(scatter_tree, "gather"), ("root", "counts")),
        "naive": (_backward(scatter_from_root, "gather"), ("root", "counts")),
    },
    "all_to_all": {"pairwise": (pairwise, ("counts",))},
}


ADDED: set[tuple[str, str]] = set()  # by `add_algorithm`: other ranks may lack them, or have others
WHOLE = ("segments", "servers", "node_size")  # options that are whole numbers


def operation_of(name: str) -> str:
    """The operation of a name: allreduce, all-reduce and all_reduce are the same; other names are unchanged."""
    plain = {operation.replace("_", ""): operation for operation in ALGORITHMS}
    return plain.get(name.lower().replace("-", "").replace("_", ""), name)


def collective_plan(operation: str, algorithm: str, ranks: int, **options: Any) -> CollectivePlan:
    """The plan of an operation by an algorithm; `ALGORITHMS` names both and the options of each.

    root: the rank that gives or gets. segments: parts into which each message is cut. servers: parameter servers.
    node_size: ranks of a node (hierarchical, nodes). across: the algorithm between nodes. shape: rows and columns of
    the torus. counts: elements of each rank's block, for all_to_all a matrix of what each rank sends to each. Raises
    `InputError` for names, numbers and options that cannot be.
    """
    if operation not in ALGORITHMS:
        raise _unknown("operation", operation, ALGORITHMS)
    builders = ALGORITHMS[operation] | IN_MEMORY.get(operation, {})
    if algorithm not in builders:
        raise _unknown(f"algorithm of {operation}", algorithm, builders)
    build, takes = builders[algorithm]
    ranks = whole(ranks, "the number of ranks")
    if ranks < 1:
        raise InputError(f"a collective on {ranks} ranks", do="give 1 rank or more")
    extra = sorted(set(options) - set(takes))
    if extra:
        raise InputError(
            f"{operation} by {algorithm} takes no option {', '.join(extra)}",
            do=f"its options: {', '.join(takes)}" if takes else "it has no options",
        )
    root = whole(options.get("root", 0), "root")
    if not 0 <= root < ranks:
        raise InputError(f"root {root} is not one of the {ranks} ranks", do=f"choose 0 to {ranks - 1}")
    if algorithm == "pairwise":
        return pairwise(ranks, _checked_counts(options.get("counts"), (ranks, ranks)))
    if "node_size" in takes and "node_size" not in options:
        raise InputError(f"{operation} by {algorithm} needs the ranks of a node", do="give node_size, 1 or more")
    sizes = _checked_counts(options.pop("counts", None), (ranks,))
    for name in set(WHOLE) & set(options):
        options[name] = whole(options[name], name)
    plan = build(ranks, **options)
    return plan if sizes is None else replace(plan, counts=sizes)


def add_algorithm(operation: str, build: Builder, options: Sequence[str] = (), name: str = "") -> None:
    """Make an algorithm of your own known by name, for `collective_plan` and for the collectives of this process.

    build(ranks, **options) gives its `CollectivePlan`, or raises `InputError` for ranks that it does not take; each
    plan is proved when it is made (`PlanError`). name: by default that of the function. Every rank that is to run it
    calls this; ranks compare their plans before they run one the first time. Raises `InputError` for an operation that
    there is not, and for a name that is taken.
    """
    if operation not in ALGORITHMS:
        raise _unknown("operation", operation, ALGORITHMS)
    if not callable(build):
        raise InputError(f"an algorithm is a function that builds a plan, not {build!r}")
    name = name or getattr(build, "__name__", "")
    if not name:
        raise InputError(f"the algorithm {build!r} has no name", do="give name=")
    if name in (*ALGORITHMS[operation], "auto"):
        raise InputError(f"there is an algorithm {name!r} of {operation}", do="give another name=")

    def proved(ranks: int, **given: Any) -> CollectivePlan:
        plan = build(ranks, **given)
        if plan.operation != operation:
            raise InputError(f"{name} was added to {operation} and makes a plan of {plan.operation}")
        prove(plan)
        return plan

    ALGORITHMS[operation][name] = (proved, tuple(options))
    ADDED.add((operation, name))


def _checked_counts(counts: Sequence[Any] | None, shape: tuple[int, ...]) -> np.ndarray | None:
    if counts is None:
        return None
    sizes = np.asarray(counts)
    if sizes.shape != shape or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        wanted = " x ".join(map(str, shape))
        raise InputError(f"counts are {wanted} whole numbers, 0 or more, not {counts!r:.200}")
    return sizes.astype(np.int64)


def _unknown(what: str, given: str, known: Any) -> InputError:
    return InputError(f"there is no {what} {given!r}", do=did_you_mean(given, known, f"choose {', '.join(known)}"))


def busbw_factor(operation: str, ranks: int) -> float:
    """What algbw, the bytes of the largest buffer over the time, is multiplied by to be held against the rate of a
    link, as nccl-tests do (their doc/PERFORMANCE.md).

    On p ranks 2 (p - 1) / p of an all-reduce's buffer must pass each link, all of a broadcast's or reduce's that of the
    root, and (p - 1) / p of the other operations' buffers, whose own block stays where it is.
    """
    if operation in ("broadcast", "reduce"):
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
