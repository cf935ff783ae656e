"""Python imports this at its start where PYTHONPATH has this folder: a rank of `hpckit run`, of an app or of a user's
program, and with QUICK_FRONT the command itself, becomes a copy of a prepared process (tests/prepared.py) instead of
importing everything itself. Without one it goes on as it is.
"""

import os
import sys

RANK = ["-P", "-m", "mpi4py", "-m", "hpckit.cli.worker"]
USER_RANK = ["-m", "hpckit.cli.user_rank"]
FRONT = ["-m", "hpckit.cli.main"]


def become():
    given, rest = sys.orig_argv[1:], None
    if "PREPARED_RANKS" not in os.environ or not given:
        return
    if "PMI_RANK" in os.environ:
        if given[: len(RANK)] == RANK:
            rest = given[3:]
        elif given[: len(USER_RANK)] == USER_RANK:
            rest = given
    elif "QUICK_FRONT" in os.environ:
        if given[:2] == FRONT:
            rest = given
        elif given[0] == os.path.join(os.path.dirname(sys.executable), "hpckit"):
            rest = [*FRONT, *given[1:]]
    if rest is not None:
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        import prepared

        sys.path.pop()
        prepared.join(os.environ["PREPARED_RANKS"], rest)


become()
