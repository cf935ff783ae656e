"""Networks within models: layers of `hpckit.nn` applied to what each cell sees, with gradients through both.

    closure = hp.adjoint.Network(hp.nn.mlp([3, 16, 1], "gelu"))

    @hp.model
    def step(T, closure):
        return T + closure(T, T[0, +1] - T, T[0, -1] - T)

    value, (by_T, by_weights) = hp.gradient(cost)(T, closure)

The features of a cell are a row of the layers' input, and what it gets depends on that row alone, to the bit. The
sensitivity to the weights is a sum over all cells of all ranks, added up without rounding (`kernels.sums`): it has the
same bits on any number of ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.adjoint.trace import ROOM, Axes, Traced, as_node, refusal
from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.errors import InputError
from hpckit.kernels.device_array import empty, from_host, is_device_array, to_host
from hpckit.kernels.graph import nodes as graph
from hpckit.kernels.graph.network import ROWS, Layers, Map, Pairs, backward, forward, pushed
from hpckit.kernels.graph.nodes import ARRAYS, OUTSIDE, Faces, Node, hold, make
from hpckit.kernels.graph.standin import line
from hpckit.kernels.sums import combine_products, exponents, product_sums
from hpckit.nn.activations import ACTIVATIONS
from hpckit.nn.convolution import Convolution
from hpckit.nn.layer import Layer, Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.parameters import Parameters

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites
CHUNK = 64 * ROWS  # rows whose hidden values stay in the cache
ON_GPU = 64 * CHUNK  # rows that a GPU takes at once
Stages = tuple[tuple[int, Layers], ...]
"""Of each part of a network the cells that a side of its window has (1: the cell alone), and its layers."""


class Network:
    """Layers as an argument of a model, by position: within, `network(*features)` is their result in each cell.

    layers: a `Sequential` (as from `hp.nn.mlp`) of `Linear`, activations, and on 2-D grids `Convolution` with stride 1
    and padding size // 2. A convolution sees neighbors through halos; beyond walls a field is what its walls say, and
    what was computed is zero, as with `hp.nn`. seed: of the first values. dtype: of the weights and of the arithmetic
    of the layers, float64 or float32, which takes features and gives results with 24 bits; fields remain in double.

    parameters: for the optimizers of `hp.nn`. values: all weights, dtype[parameters.size]; a gradient has this shape,
    in double, and goes to `parameters.grads`. Raises `InputError` for other layers, and for other dtypes.
    """

    def __init__(self, layers: Layer, seed: int = 0, dtype: npt.DTypeLike = np.float64) -> None:
        if np.dtype(dtype) not in (np.float64, np.float32):
            raise InputError(f"a network of {np.dtype(dtype)} within a model", do="take float64 or float32")
        self.parameters = Parameters(layers.parameters(), dtype)
        self.parameters.initialize(seed)
        self.values: np.ndarray = self.parameters.values
        flat = list(_flat(layers))
        self.stages = _stages(flat, self.parameters.offsets)

    def at(self, values: np.ndarray, dtype: npt.DTypeLike | None = None) -> Network:
        """The same layers with other weights, which no optimizer changes; of another dtype if one is given."""
        found = copy.copy(self)
        found.values = np.asarray(values, dtype or self.values.dtype)
        return found


class Applied:
    """The stand-in of a network in a step that is traced."""

    def __init__(self, node: Node, axes: Axes, stages: Stages) -> None:
        self.node, self.axes, self._stages = node, axes, stages
        self._zero = tuple((OUTSIDE, OUTSIDE) if walled else None for walled in axes.walled)

    def __call__(self, *features: Any) -> Any:
        """The result in each cell of fields and numbers: one value, or a tuple of them."""
        nodes, where, dims = [as_node(each) for each in features], line(ROOM), len(self.axes.names)
        given = [each for each in features if isinstance(each, Traced) and each.node.is_field]
        if not any(node.is_field for node in nodes):
            raise refusal("a network of numbers alone", "give it at least one field")
        faces = given[0].stands("a feature of a network")
        if any(each.stands("a feature of a network") != faces for each in given):
            raise refusal(
                "a network of features that stand at different points", "average them to one: 0.5 * (u + u[0, +1])"
            )
        for number, (size, layers) in enumerate(self._stages):
            if size > 1 and dims != 2:
                raise refusal(f"a convolution on a grid of {dims} dims", "give neighbors as features: T[+1, 0, 0]")
            last = number == len(self._stages) - 1
            walls = self.axes.walls({}, "a network") if last else self._zero
            held = [self._array(node, faces) for node in nodes]
            seen = [graph.shift(node, offset) for offset in _window(size, dims) for node in held]
            maps = [layer for layer in layers if isinstance(layer, Map)]
            inputs, outputs = maps[0].inputs, maps[-1].outputs
            if len(seen) != inputs:
                raise refusal(f"{len(nodes)} features of a network that takes {inputs // size**2}", "give each as one")
            made = make("apply", self.node, *seen, value=(layers, outputs, faces), line=where)
            nodes = [make("output", made, value=(k, walls, faces), line=where) for k in range(outputs)]
        found = tuple(Traced(node, self.axes) for node in nodes)
        return found if len(found) > 1 else found[0]

    def _array(self, node: Node, faces: Faces) -> Node:
        """A feature as a network reads it: an array at an offset, or a number."""
        inner = node.args[0] if node.op == "shift" else node
        if not node.is_field or inner.op in ARRAYS:
            return node
        return hold(node, self._zero, faces)


def run_network(
    node: Node,
    weights: np.ndarray,
    args: Sequence[Any],
    outs: Mapping[int, np.ndarray],
    shape: Sequence[int],
    comm: MPI.Comm | None,
    count: int,
    of_members: bool = False,
) -> np.ndarray | None:
    """Compute an `apply`, `push` or `pull` for the cells of this rank; write those results that are asked for.

    args: arrays of the owned cells, of this shape, or numbers, of the node's arguments behind the network. Where they
    are a GPU's, so are outs, and the layers are computed there. comm: of the ranks that add up the sensitivities to the
    weights, which are returned then, on the host. count: cells of all ranks. of_members: the last dim is that of an
    ensemble's members, each with sensitivities of its own, float64[members, weights].
    """
    if of_members and comm is not None:
        alone = []
        for m in range(shape[-1]):
            own = [each[..., m] if np.ndim(each) else each for each in args]
            there = {k: out[..., m] for k, out in outs.items()}
            alone.append(run_network(node, weights, own, there, shape[:-1], comm, count // shape[-1]))
        return np.stack(alone)  # type: ignore[arg-type]
    layers, results, _ = node.value
    cells = int(np.prod(shape))
    like = next((each for each in (*args, *outs.values()) if is_device_array(each)), weights)
    every: list[Pairs] = []
    if node.op == "push":
        features, change, more = args[: len(args) // 2], args[len(args) // 2], args[len(args) // 2 + 1 :]
    else:
        features = args if node.op == "apply" else args[: len(args) - results]
        more = args[len(features) :]
    x, other = (_rows(each, shape, weights.dtype, like) for each in (features, more))
    found = empty((len(x), results if node.op != "pull" else len(features)), like, weights.dtype)
    together = CHUNK if like is weights else ON_GPU
    if like is not weights:
        weights = from_host(weights, like)
    for first in range(0, len(x), together):
        part = slice(first, first + together)
        if node.op == "apply":
            found[part], _ = forward(layers, weights, x[part])
        elif node.op == "push":
            moved = from_host(change.astype(weights.dtype), like) if np.ndim(change) else None
            found[part] = pushed(layers, weights, moved, x[part], other[part])
        else:
            found[part], pairs = backward(layers, weights, x[part], other[part])
            real = min(together, cells - first)  # without the rows that fill up
            every.append([(layer, a[:real], b[:real]) for layer, a, b in pairs])
    for k, out in outs.items():
        out[...] = found[:cells, k].reshape(shape)
    return None if comm is None else _sum_of_products(every, len(weights), comm, count)


def _sum_of_products(every: Sequence[Pairs], size: int, comm: MPI.Comm, count: int) -> np.ndarray:
    """The sensitivities to the weights, from the rows of all chunks and ranks."""
    maps = [layer for layer, _, _ in every[0]]
    chunks = [[(_with_ones(x), dy.astype(np.float64)) for _, x, dy in pairs] for pairs in every]
    largest = np.max(
        [np.concatenate([to_host(abs(each).max(0)) for pair in pairs for each in pair]) for pairs in chunks], axis=0
    )
    largest[~np.isfinite(largest)] = np.inf
    max_of_ranks(comm, largest)
    up: list[np.ndarray] = []
    place = 0
    for layer in maps:
        for columns in (layer.inputs + 1, layer.outputs):
            up.append(largest[place : place + columns])
            place += columns
    scales = [exponents(np.where(np.isfinite(each), each, 0.0)) for each in up]
    good = [bool(np.isfinite(a).all() and np.isfinite(b).all()) for a, b in zip(up[::2], up[1::2], strict=True)]
    sums = [
        sum(product_sums(*pairs[k], scales[2 * k], scales[2 * k + 1], count) for pairs in chunks) if fine else None
        for k, fine in enumerate(good)
    ]
    flat = np.concatenate([np.zeros(0, np.int64), *(each.reshape(-1) for each in sums if each is not None)])
    sum_of_ranks(comm, flat)
    found, at = np.zeros(size), 0
    for k, (layer, own) in enumerate(zip(maps, sums, strict=True)):
        slope = np.full((layer.inputs + 1, layer.outputs), np.nan)
        if own is not None:
            slope = combine_products(
                flat[at : at + own.size].reshape(own.shape), scales[2 * k], scales[2 * k + 1], count
            )
            at += own.size
        layer.matrix(found)[...] += slope[:-1]
        if layer.bias is not None:
            layer.offset(found)[...] += slope[-1]
    return found


def _rows(values: Sequence[Any], shape: Sequence[int], dtype: np.dtype, like: Any) -> Any:
    """A row a cell of some arrays and numbers; rows of zeros make their number a multiple of `ROWS`."""
    cells = int(np.prod(shape))
    found = empty((-(-cells // ROWS) * ROWS, len(values)), like, dtype)
    found[cells:] = 0.0
    for k, each in enumerate(values):
        if np.ndim(each) and each.shape != tuple(shape):  # a number of each member
            each = np.broadcast_to(each, shape)
        found[:cells, k] = each.reshape(-1) if np.ndim(each) else each
    return found


def _with_ones(x: Any) -> Any:
    """The rows in double with a column of ones behind, whose weights are the biases."""
    found = empty((len(x), x.shape[1] + 1), x, np.float64)
    found[:, :-1], found[:, -1] = x, 1.0
    return found


def _window(size: int, dims: int) -> Iterator[tuple[int, ...]]:
    """The offsets of a window around a cell, in the order of a convolution's weights."""
    return product(*(range(-(size // 2), size // 2 + 1) for _ in range(dims)))


def _flat(layer: Layer) -> Iterator[Any]:
    if isinstance(layer, Sequential):
        for each in layer.layers:
            yield from _flat(each)
    else:
        yield layer


def _stages(layers: Sequence[Any], offsets: Mapping[str, int]) -> Stages:
    found: list[tuple[int, list[Map | str]]] = []
    names = {kind: name for name, kind in ACTIVATIONS.items()}
    for layer in layers:
        if isinstance(layer, Convolution) and layer.stride == 1 and layer.size == 2 * layer.padding + 1:
            size, (_, _, inputs, outputs) = layer.size, layer.weight.shape
            found.append((size, []))
            inputs *= size * size
        elif type(layer) is Linear:
            inputs, outputs = layer.weight.shape
        elif type(layer) in names and found:
            found[-1][1].append(names[type(layer)])
            continue
        else:
            raise InputError(
                f"a network within a model cannot hold a {type(layer).__name__}"
                + (", first" if type(layer) in names else " like this" if isinstance(layer, Convolution) else ""),
                do="make it of Linear, the activations of hp.nn behind them, and Convolution with padding=size // 2",
            )
        bias = None if layer.bias is None else offsets[layer.bias.name]
        if not found:
            found.append((1, []))
        found[-1][1].append(Map(inputs, outputs, offsets[layer.weight.name], bias))
    if not found:
        raise InputError("a network without layers", do="give hp.nn.mlp([inputs, hidden, outputs])")
    return tuple((size, tuple(each)) for size, each in found)
