"""Optimizers over flat vectors, gradient clipping, and the learning rate over the steps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host, set_from_host, to_host
from hpckit.kernels.nn import dispatch
from hpckit.nn.parameters import Owned, Parameters


class OwnedPart(NamedTuple):
    """An owned part of the parameters with its place in the state of an optimizer, and the parts of equal decay in it.

    bounds: int64 [k + 1], counted from the start of the part. decays: whether part k decays, bool [k].
    """

    owned: Owned
    state: slice
    bounds: np.ndarray
    decays: np.ndarray


def owned_parts(parameters: Parameters) -> list[OwnedPart]:
    """The parts of the parameters that this rank updates; their state stands in one vector, one after the other."""
    starts = np.array([parameters.offsets[p.name] for p in parameters.list] + [parameters.size], np.int64)
    decays = np.array([p.decay for p in parameters.list], bool)
    found, at = [], 0
    for owned in parameters.owned:
        size = owned.end - owned.start
        inside = (starts[1:] > owned.start) & (starts[:-1] < owned.end)
        kinds = decays[inside]
        turns = np.flatnonzero(np.diff(kinds, prepend=not kinds[0])) if len(kinds) else np.zeros(0, np.int64)
        bounds = np.append(np.maximum(starts[:-1][inside][turns] - owned.start, 0), size)
        found.append(OwnedPart(owned, slice(at, at + size), bounds.astype(np.int64), kinds[turns]))
        at += size
    return found


def zero_state(parameters: Parameters) -> Any:
    """A vector of zeros for the state of the owned parts."""
    count = sum(owned.end - owned.start for owned in parameters.owned)
    return from_host(np.zeros(count, parameters.dtype), parameters.owned[0].values) if parameters.owned else np.zeros(0)


def _check(parameters: Parameters, fractions: dict[str, float], others: dict[str, float]) -> None:
    """Raise `InputError` unless these are `Parameters`, fractions in [0, 1), and others finite and 0 or more."""
    if not hasattr(parameters, "grads"):
        raise InputError(
            f"an optimizer needs Parameters, not a {type(parameters).__name__}",
            do="give Parameters(model.parameters()), or the .parameters of DataParallel or Pipeline",
        )
    wrong = [f"{name} = {value!r} is not in [0, 1)" for name, value in fractions.items() if not 0 <= value < 1]
    wrong += [f"{name} = {value!r} is not in [0, inf)" for name, value in others.items() if not 0 <= value < math.inf]
    if wrong:
        raise InputError("; ".join(wrong))


class AdamW:
    """Adam with decoupled weight decay, as PyTorch computes it (Loshchilov and Hutter 2019).

    weight_decay: each step reduces a value by the fraction rate weight_decay, for parameters with `decay`. Raises
    `InputError` for settings outside of their ranges.
    """

    def __init__(
        self,
        parameters: Parameters,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        fractions = dict(zip(("betas[0]", "betas[1]"), betas, strict=True))
        _check(parameters, fractions, {"eps": eps, "weight_decay": weight_decay})
        self.parameters, self.betas, self.eps, self.weight_decay = parameters, betas, eps, weight_decay
        self.parts = owned_parts(parameters)
        self.mean, self.square = zero_state(parameters), zero_state(parameters)
        self.count = 0

    def step(self, rate: float, scale: float = 1.0) -> None:
        """Update the values with the gradients times `scale`; the gradients stay unchanged."""
        self.count += 1
        self.parameters.add_second_grads()
        (beta1, beta2), p = self.betas, self.parameters
        settings = [scale, beta1, beta2, 1 - beta1, 1 - beta2, rate / (1 - beta1**self.count)]
        settings += [1 / math.sqrt(1 - beta2**self.count), self.eps]
        numbers = np.array(settings, p.dtype)
        for (_, _, values, grads, _), state, bounds, decays in self.parts:
            shrink = (1 - rate * self.weight_decay * decays).astype(p.dtype)
            dispatch.adamw(values, grads, self.mean[state], self.square[state], bounds, shrink, numbers)
        p.updated()

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs: the flat vectors themselves, and the number of steps."""
        return {"mean": self.mean, "square": self.square, "count": np.array(self.count)}

    def load(self, state: dict[str, Any]) -> None:
        """Copy a state into the vectors of this optimizer."""
        set_from_host(self.mean, to_host(state["mean"]))
        set_from_host(self.square, to_host(state["square"]))
        self.count = int(state["count"])


class SGD:
    """Stochastic gradient descent with momentum, as PyTorch computes it (no dampening).

    Raises `InputError` for settings outside of their ranges.
    """

    def __init__(
        self, parameters: Parameters, momentum: float = 0.9, weight_decay: float = 0.0, nesterov: bool = False
    ) -> None:
        _check(parameters, {"momentum": momentum}, {"weight_decay": weight_decay})
        self.parameters, self.momentum, self.weight_decay, self.nesterov = parameters, momentum, weight_decay, nesterov
        self.parts = owned_parts(parameters)
        self.velocity = zero_state(parameters)

    def step(self, rate: float, scale: float = 1.0) -> None:
        """Update the values with the gradients times `scale`; the gradients stay unchanged."""
        p = self.parameters
        p.add_second_grads()
        settings = np.array([scale, self.momentum, rate, self.nesterov], p.dtype)
        for (_, _, values, grads, _), state, bounds, decays in self.parts:
            shrink = (self.weight_decay * decays).astype(p.dtype)
            dispatch.momentum(values, grads, self.velocity[state], bounds, shrink, settings)
        p.updated()

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs: the flat vector itself."""
        return {"velocity": self.velocity}

    def load(self, state: dict[str, Any]) -> None:
        """Copy a state into the vector of this optimizer."""
        set_from_host(self.velocity, to_host(state["velocity"]))


def clip_scale(squared_norm: float, limit: float) -> float:
    """The factor that limits the gradients' norm to `limit`: min(1, limit / norm); 1 if limit is 0."""
    norm = math.sqrt(squared_norm)
    return 1.0 if limit <= 0 or norm <= limit else limit / norm


def warmup_cosine(step: int, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The rate of a step, counted from 0: linear up to `peak` at step `warmup`, then half a cosine down to `floor`.

    Loshchilov and Hutter, "SGDR", 2017, equation 5, without restarts. From step `total` on it is `floor`.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    part = (step - warmup) / max(total - warmup, 1)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * part))
