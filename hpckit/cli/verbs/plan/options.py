"""What the verbs of plans have in common: the machine, a proof, a drawing, JSON, a trace that SimGrid replays."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hpckit.io.files import write_svg
from hpckit.plan.drawing import draw, draw_svg
from hpckit.plan.machine.machine import Machine, shipped
from hpckit.plan.machine.simgrid import export_trace
from hpckit.plan.protocol import Plan
from hpckit.plan.proving import prove


def add_options(it: argparse.ArgumentParser, drawn: str = "draw") -> None:
    """`--machine`, `--prove`, `--draw` and `--json`. drawn: the beginning of the help of `--draw`."""
    it.add_argument(
        "--machine", default="infiniband", metavar="FILE", help=f"a machine file, or one of {', '.join(shipped())}"
    )
    it.add_argument("--prove", action="store_true", help="prove the plans first, all ranks symbolically")
    it.add_argument(
        "--draw",
        nargs="?",
        const="-",
        metavar="FILE.svg",
        help=f"{drawn} instead: a text table, or an SVG into a file",
    )
    it.add_argument("--json", action="store_true", help="print one JSON object")


def tell_proof(plan: Plan, aside: bool, name: str = "") -> None:
    """Prove a plan and say so; aside: on standard error. name: of the plan, before its title."""
    proof = prove(plan)
    print(f"proved: {name}{plan.title()}, {proof.messages} messages", file=sys.stderr if aside else sys.stdout)


def show(plans: Sequence[Plan], target: str, machine: Machine, nbytes: float = 0.0) -> None:
    """Draw plans for `--draw`: as text tables where the target is "-", else the first one as an SVG in that file."""
    if target == "-":
        print("\n\n".join(map(draw, plans)))
        return
    write_svg(Path(target), draw_svg(plans[0], machine, nbytes))
    print(f"{plans[0].title()}: drawn in {target}")


def add_export(it: argparse.ArgumentParser) -> None:
    """`--export-trace`."""
    it.add_argument("--export-trace", metavar="DIR", help="write the plan as a trace for SimGrid's smpirun -replay")


def export(plan: Plan, folder: str, machine: Machine, nbytes: float = 0.0, itemsize: float = 8) -> None:
    """Write a plan as a trace, and say how it is replayed."""
    command = export_trace(plan, folder, machine, nbytes, itemsize)
    print(f"{plan.title()}: written to {folder}; replay it there with\n  {command}", file=sys.stderr)
