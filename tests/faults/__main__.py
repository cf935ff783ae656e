"""`python -m tests.faults --tier T0 --json`: faults on purpose; `hpckit.bench.command` has the options of all."""

from __future__ import annotations

import sys

from hpckit.bench.command import main_of
from tests.faults import run

if __name__ == "__main__":
    sys.exit(main_of(run, "python -m tests.faults", sys.argv[1:]))
