"""Safeguards of running jobs that mutants take out, on every rank of a job: without them a case must fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from hpckit.apps.atmosphere import loop
from hpckit.comm import checksums
from hpckit.grid import phases
from hpckit.kernels.particles.integrate.dispatch import langevin
from hpckit.md.motion import thermostats
from hpckit.run import step_boundary
from hpckit.run.redundant_step import Kept

NONE = "-"
Patch = tuple[Any, str, Any]  # the module or class whose name is bound to something else, and to what


def _one_face(message: Any) -> int:
    """In place of `phases.entry_of`: messages of both directions share an entry."""
    return 2 * message.dim


def _by_slot(*given: Any) -> None:
    """In place of `langevin`: random numbers by the slots of a rank, not by the particles."""
    *arrays, ids, slots, half, way, keep, strength, noise = given
    numbers = np.where(ids >= 0, np.arange(len(ids), dtype=ids.dtype), ids)
    langevin(*arrays, numbers, slots, half, way, keep, strength, noise)


def nothing(*unused: Any) -> None:
    """In place of a check, or of a function that forces something to disk."""


# Name -> what is put in its place.
SAFEGUARDS: dict[str, Patch] = {
    "face tag": (phases, "entry_of", _one_face),
    "keys of random numbers": (thermostats, "langevin", _by_slot),
    "NaN gate": (step_boundary, "require_finite", nothing),
    "finite check of a model": (loop, "require_sound", nothing),
    "comparison of replayed steps": (Kept, "difference", nothing),
    "comparison of checksums": (checksums, "compare", nothing),
}


@contextlib.contextmanager
def replaced(*patches: Patch) -> Iterator[None]:
    """With other things bound to some names. Raises `AttributeError` for a name that is not there."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(patch.object(owner, name, value))
        yield


def taken_out(name: str) -> contextlib.AbstractContextManager[None]:
    """Without the safeguard of this name; `-`: with all of them."""
    return replaced(*([SAFEGUARDS[name]] if name != NONE else []))
