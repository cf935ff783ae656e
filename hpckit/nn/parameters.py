"""Parameters, and the flat vectors that hold their values and gradients."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import is_device_array, set_from_host
from hpckit.kernels.nn import dispatch

SLOT = 16  # a parameter starts at a multiple of this many elements: a cache line of float32


@dataclass(eq=False)
class Parameter:
    """A named array of numbers that training changes.

    init: standard deviation of normal numbers, or a function from a NumPy random generator to the initial values.
    decay: whether weight decay applies. shared: a second layer uses it too (tied embeddings) and adds its gradients to
    `second_grad`, so that the sums do not depend on whether the two layers are on one rank.
    value, grad: views into the vectors of `Parameters`, once bound.
    """

    name: str
    shape: tuple[int, ...]
    init: float | Callable[[np.random.Generator], Any] = 0.0
    decay: bool = True
    shared: bool = False
    value: Any = field(default=None, repr=False)
    grad: Any = field(default=None, repr=False)
    second_grad: Any = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def initial(self, seed: int) -> Any:
        """The initial values: a function of (seed, name) alone, the same on every rank."""
        digest = hashlib.sha256(f"{seed}/{self.name}".encode()).digest()
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
        return self.init(random) if callable(self.init) else self.init * random.standard_normal(self.shape)


def zeros(random: np.random.Generator) -> float:
    """Initial values 0."""
    return 0.0


def ones(random: np.random.Generator) -> float:
    """Initial values 1."""
    return 1.0


class Parameters:
    """The values and gradients of parameters, each in one flat vector; every parameter starts at a multiple of 16.

    allocate(n, dtype) makes the two vectors, zeroed: data parallelism puts them into shared memory; with a GPU's
    `device.zeros` the layers compute on that GPU. Raises `InputError` if two parameters have the same name.
    """

    def __init__(
        self, parameters: Iterable[Parameter], dtype: Any = np.float32, allocate: Callable[..., Any] = np.zeros
    ) -> None:
        self.list = list({id(p): p for p in parameters}.values())
        names = [p.name for p in self.list]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(
                f"two parameters have the same name: {', '.join(twice)}",
                likely="two layers were made with the same name",
                do="give each layer a name of its own, as in Linear(3, 4, name='first')",
            )
        places = np.cumsum([0] + [-(-p.size // SLOT) * SLOT for p in self.list])
        self.offsets = {p.name: int(start) for p, start in zip(self.list, places[:-1], strict=True)}
        self.size = int(places[-1])
        self.dtype = np.dtype(dtype)
        self.values, self.grads = allocate(self.size, self.dtype), allocate(self.size, self.dtype)
        for p in self.list:
            part = slice(self.offsets[p.name], self.offsets[p.name] + p.size)
            p.value, p.grad = self.values[part].reshape(p.shape), self.grads[part].reshape(p.shape)
            p.second_grad = np.zeros_like(p.grad) if p.shared else None

    def __len__(self) -> int:
        return len(self.list)

    @property
    def count(self) -> int:
        """Number of elements that training changes, without the gaps between parameters."""
        return sum(p.size for p in self.list)

    def named(self) -> dict[str, Parameter]:
        """Parameters by name."""
        return {p.name: p for p in self.list}

    def initialize(self, seed: int) -> None:
        """Set all values; a stage with some of a model's layers gets the same values as the whole model."""
        for p in self.list:
            set_from_host(p.value, p.initial(seed))

    def zero_grads(self) -> None:
        """Set all gradients to 0, before the first microbatch."""
        self.grads[...] = 0
        for p in self.list:
            if p.second_grad is not None:
                p.second_grad[...] = 0

    def add_second_grads(self) -> None:
        """Add the second gradients of shared parameters, after the last microbatch and before any reduction.

        A second call adds nothing. `squared_norm` and the optimizers call it.
        """
        for p in self.list:
            if p.second_grad is not None:
                p.grad += p.second_grad
                p.second_grad[...] = 0

    def squared_norm(self) -> float:
        """The sum of the squares of all gradients, in float64."""
        self.add_second_grads()
        return dispatch.squared_sum(self.grads)


def whole_numbers(values: Any, what: str) -> Any:
    """Integers: those of the host as contiguous int64, those of a GPU unchanged. Raises `InputError` for others."""
    on_device = is_device_array(values)
    given = values if on_device else np.asarray(values)
    if given.dtype.kind not in "iu":
        raise InputError(f"{what} must be integers, not {given.dtype}", do=f"give {what}.astype(np.int64)")
    return given if on_device else np.ascontiguousarray(given, np.int64)
