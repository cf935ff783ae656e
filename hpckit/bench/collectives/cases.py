"""The cases of `hpckit bench collectives`: all-reduces by default, all algorithms for `--tune`, and requested ones of
any operation, size and dtype, checked before ranks start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpckit.bench.collectives.plot import pyplot_for
from hpckit.bench.collectives.values import BLOCKS, DTYPES, REDUCING, ROOTED, array_dtype, reduction
from hpckit.collectives.choice import NODE_ALGORITHMS, OTHERS
from hpckit.collectives.reduction import UFUNCS
from hpckit.errors import InputError, did_you_mean
from hpckit.launch.memory import available_bytes
from hpckit.plan.collective.algorithms import ALGORITHMS, operation_of
from hpckit.settings.sizes import parse_sizes
from hpckit.settings.table import bytes_text

Case = dict[str, Any]
KiB, MiB = 1024, 1024**2
P2P = ("recursive_doubling", "halving_doubling", "ring")
IN_NODE = ("flat", "staged", "symmetric")
EVERY = ("mpi", "gloo", *P2P, "ordered", *IN_NODE, "auto", "auto_symmetric")
QUICK = ("mpi", "gloo", "ring", *IN_NODE, "auto")
FLAT_MOST = 64 * KiB
# Bytes, rounds.
SIZES = (
    (8, 41),
    (512, 41),
    (4 * KiB, 41),
    (32 * KiB, 41),
    (256 * KiB, 41),
    (MiB, 41),
    (8 * MiB, 21),
    (64 * MiB, 15),
    (256 * MiB, 5),
)
QUICK_SIZES = ((8, 21), (32 * KiB, 21), (MiB, 21), (64 * MiB, 7))


def default_cases(quick: bool, ranks: int) -> list[Case]:
    """All-reduces of all sizes."""
    names = QUICK if quick else EVERY
    return [case_of("all_reduce", ranks, nbytes, names, rounds) for nbytes, rounds in (QUICK_SIZES if quick else SIZES)]


def tuning_cases(quick: bool, ranks: int) -> list[Case]:
    """Every algorithm of every operation that has a choice, at every size up to 64 MiB."""
    sizes = [nbytes for nbytes, _ in (QUICK_SIZES if quick else SIZES) if nbytes <= 64 * MiB]
    names = {
        operation: ("mpi", *P2P, "nodes", "hierarchical", *IN_NODE)
        if operation == "all_reduce"
        else [name for name in algorithms_of(operation) if name not in ("gloo", "symmetric", "auto", "auto_symmetric")]
        for operation, plans in ALGORITHMS.items()
        if operation == "all_reduce" or len(plans) > 1
    }
    rounds = 5 if quick else 11
    return [case_of(operation, ranks, nbytes, each, rounds) for operation, each in names.items() for nbytes in sizes]


def case_of(
    operation: str,
    ranks: int,
    nbytes: int,
    names: Sequence[str],
    rounds: int,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    place: str | None = None,
) -> Case:
    """The case of one operation and size: as many elements, or elements of a block, as fit into `nbytes`, at least
    one.
    """
    itemsize, blocks = array_dtype(dtype).itemsize, ranks if operation in BLOCKS else 1
    count = max(1, nbytes // (itemsize * blocks))
    nbytes = count * itemsize * blocks
    return {
        "operation": operation,
        "count": count,
        "bytes": nbytes,
        "dtype": dtype,
        "reduce": op if operation in REDUCING else None,
        "root": root if operation in ROOTED else None,
        "place": place_of(operation, place),
        "names": [name for name in dict.fromkeys(names) if name != "flat" or nbytes <= FLAT_MOST],
        "rounds": rounds,
    }


OPTIONS = ("operation", "sizes", "dtype", "reduce", "root", "place", "algorithm", "rounds")
REDUCES = tuple(op for op in UFUNCS if op != "average")  # no option gives its weights
# Operations with a separate output, and those of them that cannot work in place.
PLACED = ("reduce_scatter", "all_gather", "gather", "scatter")
APART = ("all_to_all",)
MOST_ROUNDS = 100_000
COPIES = 6  # the most copies of its buffer per rank: inputs, sends, receives, shared memory, and scratch of algorithms


def add_asked(group: Any) -> tuple[str, ...]:
    """Add the options to a parser's group; returns their names. All are text: `cases_of` reports mistakes."""
    group.add_argument("--operation", metavar="NAME", action="append", help=f"{', '.join(ALGORITHMS)}; may be repeated")
    group.add_argument("--sizes", metavar="SIZES", help="bytes, as 8,32KiB,1MiB or 8:128MiB:4 (from, to, factor)")
    group.add_argument("--dtype", metavar="TYPE", help="type of the numbers (default float32)")
    group.add_argument("--reduce", metavar="OP", help=f"{', '.join(REDUCES)} (default sum)")
    group.add_argument("--root", metavar="RANK", help=f"of {', '.join(ROOTED)} (default 0)")
    group.add_argument("--place", metavar="in|out", help="in place, or not (default out where there is a choice)")
    group.add_argument("--algorithm", metavar="NAME", action="append", help="only this, beside mpi; may be repeated")
    group.add_argument("--rounds", metavar="N", help="how often each is timed")
    return OPTIONS


def algorithms_of(operation: str) -> tuple[str, ...]:
    """The candidates for an operation on the host: rivals, plans, others, shared memory, and the choice."""
    others = [name for name in OTHERS.get(operation, ()) if name not in ("mpi", "nccl")]
    in_node = NODE_ALGORITHMS.get(operation, ())
    auto = ("auto", "auto_symmetric") if "symmetric" in in_node else ("auto",)
    return ("mpi", "gloo", *ALGORITHMS[operation], *others, *in_node, *auto)


def place_of(operation: str, asked: str | None) -> str:
    """The place of an operation's result: "in" the sent buffer, or "out"."""
    return "out" if operation in APART else "in" if operation not in PLACED else asked or "out"


def cases_of(
    given: Mapping[str, Any],
    ranks: Sequence[int],
    quick: bool = False,
    on_node: int | None = None,
    tune: bool = False,
    plot: str | None = None,
) -> dict[int, list[Case]]:
    """The cases on each number of ranks. given: values of `OPTIONS` as text, None if left out. on_node: the ranks
    on this machine; by default all. tune, plot: the options beside them. Raises `InputError` that lists all
    mistakes.
    """
    asked = _Asked(given, ranks, on_node)
    if tune:
        asked.mistakes.append("--tune measures what the table needs: it goes with --ranks and --quick only")
    if plot is not None:
        try:
            pyplot_for(Path(plot))
        except InputError as error:
            asked.mistakes.append(f"{error.message}; {error.do}")
    if asked.mistakes:
        one = len(asked.mistakes) == 1
        lines = asked.mistakes if one else ["", *(f"- {mistake}" for mistake in asked.mistakes)]
        raise InputError("\n  ".join(lines), do="hpckit bench collectives --help, or docs/collectives.md")
    return {n: [case for operation in asked.operations for case in asked.cases(operation, n, quick)] for n in ranks}


class _Asked:
    """The options as values; `mistakes` lists the invalid ones, which keep their defaults."""

    def __init__(self, given: Mapping[str, Any], ranks: Sequence[int], on_node: int | None) -> None:
        self.mistakes: list[str] = []
        self.ranks = [n for n in ranks if n > 1]
        if len(self.ranks) < len(ranks):
            self._refuse(f"--ranks {min(ranks)}: a collective is measured on 2 ranks or more")
        words = {name: given.get(name) for name in OPTIONS}
        self.operations = self._operations(words["operation"] or ["all_reduce"])
        self.names = words["algorithm"] or []
        self.dtype = self._dtype(words["dtype"] or "float32")
        self.op = self._op(words["reduce"], words["dtype"])
        self.root = self._root(words["root"])
        self.place = self._place(words["place"])
        self.rounds = None if words["rounds"] is None else self._whole("--rounds", words["rounds"], 1, MOST_ROUNDS)
        self.sizes = None if words["sizes"] is None else self._sizes(words["sizes"], on_node)
        self._check_algorithms()

    def cases(self, operation: str, ranks: int, quick: bool) -> list[Case]:
        """One case a size."""
        found: dict[int, Case] = {}
        names = ["mpi", *self.names] if self.names else algorithms_of(operation)
        for size in self.sizes or [nbytes for nbytes, _ in (QUICK_SIZES if quick else SIZES)]:
            count = self.count(operation, ranks, size)
            if count and count not in found:
                how = self.dtype, self.op, self.root, self.place
                found[count] = case_of(operation, ranks, size, names, self.rounds or 1, *how)
                found[count]["rounds"] = self.rounds or _rounds(found[count]["bytes"], quick)
        return list(found.values())

    def count(self, operation: str, ranks: int, size: int) -> int:
        """The number of whole elements of a buffer, or of each rank's block, in `size` bytes."""
        return size // (array_dtype(self.dtype).itemsize * (ranks if operation in BLOCKS else 1))

    def _refuse(self, mistake: str) -> None:
        self.mistakes.append(mistake)

    def _operations(self, given: Sequence[str]) -> list[str]:
        found = [operation_of(name) for name in given]
        for name, operation in zip(given, found, strict=True):
            if operation not in ALGORITHMS:
                near = did_you_mean(name.lower(), ALGORITHMS)
                self._refuse(f"--operation {name}: there is no operation of that name; {near or ', '.join(ALGORITHMS)}")
        return list(dict.fromkeys(operation for operation in found if operation in ALGORITHMS))

    def _dtype(self, given: str) -> str:
        if given in DTYPES:
            return given
        self._refuse(f"--dtype {given}: no type that is measured; {', '.join(DTYPES)}")
        return "float32"

    def _op(self, given: str | None, dtype: str | None) -> str:
        moving = [name for name in self.operations if name not in REDUCING]
        if given is not None and moving:
            self._refuse(f"--reduce {given}: nothing is combined in {_list(moving)}; only in {_list(REDUCING)}")
        op = given or "sum"
        if op not in REDUCES:
            near = "it needs a weight of each rank; " if op == "average" else ""
            self._refuse(f"--reduce {op}: {near or 'no such operation; '}{', '.join(REDUCES)}")
        elif len(moving) < len(self.operations):
            try:
                reduction(self.dtype, op)
            except InputError as error:
                fit = ", ".join(other for other in REDUCES if _combines(self.dtype, other))
                self._refuse(f"--dtype {dtype} --reduce {op}: {error.message}; of {self.dtype}: {fit}")
        return op if op in REDUCES else "sum"

    def _root(self, given: str | None) -> int:
        if given is None:
            return 0
        without = [name for name in self.operations if name not in ROOTED]
        if without:
            self._refuse(f"--root {given}: there is no root in {_list(without)}; only in {_list(ROOTED)}")
        return self._whole("--root", given, 0, min(self.ranks, default=2) - 1)

    def _place(self, given: str | None) -> str | None:
        if given not in (None, "in", "out"):
            self._refuse(f"--place {given}: in or out")
            return None
        only_in = [name for name in self.operations if name not in (*PLACED, *APART)]
        only_out = [name for name in self.operations if name in APART]
        if given == "out" and only_in:
            self._refuse(f"--place out: only in place: {_list(only_in)}; not in place: {_list((*PLACED, *APART))}")
        if given == "in" and only_out:
            self._refuse(f"--place in: {_list(only_out)} needs a buffer of its own for the result")
        return given

    def _whole(self, option: str, given: str, least: int, most: int) -> int:
        if given.strip().isdecimal() and least <= int(given) <= most:
            return int(given)
        self._refuse(f"{option} {given}: a whole number from {least} to {most}")
        return least

    def _sizes(self, given: str, on_node: int | None) -> tuple[int, ...] | None:
        try:
            sizes = parse_sizes(given)
        except InputError as error:
            self._refuse(f"--sizes {given}: {error.message}; {error.do}")
            return None
        wrong = [
            f"{operation} of {self.dtype} on {n} ranks"
            for operation in self.operations
            for n in self.ranks
            if not self.count(operation, n, sizes[0])
        ]
        if wrong:
            blocks = max([n for n in self.ranks for name in self.operations if name in BLOCKS], default=1)
            least = array_dtype(self.dtype).itemsize * blocks
            self._refuse(f"--sizes {given}: {sizes[0]} bytes are too few for {_list(wrong)}; {least} or more")
        here, needed = available_bytes(), COPIES * sizes[-1] * (on_node or max(self.ranks, default=2))
        if needed > here:
            self._refuse(
                f"--sizes {given}: buffers of {bytes_text(sizes[-1])} take about {bytes_text(needed)} on all ranks "
                f"of this machine, which has {bytes_text(here)} free"
            )
        return sizes

    def _check_algorithms(self) -> None:
        for name in self.names:
            for operation in self.operations or ["all_reduce"]:
                known = algorithms_of(operation)
                if name not in known:
                    self._refuse(f"--algorithm {name}: {operation} has none of that name; {', '.join(known)}")
        if "gloo" in self.names and find_spec("torch") is None:
            self._refuse("--algorithm gloo: torch is not installed; pip install 'hpckit[bench]'")
        if "flat" in self.names and self.sizes is not None and self.sizes[0] > FLAT_MOST:
            self._refuse(f"--algorithm flat: for buffers up to {bytes_text(FLAT_MOST)}, and no size is that small")


def _combines(dtype: str, op: str) -> bool:
    try:
        return bool(reduction(dtype, op))
    except InputError:
        return False


def _rounds(nbytes: int, quick: bool) -> int:
    """The rounds that the default sizes have at this size."""
    known = QUICK_SIZES if quick else SIZES
    return next((rounds for limit, rounds in known if nbytes <= limit), known[-1][1])


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
