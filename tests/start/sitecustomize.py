"""Python imports this at its start where PYTHONPATH has this folder: a rank of `hpckit run` becomes a copy of a
prepared process (tests/prepared.py) instead of importing everything itself. Without one it goes on as it is.
"""

import os
import sys

_RANK = ["-P", "-m", "mpi4py", "-m", "hpckit.cli.worker"]
if "PREPARED_RANKS" in os.environ and "PMI_RANK" in os.environ and sys.orig_argv[1 : len(_RANK) + 1] == _RANK:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import prepared

    sys.path.pop()
    prepared.join(os.environ["PREPARED_RANKS"], sys.orig_argv[4:])
