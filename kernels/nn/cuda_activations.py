"""Activations and dropout on a GPU: a thread a number. What the functions compute is said in `reference`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.nn import elementary
from hpckit.kernels.noise.simd import four_words

THREADS = threads(256)
u8 = np.uint64


@functools.cache
def exponential(dtype: str) -> Any:
    """exp(x) of a GPU, x held below overflow."""
    most = np.dtype(dtype).type(88 if np.dtype(dtype) == np.float32 else 708)

    @inlined
    def exp(x):
        return math.exp(most if x > most else x)

    return exp


@functools.cache
def normal_tail(dtype: str) -> Any:
    """The normal tail by the GPU's functions; see `elementary.normal_tail`."""
    root, half = np.dtype(dtype).type(math.sqrt(0.5)), np.dtype(dtype).type(0.5)

    @inlined
    def tail(z):
        return half * math.erfc(root * z), math.exp(-half * z * z)

    return tail


@kernel
def _relu(x, y):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        v, zero = x[i], x.dtype.type(0)
        y[i] = v if v > zero else (v if v != v else zero)
        x[i] = x.dtype.type(1) if v > zero else zero


def relu(x: Any, y: Any) -> None:
    """Set y = max(x, 0); x becomes the derivative; see `reference.relu`."""
    _relu[blocks(x.size, THREADS), THREADS](x, y)


@functools.cache
def _activation(make: Callable, dtype: str, function: Callable) -> Any:
    """The kernel of a piece of `elementary`, made with a function of this GPU."""
    piece = make(dtype, function(dtype))

    @kernel
    def activation(x, y):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(x.size):
            value, slope = piece(x[i])
            y[i] = value
            x[i] = slope

    return activation


def gelu(x: Any, y: Any) -> None:
    """Set y to the tanh form of GELU; x becomes the derivative; see `reference.gelu`."""
    _activation(elementary.gelu, x.dtype.char, exponential)[blocks(x.size, THREADS), THREADS](x, y)


def gelu_erf(x: Any, y: Any) -> None:
    """Set y to the exact form of GELU; x becomes the derivative; see `reference.gelu_erf`."""
    _activation(elementary.gelu_erf, x.dtype.char, normal_tail)[blocks(x.size, THREADS), THREADS](x, y)


def silu(x: Any, y: Any) -> None:
    """Set y = x sigmoid(x); x becomes the derivative; see `reference.silu`."""
    _activation(elementary.silu, x.dtype.char, exponential)[blocks(x.size, THREADS), THREADS](x, y)


@functools.cache
def _swiglu(dtype: str) -> Any:
    piece = elementary.silu(dtype, exponential(dtype))

    @kernel
    def swiglu(gate, up, y):
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(gate.size):
            other = up[i]
            value, slope = piece(gate[i])
            y[i] = value * other
            gate[i] = slope * other
            up[i] = value

    return swiglu


def swiglu(gate: Any, up: Any, y: Any) -> None:
    """Set y = silu(gate) up; gate and up become derivatives; see `reference.swiglu`."""
    _swiglu(gate.dtype.char)[blocks(gate.size, THREADS), THREADS](gate, up, y)


@kernel
def _scale(x, factor):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(x.size):
        x[i] *= factor[i]


def scale(x: Any, factor: Any) -> None:
    """Multiply x by `factor` elementwise, in place; see `reference.scale`."""
    _scale[blocks(x.size, THREADS), THREADS](x, factor)


@kernel
def _scale_two(dy, first, second):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(dy.size):
        first[i] *= dy[i]
        second[i] *= dy[i]


def scale_two(dy: Any, first: Any, second: Any) -> None:
    """Multiply both derivatives by dy, in place; see `reference.scale_two`."""
    _scale_two[blocks(dy.size, THREADS), THREADS](dy, first, second)


@kernel
def _dropout(x, y, key, step, first, limit, factor):
    samples, each = u8(x.shape[0]), u8(x.shape[1])
    groups = (each + u8(3)) // u8(4)
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < samples * groups:
        k, group = at // groups, at % groups
        words = four_words(key, step, (first + k) * groups + group, u8(0))
        for lane in range(4):
            i = u8(4) * group + u8(lane)
            if i < each:
                y[k, i] = x[k, i] * factor if words[lane] >= limit else x.dtype.type(0)


def dropout(x: Any, y: Any, key: int, step: int, first: int, rate: float) -> None:
    """Set y to x / (1 - rate) or 0, with the random numbers of `simd.dropout`."""
    limit = u8(math.floor(rate * 2.0**32 - 0.5) + 1)
    launch = _dropout[blocks(x.shape[0] * -(-x.shape[1] // 4), THREADS), THREADS]
    launch(x, y, u8(key), u8(step), u8(first), limit, x.dtype.type(1 / (1 - rate)))
