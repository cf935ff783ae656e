"""Parameters, and the flat vectors that hold their values and gradients."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import is_device_array, set_from_host, to_host
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.narrow.dispatch import KINDS, narrow

SLOT = 16  # a parameter starts at a multiple of this many elements: a cache line of float32
PART = "#"  # between the name of a parameter and the number of a part of it
CHUNK = 2048  # elements of a parameter whose squares are added before those of others, on whatever rank they are


class Cut(NamedTuple):
    """The parts of a parameter on the ranks of a tensor-parallel group.

    whole: the shape of all. ranges: for each rank the pieces start to end of dim `dim` that it holds, one after the
    other in its own array. second: another dim, and into how many equal parts each of these is cut along it, for as
    many ranks in a row; 1: it is not.
    """

    whole: tuple[int, ...]
    dim: int
    ranges: tuple[tuple[tuple[int, int], ...], ...]
    second: tuple[int, int] = (0, 1)

    def shape(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's part."""
        (dim, parts), found = self.second, list(self.whole)
        found[self.dim] = sum(end - start for start, end in self.ranges[rank // parts])
        found[dim] //= parts
        return tuple(found)

    def inner(self, rank: int) -> slice:
        """What a rank holds of the second dim."""
        dim, parts = self.second
        each = self.whole[dim] // parts
        return slice(rank % parts * each, (rank % parts + 1) * each) if parts > 1 else slice(None)

    def size(self, rank: int) -> int:
        """Elements of a rank's part."""
        return math.prod(self.shape(rank))

    def places(self, rank: int) -> list[tuple[int, int, int]]:
        """Pieces of a rank: where each begins in the part, where in the whole, and its length along `dim`."""
        found, at = [], 0
        for start, end in self.ranges[rank // self.second[1]]:
            found.append((at, start, end - start))
            at += end - start
        return found

    def take(self, whole: Any, rank: int) -> Any:
        """A rank's part of an array of the whole."""
        own = [whole[self._box(rank, start, count)] for _, start, count in self.places(rank)]
        return np.concatenate(own, axis=self.dim)

    def _box(self, rank: int, start: int, count: int) -> tuple[slice, ...]:
        """A piece of a rank in the whole."""
        found = [slice(None)] * len(self.whole)
        found[self.second[0]] = self.inner(rank)
        found[self.dim] = slice(start, start + count)
        return tuple(found)

    def join(self, parts: Sequence[Any]) -> Any:
        """The whole from the parts of all ranks."""
        before = (slice(None),) * self.dim
        found = np.empty(self.whole, parts[0].dtype)
        for rank, part in enumerate(parts):
            for at, start, count in self.places(rank):
                found[self._box(rank, start, count)] = part[(*before, slice(at, at + count))]
        return found


@dataclass(eq=False)
class Parameter:
    """A named array of numbers that training changes.

    init: standard deviation of normal numbers, or a function from a NumPy random generator to the initial values.
    decay: whether weight decay applies. shared: a second layer uses it too (tied embeddings) and adds its gradients to
    `second_grad`, so that the sums do not depend on whether the two layers are on one rank.
    cut, rank: of a part of a parameter, how the whole is cut, and which part this is. partial: gradients of the ranks
    of a tensor-parallel group are those of their own tokens, and are to be added. experts: how many equal arrays, one
    for each expert, stand one after the other; 0: it belongs to no experts. hidden: the dim of the hidden numbers of an
    expert, along which its products may be cut. sources: gradients by the rank whose tokens
    they come from, where those of each rank are added apart (`hpckit.training.experts`).
    value, grad: views into the vectors of `Parameters`, once bound. stored: in mixed precision the view of the values'
    bits; `value` is then there while the layer computes (`hpckit.training.precision`).
    """

    name: str
    shape: tuple[int, ...]
    init: float | Callable[[np.random.Generator], Any] = 0.0
    decay: bool = True
    shared: bool = False
    cut: Cut | None = None
    rank: int = 0
    partial: bool = False
    experts: int = 0
    hidden: int = 0
    sources: list[Any] | None = field(default=None, repr=False)
    value: Any = field(default=None, repr=False)
    grad: Any = field(default=None, repr=False)
    second_grad: Any = field(default=None, repr=False)
    stored: Any = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def chunks(self) -> np.ndarray:
        """Where the chunks begin whose squares are added before others, int64[chunks]; none goes over two experts."""
        arrays = max(self.experts, 1)
        each = self.size // arrays
        return (each * np.arange(arrays)[:, None] + np.arange(0, each, CHUNK)).reshape(-1)

    def grad_of(self, source: int) -> Any:
        """Where the gradients of the tokens of a rank are added."""
        return self.grad if self.sources is None else self.sources[source]

    def initial(self, seed: int) -> Any:
        """The initial values: a function of (seed, name, index in the whole) alone, the same on every mesh."""
        digest = hashlib.sha256(f"{seed}/{self.origin}".encode()).digest()
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
        if callable(self.init):
            return self.own(self.init(random))
        return self.own(self.init * random.standard_normal(self.whole))

    @property
    def origin(self) -> str:
        """The name of the parameter of which this may be a part."""
        return self.name.partition(PART)[0]

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape of the parameter, of which this may be a part."""
        return self.shape if self.cut is None else self.cut.whole

    def own(self, whole: Any) -> Any:
        """What this holds of an array of the whole, or a number."""
        return whole if self.cut is None or np.ndim(whole) == 0 else self.cut.take(whole, self.rank)


def zeros(random: np.random.Generator) -> float:
    """Initial values 0."""
    return 0.0


def ones(random: np.random.Generator) -> float:
    """Initial values 1."""
    return 1.0


class Owned(NamedTuple):
    """A part of the flat vectors that this rank updates: elements start to end, with their values and gradients.

    stored: in mixed precision the bits of the values; `values` are then the master values, float32.
    """

    start: int
    end: int
    values: Any
    grads: Any
    stored: Any = None


def arithmetic_of(precision: Any) -> tuple[np.dtype, str]:
    """The dtype in which layers compute, and the kind of 16 bits in which numbers are held, "" for none.

    precision: float32, float64, "bfloat16" or "float16", as a dtype or a name. Raises `InputError` for another one.
    """
    name = str(getattr(precision, "__name__", precision))
    if name in KINDS:
        return np.dtype(np.float32), name
    try:
        dtype = np.dtype(precision)
    except TypeError:
        dtype = np.dtype(object)
    if dtype not in (np.float32, np.float64):
        raise InputError(f"no network computes in {name}", do=f"take float32, float64, {' or '.join(KINDS)}")
    return dtype, ""


class Parameters:
    """The values and gradients of parameters, each in one flat vector; every parameter starts at a multiple of 16.

    allocate(n, dtype) makes the two vectors, zeroed: data parallelism puts them into shared memory; with a GPU's
    `device.zeros` the layers compute on that GPU. values, grads: the same for one of them; a vector of no elements
    leaves the parameters unbound, for sharding, which binds them when it has gathered them. owned: the parts that the
    optimizer of this rank updates, all of the vector unless it is sharded; `updated` is called after each update.
    dtype: also "bfloat16" or "float16", for layers in mixed precision: `values` are then bits, uint16, rounded from the
    master values that `owned` has; masters(n, dtype) makes these. Gradients are float32.
    Raises `InputError` if two parameters have the same name.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        dtype: Any = np.float32,
        allocate: Callable[..., Any] = np.zeros,
        *,
        values: Callable[..., Any] | None = None,
        grads: Callable[..., Any] | None = None,
        masters: Callable[..., Any] | None = None,
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
        self.dtype, self.storage = arithmetic_of(dtype)
        self.values, self.grads = (
            (values or allocate)(self.size, np.dtype(np.uint16) if self.storage else self.dtype),
            (grads or allocate)(self.size, self.dtype),
        )
        self.bind_values(self.values, self.list)
        self.bind_grads(self.grads, self.list)
        for p in self.list:
            second = self.grads[:0] if not p.shared else allocate(p.size, self.dtype)
            p.second_grad = second.reshape(p.shape) if p.shared else None
        if self.storage:
            own = Owned(0, self.size, (masters or allocate)(self.size, self.dtype), self.grads, self.values)
        else:
            own = Owned(0, self.size, self.values, self.grads)
        self.owned: Sequence[Owned] = (own,)
        self.updated: Callable[[], object] = self.round_owned
        self._squares: Squares | None = None

    def __len__(self) -> int:
        return len(self.list)

    @property
    def count(self) -> int:
        """Number of elements that training changes, without the gaps between parameters."""
        return sum(p.size for p in self.list)

    def named(self) -> dict[str, Parameter]:
        """Parameters by name."""
        return {p.name: p for p in self.list}

    def bind_values(self, vector: Any, parameters: Iterable[Parameter], first: int = 0) -> None:
        """Make values views of a vector that starts at element `first` of the whole; None with an empty one."""
        for p in parameters:
            view = self._view(vector, p, first)
            p.value, p.stored = (None, view) if self.storage else (view, None)

    def bind_grads(self, vector: Any, parameters: Iterable[Parameter], first: int = 0) -> None:
        """The same for gradients."""
        for p in parameters:
            p.grad = self._view(vector, p, first)

    def _view(self, vector: Any, p: Parameter, first: int) -> Any:
        start = self.offsets[p.name] - first
        return vector[start : start + p.size].reshape(p.shape) if vector.size or not p.size else None

    def initialize(self, seed: int) -> None:
        """Set all values; a stage with some of a model's layers gets the same values as the whole model."""
        for p in self.list:
            self.set_value(p, p.initial(seed))
        self.round_owned()

    def round_owned(self) -> None:
        """In mixed precision round the master values that this rank owns to the stored ones; else nothing."""
        for part in self.owned if self.storage else ():
            narrow(part.values, part.stored, self.storage)

    def set_value(self, parameter: Parameter, value: Any) -> None:
        """Set the values of a parameter, of which this rank may hold only a part, from a host array or a number."""
        if parameter.value is not None:
            set_from_host(parameter.value, value)
            return
        flat = np.broadcast_to(np.asarray(value, self.dtype), parameter.shape).reshape(-1)
        for part, low, high in self.parts_of(parameter):
            at = self.offsets[parameter.name] + low - part.start
            set_from_host(part.values[at : at + high - low], flat[low:high])

    def parts_of(self, parameter: Parameter) -> list[tuple[Owned, int, int]]:
        """Where the elements of a parameter are owned: each part with the elements low to high of the parameter."""
        first = self.offsets[parameter.name]
        cut = [(part, max(part.start - first, 0), min(part.end - first, parameter.size)) for part in self.owned]
        return [(part, low, high) for part, low, high in cut if low < high]

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
            if p.second_grad is not None and p.grad is not None:
                p.grad += p.second_grad
                p.second_grad[...] = 0

    def squared_norm(self) -> float:
        """The sum of the squares of all gradients that this rank owns, in float64."""
        self.add_second_grads()
        self._squares = self._squares or Squares(self, self.list)
        return in_order(self._squares())


class Squares:
    """Sums of squares of gradients by chunks of `CHUNK` elements of each of the parameters `every`, float64[chunks].

    A call works out those of the elements that this rank owns, 0 for all others: chunks are never cut, so that
    `in_order` adds up to the same bits however parameters are dealt to ranks. `skipped` names parameters that another
    rank counts.
    """

    def __init__(self, parameters: Parameters, every: Sequence[Parameter], skipped: Iterable[str] = ()) -> None:
        counts = [len(p.chunks) for p in every]
        firsts = dict(zip((p.name for p in every), np.cumsum([0, *counts]).tolist(), strict=False))
        self._count = sum(counts)
        self._tables: list[tuple[Owned, np.ndarray, np.ndarray]] = []
        counted = [p for p in parameters.list if p.name not in set(skipped)]
        tables = []
        for p in counted:
            first, lows = parameters.offsets[p.name], p.chunks
            ends = np.minimum(lows + CHUNK, np.append(lows[1:], p.size))
            tables.append(np.stack([first + lows, first + ends, firsts[p.name] + np.arange(len(lows))]))
        starts, ends, places = np.concatenate([*tables, np.zeros((3, 0))], axis=1).astype(np.int64)
        for part in parameters.owned:
            inside = (starts >= part.start) & (ends <= part.end)
            bounds = np.stack([starts[inside], ends[inside]], axis=1) - part.start
            self._tables.append((part, bounds, places[inside]))

    def __call__(self) -> np.ndarray:
        """The sums."""
        sums = np.zeros(self._count)
        for part, bounds, places in self._tables:
            if len(places):
                sums[places] = to_host(dispatch.squared_sums(part.grads, bounds))
        return sums


def in_order(sums: np.ndarray) -> float:
    """The sum of a vector, added from its first element to its last."""
    return float(np.add.accumulate(sums)[-1]) if sums.size else 0.0


def whole_numbers(values: Any, what: str) -> Any:
    """Integers: those of the host as contiguous int64, those of a GPU unchanged. Raises `InputError` for others."""
    on_device = is_device_array(values)
    given = values if on_device else np.asarray(values)
    if given.dtype.kind not in "iu":
        raise InputError(f"{what} must be integers, not {given.dtype}", do=f"give {what}.astype(np.int64)")
    return given if on_device else np.ascontiguousarray(given, np.int64)
