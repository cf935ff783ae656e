"""`python -m tests.gpu`: all checks of CUDA kernels on a GPU, or in Numba's simulator: one JSON object, a row a check.

With `--brief`, single precision is left out, and the checks that wait for the night. Exit code 1 where a kernel differs
from its form for the CPU, 3 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys

from hpckit.comm.gpu import first_gpu
from hpckit.errors import SetupError
from tests.gpu.checks import PRECISIONS, checks


def main() -> int:
    """Run them, and say on standard error which one runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--brief", action="store_true", help="what is checked by day, in double precision")
    brief = parser.parse_args().brief
    precisions = PRECISIONS[:1] if brief else PRECISIONS
    try:
        device = first_gpu()
    except SetupError as error:
        print(error.report(), file=sys.stderr)
        return error.exit_code
    rows = []
    for check in checks(brief):
        print(f"checking {check.name}", file=sys.stderr, flush=True)
        rows += check.rows(device, precisions)
    failed = [row for row in rows if not row["passed"]]
    counts = {"passed": len(rows) - len(failed), "failed": len(failed)}
    print(json.dumps({"gpu": device.name, "results": rows, "checks": counts}))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
