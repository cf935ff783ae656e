"""Chooses the form of a norm by the arrays it is given; leading dims of x, y and their gradients count as rows."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for


def _rows(array: Any, width: int) -> Any:
    return array.reshape(-1, width)


def layer_norm(x: Any, gain: Any, bias: Any, eps: float, y: Any, mean: Any, rstd: Any) -> None:
    """See `reference.layer_norm`."""
    form_for(__package__, x).layer_norm(_rows(x, gain.size), gain, bias, eps, _rows(y, gain.size), mean, rstd)


def layer_norm_input(x: Any, gain: Any, mean: Any, rstd: Any, dy: Any, carry: Any | None, dx: Any) -> None:
    """See `reference.layer_norm_input`; carry may be None."""
    rows = [_rows(array, gain.size) for array in (x, dy, dx)]
    carry = rows[0][:0] if carry is None else _rows(carry, gain.size)
    form_for(__package__, x).layer_norm_input(rows[0], gain, mean, rstd, rows[1], carry, rows[2])


def layer_norm_weight(x: Any, mean: Any, rstd: Any, dy: Any, dgain: Any, dbias: Any) -> None:
    """See `reference.layer_norm_weight`."""
    form_for(__package__, x).layer_norm_weight(_rows(x, dgain.size), mean, rstd, _rows(dy, dgain.size), dgain, dbias)


def rms_norm(x: Any, gain: Any, eps: float, y: Any, rstd: Any) -> None:
    """See `reference.rms_norm`."""
    form_for(__package__, x).rms_norm(_rows(x, gain.size), gain, eps, _rows(y, gain.size), rstd)


def rms_norm_input(x: Any, gain: Any, rstd: Any, dy: Any, carry: Any | None, dx: Any) -> None:
    """See `reference.rms_norm_input`; carry may be None."""
    rows = [_rows(array, gain.size) for array in (x, dy, dx)]
    carry = rows[0][:0] if carry is None else _rows(carry, gain.size)
    form_for(__package__, x).rms_norm_input(rows[0], gain, rstd, rows[1], carry, rows[2])


def rms_norm_weight(x: Any, rstd: Any, dy: Any, dgain: Any) -> None:
    """See `reference.rms_norm_weight`."""
    form_for(__package__, x).rms_norm_weight(_rows(x, dgain.size), rstd, _rows(dy, dgain.size), dgain)
