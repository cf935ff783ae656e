"""`hpckit plan train MODEL`: the mesh, microbatch and schedule of a training run that fit the memory and take least."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.plan.options import add_export, export
from hpckit.errors import InputError
from hpckit.io.files import write_svg
from hpckit.plan.machine.machine import Machine, machine_of, shipped
from hpckit.plan.pipeline.draw import draw_schedule
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.plan.pipeline.times import StageTimes
from hpckit.plan.pricing import price
from hpckit.plan.proving import prove
from hpckit.plan.training.draw import draw_step
from hpckit.plan.training.model import NAMED, ExpertSizes, LanguageModel, language_model
from hpckit.plan.training.reasons import compared, other_conditions, reasons
from hpckit.plan.training.search import HEADROOM, PricedStrategy, SearchResult, mesh_of, search
from hpckit.plan.training.step import TrainingStep, reached
from hpckit.plan.training.strategy import AXES, CONTEXT, EXPERT_AXES, MIXED, RECOMPUTE, SCHEDULES
from hpckit.plan.training.traffic import traffic
from hpckit.report.units import counted
from hpckit.settings.table import Parser, bytes_text, print_table

EXAMPLE = "hpckit plan train llama3-405b --ranks 16384 --machine llama3 --batch 2048"
FIXED = (
    *(*AXES, *EXPERT_AXES),
    *("microbatch", "schedule", "chunks", "paired", "sharding", "recompute", "context_by"),
)
GRADIENTS = ("float32", "bfloat16", "float16")
PRESETS = "train/"
SHOWN = 6
TOKENS = 4 << 20  # of a step, where no batch is given
MOST_RANKS = 1 << 20


def main(arguments: list[str]) -> int:
    """The operation `train` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    model, machine, batch, context, ranks = _checked(options)
    fixed = {name: getattr(options, name) for name in FIXED if getattr(options, name) is not None}
    if options.gradients != "float32":
        fixed["precision"] = MIXED._replace(sent=2)
    if len(ranks) > 1:
        each = {count: _searched(model, count, machine, batch, context, fixed) for count in ranks}
        return _compare(model, machine, batch, context, each, options.json)
    found = search(model, ranks[0], machine, batch, context, fixed)
    if found.best is None:
        raise _too_large(model, machine, found)
    if options.prove:
        _proved(model, machine, found.best)
    if options.export_trace is not None:
        plan = TrainingStep(model, found.best.strategy, machine)
        export(plan, options.export_trace, reached(machine), itemsize=1)
        return 0
    if options.draw is not None:
        return _draw(model, machine, found.best, options.draw)
    other = {}
    if not fixed and not options.brief:
        other = dict(other_conditions(model, ranks[0], machine, batch, context, found))
    if options.json:
        print(json.dumps(_record(model, machine, found, other)))
        return 0
    _print(model, machine, found, other)
    return 0


def _searched(
    model: LanguageModel, ranks: int, machine: Machine, batch: int, context: int, fixed: dict[str, Any]
) -> SearchResult | None:
    """The result for one of several numbers of ranks; None where no mesh is legal."""
    try:
        return search(model, ranks, machine, batch, context, fixed)
    except InputError:
        return None


def _compare(
    model: LanguageModel,
    machine: Machine,
    batch: int,
    context: int,
    each: dict[int, SearchResult | None],
    as_json: bool,
) -> int:
    """A line a number of ranks: which axes are there."""
    if as_json:
        rows = {ranks: found.best and _choice(found.best) if found else None for ranks, found in each.items()}
        print(json.dumps({"model": model.name, "machine": machine.name, "batch": batch, "ranks": rows}))
        return 0
    print(f"{model.name} on {machine.name}: {counted(batch, 'sample')} of {counted(context, 'token')} a step")
    table = []
    for ranks, found in each.items():
        if found is None or found.best is None:
            need = (
                f"does not fit: {_gb(found.tight.bytes)} GB a rank" if found and found.tight else "no mesh divides it"
            )
            table.append([ranks, *["-"] * 9, need])
            continue
        it, best = found.best.strategy, found.best
        how = [f"{it.microbatch} x {it.microbatches}", it.order if it.pp > 1 else "-", it.sharding, it.recompute]
        axes = [size if size > 1 else "-" for size in (it.tp, it.cp, it.pp, it.dp, it.ep)]
        axes[-1] = f"{it.ep} x {it.etp}" if it.etp > 1 else axes[-1]
        table.append([ranks, *axes, *how, f"{100 * best.cost.mfu:.1f}", f"{best.cost.seconds:.4g}"])
    heads = ["ranks", "tp", "cp", "pp", "dp", "ep", "microbatch", "schedule", "ZeRO", "recompute", "MFU %", "step s"]
    print_table(heads, [row if len(row) == len(heads) else [*row[:-1], "-", row[-1]] for row in table])
    return 0


def _checked(options: argparse.Namespace) -> tuple[LanguageModel, Machine, int, int, list[int]]:
    """What the options mean. Raises `InputError` with all that is wrong."""
    wrong: list[InputError] = []
    model = machine = None
    try:
        model = _model(options.model)
    except InputError as error:
        wrong.append(error)
    try:
        machine = machine_of(options.machine)
        if machine.compute is None:
            wrong.append(
                InputError(
                    f"the machine {machine.name} does not say what its ranks compute with",
                    do="add [compute] with peak, memory, bandwidth, efficiency, or take "
                    + ", ".join(name for name in shipped() if machine_of(name).compute),
                )
            )
    except InputError as error:
        wrong.append(error)
    for name in ("batch", "context", *FIXED):
        value = getattr(options, name)
        if isinstance(value, int) and value < (0 if name in ("sharding", "paired") else 1):
            wrong.append(InputError(f"--{name} is {value}", do=f"give --{name} 1 or more"))
    ranks = [int(text) if text.isdecimal() else 0 for text in options.ranks.split(",")]
    if not all(1 <= count <= MOST_RANKS for count in ranks):
        wrong.append(InputError(f"--ranks is {options.ranks}", do=f"give 1 to {MOST_RANKS} ranks, or several: 8,64"))
    if wrong:
        said = "; ".join(error.message + (f" ({error.where})" if error.where else "") for error in wrong)
        raise InputError(said, do="; ".join(dict.fromkeys(error.do for error in wrong if error.do)))
    assert model is not None
    assert machine is not None
    context = options.context or model.context
    return model, machine, options.batch or max(TOKENS // context, 1), context, ranks


def _model(text: str) -> LanguageModel:
    if not text.startswith(PRESETS):
        return language_model(text)
    from hpckit.apps.train.config import PRESETS as presets
    from hpckit.apps.train.config import Config
    from hpckit.apps.train.shape import shape_of

    name = text.removeprefix(PRESETS)
    config = Config.model_validate(presets[name][1]) if name in presets else None
    if config is None or not config.model.is_language:
        known = [PRESETS + it for it in presets if Config.model_validate(presets[it][1]).model.is_language]
        raise InputError(f"{text!r} is not a preset of a language model", do=f"take {', '.join(known)}")
    it = shape_of(config.model, 256)  # bytes as tokens
    old = it.kind == "gpt2"
    head = it.width // it.heads
    return LanguageModel(
        name=text,
        layers=it.layers,
        width=it.width,
        heads=it.heads,
        kv_heads=it.kv_heads,
        hidden=it.hidden,
        vocab=it.vocab,
        context=it.context,
        head=head,
        value=head,
        gated=not old,
        tied=it.tied,
        positions=it.context if old else 0,
        biases=old,
        dropout=it.dropout > 0,
        experts=ExpertSizes(it.experts, it.top_k, it.hidden, round(it.shared_expert / it.hidden))
        if it.experts
        else None,
    )


def _too_large(model: LanguageModel, machine: Machine, found: SearchResult) -> InputError:
    assert found.tight is not None
    assert machine.compute is not None
    it = found.tight
    room = machine.compute.memory * HEADROOM
    kind = max(it.memory, key=lambda name: it.memory[name])
    return InputError(
        f"{model.name} does not fit: the {it.strategy.ranks} ranks of {machine.name} have {_gb(room)} GB each for it, "
        f"and of {found.examined} splits the smallest takes {_gb(it.bytes)} GB ({kind} {_gb(it.memory[kind])} GB; "
        f"{it.strategy})",
        do=f"take about {_next(it.strategy.ranks * it.bytes / room)} ranks, a smaller context or batch, or a machine "
        "with more memory",
    )


def _next(ranks: float) -> int:
    return 1 << max(int(ranks - 1), 1).bit_length()


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.3g}"


def _print(model: LanguageModel, machine: Machine, found: SearchResult, other: dict[str, SearchResult]) -> None:
    best = found.best
    assert best is not None
    assert machine.compute is not None
    it, cost = best.strategy, best.cost
    print(
        f"{model.name}, {model.parameters / 1e9:.4g} B parameters, on {counted(it.ranks, 'rank')} of {machine.name}: "
        f"{counted(it.batch, 'sample')} of {counted(it.context, 'token')} a step"
    )
    print(f"the quickest of {found.examined} splits that fits:")
    print(f"  {it}")
    print(
        f"  step {cost.seconds:.4g} s, {cost.tokens_per_second:.4g} tokens/s, MFU {100 * cost.mfu:.1f} %, "
        f"{cost.rate / 1e12:.4g} TFLOP/s a rank, {_gb(best.bytes)} of {_gb(machine.compute.memory)} GB a rank"
    )
    print("\ntime of a step, by what the slowest rank does or waits for")
    parts = sorted(cost.parts.items(), key=lambda pair: -pair[1])
    print_table(
        ["part", "s", "%"],
        [[name, f"{value:.4g}", f"{100 * value / cost.seconds:.1f}"] for name, value in parts if value],
    )
    print("\nmemory of the fullest rank")
    print_table(["kind", "GB"], [[name, _gb(value)] for name, value in best.memory.items()])
    print("\nmessages of the axes; ranks: of a line, and of these in one node; sent: by a rank in a step")
    rows = []
    for axis, sent in traffic(model, it, machine).items():
        key = "dp" if axis not in cost.parts else axis
        exposed, hidden = cost.parts.get(key, 0.0), cost.hidden.get(key, 0.0)
        rows.append(
            [axis, sent.ranks, sent.inner, bytes_text(sent.nbytes), f"{exposed:.4g}", f"{hidden:.4g}", sent.what]
        )
    print_table(["axis", "ranks", "in node", "sent", "exposed s", "hidden s", "what"], rows)
    print("\nthe quickest of each mesh")
    table = [
        [f"{each.cost.seconds:.4g}", f"{100 * each.cost.mfu:.1f}", _gb(each.bytes), str(each.strategy)]
        for each in [best, *found.others[: SHOWN - 1]]
    ]
    print_table(["step s", "MFU %", "GB", "split"], table)
    print("\nwhy: what less or more of an axis costs")
    for line in reasons(found):
        print(f"  {line}")
    if found.others:
        print(f"  runner-up: {compared(best, found.others[0])}")
    if other:
        print("\nwhat would change it")
        for name, again in other.items():
            same = again.best is not None and mesh_of(again.best.strategy) == mesh_of(it)
            said = "does not fit" if again.best is None else f"{again.best.cost.seconds:.4g} s, {again.best.strategy}"
            print(f"  {name}: {'the same mesh, ' if same else ''}{said}")
    if machine.source:
        print(f"numbers of the machine: {machine.source}")


def _record(
    model: LanguageModel, machine: Machine, found: SearchResult, other: dict[str, SearchResult]
) -> dict[str, Any]:
    best = found.best
    assert best is not None
    sent = {axis: each._asdict() for axis, each in traffic(model, best.strategy, machine).items()}
    return {
        "model": model.name,
        "parameters": model.parameters,
        "machine": machine.name,
        "source": machine.source,
        "examined": found.examined,
        "best": _choice(best),
        "traffic": sent,
        "others": [_choice(each) for each in found.others[:SHOWN]],
        "would_change": {name: again.best and _choice(again.best) for name, again in other.items()},
    }


def _choice(it: PricedStrategy) -> dict[str, Any]:
    fields = {name: getattr(it.strategy, name) for name in (*FIXED, "batch", "context")}
    return {
        "split": {**fields, "microbatches": it.strategy.microbatches},
        "seconds": it.cost.seconds,
        "parts": it.cost.parts,
        "hidden": it.cost.hidden,
        "tokens_per_second": it.cost.tokens_per_second,
        "mfu": it.cost.mfu,
        "memory": it.memory,
    }


def _draw(model: LanguageModel, machine: Machine, best: PricedStrategy, target: str) -> int:
    """The step: a text of the pipeline alone, or an SVG of all axes, of as few replicas as exchange tokens."""
    it = best.strategy
    if target == "-":
        options = {"chunks": it.chunks} if it.schedule == "interleaved" else {}
        schedule = pipeline_schedule(it.schedule, it.pp, it.microbatches, **options)
        block, v = best.cost.block, it.chunks
        sent = sum(block.messages.values()) - sum(block.forwards.values())
        times = StageTimes(block.ahead / v, (block.inputs + block.again + sent) / v, block.weights / v)
        nbytes = 2.0 * it.tokens * model.width / it.tp
        print(draw_schedule(schedule, price_schedule(schedule, machine, nbytes, times, it.tp * it.cp)))
        return 0
    write_svg(Path(target), draw_step(TrainingStep(model, it, machine, replicas=it.together), reached(machine)))
    print(f"{it}: drawn in {target}")
    return 0


def _proved(model: LanguageModel, machine: Machine, best: PricedStrategy) -> None:
    """Prove the step of all ranks as one plan, and price it beside the formulas."""
    plan = TrainingStep(model, best.strategy, machine)
    proof = prove(plan)
    print(f"proved: {plan.title()}: {proof.messages} messages in {proof.steps} steps, no rank waits for ever")
    seconds = price(plan, reached(machine)).seconds
    print(f"price of its plan: {seconds:.4g} s; by formulas: {best.cost.seconds:.4g} s")


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan train",
        description="Find the mesh, microbatch, pipeline schedule, ZeRO stage and recomputation that fit the memory "
        "and take least time, without MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument(
        "model", metavar="MODEL", help=f"{', '.join(NAMED)}; a preset as train/gpt; or a config.json of transformers"
    )
    it.add_argument("--ranks", required=True, metavar="N", help="how many ranks (GPUs); several, 8,64,512, in a table")
    it.add_argument(
        "--machine", default="nvlink", metavar="FILE", help=f"a machine file, or one of {', '.join(shipped())}"
    )
    it.add_argument("--batch", type=int, metavar="B", help="samples of a step (default: some 4 million tokens)")
    it.add_argument("--context", type=int, metavar="T", help="tokens of a sample (default: the model's)")
    for axis in (*AXES, *EXPERT_AXES):
        it.add_argument(f"--{axis}", type=int, metavar="N", help=f"fix the size of the axis {axis}")
    it.add_argument("--microbatch", type=int, metavar="N", help="fix the samples of a microbatch")
    it.add_argument("--schedule", choices=[*SCHEDULES], help="fix the schedule of the pipeline")
    it.add_argument("--chunks", type=int, metavar="V", help="fix the stages a rank, where the schedule leaves it open")
    it.add_argument(
        "--paired",
        action=argparse.BooleanOptionalAction,
        help="fix whether passes of two microbatches hide each other's messages to experts (zb_v, dualpipe_v)",
    )
    it.add_argument("--zero", dest="sharding", type=int, choices=range(4), help="fix what replicas share")
    it.add_argument("--recompute", choices=RECOMPUTE, help="fix what is recomputed")
    it.add_argument("--gradients", choices=GRADIENTS, default="float32", help="what replicas send of them (float32)")
    it.add_argument("--context-by", choices=CONTEXT, help="fix how ranks of cp meet all keys")
    it.add_argument("--brief", action="store_true", help="do not look at other networks, memories and batches")
    it.add_argument("--draw", nargs="?", const="-", metavar="FILE.svg", help="draw instead: the step as SVG, or a text")
    add_export(it)
    it.add_argument("--prove", action="store_true", help="prove the step of all ranks as one plan, and price that")
    it.add_argument("--json", action="store_true", help="print one JSON object")
    return it
