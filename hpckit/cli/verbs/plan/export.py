"""`hpckit plan … --export-trace DIR`: a plan as a trace that SimGrid replays."""

from __future__ import annotations

import argparse
import sys

from hpckit.plan.machine.machine import Machine
from hpckit.plan.machine.simgrid import export_trace
from hpckit.plan.protocol import Plan


def add_export(it: argparse.ArgumentParser) -> None:
    """The option."""
    it.add_argument("--export-trace", metavar="DIR", help="write the plan as a trace for SimGrid's smpirun -replay")


def export(plan: Plan, folder: str, machine: Machine, nbytes: float = 0.0, itemsize: float = 8) -> None:
    """Write it, and say how it is replayed."""
    command = export_trace(plan, folder, machine, nbytes, itemsize)
    print(f"{plan.title()}: written to {folder}; replay it there with\n  {command}", file=sys.stderr)
