"""The layers of a model as one compiled call, so that no Python stands between the kernels of a token.

`decoder` walks through the actions of a stage (`plan.program`) over tables of addresses: a row for each matrix and for
each layer. Products are called by the address of a kernel that is compiled once for each kind of weights; so all models
share one decoder. Where several ranks split the columns, it waits for them after each action that shows its columns.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from hpckit.comm.shared.compiled.atomics import call_at
from hpckit.kernels.compile.addresses import address_of, values_at
from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.nn import simd as numbers
from hpckit.kernels.nn.norm import simd as norms
from hpckit.kernels.nn.paged import simd as paged
from hpckit.kernels.nn.tile.packed import KINDS, panel_shape
from hpckit.kernels.nn.tile.simd import HEIGHTS, ISA, multiplier
from hpckit.kernels.nn.tile.tile import SHAPE, instruction, width_of
from hpckit.serving.checkpoint.weights import BlockWeights, Norm, PackedMatrix

WHOLE = 128  # numbers of which activations take a multiple, so that none is left over from their vectors
# A row of a matrix, and of a layer: addresses, sizes, numbers of rows of the other table; 0 for no biases, -1 for none.
FUNCTION, PANELS, COUNT, UNITS, INPUTS, OUTPUTS, BIAS, BEGIN, MATRIX_FIELDS = range(9)
GAIN1, BIAS1, GAIN2, BIAS2, QKV, OUT, ROUTER, FEEDS, LAYER_FIELDS = range(9)
GATE, UP, DOWN = range(3)  # the matrices of an MLP or an expert stand in this order
ATTEND, PROJECT, RAISE, LOWER = range(4)
ACTIVATIONS = ("silu", "gelu", "gelu_erf", "relu")

words, floats = values_at("int64"), values_at("float32")


class Sizes(NamedTuple):
    """What a decoder must know of a model's shape, and of the groups of heads of this rank."""

    groups: int
    first: int
    group: int
    head_width: int
    columns: int  # of a group, filled up to whole panels
    experts: int
    chosen: int
    activation: int
    eps: np.float32
    factor: np.float32  # of the scores of attention


class MatrixTable:
    """The rows of all matrices and layers of a stage. They hold addresses: what they are of must be kept."""

    def __init__(self, blocks: list[BlockWeights]) -> None:
        self._matrices: list[list[int]] = []
        self.layers = np.array([self._layer(one) for one in blocks], np.int64).reshape(-1, LAYER_FIELDS)
        self.matrices = np.array(self._matrices, np.int64).reshape(-1, MATRIX_FIELDS)

    def _layer(self, block: BlockWeights) -> list[int]:
        own = [*_norm(block.norm1), *_norm(block.norm2), self._matrix(block.qkv), self._matrix(block.out)]
        router = block.router
        own.append(-1 if router is None else self._matrix(PackedMatrix(router, 0, router.outputs)))
        feeds = [self._matrix(matrix) for feed in block.feeds for matrix in feed]
        return [*own, feeds[0]]

    def _matrix(self, matrix: PackedMatrix | None) -> int:
        """Add a row; returns its number."""
        row = [0] * MATRIX_FIELDS
        if matrix is not None:
            it, bias = matrix.packed, matrix.bias
            count, units, _ = it.panels.shape
            row = [_product(it.kind), it.panels.ctypes.data, count, units, it.inputs, it.outputs]
            row += [0 if bias is None else bias.ctypes.data, matrix.begin]
        self._matrices.append(row)
        return len(self._matrices) - 1


def _norm(norm: Norm) -> list[int]:
    return [norm.gain.ctypes.data, 0 if norm.bias is None else norm.bias.ctypes.data]


@functools.cache
def _product(kind: str) -> int:
    """The address of the kernel `(matrix, given, rows, out, stride)`: rows times a matrix, plus its biases, to
    rows that begin `stride` numbers apart.
    """
    multiply, panels_at = multiplier(kind), values_at(KINDS[kind].memory)
    unit = panel_shape(kind, 1, 1, width_of(kind))[2]

    @jit(math=STRICT, key=("product", kind, ISA, instruction(kind), HEIGHTS, SHAPE.beside))
    def product(matrix, given, rows, out, stride):
        m = words(matrix, MATRIX_FIELDS)
        count, units, inputs, outputs = m[COUNT], m[UNITS], m[INPUTS], m[OUTPUTS]
        panels = panels_at(m[PANELS], count * units * unit).reshape(count, units, unit)
        a = floats(given, rows * inputs).reshape(rows, inputs)
        to = floats(out, rows * stride).reshape(rows, stride)[:, :outputs]
        if m[BIAS]:
            to[:] = floats(m[BIAS], outputs)
        bounds = np.array([0, units])
        multiply(a, panels, inputs, outputs, to, m[BIAS] != 0, bounds)
        return 0

    _kept.append(product)
    return address_of(product, "int64(int64, int64, int64, int64, int64)")


_kept: list[Any] = []  # kernels whose addresses are in use


@functools.cache
def decoder() -> Any:
    """The kernel `(program, layers, matrices, sizes, x, places, pages, turns, shared, barrier)`.

    It does the actions of the program, [n, 3] of what, its layer, and whether the rows get the branch afterwards, and
    changes the rows x. places: positions, slots, rows, starts, tables of the step; pages: keys and values; turns:
    cosines and sines; shared: what all ranks of the replica see: mixed, hidden, branch. barrier: addresses of a kernel
    that waits for these ranks and of its record, 0 for none. Returns the status of a wait that failed, or 0.
    """
    keep, attend, rms_norm, layer_norm = paged.keep, paged.attention(), norms.rms_norm_rows, norms.layer_norm_rows
    swiglu, silu, gelu, gelu_erf = (
        one("float32")
        for one in (numbers.swiglu_kernel, numbers.silu_kernel, numbers.gelu_kernel, numbers.gelu_erf_kernel)
    )
    relu = numbers.relu

    @jit(math=STRICT, key=("decoder", "normed"))
    def normed(gain, bias, eps, x, y):
        """The norm of rows, of x to y."""
        rows, width = x.shape
        mean, spread = np.empty(rows, np.float32), np.empty(rows, np.float32)
        if bias:
            layer_norm(x, floats(gain, width), floats(bias, width), eps, y, mean, spread)
        else:
            rms_norm(x, floats(gain, width), eps, y, spread)

    @jit(math=STRICT, key=("decoder", "times"))
    def times(matrix, given, out, begin):
        """Rows times a matrix, to columns from `begin` on of the rows `out`."""
        to = out.ctypes.data + 4 * begin
        call_at(matrix[FUNCTION], (matrix.ctypes.data, given.ctypes.data, given.shape[0], to, out.shape[1]))

    @jit(math=STRICT, key=("decoder", "up"))
    def up(feed, activation, given, hidden):
        """What `hidden` has of this rank: columns of an activation of a product, or of silu(gate) times one."""
        rows, own = given.shape[0], feed[UP, OUTPUTS]
        size = -(-rows * own // WHOLE) * WHOLE
        raw, gate, done = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
        for i in range(rows * own, size):
            raw[i] = gate[i] = np.float32(0)
        times(feed[UP], given, raw[: rows * own].reshape(rows, own), 0)
        if feed[GATE, FUNCTION]:
            times(feed[GATE], given, gate[: rows * own].reshape(rows, own), 0)
            swiglu(gate, raw, done)
        elif activation == 0:
            silu(raw, done)
        elif activation == 1:
            gelu(raw, done)
        elif activation == 2:
            gelu_erf(raw, done)
        else:
            relu(raw, done)
        hidden[:, feed[UP, BEGIN] : feed[UP, BEGIN] + own] = done[: rows * own].reshape(rows, own)

    @jit(math=STRICT, key=("decoder", "choose"))
    def choose(scores, chosen, shares):
        """The share of each expert in each row, -1 but for those with the largest scores, of equal ones the first."""
        rows, experts = scores.shape
        raw = np.empty(experts)
        for row in range(rows):
            most, total = scores[row].max(), 0.0
            raw[:] = -1.0
            for _ in range(chosen):
                best = -1
                for e in range(experts):
                    if raw[e] < 0 and (best < 0 or scores[row, e] > scores[row, best]):
                        best = e
                raw[best] = np.exp(np.float64(scores[row, best]) - np.float64(most))
            for e in range(experts):
                total += max(raw[e], 0.0)
            for e in range(experts):
                shares[row, e] = raw[e] / total if raw[e] >= 0 else -1.0

    @jit(math=STRICT, key=("decoder", "run", ISA, HEIGHTS))
    def run(program, layers, matrices, sizes, x, places, pages, turns, shared, barrier):
        positions, slots, starts_of_rows, starts, tables = places
        mixed, hidden, branch = shared
        count, width = x.shape
        lines, each = sizes.group + 2, sizes.group * sizes.head_width
        y = np.empty((count, width), np.float32)
        flat = np.empty((count, sizes.groups * sizes.columns), np.float32)
        qkv = np.empty((count, sizes.groups, lines, sizes.head_width), np.float32)
        scores, shares = np.empty((count, sizes.experts), np.float32), np.empty((count, sizes.experts), np.float32)
        for n in range(len(program)):
            does, layer = program[n, 0], program[n, 1]
            own = layers[layer]
            feeds = own[FEEDS]
            if does == ATTEND:
                if sizes.groups:
                    normed(own[GAIN1], own[BIAS1], sizes.eps, x, y)
                    times(matrices[own[QKV]], y, flat, 0)
                    for row in range(count):
                        for g in range(sizes.groups):
                            for line in range(lines):
                                at = g * sizes.columns + line * sizes.head_width
                                for i in range(sizes.head_width):
                                    qkv[row, g, line, i] = flat[row, at + i]
                    keys, values = pages[0][layer], pages[1][layer]
                    keep(qkv, keys, values, positions, slots, turns[0], turns[1])
                    to = mixed[:count, sizes.first * each : (sizes.first + sizes.groups) * each]
                    attend(qkv, keys, values, starts_of_rows, starts, tables, sizes.factor, to)
            elif does == PROJECT:
                times(matrices[own[OUT]], mixed[:count], branch, matrices[own[OUT], BEGIN])
            elif does == RAISE:
                normed(own[GAIN2], own[BIAS2], sizes.eps, x, y)
                if own[ROUTER] < 0:
                    up(matrices[feeds : feeds + 3], sizes.activation, y, hidden[:count])
                else:
                    times(matrices[own[ROUTER]], y, scores, 0)
                    choose(scores, sizes.chosen, shares)
                    at = 0
                    for e in range(sizes.experts):
                        rows = np.flatnonzero(shares[:, e] >= 0)
                        if len(rows):
                            feed = matrices[feeds + 3 * e : feeds + 3 * e + 3]
                            up(feed, sizes.activation, y[rows], hidden[at : at + len(rows)])
                            at += len(rows)
            elif own[ROUTER] < 0:
                times(matrices[feeds + DOWN], hidden[:count], branch, matrices[feeds + DOWN, BEGIN])
            else:
                begin, wide, at = matrices[feeds + DOWN, BEGIN], matrices[feeds + DOWN, OUTPUTS], 0
                branch[:count, begin : begin + wide] = np.float32(0)
                for e in range(sizes.experts):
                    rows = np.flatnonzero(shares[:, e] >= 0)
                    if len(rows):
                        found = np.empty((len(rows), wide), np.float32)
                        times(matrices[feeds + 3 * e + DOWN], hidden[at : at + len(rows)], found, 0)
                        at += len(rows)
                        for i in range(len(rows)):
                            for j in range(wide):
                                branch[rows[i], begin + j] += shares[rows[i], e] * found[i, j]
            if barrier[0]:
                status = call_at(barrier[0], (barrier[1],))
                if status:
                    return status
            if program[n, 2]:
                for row in range(count):
                    for i in range(width):
                        x[row, i] += branch[row, i]
        return 0

    return run
