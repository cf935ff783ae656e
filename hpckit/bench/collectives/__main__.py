"""Collectives on the ranks of an existing job: `mpiexec -n 64 python -m mpi4py -m hpckit.bench.collectives`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.collectives import verb
from hpckit.bench.collectives.cases import OPTIONS, cases_of, default_cases, tuning_cases
from hpckit.bench.collectives.ranks import measured
from hpckit.bench.command import add_common, exit_code, show
from hpckit.comm.agree import broadcast_bytes
from hpckit.errors import HpckitError


def main(arguments: Sequence[str]) -> None:
    """Measure on all ranks; rank 0 prints. Every rank ends with its exit code."""
    parser = argparse.ArgumentParser(prog="python -m mpi4py -m hpckit.bench.collectives")
    add_common(parser)
    verb.add_options(parser)
    options = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    if comm.size < 2 or options.ranks:
        parser.error("a job of 2 ranks or more is measured as it is: start it with mpiexec, without --ranks")
    asked = {name: getattr(options, name) for name in OPTIONS}
    code = np.zeros(1, np.int32)
    if any(word is not None for word in asked.values()):
        cases = _cases_of_job(comm, options, asked)
    else:
        cases = (tuning_cases if options.tune else default_cases)(options.quick, comm.size)
    rows = [measured(one) for one in cases]
    if comm.rank == 0:
        if any(word is not None for word in asked.values()):
            found = verb.asked_result(rows, asked, options.plot)
        else:
            found = verb.tuned(rows) if options.tune else verb.default_result(rows, options.plot)
        show(found, options.json)
        code[0] = exit_code(found)
    comm.Bcast(code, 0)
    if code[0]:
        sys.exit(int(code[0]))


def _cases_of_job(comm: MPI.Comm, options: argparse.Namespace, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The requested cases, checked by rank 0. If they are invalid, it prints why, and all ranks end."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    told: dict[str, Any] = {"code": 0}
    if comm.rank == 0:
        given = {"on_node": node.size, "tune": options.tune, "plot": options.plot}
        try:
            told["cases"] = cases_of(asked, [comm.size], options.quick, **given)[comm.size]
        except HpckitError as error:
            told["code"] = error.exit_code
            print(error.report(), file=sys.stderr, flush=True)
    node.Free()
    told = json.loads(broadcast_bytes(comm, json.dumps(told).encode(), 0))
    if told["code"]:
        comm.Barrier()
        sys.exit(told["code"])
    return told["cases"]


if __name__ == "__main__":
    main(sys.argv[1:])
