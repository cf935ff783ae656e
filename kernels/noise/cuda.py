"""Counter-based random numbers on a GPU: one thread an id. What the functions compute is said in `reference`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.noise.simd import UNIT, four_words

THREADS = threads(128)
u8 = np.uint64


@kernel
def _uniforms(seed, step, ids, stream, out):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(ids.size) and ids[i] >= 0:
        a, b, c, d = four_words(u8(seed), u8(step), u8(ids[i]), u8(stream))
        at = i * u8(4)
        out[at], out[at + u8(1)] = (a + 0.5) * UNIT, (b + 0.5) * UNIT
        out[at + u8(2)], out[at + u8(3)] = (c + 0.5) * UNIT, (d + 0.5) * UNIT


@inlined
def four_normals(seed, step, number, stream):
    """The four normal numbers of one counter."""
    a, b, c, d = four_words(u8(seed), u8(step), u8(number), u8(stream))
    first, turn = math.sqrt(-2 * math.log((a + 0.5) * UNIT)), 2 * math.pi * (b + 0.5) * UNIT
    second, other = math.sqrt(-2 * math.log((c + 0.5) * UNIT)), 2 * math.pi * (d + 0.5) * UNIT
    return first * math.cos(turn), first * math.sin(turn), second * math.cos(other), second * math.sin(other)


@kernel
def _normals(seed, step, ids, stream, out):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(ids.size) and ids[i] >= 0:
        at = i * u8(4)
        out[at], out[at + u8(1)], out[at + u8(2)], out[at + u8(3)] = four_normals(seed, step, ids[i], stream)


def uniforms(seed: int, step: int, ids: Any, stream: int, out: Any) -> None:
    launch = _uniforms[blocks(max(1, ids.size), THREADS), THREADS]
    launch(u8(seed), u8(step), ids, u8(stream), out.reshape(-1))


def normals(seed: int, step: int, ids: Any, stream: int, out: Any) -> None:
    launch = _normals[blocks(max(1, ids.size), THREADS), THREADS]
    launch(u8(seed), u8(step), ids, u8(stream), out.reshape(-1))
