"""Chooses the form of a kernel by the arrays it is given, of any shape where the shape does not matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.forms import form_for


def _form(array: Any) -> Any:
    if not (isinstance(array, np.ndarray) or is_device_array(array)) or array.dtype not in (np.float32, np.float64):
        given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
        raise TypeError(f"layers take NumPy or CuPy arrays of float32 or float64, not {given}")
    return form_for(__package__, array)


def _flat(*arrays: Any) -> tuple[Any, ...]:
    """Views of one dim; arrays that are not C-contiguous would be copied, and are refused."""
    for array in arrays:
        if not array.flags.c_contiguous:
            raise ValueError(f"layers take C-contiguous arrays, not shape {array.shape} with strides {array.strides}")
    return tuple(array.reshape(-1) for array in arrays)


def relu(x: Any, y: Any) -> None:
    """See `reference.relu`."""
    _form(x).relu(*_flat(x, y))


def gelu(x: Any, y: Any) -> None:
    """See `reference.gelu`."""
    _form(x).gelu(*_flat(x, y))


def gelu_erf(x: Any, y: Any) -> None:
    """See `reference.gelu_erf`."""
    _form(x).gelu_erf(*_flat(x, y))


def silu(x: Any, y: Any) -> None:
    """See `reference.silu`."""
    _form(x).silu(*_flat(x, y))


def swiglu(gate: Any, up: Any, y: Any) -> None:
    """See `reference.swiglu`."""
    _form(y).swiglu(*_flat(gate, up, y))


def scale(x: Any, factor: Any) -> None:
    """See `reference.scale`."""
    _form(x).scale(*_flat(x, factor))


def scale_two(dy: Any, first: Any, second: Any) -> None:
    """See `reference.scale_two`."""
    _form(dy).scale_two(*_flat(dy, first, second))


def add_columns(x: Any, sums: Any) -> None:
    """See `reference.add_columns`; leading dims of x count as rows."""
    _form(x).add_columns(x.reshape(-1, x.shape[-1]), sums)


def squared_sum(x: Any) -> float:
    """See `reference.squared_sum`; waits for a GPU."""
    return _form(x).squared_sum(*_flat(x))


def squared_sums(x: Any, parts: np.ndarray) -> Any:
    """See `reference.squared_sums`: float64 [k], an array of the device where x is one."""
    return _form(x).squared_sums(*_flat(x), parts)


def choose(scores: Any, chosen: Any, shares: Any) -> None:
    """See `reference.choose`."""
    _form(scores).choose(scores, chosen, shares)


def cross_entropy(logits: Any, targets: Any, vocab: int, inverse: Any) -> Any:
    """See `reference.cross_entropy`: logits [n, columns], targets int64 [n]. A float, on a GPU an array of one."""
    return _form(logits).cross_entropy(logits, targets, vocab, inverse)


def cross_entropy_gradient(logits: Any, targets: Any, inverse: Any, factor: float) -> None:
    """See `reference.cross_entropy_gradient`."""
    _form(logits).cross_entropy_gradient(logits, targets, inverse, factor)


def adamw(values: Any, grads: Any, mean: Any, square: Any, bounds: Any, decays: Any, settings: Any) -> None:
    """See `reference.adamw`."""
    _form(values).adamw(values, grads, mean, square, bounds, decays, settings)


def momentum(values: Any, grads: Any, velocity: Any, bounds: Any, decays: Any, settings: Any) -> None:
    """See `reference.momentum`."""
    _form(values).momentum(values, grads, velocity, bounds, decays, settings)


def embed(tokens: Any, table: Any, positions: Any, y: Any) -> None:
    """See `reference.embed`."""
    _form(table).embed(tokens, table, positions, y)


def embed_gradient(tokens: Any, dy: Any, dtable: Any, dpositions: Any) -> None:
    """See `reference.embed_gradient`."""
    _form(dtable).embed_gradient(tokens, dy, dtable, dpositions)


def dropout(x: Any, y: Any, key: int, step: int, first: int, rate: float) -> None:
    """See `reference.dropout`: samples along the first dim; 0 <= rate < 1, key below 2^64."""
    _form(x).dropout(x.reshape(len(x), -1), y.reshape(len(x), -1), key, step, first, rate)
