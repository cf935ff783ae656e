"""Errors on all ranks: an error on one rank is raised on all, so that no rank waits for one that gave up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.comm.agree import share_json
from hpckit.errors import CorruptDataError, HpckitError, InputError, SetupError
from hpckit.io.files import write_error

_KINDS = {kind.code: kind for kind in (InputError, SetupError, CorruptDataError)}


def together(comm: Any, path: Path, action: Callable[[], int]) -> int:
    """Run `action` on every rank and return the sum of what it returned (collective).

    `path` names what is written, for the message. If `action` raises `OSError` or `HpckitError` on any rank, every rank
    raises: that rank its own error, the others the same error with that rank named.
    """
    error: HpckitError | None = None
    count = 0
    try:
        count = action()
    except HpckitError as problem:
        error = problem
    except OSError as problem:
        error = write_error(problem, Path(problem.filename or path))
        error.__cause__ = problem
    mine = np.array([count, error is not None], np.int64)
    every = np.empty((comm.size, 2), np.int64)
    comm.Allgather(mine, every)
    failed = np.flatnonzero(every[:, 1])
    if not failed.size:
        return int(every[:, 0].sum())
    first = int(failed[0])
    told = share_json(comm, None if error is None else error.to_dict(), root=first)
    if error is not None:
        raise error
    where = ", ".join(part for part in (f"rank {first}", told["where"]) if part)
    raise _KINDS.get(told["code"], SetupError)(told["message"], where=where, likely=told["likely"], do=told["do"])
