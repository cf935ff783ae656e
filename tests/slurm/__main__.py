"""`python -m tests.slurm --json`: jobs on a Slurm of its own; `hpckit.bench.command` has the options of all."""

from __future__ import annotations

import sys

from hpckit.bench.command import main_of
from tests.slurm import run

if __name__ == "__main__":
    sys.exit(main_of(run, "python -m tests.slurm", sys.argv[1:]))
