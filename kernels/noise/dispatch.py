"""Chooses the form of the random numbers by the arrays they are given: NumPy's, or those of a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.noise import simd

__all__ = ["normals", "uniforms"]


def _form(array: Any) -> ModuleType:
    if not is_device_array(array):
        return simd
    from hpckit.kernels.noise import cuda

    return cuda


def uniforms(seed: int, step: int, ids: Any, stream: int, out: Any) -> None:
    """out[i] = the four numbers of `reference.uniforms` for ids[i]; nothing where an id is negative."""
    _form(out).uniforms(seed, step, ids, stream, out)


def normals(seed: int, step: int, ids: Any, stream: int, out: Any) -> None:
    """out[i] = the four numbers of `reference.normals` for ids[i]; nothing where an id is negative."""
    _form(out).normals(seed, step, ids, stream, out)
