"""Safeguards of running jobs that mutants take out, on every rank of a job: without them a case must fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

NONE = "-"


def _one_face(message: Any) -> int:
    """In place of `phases.entry_of`: messages of both directions share an entry."""
    return 2 * message.dim


def _by_slot(seed: int, step: int, ids: np.ndarray, stream: int, out: np.ndarray) -> None:
    """In place of `noise.normals`: random numbers by the slots of a rank, not by the particles."""
    from hpckit.kernels.noise.dispatch import normals

    normals(seed, step, np.arange(len(ids), dtype=ids.dtype), stream, out)


def _nothing(*unused: Any) -> None:
    """In place of a check."""


# Name -> what is put in its place.
SAFEGUARDS: dict[str, tuple[tuple[str, Any], ...]] = {
    "face tag": (("hpckit.grid.phases.entry_of", _one_face),),
    "keys of random numbers": (("hpckit.md.thermostats.normals", _by_slot),),
    "NaN gate": (("hpckit.run.step_boundary.require_finite", _nothing),),
    "finite check of a model": (("hpckit.apps.atmosphere.loop.require_sound", _nothing),),
    "comparison of replayed steps": (("hpckit.run.redundant_step.Kept.difference", _nothing),),
    "comparison of checksums": (("hpckit.comm.checksums.compare", _nothing),),
}


@contextlib.contextmanager
def taken_out(name: str) -> Iterator[None]:
    """Without the safeguard of this name; `-`: with all of them."""
    with contextlib.ExitStack() as stack:
        for target, value in SAFEGUARDS[name] if name != NONE else ():
            stack.enter_context(patch(target, value))
        yield
