"""Kernels of neural networks on a GPU, each against its oracle in NumPy, double precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.nn import dispatch as layers
from hpckit.kernels.nn import reference as layers_reference
from hpckit.kernels.nn.attention import cuda_matrices as by_matrices
from hpckit.kernels.nn.attention import dispatch as attention
from hpckit.kernels.nn.attention import reference as attention_reference
from hpckit.kernels.nn.attention.reference import Part
from hpckit.kernels.nn.convolution import dispatch as images
from hpckit.kernels.nn.convolution import reference as images_reference
from hpckit.kernels.nn.cublas import products_of
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.narrow import dispatch as short
from hpckit.kernels.nn.narrow import reference as short_reference
from hpckit.kernels.nn.norm import dispatch as norm
from hpckit.kernels.nn.norm import reference as norm_reference
from hpckit.kernels.nn.paged import dispatch as paged
from hpckit.kernels.nn.paged import reference as paged_reference
from hpckit.kernels.nn.paged.pages import PAGE, page_shapes
from hpckit.kernels.nn.tile import dispatch as tile
from hpckit.kernels.nn.tile import reference as tile_reference
from tests.gpu.checks import Check, Pairs, difference, size

EPS = 1e-5
SINGLE = 2e-5  # sums of some hundred products of which many cancel


class Both:
    """Calls a kernel on the device and its oracle on the host, with the same numbers, and keeps what they wrote."""

    def __init__(self, device: Device, dtype: np.dtype) -> None:
        self.device, self.dtype, self.pairs = device, dtype, Pairs()
        self.random = np.random.default_rng(8)

    def normal(self, *shape: int) -> np.ndarray:
        """Normal numbers, as the device holds them."""
        return self.random.normal(size=shape).astype(self.dtype)

    def call(self, kernel: Callable, oracle: Callable, name: str, written: dict[str, np.ndarray], *rest: Any) -> Any:
        """kernel(*rest, …), where a str in `rest` names one of the arrays that are `written`; returns both results."""
        here = {
            label: array.astype(np.float64 if array.dtype.kind == "f" else array.dtype)
            for label, array in written.items()
        }
        there = {label: self.device.to_device(array) for label, array in written.items()}
        found = kernel(*(there[a] if isinstance(a, str) else self._there(a) for a in rest))
        expected = oracle(*(here[a] if isinstance(a, str) else _here(a) for a in rest))
        for label, array in here.items():
            self.pairs[f"{name}: {label}"] = there[label], array.astype(np.float64)
        return found, expected

    def _there(self, argument: Any) -> Any:
        if isinstance(argument, OnHost):
            return argument.values
        return self.device.to_device(argument) if isinstance(argument, np.ndarray) else argument


class OnHost(NamedTuple):
    """An argument that kernels of a GPU take from the host."""

    values: np.ndarray


def _here(argument: Any) -> Any:
    if isinstance(argument, OnHost):
        argument = argument.values
    single = isinstance(argument, np.ndarray) and argument.dtype == np.float32
    return argument.astype(np.float64) if single else argument


def numbers(device: Device, dtype: np.dtype) -> Pairs:
    """Activations and their slopes, products of numbers, dropout."""
    both, n = Both(device, dtype), size(device, 70_001, 13)
    x = 4 * both.normal(n)
    x[:4] = 0.0, -40.0, 40.0, 1e-12
    for name in ("relu", "gelu", "gelu_erf", "silu"):
        arrays = {"slope": x, "value": both.normal(n)}
        both.call(getattr(layers, name), getattr(layers_reference, name), name, arrays, "slope", "value")
    arrays = {"gate": x, "up": both.normal(n), "value": both.normal(n)}
    both.call(layers.swiglu, layers_reference.swiglu, "swiglu", arrays, "gate", "up", "value")
    both.call(layers.scale, layers_reference.scale, "scale", {"x": x}, "x", both.normal(n))
    arrays = {"first": both.normal(n), "second": both.normal(n)}
    both.call(layers.scale_two, layers_reference.scale_two, "scale two", arrays, x, "first", "second")
    rows = both.normal(3, size(device, 1001, 7))
    for rate, key in ((0.3, 2**63 + 5), (0.0, 1)):
        told = {"y": np.zeros_like(rows)}
        both.call(layers.dropout, layers_reference.dropout, f"dropout {rate}", told, rows, "y", key, 2**33 + 1, 5, rate)
    return both.pairs


def rows(device: Device, dtype: np.dtype) -> Pairs:
    """Sums of columns and of squares, cross-entropy with padding and rows that are left out, embeddings."""
    both, (n, d) = Both(device, dtype), size(device, (777, 301), (5, 6))
    both.call(
        layers.add_columns, layers_reference.add_columns, "columns", {"sums": both.normal(d)}, both.normal(n, d), "sums"
    )
    parts = np.array([[0, 3], [3, 3], [4, n * d]])
    found, expected = both.call(layers.squared_sums, layers_reference.squared_sums, "", {}, both.normal(n * d), parts)
    both.pairs["squares"] = found, expected
    vocab, logits, targets = d - 2, 5 * both.normal(n, d), both.random.integers(0, d - 2, n)
    logits[:, vocab:], targets[1] = 1000, -1
    told = {"exponentials": logits, "inverse": both.normal(n)}
    found, expected = both.call(
        layers.cross_entropy, layers_reference.cross_entropy, "loss", told, "exponentials", targets, vocab, "inverse"
    )
    both.pairs["loss"] = found.reshape(1), np.array([expected])
    few, scores = 3, np.round(both.normal(n, 9), 1)
    told = {"chosen": np.zeros((n, few), np.int64), "shares": both.normal(n, few)}
    both.call(layers.choose, layers_reference.choose, "router", told, scores, "chosen", "shares")
    told, inverse = {"gradient": np.abs(both.normal(n, d))}, np.abs(both.normal(n))
    both.call(
        layers.cross_entropy_gradient, layers_reference.cross_entropy_gradient, "loss", told,
        "gradient", targets, inverse, 0.25,
    )  # fmt: skip
    batch, length, vocab = size(device, (5, 77, 30), (2, 5, 3))
    tokens, table = both.random.integers(0, vocab, (batch, length)), both.normal(vocab, d)
    for label, places in (("", both.normal(length + 1, d)), (" without positions", table[:0])):
        told = {"y": both.normal(batch, length, d)}
        both.call(layers.embed, layers_reference.embed, f"embedding{label}", told, tokens, table, places, "y")
        told = {"dtable": table, "dpositions": places}
        dy = both.normal(batch, length, d)
        both.call(
            layers.embed_gradient, layers_reference.embed_gradient, f"embedding{label}", told,
            tokens, dy, "dtable", "dpositions",
        )  # fmt: skip
    return {name: pair for name, pair in both.pairs.items() if pair[1].size}


def norms(device: Device, dtype: np.dtype) -> Pairs:
    """Layer norm and root mean square norm, forward and backward, with a residual around them and without."""
    both, (n, d) = Both(device, dtype), size(device, (777, 301), (2, 9))
    x, dy, gain, bias, carry = (
        3 + 2 * both.normal(n, d),
        both.normal(n, d),
        both.normal(d),
        both.normal(d),
        both.normal(n, d),
    )
    mean = x.mean(axis=1)
    rstd, rms = 1 / np.sqrt(x.var(axis=1) + EPS), 1 / np.sqrt(np.square(x).mean(axis=1) + EPS)
    told = {"y": both.normal(n, d), "mean": both.normal(n), "rstd": both.normal(n)}
    both.call(norm.layer_norm, norm_reference.layer_norm, "layer norm", told, x, gain, bias, EPS, "y", "mean", "rstd")
    told = {"y": both.normal(n, d), "rstd": both.normal(n)}
    both.call(norm.rms_norm, norm_reference.rms_norm, "rms norm", told, x, gain, EPS, "y", "rstd")
    for label, start in (("carried", carry), ("plain", carry[:0])):
        told = {f"dx, {label}": both.normal(n, d)}
        out = f"dx, {label}"
        both.call(
            norm.layer_norm_input,
            norm_reference.layer_norm_input,
            "layer norm",
            told,
            x,
            gain,
            mean,
            rstd,
            dy,
            start,
            out,
        )
        both.call(norm.rms_norm_input, norm_reference.rms_norm_input, "rms norm", told, x, gain, rms, dy, start, out)
    told = {"dgain": both.normal(d), "dbias": both.normal(d)}
    both.call(
        norm.layer_norm_weight,
        norm_reference.layer_norm_weight,
        "layer norm",
        told,
        x,
        mean,
        rstd,
        dy,
        "dgain",
        "dbias",
    )
    told = {"dgain": both.normal(d)}
    both.call(norm.rms_norm_weight, norm_reference.rms_norm_weight, "rms norm", told, x, rms, dy, "dgain")
    return both.pairs


def attends(device: Device, dtype: np.dtype) -> Pairs:
    """Attention and its gradient: heads that share keys, lengths that fill no tile, dropout; rotary positions."""
    both = Both(device, dtype)
    cases = size(
        device,
        ((63, 4, 2, 64, 0.0), (63, 4, 2, 64, 0.2), (40, 2, 2, 32, 0.0), (1, 3, 1, 7, 0.0)),
        ((9, 2, 1, 3, 0.0), (9, 2, 1, 3, 0.2)),
    )
    for length, heads, kv_heads, width, rate in cases:
        qkv = both.normal(2, length, heads + 2 * kv_heads, width)
        told = {"out": both.normal(2, length, heads, width), "logs": both.normal(2, heads, length)}
        name, drop = f"attention {length} x {width}, dropout {rate:g}", (2**63 + 5, 7, 3, rate)
        forward, back = attention_reference.attention, attention_reference.attention_gradient
        both.call(attention.attention, forward, name, told, qkv, heads, kv_heads, "out", "logs", *drop)
        out, logs = np.zeros(told["out"].shape), np.zeros(told["logs"].shape)
        forward(qkv.astype(np.float64), heads, kv_heads, out, logs, *drop)
        rest = qkv, heads, kv_heads, out.astype(dtype), logs.astype(dtype), both.normal(*out.shape)
        told = {"dqkv": np.zeros_like(qkv)}
        both.call(attention.attention_gradient, back, name, told, *rest, "dqkv", *drop)
        kept, told = both.normal(2, length + 6, 2 * kv_heads, width), {"out": both.normal(2, length, heads, width)}
        cached = attention.cached_attention, attention_reference.cached_attention
        both.call(*cached, f"cache {length} x {width}", told, qkv, heads, kv_heads, kept, 5, "out")
        if length == 1:
            continue
        # Some queries over some keys: a block before them, and one that they are in, put together.
        some, early = qkv[:, length // 2 :, :heads].copy(), qkv[:, : length // 3, heads:].copy()
        own = qkv[:, length // 3 :, heads:].copy()
        pieces = Part(heads + 3, 2, length, length // 2, 0), Part(heads + 3, 2, length, length // 2, length // 3)
        results = []
        for number, (keys, part) in enumerate(zip((early, own), pieces, strict=True)):
            told = {"out": np.zeros_like(some), "logs": np.zeros((2, heads, some.shape[1]), dtype)}
            found = attention.partial_attention, attention_reference.partial_attention
            both.call(*found, f"part {number} of {name}", told, some, keys, part, "out", "logs", *drop)
            out, logs = np.zeros(some.shape), np.zeros((2, heads, some.shape[1]))
            found[1](some.astype(np.float64), keys.astype(np.float64), part, out, logs, *drop)
            results += [out.astype(dtype), logs.astype(dtype)]
            rest = some, keys, part, results[-2], results[-1], both.normal(*out.shape)
            told = {"dqueries": both.normal(*some.shape), "dkeys": both.normal(*keys.shape)}
            found = attention.partial_attention_gradient, attention_reference.partial_attention_gradient
            both.call(*found, f"part {number} of {name}", told, *rest, "dqueries", "dkeys", *drop)
        told = {"joined": results[0], "sums": results[1]}
        both.call(attention.join, attention_reference.join, name, told, "joined", "sums", *results[2:])
    turns = both.normal(5, 3)
    told = {"turned": both.normal(2, 5, 4, 6)}
    both.call(attention.rotary, attention_reference.rotary, "rotary", told, "turned", 3, np.cos(turns), np.sin(turns))
    return both.pairs


def attends_by_products(device: Device, dtype: np.dtype) -> Pairs:
    """Attention of longer texts by matrix products, all at once and heads after heads, with dropout and without."""
    both = Both(device, dtype)
    shapes = size(device, ((131, 4, 2, 64), (64, 3, 1, 7)), ((9, 4, 2, 3),))
    for (length, heads, kv_heads, width), rate in itertools.product(shapes, (0.0, 0.2)):
        qkv = both.normal(2, length, heads + 2 * kv_heads, width)
        told = {"out": both.normal(2, length, heads, width), "logs": both.normal(2, heads, length)}
        name, drop = f"{length} x {width}, dropout {rate:g}", (2**63 + 5, 7, 3, rate)
        forward, back = attention_reference.attention, attention_reference.attention_gradient
        with limits(by_matrices, LEAST=1, MOST_NUMBERS=length**2 * 3 if rate else 1 << 20):
            both.call(attention.attention, forward, name, told, qkv, heads, kv_heads, "out", "logs", *drop)
            out, logs = np.zeros(told["out"].shape), np.zeros(told["logs"].shape)
            forward(qkv.astype(np.float64), heads, kv_heads, out, logs, *drop)
            rest = qkv, heads, kv_heads, out.astype(dtype), logs.astype(dtype), both.normal(*out.shape)
            both.call(attention.attention_gradient, back, name, {"dqkv": np.zeros_like(qkv)}, *rest, "dqkv", *drop)
    return both.pairs


def shortened(device: Device, dtype: np.dtype) -> Pairs:
    """Products and attention whose operands are rounded to 16 bits; they are float32 whatever the check's precision.

    Numbers that 16 bits hold come out as in float32; attention's weights and slopes are rounded on the way.
    """
    both, random = Both(device, np.dtype(np.float32)), np.random.default_rng(6)
    m, k, n = size(device, (130, 257, 65), (3, 5, 2))
    length, heads, width = size(device, (131, 4, 64), (9, 2, 3))
    for kind in short.KINDS:
        with products_of(kind):
            for label in ("", " transposed"):
                a, b = (random.integers(-8, 9, shape).astype(np.float32) / 8 for shape in ((m, k), (k, n)))
                start = random.integers(-8, 9, (m, n)).astype(np.float32)
                first, second, out = (device.to_device(each.T.copy() if label else each) for each in (a, b, start))
                out = device.to_device(start)
                multiply(first.T if label else first, second.T if label else second, out, True)
                both.pairs[f"{kind} product{label}"] = out, (start + a @ b).astype(np.float64)
            qkv, dout = (
                random.integers(-8, 9, (2, length, many, width)).astype(np.float32) / 8 for many in (3 * heads, heads)
            )
            here = [np.zeros(shape) for shape in (dout.shape, (2, heads, length), qkv.shape)]
            attention_reference.attention(qkv.astype(np.float64), heads, heads, *here[:2])
            given = qkv.astype(np.float64), heads, heads, here[0], here[1], dout.astype(np.float64)
            attention_reference.attention_gradient(*given, here[2])
            with limits(by_matrices, LEAST=1):
                there = [device.to_device(np.zeros(each.shape, np.float32)) for each in here]
                attention.attention(device.to_device(qkv), heads, heads, *there[:2])
                given = device.to_device(qkv), heads, heads, *there[:2], device.to_device(dout)
                attention.attention_gradient(*given, there[2])
            for name, found, expected in zip(("out", "logs", "dqkv"), there, here, strict=True):
                error = difference(device.to_host(found), expected)  # of weights and slopes that are rounded
                both.pairs[f"{kind} attention: {name}"] = device.to_device(np.array([error > 2.0**-7])), np.zeros(1)
    return both.pairs


@contextmanager
def limits(module: ModuleType, **values: int) -> Iterator[None]:
    """The module with other limits."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def optimizers(device: Device, dtype: np.dtype) -> Pairs:
    """A step of AdamW and of SGD over parts with and without decay; products of matrices that add."""
    both, n = Both(device, dtype), size(device, 5008, 48)
    bounds, decays = np.array([0, 16, 32, n]), np.array([0.9, 1.0, 0.8], dtype)
    names, arrays = ("values", "mean", "square"), [both.normal(n) for _ in range(4)]
    grads = arrays[3]
    told = dict(zip(names, (*arrays[:2], np.abs(arrays[2])), strict=True))
    settings = np.array([0.5, 0.9, 0.99, 0.1, 0.01, 0.02, 3.0, 1e-8], dtype)
    both.call(
        layers.adamw,
        layers_reference.adamw,
        "adamw",
        told,
        "values",
        grads,
        "mean",
        "square",
        *map(OnHost, (bounds, decays, settings)),
    )
    for nesterov in (0.0, 1.0):
        told, settings = (
            dict(zip(("values", "velocity"), arrays, strict=False)),
            np.array([0.5, 0.9, 0.02, nesterov], dtype),
        )
        both.call(
            layers.momentum, layers_reference.momentum, f"momentum {nesterov:g}", told,
            "values", grads, "velocity", *map(OnHost, (bounds, decays, settings)),
        )  # fmt: skip
    m, k, n = size(device, (130, 257, 65), (3, 5, 2))
    for label, a, b in (
        ("", both.normal(m, k), both.normal(k, n)),
        (" transposed", both.normal(k, m), both.normal(n, k)),
    ):
        for add in (False, True):
            first, second = device.to_device(a), device.to_device(b)
            start = both.normal(m, n)
            out = device.to_device(start)
            multiply(first.T if label else first, second.T if label else second, out, add)
            left, right = (each.T if label else each for each in (_here(a), _here(b)))
            both.pairs[f"product{label}, add {add}"] = out, left @ right + add * _here(start)
    return both.pairs


def pictures(device: Device, dtype: np.dtype) -> Pairs:
    """Patches and their adjoint with strides and padding, max pooling and its adjoint."""
    both, (h, w, c) = Both(device, dtype), size(device, (23, 30, 5), (4, 5, 1))
    image = both.normal(2, h, w, c)
    for kernel, stride, padding in ((3, 1, 1), (2, 2, 0), (3, 2, 2)):
        shape = [images.out_size(m, kernel, stride, padding) for m in (h, w)]
        patches, name = both.normal(2, *shape, kernel, kernel, c), f"patches {kernel} {stride} {padding}"
        both.call(
            images.gather_patches, images_reference.gather_patches, name, {"gathered": patches},
            "gathered", image, stride, padding,
        )  # fmt: skip
        told = {"added": np.zeros_like(image)}
        both.call(images.add_patches, images_reference.add_patches, name, told, "added", patches, stride, padding)
    pooled = (2, h // 2, w // 2, c)
    told = {"out": both.normal(*pooled), "place": np.zeros(pooled, np.uint8)}
    both.call(images.max_pool, images_reference.max_pool, "pool", told, "out", "place", image, 2)
    place = both.random.integers(0, 4, pooled).astype(np.uint8)
    told = {"image": np.zeros_like(image)}
    both.call(
        images.max_pool_back, images_reference.max_pool_back, "pool", told, "image", both.normal(*pooled), place, 2
    )
    return both.pairs


def tiles(device: Device, dtype: np.dtype) -> Pairs:
    """Products in a fixed order, of each kind of weights, in parts, and of weights that are packed on the device."""
    random, pairs = np.random.default_rng(4), Pairs()
    rows, inputs, outputs = size(device, 33, 3), size(device, 403, 37), size(device, 130, 5)
    a, weight = (random.normal(size=shape).astype(dtype) for shape in ((rows, inputs), (inputs, outputs)))
    bounds = np.array([0, 0, 32, inputs])
    for kind in ("float64",) if dtype == np.float64 else ("float32", "bfloat16", "bfloat16_dot", "q8_0", "q4_0"):
        packed = tile.pack(weight, kind)
        there = packed._replace(panels=device.to_device(packed.panels))
        here, out = np.ones((rows, outputs), dtype), device.to_device(np.ones((rows, outputs), dtype))
        tile_reference.multiply(a, packed, here, True, bounds)
        tile.multiply(device.to_device(a), there, out, True, bounds)
        pairs[kind] = out, here.astype(np.float64)
        if kind[0] != "q":
            packed_there = tile.pack(device.to_device(weight), kind)
            out = device.to_device(np.zeros((rows, outputs), dtype))
            tile.multiply(device.to_device(a), packed_there, out)
            here = np.zeros((rows, outputs), dtype)
            tile_reference.multiply(a, packed, here)
            pairs[f"{kind}, packed there"] = out, here.astype(np.float64)
    return pairs


def words(device: Device, dtype: np.dtype) -> Pairs:
    """Numbers of 16 bits: rounded, brought back, added to. They are float32 whatever the precision of the check."""
    random, pairs, n = np.random.default_rng(5), Pairs(), size(device, 70_001, 17)
    x = (random.standard_normal(n) * 10.0 ** random.integers(-9, 5, n)).astype(np.float32)
    for kind in short.KINDS:
        limited = np.clip(x, -6e4, 6e4)
        here, there = np.zeros(n, np.uint16), device.to_device(np.zeros(n, np.uint16))
        short_reference.narrow(limited, here, kind)
        short.narrow(device.to_device(limited), there, kind)
        pairs[f"{kind} bits"] = there.copy(), here.astype(np.float64)
        added = random.standard_normal(n).astype(np.float32)
        short_reference.accumulate(here, added, kind)
        short.accumulate(there, device.to_device(added), kind)
        back = np.zeros(n, np.float32)
        short_reference.widen(here, back, kind)
        pairs[f"{kind} sums"] = short.widened(there, kind), back.astype(np.float64)
        rounded = device.to_device(added)
        short.round_to(rounded, kind)
        short_reference.round_to(added, kind)
        pairs[f"{kind} rounded"] = rounded, added.astype(np.float64)
    return pairs


def pages(device: Device, dtype: np.dtype) -> Pairs:
    """Attention over blocks: pieces of two texts, whose keys and values are kept first."""
    both = Both(device, dtype)
    groups, heads, width, length = 2, *size(device, (3, 40, 70), (1, 6, 35))
    keys, values = (np.zeros(shape, dtype) for shape in page_shapes(groups, 5, width, 16))
    tables, starts = np.array([[4, 1, 0], [2, 3, 0]]), np.array([0, 0])
    rows, turns = np.array([0, length, length + 3]), both.normal(length, width // 2)
    positions = np.concatenate([np.arange(length), np.arange(3)])
    slots = np.concatenate(
        [tables[0][positions[:length] // PAGE] * PAGE + positions[:length] % PAGE, 2 * PAGE + np.arange(3)]
    )
    told = {"qkv": both.normal(length + 3, groups, heads + 2, width), "keys": keys, "values": values}
    angles = np.cos(turns), np.sin(turns)
    both.call(paged.keep, paged_reference.keep, "pages", told, "qkv", "keys", "values", positions, slots, *angles)
    qkv, keys, values = (np.ascontiguousarray(both.pairs[f"pages: {name}"][1], dtype) for name in told)
    given = qkv, keys, values, rows, starts, tables
    for window in (0, 5):
        told = {"out": both.normal(length + 3, groups * heads * width)}
        both.call(paged.attend, paged_reference.attend, f"window {window}", told, *given, window, "out")
    return both.pairs


CHECKS = [
    Check("activations and dropout", numbers),
    Check("losses and embeddings", rows, SINGLE),
    Check("norms", norms, SINGLE),
    Check("attention", attends, SINGLE),
    Check("attention by products", attends_by_products, SINGLE),
    Check("products and attention of 16 bits", shortened),
    Check("optimizers and products", optimizers),
    Check("images", pictures),
    Check("products in a fixed order", tiles),
    Check("numbers of 16 bits", words),
    Check("attention over blocks", pages, SINGLE),
]
