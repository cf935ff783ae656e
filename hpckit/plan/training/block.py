"""The time of a transformer's block on a rank: its products, its passes over memory, its messages.

One rule for every kernel: a product reads its operands while it multiplies and writes its result afterwards,
max(FLOPs / peak, bytes read / bandwidth) + bytes written / bandwidth; everything else takes its bytes / bandwidth. All
rates are the data sheet's, times the machine's efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hpckit.plan.machine.machine import Machine
from hpckit.plan.training.context import context_seconds
from hpckit.plan.training.links import Line, compute_of, line
from hpckit.plan.training.model import LanguageModel, Matrix
from hpckit.plan.training.strategy import Strategy

WAITED = ("tp", "cp", "ep", "etp")  # axes whose messages a block waits for


@dataclass
class BlockTimes:
    """Seconds of a block for one microbatch on a rank.

    forward; inputs, weights: the halves of the backward pass; again: what is recomputed. messages: of each axis,
    forward and backward, that the computations do not hide; forwards: the forward part of these. hidden: the messages
    that computations hide.
    """

    forward: float = 0.0
    inputs: float = 0.0
    weights: float = 0.0
    again: float = 0.0
    messages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAITED, 0.0))
    forwards: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAITED, 0.0))
    hidden: float = 0.0

    @property
    def computing(self) -> float:
        """All computations."""
        return self.forward + self.inputs + self.weights + self.again

    @property
    def seconds(self) -> float:
        """Forward and backward with their messages."""
        return self.computing + sum(self.messages.values())

    @property
    def ahead(self) -> float:
        """The forward pass with its messages."""
        return self.forward + sum(self.forwards.values())

    def times(self, count: float) -> BlockTimes:
        """Of so many blocks."""
        return BlockTimes(
            self.forward * count,
            self.inputs * count,
            self.weights * count,
            self.again * count,
            {axis: value * count for axis, value in self.messages.items()},
            {axis: value * count for axis, value in self.forwards.items()},
            self.hidden * count,
        )

    def plus(self, other: BlockTimes) -> BlockTimes:
        """With others after it."""
        return BlockTimes(
            self.forward + other.forward,
            self.inputs + other.inputs,
            self.weights + other.weights,
            self.again + other.again,
            {axis: value + other.messages[axis] for axis, value in self.messages.items()},
            {axis: value + other.forwards[axis] for axis, value in self.forwards.items()},
            self.hidden + other.hidden,
        )


class Kernels:
    """Seconds of kernels on a machine. item: bytes of a number."""

    def __init__(self, machine: Machine, item: int) -> None:
        it = compute_of(machine)
        self.peak, self.bandwidth, self.item = it.peak * it.efficiency, it.bandwidth * it.efficiency, item

    def product(self, rows: float, inner: float, columns: float, written: float = 0, weights: float = 1.0) -> float:
        """[rows, inner] times [inner, columns]. written: bytes an element, 0: `item`; weights: matrices read."""
        read, written = self.item * (rows * inner + weights * inner * columns), written or self.item
        return max(2.0 * rows * inner * columns / self.peak, read / self.bandwidth) + self.over(
            written * rows * columns
        )

    def weight_gradient(self, rows: float, it: Matrix, strategy: Strategy, split: int, matrices: float = 1.0) -> float:
        """The gradient of a weight: [inputs, rows] times [rows, outputs], added to what was there.

        If the product does not add itself, its result is written in half precision, and added by a pass.
        """
        gradient = strategy.precision.gradient
        written = gradient if strategy.fused else 2 * self.item + 2 * gradient
        count = matrices * it.inputs * it.outputs / split
        read = self.item * rows * (it.inputs + it.outputs / split)
        return max(2.0 * rows * it.inputs * it.outputs / split / self.peak, read / self.bandwidth) + self.over(
            written * count
        )

    def over(self, nbytes: float) -> float:
        """A pass over memory."""
        return nbytes / self.bandwidth


def block_times(model: LanguageModel, it: Strategy, machine: Machine, experts: bool = False) -> BlockTimes:
    """The time of a block; experts: of one with experts."""
    item = it.item
    kernels, found = Kernels(machine, item), BlockTimes()
    n, t = float(it.tokens), it.tp
    between = n * model.width / (t if it.sequence else 1)
    tp = line(machine, t, 1)
    whole = tp.gather(item * n * model.width)  # of a microbatch's tokens, gathered or scattered
    matrices = model.attention()
    hidden = model.hidden
    ways = 4  # gathers and scatters of tp: around attention and MLP
    if experts and model.experts is not None:
        hidden = model.experts.shared * model.experts.hidden
        ways = 4 if hidden else 2
    if hidden:
        matrices = [*matrices, *model.mlp(hidden)]
    for matrix in matrices:
        _matrix(kernels, matrix, n, it, found)
    core = _scores(model, it, kernels, found)
    drop = int(model.dropout)
    # Norms; dropout with the residual sum; backward the norms, the masks, the sums of both branches.
    found.forward += kernels.over(between * 2 * (2 * item + 3 * item + drop))
    found.inputs += kernels.over(between * 2 * (3 * item + (2 * item + 1) * drop + 3 * item))
    _activation(model, kernels, n * hidden / t, found)
    if not model.positions:  # rotary positions of queries and keys, there and back
        turned = kernels.over(2 * item * n * (model.heads + model.kv_heads) * model.head / t)
        found.forward += turned
        found.inputs += turned
    sent = dict.fromkeys(WAITED, 0.0) | {"tp": ways * whole}
    if experts and model.experts is not None:
        sent["ep"], sent["etp"] = _experts(model, it, machine, kernels, found)
    exposed, hidden_part = _context(model, it, machine, core)
    sent["cp"] = exposed[0]
    found.hidden = hidden_part
    found.forwards = dict(sent)
    found.messages = {axis: 2 * value for axis, value in sent.items()}
    found.messages["cp"] = exposed[0] + exposed[1]
    if it.recompute == "full":
        found.again = found.forward
        for axis, value in sent.items():
            found.messages[axis] += value
    elif it.recompute == "selective":
        gate = kernels.over(n * hidden / t * item * (2 + model.gated))
        found.again = kernels.over(between * 2 * 2 * item) + gate if it.flash else core
    return found


def _matrix(kernels: Kernels, it: Matrix, n: float, strategy: Strategy, found: BlockTimes) -> None:
    t = strategy.tp
    rows = n / t if it.split == "none" and strategy.sequence else n
    inputs = it.inputs / (t if it.split == "inputs" else 1)
    outputs = it.outputs / (t if it.split == "outputs" else 1)
    found.forward += kernels.product(rows, inputs, outputs)
    found.inputs += kernels.product(rows, outputs, inputs)
    part = Matrix(it.inputs, it.outputs, it.split)
    found.weights += kernels.weight_gradient(rows, part, strategy, t if it.split != "none" else 1)


def _scores(model: LanguageModel, it: Strategy, kernels: Kernels, found: BlockTimes) -> float:
    """The attention between its matrices; returns its forward time."""
    n, heads = float(it.tokens), model.heads / it.tp
    scores = n * it.context * heads
    if it.flash:  # half of the scores are masked and not computed; backward computes them again: 5 products for 2
        rows = n * heads * (model.head + model.value) + n * model.kv_heads / it.tp * (model.head + model.value)
        core = scores / 2 * 2 * (model.head + model.value) / kernels.peak + kernels.over(kernels.item * rows)
        back = scores / 2 * (6 * model.head + 4 * model.value) / kernels.peak + kernels.over(2 * kernels.item * rows)
    else:
        drop = int(model.dropout)
        products = [2.0 * scores * wide / kernels.peak for wide in (model.head, model.value)]
        read = kernels.over(kernels.item * scores)
        dropped = drop * (2 * kernels.item + 1)
        core = products[0] + max(products[1], read) + kernels.over(scores * (3 * kernels.item + dropped))
        back = products[1] + max(products[1], read) + 2 * max(products[0], read)
        back += kernels.over(scores * (4 * kernels.item + dropped))
    found.forward += core
    found.inputs += back
    return core


def _activation(model: LanguageModel, kernels: Kernels, elements: float, found: BlockTimes) -> None:
    """Between the matrices of an MLP."""
    found.forward += kernels.over(elements * kernels.item * (3 if model.gated else 2))
    found.inputs += kernels.over(elements * kernels.item * (5 if model.gated else 3))


def _experts(
    model: LanguageModel, it: Strategy, machine: Machine, kernels: Kernels, found: BlockTimes
) -> tuple[float, float]:
    """Router, experts and their messages; returns the seconds of those of ep and of etp in the forward pass.

    Tokens are dealt evenly: ranks of tp have their own ones. Ranks of etp work on the tokens of all of them, each with
    its part of every expert.
    """
    own = model.experts
    assert own is not None
    tokens = it.tokens / it.tp
    taken, held = tokens * own.active, own.count / it.ep
    router = Matrix(model.width, own.count, "none")
    found.forward += kernels.product(tokens, model.width, own.count)
    found.inputs += kernels.product(tokens, own.count, model.width)
    found.weights += kernels.weight_gradient(tokens, router, it, 1)
    for matrix in model.mlp(own.hidden // it.etp):
        found.forward += kernels.product(taken * it.etp, matrix.inputs, matrix.outputs, weights=held)
        found.inputs += kernels.product(taken * it.etp, matrix.outputs, matrix.inputs, weights=held)
        found.weights += kernels.weight_gradient(taken * it.etp, matrix, it, 1, held)
    _activation(model, kernels, taken * own.hidden, found)
    moved = kernels.over(2 * 2 * kernels.item * taken * model.width)  # sorted by expert, and back
    found.forward += moved
    found.inputs += moved
    ep, within = folded_line(it, machine, it.ep, it.etp), folded_line(it, machine, it.etp, 1)
    nodes = ep.size / ep.inner
    copies = nodes * (1 - (1 - 1 / nodes) ** own.active) / own.active if nodes > 1 else 1.0  # distinct nodes of a token
    rows = kernels.item * taken * model.width
    # A token goes to a node once, and a row of each choice comes back.
    return ep.exchange(rows, copies) + ep.exchange(rows), 2 * within.gather(rows * it.etp)


def folded_line(it: Strategy, machine: Machine, size: int, stride: int) -> Line:
    """Ranks of the mesh of experts: `size` of them, `stride` apart among those of dp, cp and tp, tp innermost.

    Those of tp and cp stand together, replicas behind the stages of a pipeline.
    """
    near = it.tp * it.cp
    if size * stride <= near:
        return line(machine, size, stride)
    if stride >= near:
        return line(machine, size, stride * it.pp)
    inside = line(machine, max(near // stride, 1), stride)
    outside = line(machine, -(-size * stride // near), near * it.pp)
    return Line(
        size,
        min(inside.inner * outside.inner, size),
        min(inside.bandwidth, outside.bandwidth),
        outside.latency,
        outside.size * inside.around + outside.around,
        inside.near,
        outside.far,
    )


def _context(model: LanguageModel, it: Strategy, machine: Machine, core: float) -> tuple[tuple[float, float], float]:
    """See `context_seconds`."""
    if it.cp == 1:
        return (0.0, 0.0), 0.0
    keys = it.item * it.tokens * max(model.kv_heads / it.tp, 1) * (model.head + model.value)
    queries = it.item * it.tokens * model.heads / it.tp * (model.head + model.value)
    return context_seconds(it.context_by, line(machine, it.cp, it.tp), keys, queries, core)
