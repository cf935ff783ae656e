"""Normalization of rows on a GPU: a block of threads a row. What the functions compute is said in `reference`.

The gradients of gain and bias go over memory twice: their terms, then the sums of columns of `nn.cuda`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.folds import fold_sum, folders
from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.nn import cuda as rows
from hpckit.kernels.nn.memory import empty

THREADS, FOLDERS = threads(256), folders(128)
u8 = np.uint64


@functools.cache
def _norm(dtype: str, centered: bool) -> Any:
    """The kernel of layer norm, or without the mean and the bias of RMS norm."""
    real = np.dtype(dtype).type

    @kernel
    def norm(x, gain, bias, eps, y, mean, rstd):
        values, lane, row = cuda.shared.array(FOLDERS, real), u8(cuda.threadIdx.x), u8(cuda.blockIdx.x)
        width = u8(x.shape[1])
        part, middle = real(1) / real(width), real(0)
        if centered:
            total = real(0)
            for j in range(lane, width, u8(FOLDERS)):
                total += x[row, u8(j)]
            values[lane] = total
            middle = fold_sum(values, lane) * part
        squares = real(0)
        for j in range(lane, width, u8(FOLDERS)):
            z = x[row, u8(j)] - middle
            squares += z * z
        values[lane] = squares
        spread = real(1) / math.sqrt(fold_sum(values, lane) * part + eps)
        if lane == u8(0):
            rstd[row] = spread
            if centered:
                mean[row] = middle
        for j in range(lane, width, u8(FOLDERS)):
            value = (x[row, u8(j)] - middle) * spread * gain[u8(j)]
            y[row, u8(j)] = value + bias[u8(j)] if centered else value

    return norm


@functools.cache
def _input(dtype: str, centered: bool) -> Any:
    """The kernel of the gradient of the input of either norm."""
    real = np.dtype(dtype).type

    @kernel
    def norm_input(x, gain, mean, rstd, dy, carry, dx):
        values, lane, row = cuda.shared.array(FOLDERS, real), u8(cuda.threadIdx.x), u8(cuda.blockIdx.x)
        width = u8(x.shape[1])
        part, spread, middle = real(1) / real(width), rstd[row], real(0)
        if centered:
            middle = mean[row]
        total, aligned = real(0), real(0)
        for j in range(lane, width, u8(FOLDERS)):
            g = dy[row, u8(j)] * gain[u8(j)]
            total += g
            aligned += g * ((x[row, u8(j)] - middle) * spread)
        values[lane] = aligned
        aligned = fold_sum(values, lane) * part
        average = real(0)
        if centered:
            values[lane] = total
            average = fold_sum(values, lane) * part
        for j in range(lane, width, u8(FOLDERS)):
            h = (x[row, u8(j)] - middle) * spread
            value = spread * (dy[row, u8(j)] * gain[u8(j)] - average - h * aligned)
            if carry.shape[0] > 0:
                value += carry[row, u8(j)]
            dx[row, u8(j)] = value

    return norm_input


@functools.cache
def _terms(centered: bool) -> Any:
    @kernel
    def terms(x, mean, rstd, dy, out):
        """What the gradient of the gain is the sum of."""
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(x.size):
            row, column = i // u8(x.shape[1]), i % u8(x.shape[1])
            value = x[row, column]
            if centered:
                value -= mean[row]
            out[row, column] = dy[row, column] * (value * rstd[row])

    return terms


def layer_norm(x: Any, gain: Any, bias: Any, eps: float, y: Any, mean: Any, rstd: Any) -> None:
    _launch(_norm(x.dtype.char, True), x, gain, bias, x.dtype.type(eps), y, mean.reshape(-1), rstd.reshape(-1))


def layer_norm_input(x: Any, gain: Any, mean: Any, rstd: Any, dy: Any, carry: Any, dx: Any) -> None:
    _launch(_input(x.dtype.char, True), x, gain, mean.reshape(-1), rstd.reshape(-1), dy, carry, dx)


def layer_norm_weight(x: Any, mean: Any, rstd: Any, dy: Any, dgain: Any, dbias: Any) -> None:
    _add_terms(_terms(True), x, mean.reshape(-1), rstd.reshape(-1), dy, dgain)
    rows.add_columns(dy, dbias)


def rms_norm(x: Any, gain: Any, eps: float, y: Any, rstd: Any) -> None:
    flat = rstd.reshape(-1)
    _launch(_norm(x.dtype.char, False), x, gain, gain, x.dtype.type(eps), y, flat, flat)


def rms_norm_input(x: Any, gain: Any, rstd: Any, dy: Any, carry: Any, dx: Any) -> None:
    flat = rstd.reshape(-1)
    _launch(_input(x.dtype.char, False), x, gain, flat, flat, dy, carry, dx)


def rms_norm_weight(x: Any, rstd: Any, dy: Any, dgain: Any) -> None:
    flat = rstd.reshape(-1)
    _add_terms(_terms(False), x, flat, flat, dy, dgain)


def _launch(norm: Any, x: Any, *arguments: Any) -> None:
    if len(x):
        norm[len(x), FOLDERS](x, *arguments)


def _add_terms(terms: Any, x: Any, mean: Any, rstd: Any, dy: Any, dgain: Any) -> None:
    out = empty(x.shape, x)
    terms[blocks(x.size, THREADS), THREADS](x, mean, rstd, dy, out)
    rows.add_columns(out, dgain)
