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
FUNCTION, PANELS, COUNT, UNITS, INPUTS, OUTPUTS, BIAS, BEGIN, COLUMNS, MATRIX_FIELDS = range(10)
GAIN1, BIAS1, GAIN2, BIAS2, QKV, OUT, ROUTER, FEEDS, WINDOW, LAYER_FIELDS = range(10)
UP, DOWN, FEED = range(3)  # the matrices of an MLP or an expert stand in this order, FEED of them
ATTEND, PROJECT, RAISE, LOWER = range(4)
STRIP = 4096  # numbers of an activation that are computed at once
ACTIVATIONS = ("silu", "gelu", "gelu_erf", "relu")

words, floats = values_at("int64"), values_at("float32")
SWIGLU, SILU, GELU, GELU_ERF, CHOOSE = (
    one("float32")
    for one in (
        numbers.swiglu_kernel,
        numbers.silu_kernel,
        numbers.gelu_kernel,
        numbers.gelu_erf_kernel,
        numbers.choose_kernel,
    )
)


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
    gated: bool
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
        return [*own, feeds[0], block.window]

    def _matrix(self, matrix: PackedMatrix) -> int:
        """Add a row; returns its number."""
        it, bias = matrix.packed, matrix.bias
        count, units, _ = it.panels.shape
        row = [_product(it.kind), it.panels.ctypes.data, count, units, it.inputs, it.outputs]
        row += [0 if bias is None else bias.ctypes.data, matrix.begin, matrix.end - matrix.begin]
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

    @jit(math=STRICT, key=("product", kind, ISA, instruction(kind), HEIGHTS, SHAPE.beside), by_address=True)
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


@jit(math=STRICT)
def _normed(gain, bias, eps, x, y):
    """The norm of rows, of x to y."""
    rows, width = x.shape
    mean, spread = np.empty(rows, np.float32), np.empty(rows, np.float32)
    if bias:
        norms.layer_norm_rows(x, floats(gain, width), floats(bias, width), eps, y, mean, spread)
    else:
        norms.rms_norm_rows(x, floats(gain, width), eps, y, spread)


@jit(math=STRICT)
def _times(matrix, given, out, begin):
    """Rows times a matrix, to columns from `begin` on of the rows `out`."""
    to = out.ctypes.data + 4 * begin
    call_at(matrix[FUNCTION], (matrix.ctypes.data, given.ctypes.data, given.shape[0], to, out.shape[1]))


@jit(math=STRICT)
def _split(flat, sizes, qkv):
    """Queries, keys and values from the columns of their product, whose groups are filled up to whole panels."""
    for row in range(len(qkv)):
        for group in range(sizes.groups):
            at = group * sizes.columns
            for line in range(qkv.shape[2]):
                for i in range(sizes.head_width):
                    qkv[row, group, line, i] = flat[row, at + line * sizes.head_width + i]


@jit(math=STRICT)
def _raise(feed, sizes, given, room, hidden):
    """What `hidden` has of this rank: columns of an activation of a product, or of silu(gate) times one. room: memory
    for the product, which is there already: new memory of this size would cost its pages each time.
    """
    rows, own, wide = given.shape[0], feed[COLUMNS], feed[OUTPUTS]
    begin, gated = feed[BEGIN], 1 if sizes.gated else 0
    raw = room[: rows * wide].reshape(rows, wide)
    _times(feed, given, raw, 0)
    each = max(1, STRIP // max(1, own))  # rows whose numbers stay in the nearest cache
    size = -(-min(rows, each) * own // WHOLE) * WHOLE
    gate, up, done = np.zeros(size, np.float32), np.zeros(size, np.float32), np.empty(size, np.float32)
    for first in range(0, rows, each):
        count = min(each, rows - first)
        for row in range(count):
            for i in range(own):
                gate[row * own + i] = raw[first + row, i]
                up[row * own + i] = raw[first + row, gated * (wide // 2) + i]
        if gated:
            SWIGLU(gate, up, done)
        elif sizes.activation == 0:
            SILU(up, done)
        elif sizes.activation == 1:
            GELU(up, done)
        elif sizes.activation == 2:
            GELU_ERF(up, done)
        else:
            numbers.relu(up, done)
        for row in range(count):
            for i in range(own):
                hidden[first + row, begin + i] = done[row * own + i]


@jit(math=STRICT)
def _rows_of(expert, chosen):
    """Which rows chose an expert, and each in which place."""
    rows, places, count = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64), 0
    for row in range(len(chosen)):
        for place in range(chosen.shape[1]):
            if chosen[row, place] == expert:
                rows[count], places[count] = row, place
                count += 1
    return rows[:count], places[:count]


@jit(math=STRICT)
def _raise_experts(matrices, sizes, given, chosen, room, hidden):
    """`_raise` of each expert for the rows that chose it, which stand one after the other in `hidden`."""
    at = 0
    for expert in range(sizes.experts):
        rows, _ = _rows_of(expert, chosen)
        if len(rows):
            _raise(matrices[FEED * expert + UP], sizes, given[rows], room, hidden[at : at + len(rows)])
            at += len(rows)


@jit(math=STRICT)
def _lower_experts(matrices, sizes, chosen, shares, hidden, branch):
    """What the experts of each row make of `hidden`, by their shares, in the order of the experts."""
    begin, wide, at = matrices[DOWN, BEGIN], matrices[DOWN, OUTPUTS], 0
    branch[:, begin : begin + wide] = np.float32(0)
    for expert in range(sizes.experts):
        rows, places = _rows_of(expert, chosen)
        if len(rows):
            found = np.empty((len(rows), wide), np.float32)
            _times(matrices[FEED * expert + DOWN], hidden[at : at + len(rows)], found, 0)
            at += len(rows)
            for i in range(len(rows)):
                share = shares[rows[i], places[i]]
                for j in range(wide):
                    branch[rows[i], begin + j] += share * found[i, j]


@functools.cache
def decoder() -> Any:
    """The kernel `(program, layers, matrices, sizes, x, places, pages, turns, shared, barrier)`.

    It does the actions of the program, [n, 3] of what, its layer, and whether the rows get the branch afterwards, and
    changes the rows x. places: positions, slots, rows, starts, tables of the step; pages: keys and values; turns:
    cosines and sines; shared: what all ranks of the replica see: mixed, hidden, branch. barrier: addresses of a kernel
    that waits for these ranks and of its record, 0 for none. Returns the status of a wait that failed, or 0.
    """
    keep, attend = paged.keep, paged.attention()

    @jit(math=STRICT, key=("decoder", ISA, HEIGHTS))
    def run(program, layers, matrices, sizes, x, places, pages, turns, shared, barrier):
        positions, slots, starts_of_rows, starts, tables = places
        count, width = x.shape
        mixed, hidden, branch = shared[0][:count], shared[1], shared[2][:count]
        lines, each = sizes.group + 2, sizes.group * sizes.head_width
        y = np.empty((count, width), np.float32)
        flat = np.empty((count, sizes.groups * sizes.columns), np.float32)
        qkv = np.empty((count, sizes.groups, lines, sizes.head_width), np.float32)
        scores, shares = np.empty((count, sizes.experts), np.float32), np.empty((count, sizes.chosen), np.float32)
        chosen = np.empty((count, sizes.chosen), np.int64)
        room = np.empty(count * matrices[:, OUTPUTS].max(), np.float32)
        for n in range(len(program)):
            does, layer = program[n, 0], program[n, 1]
            own = layers[layer]
            feeds = matrices[own[FEEDS] :]
            if does == ATTEND:
                if sizes.groups:
                    _normed(own[GAIN1], own[BIAS1], sizes.eps, x, y)
                    _times(matrices[own[QKV]], y, flat, 0)
                    _split(flat, sizes, qkv)
                    keys, values = pages[0][layer], pages[1][layer]
                    keep(qkv, keys, values, positions, slots, turns[0], turns[1])
                    to = mixed[:, sizes.first * each : (sizes.first + sizes.groups) * each]
                    attend(qkv, keys, values, starts_of_rows, starts, tables, own[WINDOW], sizes.factor, to)
            elif does == PROJECT:
                _times(matrices[own[OUT]], mixed, branch, matrices[own[OUT], BEGIN])
            elif does == RAISE:
                _normed(own[GAIN2], own[BIAS2], sizes.eps, x, y)
                if own[ROUTER] < 0:
                    _raise(feeds[UP], sizes, y, room, hidden[:count])
                else:
                    _times(matrices[own[ROUTER]], y, scores, 0)
                    CHOOSE(scores, chosen, shares)
                    _raise_experts(feeds, sizes, y, chosen, room, hidden)
            elif own[ROUTER] < 0:
                _times(feeds[DOWN], hidden[:count], branch, feeds[DOWN, BEGIN])
            else:
                _lower_experts(feeds, sizes, chosen, shares, hidden, branch)
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
