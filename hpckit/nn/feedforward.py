"""The feed-forward part of a transformer's block: linear maps with an activation between, or a mixture of experts.

And plain MLPs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host, to_host
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.activations import activation_of
from hpckit.nn.layer import Layer, Pass, Sequential, Turns, at_once
from hpckit.nn.linear import Linear, rows
from hpckit.nn.parameters import Parameter


class FeedForward:
    """down(activation(up(x))): [..., width] -> [..., width], as in GPT-2; activation: a name of `ACTIVATIONS`."""

    def __init__(
        self,
        width: int,
        hidden: int,
        name: str = "mlp",
        std: float = 0.02,
        out_std: float | None = None,
        activation: str = "gelu",
    ) -> None:
        self.activation = activation_of(activation).function
        self.up = Linear(width, hidden, f"{name}.up", std=std)
        self.down = Linear(hidden, width, f"{name}.down", std=std if out_std is None else out_std)

    def parameters(self) -> list[Parameter]:
        """Those of up, then those of down."""
        return self.up.parameters() + self.down.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` if a residual goes around the layer."""
        slope, _ = self.up.forward(x, step)
        hidden, y = empty_like(slope), empty_like(x)
        self.activation(slope, hidden)
        step.rounded(slope, hidden)
        self.down.apply(hidden, y, onto)
        return y, (x, slope, hidden)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. The slope becomes the gradient of the hidden values, which W needs."""
        dispatch.scale(saved[1], self.down.backward_input(None, dy))
        return self.up.backward_input(None, saved[1])

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of down, then of up."""
        x, dhidden, hidden = saved
        self.down.backward_weight(hidden, dy)
        self.up.backward_weight(x, dhidden)


class GatedFeedForward:
    """down(silu(gate(x)) up(x)) without biases: [..., width] -> [..., width], as in Llama (SwiGLU)."""

    def __init__(
        self, width: int, hidden: int, name: str = "mlp", std: float = 0.02, out_std: float | None = None
    ) -> None:
        self.gate = Linear(width, hidden, f"{name}.gate", bias=False, std=std)
        self.up = Linear(width, hidden, f"{name}.up", bias=False, std=std)
        self.down = Linear(hidden, width, f"{name}.down", bias=False, std=std if out_std is None else out_std)

    def parameters(self) -> list[Parameter]:
        """Those of gate, up and down."""
        return self.gate.parameters() + self.up.parameters() + self.down.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` if a residual goes around the layer."""
        (gate, _), (up, _) = self.gate.forward(x, step), self.up.forward(x, step)
        hidden, y = empty_like(gate), empty_like(x)
        dispatch.swiglu(gate, up, hidden)
        step.rounded(gate, up, hidden)
        self.down.apply(hidden, y, onto)
        return y, (x, gate, up, hidden)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. The slopes become the gradients of gate and up, which W needs."""
        x, gate, up, _ = saved
        dispatch.scale_two(self.down.backward_input(None, dy), gate, up)
        dx = empty(x.shape, x)
        self.gate.transposed(gate, dx)
        self.up.transposed(up, dx, add=True)
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of down, up and gate."""
        x, dgate, dup, hidden = saved
        self.down.backward_weight(hidden, dy)
        self.up.backward_weight(x, dup)
        self.gate.backward_weight(x, dgate)


class AtHome:
    """The way of tokens to experts that are all on this rank: their rows are put together, and stay.

    counts: rows of each expert. groups: for each expert with rows its number, its first and last row, and the number of
    the rank from which they come, known once `there` has been. `hpckit.training.experts` has the way over a mesh, on
    which both take turns.
    """

    def __init__(self, counts: np.ndarray) -> None:
        bounds = np.concatenate([[0], np.cumsum(counts)]).tolist()
        self.groups = [(expert, a, b, 0) for expert, (a, b) in enumerate(pairwise(bounds)) if b > a]

    def there(self, x: Any, tokens: Any, weights: Any = None) -> Turns[Any]:
        """Rows x[tokens], times their weights if these are given, where their experts are."""
        yield from ()  # nothing is sent
        taken = x[tokens]
        return taken if weights is None else weights[:, None] * taken

    def back(self, found: Any) -> Turns[Any]:
        """The experts' results, one for each row that was sent, in the order of `there`."""
        yield from ()
        return found


class WholeSamples(Protocol):
    """What ranks that share the tokens of samples know of all of them. Collective."""

    def gather(self, own: Any, step: Pass) -> Any:
        """An array [samples, tokens, n] of all tokens from the rows [own tokens, n] of each rank."""

    def own(self, whole: Any, step: Pass) -> Any:
        """The rows of this rank's tokens."""


class Experts:
    """The sum of w_j down_j(silu(gate_j(x)) up_j(x)) over the `top_k` likeliest experts j of each token, as in Mixtral.

    [B, T, width] -> [B, T, width]. w: softmax of the router's values over the chosen experts (Jiang et al. 2024); of
    equal values the expert with the lower number comes first. The tokens of an expert stand together, in the order of
    the batch, and one product takes those of each expert. shared: hidden width of a map that every token goes through
    besides (DeepSeek-AI 2024); 0: none. The router's values and weights are never rounded to 16 bits.

    capacity: 0 drops no token. Else an expert takes, of a sample of T tokens, at most ceil(capacity T top_k / experts)
    choices while training, first choices before second ones, each in the order of the tokens (Lepikhin et al. 2020,
    with a sample as the group); what is dropped adds nothing to its token, whose other weights stay as they are. No
    sample depends on others, so neither microbatches nor replicas change what is dropped. `chosen` counts it. whole:
    where ranks share the tokens of a sample, how they come to know the choices of all of them.

    balance, z: factors of two losses that the gradients contain, and the loss that a step reports does not. Both are
    means over the whole batch, so that neither microbatches nor ranks change them. Balance: experts sum_i f_i P_i, P_i
    the mean probability of expert i, f_i its share of the choices (Fedus et al. 2021) in the batch before: all shares
    of a batch are known only after its last forward pass, and a pipeline begins with backward passes earlier. z: the
    mean of the squared log-sums of the router's values (Zoph et al. 2022).

    shares: f, float64[experts], at first all alike, which pulls nowhere. chosen: the choices in backward passes since
    they were last settled, int64[experts].
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        experts: int,
        top_k: int = 2,
        name: str = "mlp",
        std: float = 0.02,
        out_std: float | None = None,
        balance: float = 0.0,
        z: float = 0.0,
        shared: int = 0,
        capacity: float = 0.0,
    ) -> None:
        if not 1 <= top_k <= experts:
            raise InputError(f"{top_k} experts a token cannot be chosen among {experts}", do=f"give 1 to {experts}")
        if min(width, hidden) < 1 or min(balance, z, shared, capacity) < 0:
            raise InputError(
                f"experts of width {width}, hidden {hidden}, shared {shared}, balance {balance:g}, z {z:g}, "
                f"capacity {capacity:g}",
                do="give widths of 1 or more, and factors of 0 or more",
            )
        self.name, self.experts, self.top_k, self.balance, self.z = name, experts, top_k, balance, z
        self.capacity = capacity
        self.router = Linear(width, experts, f"{name}.router", bias=False, std=std)
        self.gate, self.up = (
            Parameter(f"{name}.{which}.weight", (experts, width, hidden), std, experts=experts, hidden=2)
            for which in ("gate", "up")
        )
        small = std if out_std is None else out_std
        self.down = Parameter(f"{name}.down.weight", (experts, hidden, width), small, experts=experts, hidden=1)
        self.shared = GatedFeedForward(width, shared, f"{name}.shared", std, out_std) if shared else None
        self.way: Callable[[np.ndarray], AtHome] = AtHome
        self.whole: WholeSamples | None = None
        self.shares: np.ndarray
        self.chosen = np.zeros(experts, np.int64)
        self.forget()

    def parameters(self) -> list[Parameter]:
        """Those of the router, then gate, up and down of all experts, then those of the shared map."""
        own = [*self.router.parameters(), self.gate, self.up, self.down]
        return own if self.shared is None else own + self.shared.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` if a residual goes around the layer."""
        return at_once(self.forward_turns(x, step, onto))

    def forward_turns(self, x: Any, step: Pass, onto: Any = None) -> Turns[tuple[Any, Any]]:
        """`forward` in turns: tokens travel to their experts, and back."""
        if step.shapes:
            return x, None
        of_shared = None
        if self.shared is not None:
            onto, of_shared = self.shared.forward(x, step, onto)
        values, _ = self.router.forward(rows(x), step)
        chosen, weights = (empty((len(values), self.top_k), values, kind) for kind in (np.int64, values.dtype))
        dispatch.choose(values, chosen, weights)
        sent, limited = chosen.reshape(-1), bool(self.capacity) and step.training
        order = np.argsort(sent, kind="stable")  # row -> token and choice; those of an expert stand together
        place: Any = np.argsort(order, kind="stable").reshape(chosen.shape)
        if limited:
            kept = from_host(self._kept(to_host(chosen), len(x), step), values)
            order = order[kept.reshape(-1)[order]]
            place = np.full(chosen.size, len(order))  # what is dropped finds a row of zeros behind the others
            place[order] = np.arange(len(order))
            place, sent = place.reshape(chosen.shape), sent[order]
        way = self.way(np.bincount(to_host(sent), minlength=self.experts))
        taken = yield from way.there(rows(x), order // self.top_k)
        gate = empty((len(taken), self.gate.shape[2]), x)
        up, hidden, out = empty_like(gate), empty_like(gate), empty_like(taken)
        for expert, a, b, _ in way.groups:
            multiply(taken[a:b], self.gate.value[expert], gate[a:b])
            multiply(taken[a:b], self.up.value[expert], up[a:b])
        dispatch.swiglu(gate, up, hidden)
        step.rounded(gate, up, hidden)
        for expert, a, b, _ in way.groups:
            multiply(hidden[a:b], self.down.value[expert], out[a:b])
        step.rounded(out)
        out = _with_zeros((yield from way.back(out)), limited)
        y = empty_like(rows(x))
        y[...] = 0 if onto is None else rows(onto)
        for choice in range(self.top_k):
            y += weights[:, choice, None] * out[place[:, choice]]
        saved = {"taken": taken, "gate": gate, "up": up, "hidden": hidden, "out": out, "x": x, "values": values}
        saved |= {"chosen": chosen, "weights": weights, "order": order, "place": place, "way": way, "pass": step}
        saved["limited"] = limited
        return y.reshape(x.shape), saved | {"shared": of_shared}

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` keeps those of the products' results for W."""
        return at_once(self.backward_turns(saved, dy))

    def backward_turns(self, saved: Any, dy: Any) -> Turns[Any]:
        """`backward_input` in turns."""
        flat, weights, place, order = rows(dy), saved["weights"], saved["place"], saved["order"]
        out, gate, up, way = saved.pop("out"), saved["gate"], saved["up"], saved["way"]
        self.chosen += np.bincount(to_host(saved["chosen"]).reshape(-1), minlength=self.experts)
        dweights = empty_like(weights)
        for choice in range(self.top_k):
            dweights[:, choice] = (out[place[:, choice]] * flat).sum(axis=1)
        dout = yield from way.there(flat, order // self.top_k, weights.reshape(-1)[order])
        dhidden, dtaken = empty_like(gate), empty_like(dout)
        for expert, a, b, _ in way.groups:
            multiply(dout[a:b], self.down.value[expert].T, dhidden[a:b])
        dispatch.scale_two(dhidden, gate, up)  # the slopes become the gradients of gate and up
        for expert, a, b, _ in way.groups:
            multiply(gate[a:b], self.gate.value[expert].T, dtaken[a:b])
            multiply(up[a:b], self.up.value[expert].T, dtaken[a:b], add=True)
        dtaken = _with_zeros((yield from way.back(dtaken)), saved["limited"])
        dvalues = np.zeros_like(saved["values"])
        inner = weights * (dweights - (weights * dweights).sum(axis=1, keepdims=True))
        np.put_along_axis(dvalues, saved["chosen"], inner, axis=1)
        dvalues += self._loss_gradient(saved)
        saved |= {"dout": dout, "dvalues": dvalues}
        dx = self.router.backward_input(None, dvalues)
        for choice in range(self.top_k):
            dx += dtaken[place[:, choice]]
        if self.shared is not None:
            dx += rows(self.shared.backward_input(saved["shared"], dy))
        return dx.reshape(dy.shape)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the router, of the experts that have tokens, and of the shared map."""
        self.router.backward_weight(rows(saved["x"]), saved["dvalues"])
        taken, hidden = saved["taken"], saved["hidden"]
        for expert, a, b, source in saved["way"].groups:
            multiply(taken[a:b].T, saved["gate"][a:b], self.gate.grad_of(source)[expert], add=True)
            multiply(taken[a:b].T, saved["up"][a:b], self.up.grad_of(source)[expert], add=True)
            multiply(hidden[a:b].T, saved["dout"][a:b], self.down.grad_of(source)[expert], add=True)
        if self.shared is not None:
            self.shared.backward_weight(saved["shared"], dy)

    def _kept(self, chosen: np.ndarray, samples: int, step: Pass) -> np.ndarray:
        """Which choices the experts have room for: bool[tokens, top_k]."""
        if self.whole is None:
            tokens = len(chosen) // max(samples, 1)
            return self._first(chosen.reshape(samples, tokens, self.top_k)).reshape(chosen.shape)
        return self.whole.own(self._first(self.whole.gather(chosen, step)), step)

    def _first(self, chosen: np.ndarray) -> np.ndarray:
        """The choices that are among the first of their expert in a sample: bool[samples, tokens, top_k]."""
        samples, tokens, choices = chosen.shape
        most = math.ceil(self.capacity * tokens * choices / self.experts)
        of_sample = chosen + self.experts * np.arange(samples)[:, None, None]
        wanted = of_sample.transpose(2, 0, 1).reshape(-1)  # all first choices, then all second ones
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        turn = np.empty(wanted.size, np.int64)
        turn[order] = np.arange(wanted.size) - np.searchsorted(ordered, ordered)
        return (turn < most).reshape(choices, samples, tokens).transpose(1, 2, 0)

    def settle(self, chosen: np.ndarray) -> None:
        """A batch is over: from now on the balance has its shares. chosen: the choices of all of it."""
        if chosen.sum():
            self.shares = chosen / chosen.sum()
        self.chosen[...] = 0

    def forget(self) -> None:
        """No batch has been seen."""
        self.shares = np.full(self.experts, 1 / self.experts)
        self.chosen[...] = 0

    def losses(self, saved: Any) -> tuple[float, float]:
        """The two losses of a forward pass without their factors, the mean over its tokens: balance, and z."""
        values = saved["values"]
        balance = self.experts * (self.shares * _softmax(values).mean(axis=0)).sum()
        return float(balance), float((_log_sums(values) ** 2).mean())

    def _loss_gradient(self, saved: Any) -> Any:
        """The gradient of both losses with respect to the router's values, [tokens, experts]."""
        values, scale = saved["values"], saved["pass"].scale
        if not (self.balance or self.z):
            return np.zeros_like(values)
        chance = _softmax(values)
        pull = (scale * self.balance * self.experts) * from_host(self.shares, values)
        found = chance * (pull - (chance * pull).sum(axis=1, keepdims=True))
        found += (2 * scale * self.z) * _log_sums(values)[:, None] * chance
        return found.astype(values.dtype)


def mlp(sizes: Sequence[int], activation: str = "relu") -> Sequential:
    """Linear maps sizes[0] -> sizes[1] -> … with activations between them: [n, sizes[0]] -> [n, sizes[-1]].

    activation: "relu", "gelu", "gelu_erf" or "silu". Each linear map with the activation after it is one layer, named
    by its number. The input is data and gets no gradient.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(
            f"an MLP of sizes {list(sizes)} has no layers",
            do="give at least two sizes of 1 or more: input, hidden ones, output, as in mlp([784, 1024, 10])",
        )
    activation_of(activation)  # raises for a wrong name even if no activation is used
    layers: list[Layer] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        linear = Linear(inputs, outputs, str(i), input_gradient=i > 0)
        last = i == len(sizes) - 2
        layers.append(linear if last else Sequential([linear, activation_of(activation)]))
    return Sequential(layers)


def _with_zeros(found: Any, more: bool) -> Any:
    """The rows, and one of zeros behind them if there is to be one."""
    return np.concatenate([found, np.zeros_like(found, shape=(1, found.shape[1]))]) if more else found


def _softmax(values: Any) -> Any:
    if not len(values):
        return values.copy()
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _log_sums(values: Any) -> Any:
    most = values.max(axis=1)
    return most + np.log(np.exp(values - most[:, None]).sum(axis=1))
