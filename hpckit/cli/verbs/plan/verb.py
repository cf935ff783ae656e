"""`hpckit plan OPERATION`: prove, price and draw collective plans, at any scale and without MPI."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import runpy
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.plan.options import add_export, add_options, export, show, tell_proof
from hpckit.errors import HpckitError, InputError, nearest
from hpckit.plan.collective.algorithms import ALGORITHMS, busbw_factor, collective_plan, operation_of
from hpckit.plan.collective.gossip import GRAPHS, GossipPlan, gossip_plan, spectral_gap
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.pricing import at_least, price, walk_length
from hpckit.settings.sizes import parse_bytes
from hpckit.settings.table import Parser, print_table

# Plans of more steps without repetition are priced only when asked for by name: it takes a while.
MOST_STEPS = 10_000
MOST_RANKS = 10_000_000  # a step is arrays over all of them
# Plans of more messages that must be priced one by one are priced only if they may be the quickest.
MOST_MESSAGES = 40_000_000
# The spectral gap of gossip is printed up to this number of ranks.
MOST_GAPS = 1024
# The most ranks of a node, as each of them is compared with all others.
MOST_ON_NODE = 1024
GOSSIP = "gossip"
OPTIONS = ("segments", "root", "servers", "across", "node_size")  # of this command, which some algorithms take
# With options of their own, in modules of these names, loaded on use: some of them load kernels.
OTHERS = ("pipeline", "halo", "md", "redistribute", "serve", "train", "dispatch", "fft")
ROUNDING = 1e-12
EXAMPLE = "hpckit plan allreduce --ranks 16384 --bytes 64MiB --machine infiniband"


def main(arguments: list[str]) -> int:
    """The verb `plan`."""
    if arguments and arguments[0] in OTHERS:
        return importlib.import_module(f"hpckit.cli.verbs.plan.{arguments[0]}").main(arguments[1:])
    options = _parser().parse_args(arguments)
    operation = _operation(options.operation)
    if options.ranks > MOST_RANKS:
        raise InputError(f"a plan of {options.ranks} ranks", do=f"give at most {MOST_RANKS}")
    nbytes = parse_bytes(options.bytes)
    machine = machine_of(options.machine)
    chosen = options.algorithm or _all_of(operation, options.ranks, _node_size(machine, options))
    functions = [(text, *_function(text)) for text in options.own or ()]
    _require_used(operation, chosen, [build for _, build, _ in functions], options)
    own = [_own_plan(operation, *each, machine, options) for each in functions]
    plans = [_plan(operation, name, machine, options) for name in chosen]
    if options.own and options.draw is not None and not options.algorithm:
        plans = []
    plans += own
    for plan in plans:
        if options.prove or plan in own:
            tell_proof(plan, options.json)
    if options.export_trace is not None:
        if len(plans) != 1:
            names = ", ".join(plan.algorithm for plan in plans)
            raise InputError("one plan goes into one trace", do=f"choose it with --algorithm: {names}")
        export(plans[0], options.export_trace, machine, nbytes)
        return 0
    if options.draw is not None:
        if options.draw != "-" and len(plans) != 1:
            names = ", ".join(plan.algorithm for plan in plans)
            raise InputError("one plan goes into one picture", do=f"choose it with --algorithm: {names}")
        show(plans, options.draw, machine, nbytes)
        return 0
    rows = list(_priced(plans, machine, nbytes, asked_for=bool(options.algorithm)))
    rows.sort(key=lambda row: row["seconds"] or row.get("at_least", math.inf))
    if options.json:
        head = {"operation": operation, "ranks": options.ranks, "bytes": nbytes, "machine": machine.name}
        print(json.dumps({**head, "source": machine.source, "algorithms": rows}))
        return 0
    _print(operation, options.ranks, nbytes, machine, rows)
    return 0


def _all_of(operation: str, ranks: int, node_size: int) -> list[str]:
    """The algorithms of an operation that `ranks` ranks can run on nodes of `node_size`."""
    if operation != GOSSIP:
        shared = [name for name in IN_MEMORY.get(operation, {}) if name != "nodes"]
        if 1 < node_size < ranks and ranks % node_size == 0 and operation == "all_reduce":
            return [*ALGORITHMS[operation], "nodes"]
        return list(ALGORITHMS[operation]) + shared * (ranks <= min(node_size, MOST_ON_NODE))
    return [graph for graph in GRAPHS if graph != "hypercube" or ranks & (ranks - 1) == 0]


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan",
        description="Compare the algorithms of a collective operation on a machine of any size, without MPI.",
        epilog=f"example: {EXAMPLE}; with options and examples of their own: hpckit plan {'|'.join(OTHERS)} --help",
    )
    it.add_argument("operation", metavar="OPERATION", help=f"one of {', '.join([*ALGORITHMS, GOSSIP, *OTHERS])}")
    it.add_argument("--ranks", type=int, default=16, help="how many ranks (default 16)")
    it.add_argument("--bytes", default="64MiB", help="size of each rank's buffer, as in 64MiB (default)")
    it.add_argument("--algorithm", action="append", metavar="NAME", help="only this one; may be repeated")
    it.add_argument(
        "--from",
        dest="own",
        action="append",
        metavar="FILE.py:FUNCTION",
        help="also an algorithm of your own: a function of the number of ranks that returns its plan, which is proved",
    )
    it.add_argument("--segments", type=int, help="parts into which messages are cut, where an algorithm can do it")
    it.add_argument("--root", type=int, help="the rank that gives or gets")
    it.add_argument("--node-size", type=int, help="ranks of a node (default: of the machine's innermost level)")
    it.add_argument("--across", metavar="NAME", help="of nodes: ring (default) or halving_doubling between them")
    it.add_argument("--servers", type=int, help="parameter servers (default: about the square root of the ranks)")
    add_export(it)
    add_options(it)
    return it


def _operation(name: str) -> str:
    """The operation that a name stands for: allreduce, all-reduce and all_reduce are one."""
    operation = operation_of(name)
    known = [*ALGORITHMS, GOSSIP, *OTHERS]
    if operation not in known:
        near = nearest(name.lower(), known)
        do = f"did you mean {near!r}: hpckit plan {near}" if near else f"choose one of {', '.join(known)}"
        raise InputError(f"there is no operation {name!r}", do=do)
    return operation


def _plan(operation: str, algorithm: str, machine: Machine, options: argparse.Namespace) -> CollectivePlan:
    if operation == GOSSIP:
        return gossip_plan(algorithm, options.ranks)
    known = ALGORITHMS[operation] | IN_MEMORY.get(operation, {})
    takes = known[algorithm][1] if algorithm in known else ()
    return collective_plan(operation, algorithm, options.ranks, **_options(takes, machine, options))


def _options(takes: Collection[str], machine: Machine, options: argparse.Namespace) -> dict[str, Any]:
    """The options of the command that an algorithm takes."""
    given: dict[str, Any] = {name: getattr(options, name) for name in OPTIONS}
    node_size = given["node_size"] = _node_size(machine, options)
    if options.ranks > node_size and options.ranks % node_size == 0:
        given["shape"] = (options.ranks // node_size, node_size)
    return {key: value for key, value in given.items() if value is not None and key in takes}


def _require_used(
    operation: str, chosen: Sequence[str], own: Sequence[Callable[..., Any]], options: argparse.Namespace
) -> None:
    """Raise `InputError` for options that none of these algorithms and functions takes."""
    known = {} if operation == GOSSIP else ALGORITHMS[operation] | IN_MEMORY.get(operation, {})
    taken = {option for name in chosen if name in known for option in known[name][1]}
    for build in own:
        taken |= set(inspect.signature(build).parameters)
    if "shape" in taken or not (options.algorithm or operation == GOSSIP):  # it says which algorithms there are, too
        taken.add("node_size")
    unused = [name for name in OPTIONS if getattr(options, name) is not None and name not in taken]
    if unused:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        by = f" by {', '.join(chosen)}" if options.algorithm else ""
        some = sorted(taken & set(OPTIONS))
        raise InputError(
            f"{operation}{by} takes no {words}",
            do=f"it takes {', '.join(f'--{name}' for name in some)}".replace("_", "-") if some else "leave it out",
        )


def _own_plan(
    operation: str, text: str, build: Callable[..., Any], name: str, machine: Machine, options: argparse.Namespace
) -> CollectivePlan:
    """The plan that a function of the user's makes, of `text`, `file.py:function`. Raises `InputError`."""
    known = inspect.signature(build).parameters
    try:
        plan = build(options.ranks, **_options(known, machine, options))
    except HpckitError:
        raise
    except Exception as error:
        raise InputError(
            f"{name}({options.ranks}) raised {type(error).__name__}: {error}", where=text, do="mend the function"
        ) from error
    if not isinstance(plan, CollectivePlan):
        raise InputError(f"{name} returns {plan!r:.60}", where=text, do="return a CollectivePlan")
    if (plan.operation, plan.ranks) != (operation, options.ranks):
        raise InputError(
            f"{name} makes a plan of {plan.operation} on {plan.ranks} ranks, not of {operation} on {options.ranks}",
            where=text,
        )
    return replace(plan, algorithm=name)


def _function(text: str) -> tuple[Callable[..., Any], str]:
    """The function that `file.py:function` names, and its name."""
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name:
        raise InputError(f"--from {text!r} is not FILE.py:FUNCTION", do="give a file and a function in it")
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}", do="give --from FILE.py:FUNCTION with a file that is there")
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)  # for what the file imports from beside it
    try:
        names = runpy.run_path(path)
    except HpckitError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be run: {type(error).__name__}: {error}", do="mend the file") from error
    finally:
        sys.path.remove(folder)
    if not callable(names.get(name)):
        own = [key for key, value in names.items() if inspect.isfunction(value) and value.__module__ == "<run_path>"]
        raise InputError(f"there is no function {name!r} in {path}", do=f"its functions: {', '.join(own) or 'none'}")
    return names[name], name


def _node_size(machine: Machine, options: argparse.Namespace) -> int:
    if options.node_size is not None and options.node_size < 1:
        raise InputError(f"nodes of {options.node_size} ranks", do="give --node-size 1 or more, or leave it out")
    return options.node_size or machine.levels[0].ranks or options.ranks


def _priced(plans: list[CollectivePlan], machine: Machine, nbytes: int, asked_for: bool) -> Iterator[dict[str, Any]]:
    quickest = math.inf
    walks = [(walk_length(plan, machine), plan) for plan in plans]
    for walk, plan in sorted(walks, key=lambda each: each[0]):
        row: dict[str, Any] = {"algorithm": plan.algorithm, "steps": plan.length, "seconds": None}
        if not asked_for and plan.length > MOST_STEPS and not plan.runs:
            yield row
            continue
        if not asked_for and walk > MOST_MESSAGES:
            least = at_least(plan, machine, nbytes)
            if least > quickest:
                yield {**row, "at_least": least}
                continue
        it = price(plan, machine, nbytes)
        quickest = min(quickest, it.seconds)
        factor = busbw_factor(plan.operation, plan.ranks)
        busbw = nbytes * factor / it.seconds if it.seconds > 0 and plan.operation != GOSSIP else None
        if isinstance(plan, GossipPlan) and plan.ranks <= MOST_GAPS:
            row["gap"] = _gap(plan)
        yield {**row, "seconds": it.seconds, **it.critical, "busbw": busbw, "link_bytes": it.link_bytes}


def _gap(plan: GossipPlan) -> float:
    """The spectral gap of a round, averaged over one period of the graph's rounds."""
    turns = max((plan.ranks - 1).bit_length(), 1) if plan.algorithm == "exponential" else 1
    left = 1.0 - spectral_gap(*(gossip_plan(plan.algorithm, plan.ranks, turn) for turn in range(turns)))
    return 1.0 - max(left, 0.0) ** (1.0 / turns) if left > ROUNDING else 1.0


def _print(operation: str, ranks: int, nbytes: int, machine: Machine, rows: list[dict[str, Any]]) -> None:
    print(f"{operation} of {nbytes} bytes on {ranks} ranks of {machine.name}; times in ms, busbw in GB/s")
    parts = ("latency", "transfer", "contention", "reduction")
    table = [
        [
            row["algorithm"],
            row["steps"],
            f"> {_number(row['at_least'], 1e3)}" if "at_least" in row else _number(row["seconds"], 1e3),
            *(_number(row.get(key), 1e3) for key in parts),
            _number(row.get("busbw"), 1e-9),
        ]
        for row in rows
    ]
    columns = ["algorithm", "steps", "time", *parts, "busbw"]
    if operation == GOSSIP:
        columns[-1] = "spectral gap"
        table = [[*line[:-1], _number(row.get("gap"), 1.0)] for line, row in zip(table, rows, strict=True)]
    print_table(columns, table)
    unpriced = [row["algorithm"] for row in rows if row["seconds"] is None]
    bounded = [row["algorithm"] for row in rows if "at_least" in row]
    for why, names in (
        (f"not priced, {MOST_STEPS} steps or more", [name for name in unpriced if name not in bounded]),
        ("slower than the quickest, by a bound", bounded),
    ):
        if names:
            print(f"{why}; ask by name: " + " ".join(f"--algorithm {name}" for name in names))
    print("latency to reduction: what the path that ends last is made of")
    if machine.source:
        print(f"numbers of the machine: {machine.source}")


def _number(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{value * scale:.4g}"
