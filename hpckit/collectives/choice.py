"""Which algorithm runs a collective: what the caller asks for, else what the table of measured times says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from hpckit.collectives.axis import Axis
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.rank_program import RankProgram, rank_program
from hpckit.collectives.table import best
from hpckit.comm.agree import require_same
from hpckit.comm.shared import calls
from hpckit.comm.shared.calls import REDUCTIONS, kind_of
from hpckit.errors import InputError, did_you_mean
from hpckit.kernels.device_array import is_device_array
from hpckit.plan.collective.algorithms import ADDED, ALGORITHMS, collective_plan
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.collective.plan import CollectivePlan

# Bytes of a message of a segmented plan: one is added while the next ones fly.
SEGMENT = 2 << 20
MOST_SEGMENTS = 1024
# Algorithms other than plans by messages alone: over the memory of several nodes, in the order of the ranks, the MPI
# library's own, NVIDIA's.
OTHERS = {
    "all_reduce": ("nodes", "ordered", "mpi", "nccl"),
    "broadcast": ("nccl",),
    "reduce": ("ordered",),
    "reduce_scatter": ("ordered",),
}
# In the shared memory of a node, and in the order of the ranks too.
IN_NODE = ("flat", "staged", "symmetric")
NODE_ALGORITHMS = {
    operation: tuple(name for name in IN_NODE if name in plans) for operation, plans in IN_MEMORY.items()
}


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm of an operation, and the options of its plan."""

    operation: str
    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, str]:
        """Operation and algorithm."""
        return self.operation, self.algorithm

    @property
    def text(self) -> str:
        """The options, as a plain value."""
        return text_of(self.options)

    def program(self, axis: Axis) -> RankProgram:
        """The moves of this rank."""
        hashable = {name: tuple(v) if isinstance(v, list | tuple) else v for name, v in self.options.items()}
        return rank_program(self.operation, self.algorithm, axis.size, axis.rank, tuple(sorted(hashable.items())))


def text_of(options: Mapping[str, Any]) -> str:
    """Options of an algorithm as a plain value."""
    return "" if not options else " ".join(f"{name}={options[name]}" for name in sorted(options))


def choose(
    operation: str,
    algorithm: str,
    axis: Axis,
    nbytes: int,
    options: Mapping[str, Any],
    deterministic: bool = False,
    root: int | None = None,
    given: Buffer | None = None,
    op: str = "sum",
) -> AlgorithmChoice:
    """The algorithm that runs, with all options of its plan.

    given: what this rank sends, where the sizes of all blocks are known; shared memory needs it. op: what combines, of
    operations that reduce. Raises `InputError` for unknown names and options.
    """
    if algorithm == "auto":
        if options:
            raise InputError(
                f"options {', '.join(sorted(options))} belong to a plan", do="name the algorithm that takes them"
            )
        algorithm = _measured(operation, axis, nbytes, given, deterministic, op)
    if algorithm in NODE_ALGORITHMS.get(operation, ()):
        return AlgorithmChoice(operation, _checked_in_node(operation, algorithm, axis, given, options, op))
    others = OTHERS.get(operation, ())
    if algorithm in others:
        if options:
            raise InputError(f"{algorithm!r} takes no options, and {', '.join(sorted(options))} were given")
        if deterministic and algorithm != "ordered":
            raise _not_in_order(algorithm)
        if algorithm == "nodes" and not _has_nodes(axis):
            raise InputError(
                "'nodes' runs over several nodes with several ranks each, and this axis has "
                + ("one node" if axis.layout == "node" else "one rank on a node"),
                do="leave the algorithm to 'auto'",
            )
        if algorithm == "nccl":  # where it can be had, nobody comes here
            raise InputError(
                "NCCL adds float32 and other numbers of GPUs, in CuPy's arrays, where every rank has a GPU of its own",
                do="leave the algorithm to 'auto'",
            )
        return AlgorithmChoice(operation, algorithm)
    if (operation, algorithm) in ADDED or algorithm not in ALGORITHMS[operation]:
        _require_everywhere(operation, algorithm, axis, options if root is None else {**options, "root": root})
    if algorithm not in ALGORITHMS[operation]:
        known = [*ALGORITHMS[operation], *others, *NODE_ALGORITHMS.get(operation, ())]
        raise InputError(
            f"there is no algorithm {algorithm!r} of {operation}",
            do=did_you_mean(algorithm, known, f"choose {', '.join(['auto', *known])}"),
        )
    if deterministic:
        raise _not_in_order(algorithm)
    takes = ALGORITHMS[operation][algorithm][1]
    full = dict(options)
    if root is not None:
        full["root"] = root
    if "segments" in takes and "segments" not in full:
        full["segments"] = segments_of(operation, algorithm, axis.size, nbytes)
    if "node_size" in takes and "node_size" not in full:
        full["node_size"] = axis.node_size
    choice = AlgorithmChoice(operation, algorithm, full)
    choice.program(axis)  # a wrong option is found before any message leaves
    return choice


def _require_everywhere(operation: str, algorithm: str, axis: Axis, options: Mapping[str, Any]) -> None:
    """Collective: raise `InputError` on every rank unless all have the same plan of the caller's own, or none."""
    key = (operation, algorithm, repr(sorted(options.items())))
    if axis.size == 1 or key in axis.compared:
        return
    plan = "not added"
    if algorithm in ALGORITHMS[operation]:
        try:
            plan = f"the plan {_digest(collective_plan(operation, algorithm, axis.size, **options))}"
        except InputError as error:  # raised again below, where it is the same on all ranks
            plan = f"refused ({error.message})"
    what = f"an algorithm is the same on every rank: call add_algorithm({operation!r}, …) on all alike"
    require_same(axis.comm, {f"{algorithm!r}": plan}, what)
    axis.compared.add(key)


def _digest(plan: CollectivePlan) -> str:
    """A few letters that tell plans apart."""
    found = sha256(plan.title().encode())
    for step in plan.steps():
        found.update(repr((step.add, step.wraps, step.lag)).encode())
        for ends in (step.sends, step.receives):
            for each in (ends.peer, ends.first, ends.last):
                found.update(np.ascontiguousarray(each, np.int64).data)
    return found.hexdigest()[:8]


def segments_of(operation: str, algorithm: str, ranks: int, nbytes: int) -> int:
    """How many parts make messages of about `SEGMENT` bytes."""
    message = nbytes // ranks if algorithm == "ring" else nbytes
    return max(1, min(MOST_SEGMENTS, -(-message // SEGMENT)))


def _measured(
    operation: str, axis: Axis, nbytes: int, given: Buffer | None, deterministic: bool, op: str = "sum"
) -> str:
    """The quickest algorithm of the table that can be had."""
    if axis.size == 1:
        return "ordered" if deterministic else next(iter(ALGORITHMS[operation]))
    kind = "host"
    if given is not None and is_device_array(given.array) and not given.staged:
        kind = "device"
    elif given is not None and axis.group is not None and takes(operation, "symmetric", axis, given, op):
        kind = "symmetric"
    names = best(axis.table, operation, axis.size, axis.layout, kind, nbytes)
    if not names and kind == "symmetric":  # what takes any buffer: that of another rank may be a private one
        names = best(axis.table, operation, axis.size, axis.layout, "host", nbytes)
    for name in names:
        if name in IN_NODE:
            if given is not None and takes(operation, name, axis, given, op):
                return name
        elif name in ("nodes", "hierarchical") and not _has_nodes(axis):
            continue  # there is nothing within a node, or nothing beyond it
        elif not deterministic and (name in ALGORITHMS[operation] or name in OTHERS.get(operation, ())):
            return name
    if deterministic:
        return "ordered"
    return next(iter(ALGORITHMS[operation]))


def _has_nodes(axis: Axis) -> bool:
    """Whether the axis lies on several nodes with several of its ranks on each."""
    return axis.layout == "nodes" and axis.node_size > 1


def takes(operation: str, algorithm: str, axis: Axis, given: Buffer, op: str = "sum") -> bool:
    """Whether an algorithm in shared memory takes a buffer, and combines its numbers so."""
    if axis.group is None or is_device_array(given.array) or algorithm not in NODE_ALGORITHMS.get(operation, ()):
        return False
    return calls.takes(axis.group, operation, algorithm, given.array.dtype, given.array.nbytes, given.array, op)


def _checked_in_node(
    operation: str, algorithm: str, axis: Axis, given: Buffer | None, options: Mapping[str, Any], op: str
) -> str:
    if options:
        raise InputError(f"{algorithm!r} takes no options, and {', '.join(sorted(options))} were given")
    if axis.group is None:
        raise InputError(
            f"{algorithm!r} runs in shared memory, and the {axis.size} ranks of the axis do not share any",
            do="use an axis within a node, or leave the algorithm to 'auto'",
        )
    if given is None:
        raise InputError(
            f"{operation} by {algorithm!r} needs to know the sizes of all blocks before it starts",
            do="give out, or counts",
        )
    if not takes(operation, algorithm, axis, given, op):
        why = {
            "flat": f"it is for small buffers, and this has {given.array.nbytes} bytes",
            "symmetric": "the buffer is not made by empty_shared with this communicator",
            "staged": f"it does not take {given.array.dtype}",
        }[algorithm]
        if operation in REDUCTIONS and kind_of(given.array.dtype, op) is None:
            why = f"there is no {op} of {given.array.dtype} in shared memory"
        raise InputError(f"{algorithm!r} does not take the buffer: {why}", do="leave the algorithm to 'auto'")
    return algorithm


def _not_in_order(algorithm: str) -> InputError:
    return InputError(
        f"{algorithm} adds in an order that depends on the place in the buffer, so it is not deterministic",
        do='leave the algorithm to "auto", or choose "ordered"',
    )
