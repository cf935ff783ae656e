"""`hpckit plan redistribute`: changes of a tensor's layout, proved, priced and drawn without MPI."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

import numpy as np

from hpckit.cli.verbs.plan.options import add_options, show, tell_proof
from hpckit.errors import InputError
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.pricing import price
from hpckit.plan.tensors.layout import Layout, Partial, Placement, Replicate, Shard
from hpckit.plan.tensors.redistribution import RedistributionPlan, listed, ways
from hpckit.plan.topology import Topology
from hpckit.settings.table import Parser, bytes_text, print_table

PARTS = ("latency", "transfer", "contention", "reduction")
EXAMPLE = "hpckit plan redistribute --shape 4096x1024 --mesh dp=4,tp=8 --from dp=S0,tp=P --to dp=S0,tp=S1"


def main(arguments: list[str]) -> int:
    """The operation `redistribute` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    machine = machine_of(options.machine)
    source, target, dtype = _setting(options)
    plans = listed(ways(source, target, dtype.itemsize))
    rows = sorted((_row(plan, machine) for plan in plans), key=lambda row: (row["seconds"], len(row["plan"].hops)))
    best: RedistributionPlan = rows[0]["plan"]
    for row in rows if options.prove else ():
        tell_proof(row["plan"], options.json)
    if options.draw is not None:
        show([best], options.draw, machine)
    elif options.json:
        for row in rows:
            plan = row.pop("plan")
            row["layouts"] = [hop.source.text() for hop in plan.hops] + [plan.target.text()]
        head = {
            "operation": "redistribute",
            "shape": list(source.shape),
            "ranks": source.ranks,
            "machine": machine.name,
        }
        print(json.dumps({**head, "from": source.text(), "to": target.text(), "ways": rows}))
    else:
        _print(rows, source, target, dtype, machine)
    return 0


def _row(plan: RedistributionPlan, machine: Machine) -> dict[str, Any]:
    messages, sent = plan.traffic()
    it = price(plan, machine)
    counted = {"way": plan.name, "steps": it.steps, "messages": messages, "sent_bytes": sent}
    return {"plan": plan, **counted, "seconds": it.seconds, **it.critical, "link_bytes": it.link_bytes}


def _print(rows: list[dict[str, Any]], source: Layout, target: Layout, dtype: np.dtype, machine: Machine) -> None:
    print(f"a tensor of {' x '.join(map(str, source.shape))} ({dtype.name}) on {source.ranks} ranks of {machine.name}")
    print(f"from {source.text()}\nto   {target.text()}; times in us")
    table = [
        [
            row["way"],
            row["steps"],
            row["messages"],
            bytes_text(row["sent_bytes"]),
            *(f"{1e6 * row[key]:.4g}" for key in ("seconds", *PARTS)),
        ]
        for row in rows
    ]
    print_table(["way", "steps", "messages", "sent", "time", *PARTS], table)
    print("messages, sent: the most of a rank; latency to reduction: what the path that ends last is made of")
    shapes = [source.local_shape(0), target.local_shape(0)]
    print("rank 0 holds " + ", then ".join(" x ".join(map(str, shape)) or "a number" for shape in shapes))
    if machine.source:
        print(f"numbers of the machine: {machine.source}")


def _setting(options: argparse.Namespace) -> tuple[Layout, Layout, np.dtype]:
    """The layouts and the dtype; raises `InputError` with every mistake."""
    wrong: list[str] = []
    shape = shape_of(options.shape)
    if shape is None:
        wrong.append(f"--shape is {options.shape!r}")
    axes = axis_sizes(options.mesh)
    if axes is None:
        wrong.append(f"--mesh is {options.mesh!r}")
    placed = {}
    for name, text in (("--from", options.source), ("--to", options.target)):
        given = _pairs(text, r"S\d+|R|P") if text else {}
        unknown = sorted(set(given or ()) - set(axes or given or ()))
        if given is None or unknown:
            wrong.append(f"{name} is {text!r}" + f", and there is no axis {', '.join(unknown)}" * bool(unknown))
        placed[name] = {axis: _placement(word) for axis, word in (given or {}).items()}
    try:
        dtype = np.dtype(options.dtype)
    except TypeError:
        wrong.append(f"--dtype is {options.dtype!r}")
    if wrong:
        raise InputError("; ".join(wrong), do=f"S0 cuts dim 0, R copies, P is a summand, as in: {EXAMPLE}")
    topology = Topology(tuple(axes or ()), tuple((axes or {}).values()))
    source, target = (Layout(tuple(shape or ()), topology, placed[name]) for name in ("--from", "--to"))
    return source, target, dtype


def shape_of(text: str) -> list[int] | None:
    """`4096x1024` as counts; None where it is not of this form."""
    parts = text.split("x")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else None


def axis_sizes(text: str) -> dict[str, int] | None:
    """`dp=2,tp=4` as the sizes of mesh axes; None where it is not of this form."""
    found = _pairs(text, r"[1-9]\d*")
    return {name: int(size) for name, size in found.items()} if found else None


def _pairs(text: str, value: str) -> dict[str, str] | None:
    """`a=x,b=y` as a dict, in this order; None where it is not of this form."""
    pairs = [part.split("=") for part in text.split(",")]
    if any(len(pair) != 2 or not pair[0].isidentifier() or not re.fullmatch(value, pair[1]) for pair in pairs):
        return None
    return dict(pairs) if len({name for name, _ in pairs}) == len(pairs) else None


def _placement(text: str) -> Placement:
    return Shard(int(text[1:])) if text[0] == "S" else Replicate() if text == "R" else Partial()


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan redistribute",
        description="Compare the ways from one layout of a tensor to another, without MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("--shape", required=True, metavar="DIMS", help="the whole tensor, as in 4096x1024")
    it.add_argument("--mesh", required=True, metavar="NAME=N,…", help="ranks along the mesh axes, the last innermost")
    meaning = "S0 cuts dim 0, R copies (default), P is a summand; of two axes on a dim the first named cuts first"
    it.add_argument("--from", dest="source", default="", metavar="NAME=S0,…", help=meaning)
    it.add_argument("--to", dest="target", default="", metavar="NAME=R,…", help="the layout after, in the same words")
    it.add_argument("--dtype", default="f4", help="of an element, as NumPy calls it (default f4)")
    add_options(it, "draw the quickest")
    return it
