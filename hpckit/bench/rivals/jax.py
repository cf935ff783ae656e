"""JAX beside us on one core.

XLA makes as many threads as the process may use cores when its backend starts, and has no flag that says otherwise: a
process that is bound to one core first is what binds it. Unbound, on two cores, it took 1.5 cores of a small step.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

PAUSE = 0.3  # s in which JAX's threads come to rest, on the core that all share


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Bind this thread, and those that start within, to one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def jax_on_one_core() -> Any:
    """JAX in double precision, its backend started; within `one_core`. None where it is not installed."""
    if importlib.util.find_spec("jax") is None:
        return None
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.devices()
    return jax
