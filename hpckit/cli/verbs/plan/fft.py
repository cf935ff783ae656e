"""`hpckit plan fft`: the messages of a Fourier transform over ranks, proved, priced and drawn without MPI."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from hpckit.cli.verbs.plan.options import add_options, show, tell_proof
from hpckit.cli.verbs.plan.redistribute import axis_sizes, shape_of
from hpckit.errors import InputError
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.pricing import price
from hpckit.plan.tensors.fourier import FourierPlan, fourier_plan
from hpckit.plan.tensors.layout import Layout, Shard
from hpckit.plan.topology import Topology
from hpckit.settings.table import Parser, bytes_text, print_table

EXAMPLE = "hpckit plan fft --shape 512x512x512 --mesh z=16,y=16"
KINDS = {"f8": (True, False), "f4": (True, True), "c16": (False, False), "c8": (False, True)}


def main(arguments: list[str]) -> int:
    """The operation `fft` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    machine = machine_of(options.machine)
    plan = _plan(options)
    if options.prove:
        tell_proof(plan, options.json)
    if options.draw is not None:
        show([plan], options.draw, machine)
        return 0
    rows: list[dict[str, Any]] = []
    for change in plan.changes:
        messages, sent = change.traffic()
        seconds = price(change, machine).seconds
        layouts = {"from": change.source.text(), "to": change.target.text()}
        rows.append({**layouts, "messages": messages, "sent_bytes": sent, "seconds": seconds})
    if options.json:
        head = {"operation": "fft", "shape": list(plan.source.shape), "ranks": plan.ranks, "machine": machine.name}
        print(json.dumps({**head, "spectrum": plan.target.text(), "changes": rows}))
        return 0
    print(f"{plan.title()} on {plan.ranks} ranks of {machine.name}")
    table = [
        [row["from"], row["to"], row["messages"], bytes_text(row["sent_bytes"]), f"{1e6 * row['seconds']:.4g}"]
        for row in rows
    ]
    print_table(["from", "to", "messages", "sent", "time (us)"], table)
    print("messages, sent: the most of a rank; the way back takes as many")
    print(f"transforms: {'; then '.join(f'dims {stage.dims}' for stage in plan.stages)}")
    if math.prod(plan.source.local_shape(plan.ranks - 1)) == 0:
        print("some ranks have no values: fewer ranks, or another mesh, are as fast")
    return 0


def _plan(options: argparse.Namespace) -> FourierPlan:
    """The plan; raises `InputError` with every mistake."""
    wrong = []
    shape, axes = shape_of(options.shape), axis_sizes(options.mesh)
    if shape is None:
        wrong.append(f"--shape is {options.shape!r}")
    if axes is None:
        wrong.append(f"--mesh is {options.mesh!r}")
    elif shape is not None and len(axes) > len(shape):
        wrong.append(f"--mesh has {len(axes)} axes, the grid {len(shape)} dims")
    if wrong:
        raise InputError("; ".join(wrong), do=f"axis 0 cuts dim 0, axis 1 dim 1, …, as in: {EXAMPLE}")
    assert shape is not None
    assert axes is not None
    placed = {name: Shard(dim) for dim, name in enumerate(axes)}
    layout = Layout(tuple(shape), Topology(tuple(axes), tuple(axes.values())), placed)
    return fourier_plan(layout, *KINDS[options.dtype])


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan fft",
        description="The changes of layout of a distributed Fourier transform (hpckit.tensors.FFT), without MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("--shape", required=True, metavar="DIMS", help="the grid, as in 512x512x512")
    it.add_argument(
        "--mesh",
        required=True,
        metavar="NAME=N,…",
        help="ranks along the first dims: z=16 makes slabs, z=16,y=16 pencils",
    )
    it.add_argument("--dtype", default="f8", choices=KINDS, help="of the values (default f8, real)")
    add_options(it, "draw the messages")
    return it
