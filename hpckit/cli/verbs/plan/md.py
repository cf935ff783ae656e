"""`hpckit plan md`: the communication of molecular dynamics, proved, priced and drawn without MPI."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from hpckit.cli.verbs.plan.options import add_export, add_options, export, show, tell_proof
from hpckit.cli.verbs.plan.redistribute import shape_of
from hpckit.errors import InputError
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.particles.uniform import FORCE, MdPlans, md_plans
from hpckit.plan.pricing import Price, price, traffic
from hpckit.plan.protocol import Plan
from hpckit.plan.topology import Topology
from hpckit.report.units import counted
from hpckit.settings.table import Parser, bytes_text, is_number, print_table

AXES = ("x", "y", "z")
FINE = 1000  # parts of the longest edge, for a split with little surface
LEAST_ORDER, MOST_ORDER = 2, 7
PARTS = ("latency", "transfer", "contention")
MOST_RANKS = 4096  # every rank's domain is examined
GIVES = {"returns": "--returns", "mesh": "--mesh"}
EXAMPLE = "hpckit plan md --ranks 64 --particles 1000000 --density 0.8442 --cutoff 2.5 --skin 0.3"


def main(arguments: list[str]) -> int:
    """The operation `md` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    machine, plans = machine_of(options.machine), _plans(options)
    named = plans.named()
    if options.of not in named:
        raise InputError(f"there is no {options.of} in these plans", do=f"give {GIVES[options.of]} too")
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
    if plans.returns is not None:
        print("returns: the forces of ghosts, to their owners, in each step")
    if plans.mesh is not None:
        print(f"mesh: in each step; {plans.mesh.title()}")
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
    mesh = () if options.mesh is None else shape_of(options.mesh)
    if mesh is None or (mesh and (len(mesh) != len(AXES) or min(mesh) < MOST_ORDER)):
        wrong.append(f"--mesh is {options.mesh!r}")
    if not LEAST_ORDER <= options.order <= MOST_ORDER:
        wrong.append(f"--order is {options.order}")
    if wrong:
        limits = (
            f"numbers above 0, 1 to {MOST_RANKS} ranks, a box as in 1x1x2, axes of {', '.join(AXES)}, a mesh as in"
            f" 25x32x32 of {MOST_ORDER} points or more along each dim, an order of {LEAST_ORDER} to {MOST_ORDER}"
        )
        raise InputError("; ".join(wrong), do=f"give {limits}, as in: {EXAMPLE}")
    edges = shape * (options.particles / options.density / shape.prod()) ** (1 / 3)
    closed = tuple(filter(None, options.periodic.split(",")))
    fine = tuple(max(1, round(FINE * float(edge / edges.max()))) for edge in edges)
    sizes = best_factorization(options.ranks, fine, (0, 0, 0), [name in closed for name in AXES])
    topology = Topology(AXES, sizes, closed)
    assert mesh is not None
    more: dict[str, Any] = {"returned": FORCE * options.returns, "mesh": tuple(mesh), "order": options.order}
    return md_plans(edges, options.density, options.cutoff, options.skin, topology, options.node_size or 0, **more)


def _row(plan: Plan, it: Price) -> dict[str, Any]:
    messages, sent = traffic(plan)
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
    it.add_argument(
        "--returns", action="store_true", help="forces of ghosts go back to their owners, as of charges, Tersoff, SNAP"
    )
    it.add_argument("--mesh", metavar="POINTS", help="of charges (PPPM), as in 25x32x32")
    it.add_argument("--order", type=int, default=5, help="points along a dim that a charge is spread over (default 5)")
    it.add_argument("--of", choices=MdPlans._fields, default="ghosts", help="which plan goes into the SVG or the trace")
    add_export(it)
    add_options(it)
    return it
