"""Normalization of rows, Numba: a row stays in the nearest cache from its sums to its result."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import REORDERED, jit

u8 = np.uint64


@jit(noalias=True, math=REORDERED)
def layer_norm_rows(x, gain, bias, eps, y, mean, rstd):
    zero, one = x.dtype.type(0), x.dtype.type(1)
    d = u8(x.shape[1])
    part = one / x.dtype.type(x.shape[1])
    for i in range(u8(len(x))):
        row, out = x[i], y[i]
        total = zero
        for j in range(d):
            total += row[j]
        middle = total * part
        squares = zero
        for j in range(d):
            z = row[j] - middle
            squares += z * z
        spread = one / np.sqrt(squares * part + eps)
        mean[i] = middle
        rstd[i] = spread
        for j in range(d):
            out[j] = (row[j] - middle) * spread * gain[j] + bias[j]


def layer_norm(x, gain, bias, eps, y, mean, rstd):
    layer_norm_rows(x, gain, bias, x.dtype.type(eps), y, mean, rstd)


@jit(noalias=True, math=REORDERED)
def layer_norm_input(x, gain, mean, rstd, dy, carry, dx):
    zero, part = x.dtype.type(0), x.dtype.type(1) / x.dtype.type(x.shape[1])
    d = u8(x.shape[1])
    for i in range(u8(len(x))):
        row, slope, out, middle, spread = x[i], dy[i], dx[i], mean[i], rstd[i]
        total, aligned = zero, zero
        for j in range(d):
            g = slope[j] * gain[j]
            total += g
            aligned += g * ((row[j] - middle) * spread)
        total *= part
        aligned *= part
        if len(carry):
            start = carry[i]
            for j in range(d):
                h = (row[j] - middle) * spread
                out[j] = start[j] + spread * (slope[j] * gain[j] - total - h * aligned)
        else:
            for j in range(d):
                h = (row[j] - middle) * spread
                out[j] = spread * (slope[j] * gain[j] - total - h * aligned)


@jit(noalias=True)
def layer_norm_weight(x, mean, rstd, dy, dgain, dbias):
    for i in range(u8(len(x))):
        row, slope, middle, spread = x[i], dy[i], mean[i], rstd[i]
        for j in range(u8(dgain.size)):
            dgain[j] += slope[j] * ((row[j] - middle) * spread)
            dbias[j] += slope[j]


@jit(noalias=True, math=REORDERED)
def rms_norm_rows(x, gain, eps, y, rstd):
    zero, one = x.dtype.type(0), x.dtype.type(1)
    d = u8(x.shape[1])
    part = one / x.dtype.type(x.shape[1])
    for i in range(u8(len(x))):
        row, out = x[i], y[i]
        squares = zero
        for j in range(d):
            squares += row[j] * row[j]
        spread = one / np.sqrt(squares * part + eps)
        rstd[i] = spread
        for j in range(d):
            out[j] = row[j] * spread * gain[j]


def rms_norm(x, gain, eps, y, rstd):
    rms_norm_rows(x, gain, x.dtype.type(eps), y, rstd)


@jit(noalias=True, math=REORDERED)
def rms_norm_input(x, gain, rstd, dy, carry, dx):
    zero, part = x.dtype.type(0), x.dtype.type(1) / x.dtype.type(x.shape[1])
    d = u8(x.shape[1])
    for i in range(u8(len(x))):
        row, slope, out, spread = x[i], dy[i], dx[i], rstd[i]
        aligned = zero
        for j in range(d):
            aligned += slope[j] * gain[j] * (row[j] * spread)
        aligned *= part
        if len(carry):
            start = carry[i]
            for j in range(d):
                out[j] = start[j] + spread * (slope[j] * gain[j] - row[j] * spread * aligned)
        else:
            for j in range(d):
                out[j] = spread * (slope[j] * gain[j] - row[j] * spread * aligned)


@jit(noalias=True)
def rms_norm_weight(x, rstd, dy, dgain):
    for i in range(u8(len(x))):
        row, slope, spread = x[i], dy[i], rstd[i]
        for j in range(u8(dgain.size)):
            dgain[j] += slope[j] * (row[j] * spread)
