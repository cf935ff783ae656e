"""`hpckit plan dispatch`: tokens on their way to experts and back, proved, priced and drawn without MPI."""

from __future__ import annotations

import argparse
import json

import numpy as np

from hpckit.cli.verbs.plan.options import add_export, add_options, export, show, tell_proof
from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.pricing import price
from hpckit.plan.training.dispatch import DispatchPlan
from hpckit.settings.table import Parser, bytes_text, print_table

EXAMPLE = "hpckit plan dispatch --ranks 32 --experts 64 --top-k 6 --tokens 128 --bytes 8192 --prove"
MOST = 50_000_000  # choices of all tokens


def main(arguments: list[str]) -> int:
    """The operation `dispatch` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    machine = machine_of(options.machine)
    plans = _plans(options, machine.levels[0].ranks)
    for plan in plans if options.prove else ():
        tell_proof(plan, options.json)
    rows = [
        {"levels": 1 + bool(plan.node_size), "seconds": price(plan, machine, itemsize=1).seconds, **plan.sent()}
        for plan in plans
    ]
    best = plans[int(np.argmin([row["seconds"] for row in rows]))]
    if options.export_trace:
        export(best, options.export_trace, machine)
    if options.draw is not None:
        show([best], options.draw, machine)
    elif options.json:
        print(json.dumps({"operation": "dispatch", "ranks": options.ranks, "machine": machine.name, "ways": rows}))
    else:
        told = f"{options.tokens} tokens of {bytes_text(options.bytes)} on each of {options.ranks} ranks"
        print(f"{told} of {machine.name}, {options.top_k} of {options.experts} experts, and back")
        table = [
            [row["levels"], row.get("between nodes", ""), row.get("within nodes", row.get("rows", "")),
             f"{1e6 * row['seconds']:.4g}"] for row in rows
        ]  # fmt: skip
        print_table(["levels", "tokens between nodes", "rows within nodes, or all", "us"], table)
    return 0


def _plans(options: argparse.Namespace, node_size: int) -> list[DispatchPlan]:
    """In one level, and in two where ranks share nodes. Raises `InputError`."""
    ranks, experts, chosen = options.ranks, options.experts, options.top_k
    wrong = [f"--{name.replace('_', '-')} is {value}" for name, value in vars(options).items()
             if name in ("ranks", "experts", "top_k", "tokens", "bytes") and value < 1]  # fmt: skip
    node = node_size if options.node_size is None else options.node_size
    if not wrong:
        for is_wrong, what in (
            (experts < ranks, f"{experts} experts for {ranks} ranks"),
            (chosen > experts, f"{chosen} of {experts} experts"),
            (ranks * options.tokens * experts > MOST, f"{ranks} x {options.tokens} tokens are too many to draw"),
            (1 < node < ranks and ranks % node, f"{ranks} ranks do not fill nodes of {node}"),
        ):
            wrong += [what] if is_wrong else []
    if wrong:
        raise InputError("; ".join(wrong), do="give numbers of 1 or more, as many experts as ranks, whole nodes")
    drawn = np.random.default_rng(options.seed).random((ranks, options.tokens, experts))
    kinds = np.argpartition(drawn, chosen - 1, axis=2)[:, :, :chosen]
    homes = np.searchsorted(block_starts(experts, ranks)[1:], kinds, "right").astype(np.int64)
    sizes = [0, node] if 1 < node < ranks else [0]
    return [DispatchPlan(homes, size, float(options.bytes)) for size in sizes]


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan dispatch",
        description="Tokens to the experts of a mixture and back, in one level and in two, without MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("--ranks", type=int, default=16, help="ranks that have all experts among them (16)")
    it.add_argument("--experts", type=int, default=64, help="experts, dealt evenly (64)")
    it.add_argument("--top-k", type=int, default=4, help="experts of a token, drawn at random (4)")
    it.add_argument("--tokens", type=int, default=64, help="tokens of a rank (64)")
    it.add_argument("--bytes", type=int, default=8192, help="of a token (8192)")
    it.add_argument("--node-size", type=int, help="ranks of a node; omitted: as the machine has")
    it.add_argument("--seed", type=int, default=1, help="of the choices (1)")
    add_options(it, "draw the quickest")
    add_export(it)
    return it
