"""Chooses the form of the random numbers by the arrays they are given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for


def uniforms(seed: int, step: int, ids: Any, stream: int, out: Any) -> None:
    """Four numbers in (0, 1) for each id; see `reference.uniforms`."""
    form_for(__package__, out).uniforms(seed, step, ids, stream, out)


def normals(seed: int, step: int, ids: Any, stream: int, out: Any) -> None:
    """Four independent normal numbers for each id; see `reference.normals`."""
    form_for(__package__, out).normals(seed, step, ids, stream, out)
