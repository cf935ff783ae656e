"""`hpckit plan pipeline`: prove, price and draw the schedules of pipeline-parallel training, without MPI."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.plan.options import add_export, export
from hpckit.errors import InputError
from hpckit.io.files import write_svg
from hpckit.plan.machine.machine import Machine, machine_of, shipped
from hpckit.plan.pipeline.draw import WIDE, draw_schedule, draw_schedule_svg, title
from hpckit.plan.pipeline.partition import Partition, TimedLayer, partition_layers, read_layers
from hpckit.plan.pipeline.price import SchedulePrice, price_schedule
from hpckit.plan.pipeline.program import pipeline_program
from hpckit.plan.pipeline.schedule import Schedule
from hpckit.plan.pipeline.schedules import SCHEDULES, closed_form, pipeline_schedule, schedule_name
from hpckit.plan.pipeline.table import read_schedule, write_schedule
from hpckit.plan.pipeline.times import StageTimes
from hpckit.plan.proving import prove
from hpckit.report.units import counted
from hpckit.settings.sizes import parse_bytes
from hpckit.settings.table import Parser, print_table

EXAMPLE = "hpckit plan pipeline --stages 4 --microbatches 16 --schedule zb_h1"
STAGES, MICROBATCHES = 4, 16
NBYTES = "8MiB"


@dataclass(frozen=True)
class PipelineSetting:
    """The inputs of all prices. share: F, I and W of a rank's part of the network, s; tied: s."""

    machine: Machine | None
    nbytes: int
    stride: int
    share: tuple[float, float, float] | None
    layers: list[TimedLayer]
    tied: float

    @property
    def in_units(self) -> bool:
        """Whether times are in units of F, because no option gives seconds."""
        return self.share is None and not self.layers and self.machine is None

    def partition(self, schedule: Schedule) -> Partition:
        """The layers dealt to the stages; a tied weight is stored once if one rank has the first and last stage."""
        tied = self.tied if schedule.rank_of[0] != schedule.rank_of[-1] else 0.0
        return partition_layers([layer.seconds for layer in self.layers], schedule.stages, tied)

    def stage_times(self, schedule: Schedule) -> StageTimes:
        """The times of its stages: of the layers dealt to them, or a rank's share cut into its stages."""
        if not self.layers:
            share = self.share or ((1e-3,) * 3 if self.machine else (1, 1, 1))
            chunks = schedule.chunks
            return StageTimes(*(value if chunks == 1 else value / chunks for value in share))
        parts = self.partition(schedule)
        forward = parts.sums([layer.forward for layer in self.layers])
        backward_input = parts.sums([layer.backward_input for layer in self.layers])
        # W with the tie: the load beyond the layers' own.
        weight = [load - f - i for load, f, i in zip(parts.loads, forward, backward_input, strict=True)]
        return StageTimes(forward, backward_input, [max(time, 0.0) for time in weight])

    def priced(self, schedule: Schedule) -> SchedulePrice:
        """The price of a step."""
        return price_schedule(schedule, self.machine, self.nbytes, self.stage_times(schedule), self.stride)


def main(arguments: list[str]) -> int:
    """The operation `pipeline` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    setting = _setting(options)
    schedules, refused = _schedules(options)
    possible = []
    for schedule in schedules:
        try:
            if setting.layers:
                setting.partition(schedule)
            possible.append(schedule)
        except InputError as error:
            refused.append((schedule.name, error))
    if not options.schedule:  # if none is possible, the simplest schedule says why
        refused.sort(key=lambda pair: list(SCHEDULES).index(pair[0]))
    if not possible or (options.schedule and refused):
        raise refused[0][1]
    if options.program:
        print("\n\n".join(str(pipeline_program(schedule, reduce=True)) for schedule in possible))
        return 0
    if options.save is not None:
        write_schedule(_only(possible, "table"), options.save)
    if options.export_trace is not None:
        _export(_only(possible, "trace"), options.export_trace, setting)
        return 0
    if options.draw is not None:
        return _draw(possible, options.draw, setting)
    rows = sorted((_row(schedule, setting) for schedule in possible), key=lambda row: (row["time"], row["period"]))
    if options.json:
        print(json.dumps({**_head(possible[0], setting), "schedules": rows}))
        return 0
    if len(options.schedule or ()) == 1:
        _show(possible[0], setting)
    _print(possible[0], rows, refused, setting)
    return 0


def _show(schedule: Schedule, setting: PipelineSetting) -> None:
    """A drawing as wide as the terminal, if the schedule is not too large for one."""
    wide = shutil.get_terminal_size((WIDE, 24)).columns - len("rank 00  ") if sys.stdout.isatty() else WIDE
    with suppress(InputError):
        print(draw_schedule(schedule, setting.priced(schedule), max(wide, 20)))
        print()


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan pipeline",
        description="Compare the schedules of pipeline-parallel training, or prove, price and draw one, without MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("--stages", "--ranks", type=int, help=f"ranks of the pipeline (default {STAGES})")
    it.add_argument("--microbatches", type=int, help=f"microbatches of a step (default {MICROBATCHES})")
    it.add_argument(
        "--schedule", action="append", metavar="NAME", help=f"{', '.join(SCHEDULES)}, or a table (FILE.csv); may repeat"
    )
    it.add_argument("--chunks", type=int, help="stages a rank holds, where a schedule leaves it open (default 2)")
    it.add_argument("--times", metavar="F,I,W", help="ms that a rank's part of the network takes for one microbatch")
    it.add_argument("--layers", metavar="FILE.csv", help="instead: a line a layer (name, F, I, W in ms)")
    it.add_argument("--tied", type=float, default=0.0, metavar="MS", help="ms more on the first and last stage (tied)")
    it.add_argument("--machine", metavar="FILE", help=f"price messages: a machine file, or {', '.join(shipped())}")
    it.add_argument("--bytes", help="an activation of one microbatch between stages (default 8MiB)")
    it.add_argument("--stride", type=int, default=1, help="ranks of the machine from stage to stage (default 1)")
    it.add_argument(
        "--draw", nargs="?", const="-", metavar="FILE.svg", help="draw only: a text, or a Gantt chart into a file"
    )
    it.add_argument("--program", action="store_true", help="print each rank's list with messages and reductions")
    it.add_argument("--save", metavar="FILE.csv", help="write the schedule as a table that --schedule reads")
    add_export(it)
    it.add_argument("--json", action="store_true", help="print one JSON object")
    return it


def _setting(options: argparse.Namespace) -> PipelineSetting:
    share = None
    if options.times is not None:
        try:
            forward, backward_input, weight = (float(text) / 1e3 for text in options.times.split(","))
        except ValueError:
            raise InputError(f"{options.times!r} is not three times", do="write F,I,W in ms, as in 2.1,2,1.9") from None
        share = (forward, backward_input, weight)
        StageTimes(*share)
        if options.layers:
            raise InputError("times of the stages and of the layers exclude each other", do="give --times or --layers")
    if not 0 <= options.tied < float("inf"):
        raise InputError(f"--tied {options.tied:g} is not a time", do="give ms, 0 or more")
    if options.tied and not options.layers:
        raise InputError("--tied is for layers that are dealt to stages", do="give --layers FILE.csv too")
    alone = [f"--{name}" for name in ("bytes", "stride") if getattr(options, name) not in (None, 1)]
    if alone and not options.machine:
        raise InputError(f"{' and '.join(alone)} without a machine that carries messages", do="give --machine too")
    machine = machine_of(options.machine) if options.machine else None
    layers = read_layers(options.layers) if options.layers else []
    return PipelineSetting(
        machine, parse_bytes(options.bytes or NBYTES), options.stride, share, layers, options.tied / 1e3
    )


def _schedules(options: argparse.Namespace) -> tuple[list[Schedule], list[tuple[str, InputError]]]:
    """The requested schedules, by default all, and the impossible ones with the reason."""
    ranks = STAGES if options.stages is None else options.stages
    microbatches = MICROBATCHES if options.microbatches is None else options.microbatches
    found, refused = [], []
    for name in options.schedule or SCHEDULES:
        if name.lower().endswith(".csv"):
            found.append(_table(name, options))
            continue
        takes = SCHEDULES[schedule_name(name)][1]
        given = {} if options.chunks is None else {"chunks": options.chunks}
        wanted = given if options.schedule else {key: value for key, value in given.items() if key in takes}
        try:
            found.append(pipeline_schedule(name, ranks, microbatches, **wanted))
        except InputError as error:
            refused.append((name, error))
    return found, refused


def _table(name: str, options: argparse.Namespace) -> Schedule:
    schedule = read_schedule(name)
    for what, given, has in (
        ("stages", options.stages, schedule.ranks),
        ("microbatches", options.microbatches, schedule.microbatches),
    ):
        if given not in (None, has):
            raise InputError(f"--{what} {given}, the table has {has}", where=name, do=f"leave out --{what}")
    return schedule


def _only(schedules: list[Schedule], what: str) -> Schedule:
    if len(schedules) != 1:
        names = ", ".join(schedule.name for schedule in schedules)
        raise InputError(f"one schedule goes into one {what}", do=f"choose it with --schedule: {names}")
    return schedules[0]


def _row(schedule: Schedule, setting: PipelineSetting) -> dict[str, Any]:
    proof, it = prove(pipeline_program(schedule)), setting.priced(schedule)
    theory = closed_form(schedule) if setting.stage_times(schedule).equal() and setting.machine is None else None
    return {
        "schedule": schedule.name,
        "chunks": schedule.chunks,
        "time": it.seconds,
        "period": it.period,
        "bubble": it.bubble,
        "open_bubble": it.open_bubble,
        "theory": theory and theory[0],
        "open_theory": theory and theory[1],
        "live": [live / schedule.chunks for live in schedule.live()],
        "actions": sum(map(len, schedule.actions)),
        "messages": proof.messages,
        "sent_bytes": list(it.sent),
    }


def _head(schedule: Schedule, setting: PipelineSetting) -> dict[str, Any]:
    machine = setting.machine
    return {
        "stages": schedule.ranks,
        "microbatches": schedule.microbatches,
        "unit": "F" if setting.in_units else "s",
        "machine": machine and machine.name,
        "source": machine and machine.source,
        "bytes": setting.nbytes if machine else None,
    }


def _export(schedule: Schedule, folder: str, setting: PipelineSetting) -> None:
    """The program of the ranks, with its messages and the times of the stages."""
    if setting.machine is None:
        raise InputError("a trace has seconds and bytes", do="give --machine FILE, and --times or --layers")
    program = replace(pipeline_program(schedule), seconds=setting.stage_times(schedule).table(schedule))
    export(program, folder, setting.machine, setting.nbytes)


def _print(
    schedule: Schedule, rows: list[dict[str, Any]], refused: list[tuple[str, InputError]], setting: PipelineSetting
) -> None:
    unit, scale = ("in units of F = I = W", 1.0) if setting.in_units else ("in ms", 1e3)
    on = f" on {setting.machine.name}, messages of {setting.nbytes} bytes" if setting.machine else ""
    print(
        f"pipeline of {counted(schedule.ranks, 'rank')}, {schedule.microbatches} microbatches{on}; proved; times {unit}"
    )
    if setting.machine and not (setting.share or setting.layers):
        print("a rank computes F, I and W in 1 ms each: give --times or --layers")
    table = [
        [
            row["schedule"],
            row["chunks"],
            f"{row['time'] * scale:.5g}",
            f"{100 * row['bubble']:.2f}",
            "-" if row["theory"] is None else f"{100 * row['theory']:.2f}",
            f"{row['period'] * scale:.5g}",
            f"{100 * row['open_bubble']:.2f}",
            f"{max(row['live']):.4g}",
            row["messages"],
        ]
        for row in rows
    ]
    head = ["schedule", "chunks", "time", "bubble %", "theory %", "period", "open bubble %", "live", "messages"]
    print_table(head, table)
    print("bubble: ranks' time without work until all are done; theory: its closed form for F = I = W")
    print("period, open bubble: the same where steps follow each other without a barrier")
    print("live: the most microbatches a rank holds activations of, in units of its whole share of the network")
    for name, error in refused:
        print(f"not possible: {name}: {error.message}; {error.do}")
    if setting.layers:
        _print_layers(setting.partition(schedule), setting)
    if setting.machine and setting.machine.source:
        print(f"numbers of the machine: {setting.machine.source}")


def _print_layers(parts: Partition, setting: PipelineSetting) -> None:
    print(f"layers dealt to {len(parts.loads)} stages, balance {100 * parts.balance:.1f} %:")
    for stage, load in enumerate(parts.loads):
        own = parts.layers(stage)
        first, last = setting.layers[own[0]].name, setting.layers[own[-1]].name
        names = first if len(own) == 1 else f"{first} to {last}"
        print(f"  stage {stage}: {names} ({len(own)}), {1e3 * load:.5g} ms")


def _draw(schedules: list[Schedule], target: str, setting: PipelineSetting) -> int:
    for schedule in schedules:
        prove(schedule)
    if target == "-":
        print("\n\n".join(draw_schedule(schedule, setting.priced(schedule)) for schedule in schedules))
        return 0
    schedule = _only(schedules, "picture")
    in_units = setting.in_units and setting.machine is None
    priced = setting.priced(schedule)
    time = f"{1e3 * priced.seconds:.4g} ms" + (f" on {setting.machine.name}" if setting.machine else "")
    picture = draw_schedule_svg(schedule) if in_units else draw_schedule_svg(schedule, priced, time)
    write_svg(Path(target), picture)
    print(f"{title(schedule, setting.priced(schedule))}: drawn in {target}", file=sys.stdout)
    return 0
