"""`hpckit plan md`: the communication of molecular dynamics, proved, priced and drawn without MPI."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from hpckit.cli.verbs.plan.options import add_export, add_options, export, show, tell_proof
from hpckit.errors import InputError
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.particles.uniform import MdPlans, md_plans
from hpckit.plan.pricing import Price, price
from hpckit.plan.protocol import NOBODY, Plan
from hpckit.plan.topology import Topology
from hpckit.report.units import counted
from hpckit.settings.table import Parser, bytes_text, is_number, print_table

AXES = ("x", "y", "z")
FINE = 1000  # parts of the longest edge, for a split with little surface
PARTS = ("latency", "transfer", "contention")
MOST_RANKS = 4096  # every rank's domain is examined
EXAMPLE = "hpckit plan md --ranks 64 --particles 1000000 --density 0.8442 --cutoff 2.5 --skin 0.3"


def main(arguments: list[str]) -> int:
    """The operation `md` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    machine, plans = machine_of(options.machine), _plans(options)
    named: dict[str, Plan] = {"ghosts": plans.ghosts, "migration": plans.migration}
    if options.prove:
        for plan in named.values():
            tell_proof(plan, options.json)
    if options.export_trace is not None:
        export(named[options.of], options.export_trace, machine)
        return 0
    if options.draw is not None:
        show(list(named.values()) if options.draw == "-" else [named[options.of]], options.draw, machine)
        return 0
    rows = {name: _row(plan, price(plan, machine)) for name, plan in named.items()}
    if options.json:
        print(json.dumps({"operation": "md", "ranks": options.ranks, "machine": machine.name, "plans": rows}))
        return 0
    sizes = " x ".join(map(str, plans.ghosts.domains.topology.sizes))
    print(f"molecular dynamics on {counted(options.ranks, 'rank')} ({sizes}) of {machine.name}; times in us")
    table = [
        [
            name,
            row["messages"],
            bytes_text(row["sent_bytes"]),
            *(f"{1e6 * row[key]:.4g}" for key in ("seconds", *PARTS)),
        ]
        for name, row in rows.items()
    ]
    print_table(["plan", "messages", "sent", "time", *PARTS], table)
    print("ghosts: their positions, in each step; migration: at each rebuild of the neighbor lists")
    print("messages, sent: the most of a rank; latency to contention: what the path that ends last is made of")
    if machine.source:
        print(f"numbers of the machine: {machine.source}")
    return 0


def _plans(options: argparse.Namespace) -> MdPlans:
    numbers = {name: getattr(options, name) for name in ("particles", "density", "cutoff", "skin")}
    wrong = [f"--{name} is {value:g}" for name, value in numbers.items() if not 0 < value < float("inf")]
    if not 1 <= options.ranks <= MOST_RANKS:
        wrong.append(f"--ranks is {options.ranks}")
    shape = np.array([float(part) if is_number(part) else -1.0 for part in options.box.split("x")])
    if len(shape) != len(AXES) or (shape <= 0).any():
        wrong.append(f"--box is {options.box!r}")
    unknown = sorted(set(filter(None, options.periodic.split(","))) - set(AXES))
    if unknown:
        wrong.append(f"--periodic names {', '.join(unknown)}")
    if wrong:
        limits = f"numbers above 0, 1 to {MOST_RANKS} ranks, a box as in 1x1x2, axes of {', '.join(AXES)}"
        raise InputError("; ".join(wrong), do=f"give {limits}, as in: {EXAMPLE}")
    edges = shape * (options.particles / options.density / shape.prod()) ** (1 / 3)
    closed = tuple(filter(None, options.periodic.split(",")))
    fine = tuple(max(1, round(FINE * float(edge / edges.max()))) for edge in edges)
    sizes = best_factorization(options.ranks, fine, (0, 0, 0), [name in closed for name in AXES])
    topology = Topology(AXES, sizes, closed)
    return md_plans(edges, options.density, options.cutoff, options.skin, topology, options.node_size or 0)


def _row(plan: Plan, it: Price) -> dict[str, Any]:
    messages, sent = np.zeros(plan.ranks), np.zeros(plan.ranks)
    for step in plan.steps():
        ends = step.sends
        away = (ends.peer != NOBODY) & (ends.peer != ends.ranks())
        amount = ends.last - ends.first if ends.amount is None else ends.amount
        np.add.at(messages, ends.ranks()[away], 1)
        np.add.at(sent, ends.ranks()[away], amount[away] * step.itemsize)
    most = {"messages": int(messages.max()), "sent_bytes": float(sent.max())}
    return {**most, "seconds": it.seconds, **it.critical, "link_bytes": it.link_bytes}


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan md",
        description="Price, prove and draw what molecular dynamics sends, for particles spread evenly over a box, "
        "without MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("--ranks", type=int, default=16, metavar="N", help="how many ranks (default 16)")
    it.add_argument("--particles", type=float, default=1e6, metavar="N", help="how many particles (default 1e6)")
    it.add_argument("--density", type=float, default=0.8442, help="particles per volume (default 0.8442)")
    it.add_argument("--cutoff", type=float, default=2.5, help="of the forces (default 2.5)")
    it.add_argument("--skin", type=float, default=0.3, help="by which lists reach further (default 0.3)")
    it.add_argument("--box", default="1x1x1", metavar="EDGES", help="ratio of the edges (default 1x1x1)")
    it.add_argument("--periodic", default="x,y,z", metavar="AXES", help="axes that close on themselves (default x,y,z)")
    it.add_argument("--node-size", type=int, help="ranks of a node, which exchange in its shared memory")
    it.add_argument("--of", choices=MdPlans._fields, default="ghosts", help="which plan goes into the SVG or the trace")
    add_export(it)
    add_options(it)
    return it
