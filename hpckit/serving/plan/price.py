"""What serving a model takes, before it is started: memory, seconds of a token and to the first one.

`ComputeTimes` says what an action of a step's plan takes (`ServingPlan`), `serving_price` what many steps take.

A pass of `rows` tokens reads every weight once and multiplies it by each row: the longer of the two counts, as the
rates of the tile say, which differ with the rows. Keys and values are read once a text, and each query has a score of
each token before it: again the longer of the two counts. Between products all ranks wait for each other: four times a
block. Stages on several nodes work on steps of their own; each passes the rows of its step on, and the last one the
plan of the next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels import aligned
from hpckit.kernels.nn.paged import dispatch as paged
from hpckit.kernels.nn.paged.pages import PAGE, page_shapes
from hpckit.kernels.nn.tile import dispatch as tile
from hpckit.kernels.nn.tile.packed import KINDS, panel_shape
from hpckit.kernels.nn.tile.tile import width_of
from hpckit.plan.blocks import block
from hpckit.plan.machine.machine import Level, Machine
from hpckit.serving.checkpoint.shape import TransformerShape
from hpckit.serving.plan.places import Places
from hpckit.serving.plan.plan import ServingPlan
from hpckit.serving.plan.program import ANSWER, ATTEND, LOWER, PROJECT, RAISE
from hpckit.serving.step import ServingStep, TextPiece

ROWS = (1, 4, 8, 32, 128, 512)
WAIT = 1.5e-6  # s of a barrier of ranks with a core each, in shared memory
WAITS = 4  # of a block
MATRICES = {ATTEND: ("qkv",), PROJECT: ("out",), RAISE: ("router", "up"), LOWER: ("down",)}
LATENCY, BANDWIDTH = 2e-6, 1e10  # s and bytes/s between nodes, where no machine says them
MEMORY = 128 << 20  # bytes of the weights that are measured: more than caches hold
INPUTS = 1024
ROUNDS = 3


@dataclass(frozen=True)
class Rates:
    """seconds: of a weight's byte, by the rows that it is multiplied by at once (`ROWS`); wait: s of a barrier; latency
    and bandwidth: s and bytes/s of a message between nodes; score: s of attention for a number of a query and one of
    a key.
    """

    seconds: tuple[float, ...]
    wait: float = WAIT
    latency: float = LATENCY
    bandwidth: float = BANDWIDTH
    source: str = ""
    score: float = 0.0

    def of(self, rows: int) -> float:
        """Seconds of a weight's byte, interpolated; beyond the most rows, in proportion."""
        beyond = max(rows / ROWS[-1], 1.0)
        return float(np.interp(min(rows, ROWS[-1]), ROWS, self.seconds)) * beyond


@dataclass(frozen=True)
class ServingPrice:
    """Bytes of a rank's weights and of its keys and values; seconds by texts at once, and to the first token."""

    weights: float
    kv: float
    decode: dict[int, float]
    first: dict[int, float]


@dataclass(frozen=True)
class ComputeTimes:
    """Seconds of what a rank computes, one of `columns` that split every weight of a model of `kind`."""

    shape: TransformerShape
    kind: str
    columns: int
    rates: Rates

    @property
    def sizes(self) -> dict[str, float]:
        """Bytes of each kind of matrix, all layers and ranks together."""
        nbytes = KINDS[self.kind].nbytes / KINDS[self.kind].along
        return {name: count * a * b * nbytes for name, (count, a, b) in self.shape.matrices().items()}

    def product(self, name: str, rows: int, share: float) -> float:
        """Of so many rows with a share of the matrices of a kind."""
        each = self.shape.read_share(name)
        chosen = 1 - (1 - each) ** rows  # of experts: those that some token chose
        if not chosen:
            return 0.0
        return self.sizes[name] * share / self.columns * chosen * self.rates.of(max(1, round(rows * each / chosen)))

    def attention(self, reads: float, scores: float) -> float:
        """In all layers: reads of so many tokens' keys and values, and scores of tokens for a row of each head."""
        s = self.shape
        read = reads * s.kv_bytes * self.rates.seconds[0]
        return max(read, scores * s.layers * s.heads * s.head_width * self.rates.score) / self.columns

    def passes(self, rows: int) -> int:
        """How often so many rows of a text go over the keys and values before them: twelve at a time."""
        return max(1, rows * self.shape.group // 12)

    def __call__(self, does: str, pieces: Sequence[TextPiece]) -> float:
        """Of an action of one layer, or of the head."""
        rows, layer = sum(len(piece.tokens) for piece in pieces), 1 / self.shape.layers
        if does == ANSWER:
            return self.product("head", sum(piece.answers for piece in pieces), 1.0)
        total = sum(self.product(name, rows, layer) for name in MATRICES.get(does, ()) if name in self.sizes)
        if does == ATTEND:
            seen = [(piece.start + len(piece.tokens) / 2, len(piece.tokens)) for piece in pieces]
            reads = sum(before * self.passes(count) for before, count in seen)
            total += layer * self.attention(reads, sum(before * count for before, count in seen))
        return total

    def plan(self, places: Places, step: ServingStep) -> ServingPlan:
        """The plan of a step with these seconds. Raises `InputError` for more stages than layers."""
        s = self.shape
        layers = tuple(map(len, s.layers_of(places.stages)))
        widths = {"mixed": s.heads * s.head_width, "branch": s.width, "logits": s.vocab}
        return ServingPlan(places, layers, step, {**widths, "hidden": s.hidden * max(1, s.chosen)}, self)


def full_step(places: Places, texts: int, context: int, rows: int) -> ServingStep:
    """A step as a busy server has them, of `texts` texts of `context` tokens: on each replica the next token of all but
    one, whose prompt fills the step up to `rows` tokens.
    """
    pieces, held = [], -(-context // PAGE)
    for replica in range(places.replicas):
        first, own = block(texts, places.replicas, replica)
        for text in range(first, first + own):
            prompt = own > 1 and text == first + own - 1
            count = min(context, max(1, rows - (text - first))) if prompt else 1
            blocks = tuple(range(text * held, (text + 1) * held))
            pieces.append(TextPiece(text, context - count, (0,) * count, blocks, 1, replica))
    return ServingStep(tuple(pieces))


def machine_of_rates(rates: Rates, places: Places) -> Machine:
    """Nodes whose ranks wait for each other, and the network between them, as `price` counts them."""
    node = Level("node", places.of_stage, rates.wait, float("inf"))
    return Machine(rates.source, (node, Level("network", 0, rates.latency, rates.bandwidth)), 0.0, float("inf"))


def rates_here(kind: str) -> Rates:
    """The rates of one core of this machine, measured in some seconds on random weights."""
    if kind not in KINDS or KINDS[kind].sums != "float32":
        raise InputError(f"there are no weights of the kind {kind!r}", do="choose float32, bfloat16, q8_0 or q4_0")
    per_column = np.prod(panel_shape(kind, INPUTS, 1, 1)) * np.dtype(KINDS[kind].memory).itemsize
    outputs = int(MEMORY // per_column) // width_of(kind) * width_of(kind)
    part = np.random.default_rng(0).standard_normal((INPUTS, width_of(kind) * 32), np.float32)
    one = tile.pack(part, kind)
    copies = -(-outputs // part.shape[1])
    memory = aligned.empty((copies, *one.panels.shape), one.panels.dtype)
    memory[:] = one.panels
    packed = [one._replace(panels=panels) for panels in memory]
    nbytes, found = sum(each.nbytes for each in packed), []
    for rows in ROWS:
        given, out = np.ones((rows, INPUTS), np.float32), np.empty((rows, one.outputs), np.float32)
        some = packed if rows <= 32 else packed[: max(1, copies * 32 // rows)]
        share = len(some) / copies
        seconds = [_seconds(given, some, out) for _ in range(ROUNDS + 1)][1:]
        found.append(min(seconds) / (nbytes * share))
    return Rates(tuple(found), source="measured here, one core", score=_score_here())


def _score_here() -> float:
    """`Rates.score` of one core of this machine, for rows that follow each other."""
    heads, width, rows = 4, 64, 12 * PAGE
    shapes = page_shapes(1, rows // PAGE, width, width_of("float32"))
    keys, values = (np.ones(shape, np.float32) for shape in shapes)
    qkv, out = np.ones((rows, 1, heads + 2, width), np.float32), np.empty((rows, heads * width), np.float32)
    given = qkv, keys, values, np.array([0, rows]), np.array([0]), np.arange(rows // PAGE)[None], 0, out
    seconds = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        paged.attend(*given)
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:]) / (rows * (rows + 1) / 2 * heads * width)


def rates_of(machine: Machine, kind: str) -> Rates:
    """The rates of a rank of a machine, from its bandwidth and its peak. Raises `InputError` without `[compute]`."""
    if machine.compute is None:
        raise InputError(
            f"the machine {machine.name} does not say what a rank computes with",
            do="add [compute] with peak, memory and bandwidth to its file, or leave --machine out: measure here",
        )
    compute, nbytes = machine.compute, KINDS[kind].nbytes / KINDS[kind].along
    read, flops = compute.bandwidth * compute.efficiency, compute.peak * compute.efficiency
    seconds = tuple(max(1 / read, 2 * rows / nbytes / flops) for rows in ROWS)
    outer = machine.levels[-1]
    wait = 2 * machine.levels[0].latency
    return Rates(seconds, wait, outer.latency, outer.bandwidth, machine.name, 4 / flops)  # two products of two flops


def serving_price(
    shape: TransformerShape,
    kind: str,
    ranks: int,
    rates: Rates,
    *,
    context: int,
    texts: int,
    rows: int = 512,
    stages: int = 1,
) -> ServingPrice:
    """The price of a model on ranks with a core and a share of the weights each.

    context: tokens of a text, for keys and values and for the first token. rows: most tokens of a step. stages: nodes
    with a part of the layers each; the weights and the keys and values are those of a rank of the fullest one. Raises
    `InputError` for more stages than layers.
    """
    own = ranks // stages
    times = ComputeTimes(shape, kind, own, rates)
    sizes = times.sizes
    shares = [len(layers) / shape.layers for layers in shape.layers_of(stages)]
    heads_of = [float(n == stages - 1) for n in range(stages)]

    def stage(share: float, head: float, count: int, seen: float, heads: int, groups: int, each: int) -> float:
        """Seconds of a pass of so many rows through a stage with that share of the layers, and of its message."""
        total = share * times.attention(seen * groups, seen * each)
        for name in sizes:
            is_head = name == "head"
            total += times.product(name, heads if is_head else count, head if is_head else share)
        total += (WAITS * share * shape.layers + 1) * (rates.wait if own > 1 else 0.0)
        if stages == 1:
            return total
        return total + rates.latency + (0.0 if head else 4 * count * shape.width / rates.bandwidth)

    def step(count: int, seen: float, heads: int, groups: int = 1, each: int = 1) -> list[float]:
        """Seconds of a step on each stage: so many rows, `each` of a text, that see `seen` tokens of keys and values,
        which are read once a group of rows; and its answers.
        """
        ends = zip(shares, heads_of, strict=True)
        return [stage(share, head, count, seen, heads, groups, each) for share, head in ends]

    decode: dict[int, float] = {}
    for many in sorted({1, 8, texts}):
        flying = min(stages, many)
        each = step(-(-many // flying), many * context / flying, -(-many // flying))
        decode[many] = max(sum(each), flying * max(each))  # every step passes through all stages, one after the other
    first: dict[int, float] = {}
    for length in sorted({min(128, context), context}):
        pieces = [min(rows, length - begin) for begin in range(0, length, rows)]
        each_piece = [
            step(piece, begin + piece / 2, 1 if begin + piece >= length else 0, times.passes(piece), piece)
            for begin, piece in zip(range(0, length, rows), pieces, strict=True)
        ]
        first[length] = sum(map(max, each_piece[:-1])) + sum(each_piece[-1])
    fullest = max(
        (sum(sizes.values()) - sizes["head"]) * a + sizes["head"] * b for a, b in zip(shares, heads_of, strict=True)
    )
    return ServingPrice(fullest / own, max(shares) * shape.kv_bytes * texts * context / own, decode, first)


def _seconds(given: Any, packed: list[Any], out: Any) -> float:
    begin = time.perf_counter()
    for weight in packed:
        tile.multiply(given, weight, out)
    return time.perf_counter() - begin
