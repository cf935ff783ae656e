"""`hpckit plan serve MODEL`: memory and speed of a server before it is started, and what would change them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.plan.options import show
from hpckit.errors import InputError
from hpckit.plan.drawing import draw
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.pricing import price
from hpckit.plan.proving import prove
from hpckit.serving.checkpoint.folder import model_folder
from hpckit.serving.checkpoint.shape import TransformerShape, read_shape
from hpckit.serving.plan.places import Places
from hpckit.serving.plan.plan import ServingPlan
from hpckit.serving.plan.price import (
    ComputeTimes,
    ServingPrice,
    full_step,
    machine_of_rates,
    rates_here,
    rates_of,
    serving_price,
)
from hpckit.settings.table import Parser, bytes_text, print_table

EXAMPLE = "hpckit plan serve runs/train-001 --ranks 2 --texts 32 --context 1024"
OTHER_KINDS = ("bfloat16", "q8_0", "q4_0")


def main(arguments: list[str]) -> int:
    """The operation `serve` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    folder = options.model if options.model.suffix == ".json" else model_folder(options.model)
    shape = read_shape(folder.parent if folder.suffix == ".json" else folder)
    context = options.context or min(shape.context, 1024)
    if options.ranks < 1 or options.texts < 1 or not 0 < context <= shape.context:
        raise InputError(
            f"{options.ranks} ranks, {options.texts} texts of {context} tokens",
            do=f"give 1 or more, and a context of at most {shape.context}",
        )
    places = Places(options.ranks, options.stages, options.replicas)
    machine = None if options.machine is None else machine_of(options.machine)
    if options.prove or options.draw is not None:
        return _step(shape, places, machine, context, options)
    kinds = list(dict.fromkeys([options.weights, *OTHER_KINDS]))
    rates = {kind: rates_here(kind) if machine is None else rates_of(machine, kind) for kind in kinds}
    sizes = {"context": context, "texts": options.texts, "stages": options.stages}
    found = {kind: serving_price(shape, kind, options.ranks, rates[kind], **sizes) for kind in kinds}
    twice = serving_price(shape, options.weights, 2 * options.ranks, rates[options.weights], **sizes)
    source = rates[options.weights].source
    if options.json:
        head = {
            "operation": "serve",
            "ranks": options.ranks,
            "stages": options.stages,
            "context": context,
            "source": source,
        }
        print(json.dumps({**head, "weights": {kind: _record(one) for kind, one in found.items()}}))
        return 0
    count = sum(n * a * b for n, a, b in shape.matrices().values())
    told = f" on {options.stages} nodes" if options.stages > 1 else ""
    print(
        f"{shape.kind}, {count / 1e6:.0f} million weights in products, {options.ranks} rank(s){told}; rates: {source}"
    )
    _print(found, twice, options)
    return 0


def _step(
    shape: TransformerShape, places: Places, machine: Machine | None, context: int, options: argparse.Namespace
) -> int:
    """A full step as a plan of all ranks: proved and priced, or drawn."""
    kind = options.weights
    if options.rows < 1:
        raise InputError(f"--rows is {options.rows}", do="give 1 or more")
    step = full_step(places, options.texts, context, options.rows)
    if options.draw == "-":
        print(draw(ServingPlan(places, tuple(map(len, shape.layers_of(places.stages))), step)))
        return 0
    rates = rates_here(kind) if machine is None else rates_of(machine, kind)
    plan = ComputeTimes(shape, kind, places.columns, rates).plan(places, step)
    on = machine or machine_of_rates(rates, places)
    if options.draw is not None:
        show([plan], options.draw, on)
    else:
        proof, told = prove(plan), price(plan, on)
        if options.json:
            head = {"operation": "serve", "ranks": options.ranks, "stages": places.stages, "replicas": places.replicas}
            parts = {"seconds": told.seconds, "busy": float(told.busy.max()), "critical": told.critical}
            print(json.dumps({**head, "step": {**parts, "messages": proof.messages, "steps": proof.steps}}))
        else:
            print(f"proved: {plan.title()}: {proof.messages} messages in {proof.steps} steps, no rank waits for ever")
            print(
                f"price of a full step with {kind}: {1e3 * told.seconds:.4g} ms, of which the busiest rank computes "
                f"{1e3 * told.busy.max():.4g} ms; rates: {rates.source}"
            )
    return 0


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan serve",
        description="Price a server of a language model: memory, tokens a second, time to the first token.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("model", type=Path, metavar="MODEL", help="a run of `train`, or a Hugging Face folder")
    it.add_argument("--ranks", type=int, default=1, metavar="N", help="ranks, a core each (1)")
    it.add_argument("--stages", type=int, default=1, metavar="N", help="nodes with a part of the layers each (1)")
    it.add_argument("--weights", default="float32", metavar="KIND", help="of the first row (float32)")
    it.add_argument("--texts", type=int, default=32, metavar="N", help="texts at once (32)")
    it.add_argument("--context", type=int, metavar="N", help="tokens of a text (1024, or all that the model can)")
    it.add_argument("--machine", metavar="FILE", help="with [compute]; left out: a core of this machine is measured")
    it.add_argument("--replicas", type=int, default=1, metavar="N", help="of a stage, for a step as a plan (1)")
    it.add_argument("--rows", type=int, default=512, metavar="N", help="most tokens of a replica in that step (512)")
    it.add_argument("--prove", action="store_true", help="prove a full step as one plan of all ranks, and price that")
    it.add_argument("--draw", nargs="?", const="-", metavar="FILE.svg", help="draw it: a text table, or an SVG")
    it.add_argument("--json", action="store_true", help="print one JSON object")
    return it


def _record(one: ServingPrice) -> dict[str, Any]:
    return {
        "weights_bytes": one.weights,
        "kv_bytes": one.kv,
        "decode_seconds": {str(many): seconds for many, seconds in one.decode.items()},
        "first_token_seconds": {str(length): seconds for length, seconds in one.first.items()},
    }


def _print(found: dict[str, ServingPrice], twice: ServingPrice, options: argparse.Namespace) -> None:
    first = found[options.weights]
    many = list(first.decode)
    columns = ["weights", "a rank's", "KV a rank", *(f"{n} text{'s' * (n > 1)}, tokens/s" for n in many)]
    columns += [f"first of {length}, ms" for length in first.first]
    rows = [
        [
            kind,
            bytes_text(one.weights),
            bytes_text(one.kv),
            *(round(n / one.decode[n], 1) for n in many),
            *(round(1e3 * seconds, 1) for seconds in one.first.values()),
        ]
        for kind, one in found.items()
    ]
    print_table(columns, rows)
    best = max(found, key=lambda kind: 1 / found[kind].decode[1])
    if best != options.weights:
        gain = first.decode[1] / found[best].decode[1]
        print(f"--weights {best}: {gain:.1f} times the tokens/s of one text, in a coarser format")
    gain = first.decode[1] * many[-1] / first.decode[many[-1]]
    print(f"{many[-1]} texts at once: {gain:.1f} times the tokens/s of one")
    gain = first.decode[1] / twice.decode[1]
    print(f"-n {2 * options.ranks}: {gain:.2f} times the tokens/s of one text, if each rank has its core and bandwidth")
