"""`vmap`: a function of arrays, written for one sample, applied to many at once; samples are the innermost axis.

The function runs once with stand-ins that hold all samples, the axis of the samples last: NumPy's loops then run over
samples, which are neighbors in memory, however short the function's own arrays are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.grid.field import Field

Axes = int | None | Sequence[int | None]
REDUCED = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "std": np.std, "var": np.var}
REDUCED |= {"any": np.any, "all": np.all, "argmax": np.argmax, "argmin": np.argmin, "cumsum": np.cumsum}
SOLVING = (np.linalg.solve, np.linalg.inv, np.linalg.det, np.linalg.cholesky, np.linalg.eigh, np.linalg.eigvalsh)
JOINED = (np.concatenate, np.stack)


def vmap(function: Callable, in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """The function of one sample, for arrays of samples.

    in_axes: which axis of each argument (by position) counts the samples, None for an argument that is the same in all;
    one number for all arguments. out_axes: where the axis of the samples is put in each result. Keywords are passed on
    as they are. The function may use + - * / ** and comparisons, NumPy's pointwise functions, indices and slices,
    sums, means, extremes, `@`, `where`, `reshape`, `.T`, `concatenate`, `stack`, `dot`, `einsum`, `linalg.norm`, solve,
    inv, det, cholesky, eigh, and changes in place of what was computed from the samples. Raises `InputError` for
    arguments with different numbers of samples, and for a branch on a sample's value.
    """

    @functools.wraps(function)
    def mapped(*args: Any, **keywords: Any) -> Any:
        if any(isinstance(arg, Field) for arg in args):
            raise InputError(
                "vmap takes arrays, and was given a Field",
                do="run many fields side by side: hp.adjoint.Ensemble(mesh, members)",
            )
        axes = _axes(in_axes, len(args), "in_axes")
        given = [
            arg if axis is None or isinstance(arg, Samples) else np.asarray(arg)
            for arg, axis in zip(args, axes, strict=True)
        ]
        counts = {
            arg.shape[axis] for arg, axis in zip(given, axes, strict=True) if axis is not None and _fits(arg, axis)
        }
        if len(counts) != 1:
            shapes = ", ".join(str(np.shape(arg)) for arg in given)
            raise InputError(
                f"arguments of shapes {shapes} with the samples along axes {axes} have no one number of samples",
                do="give arrays with as many samples each, and None in in_axes for what all samples share",
            )
        (count,) = counts
        # Within another vmap the samples are those of both, the outer ones last.
        outer = next((arg.values.shape[-1] for arg in given if isinstance(arg, Samples)), 0)
        made = [_inside(arg, axis, count, outer) for arg, axis in zip(given, axes, strict=True)]
        result = function(*made, **keywords)
        if not isinstance(result, tuple | list):
            return _ahead(result, _axes(out_axes, 1, "out_axes")[0], count, outer)
        outs = _axes(out_axes, len(result), "out_axes")
        return tuple(_ahead(each, axis, count, outer) for each, axis in zip(result, outs, strict=True))

    return mapped


class Samples:
    """The stand-in of an array: its values in all samples, [..., samples]."""

    __slots__ = ("values",)
    __array_priority__ = 1000

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return self.values.shape[:-1]

    @property
    def ndim(self) -> int:
        """Of one sample."""
        return self.values.ndim - 1

    @property
    def size(self) -> int:
        """Of one sample."""
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.values.dtype

    @property
    def T(self) -> Samples:
        """With its axes in reverse."""
        return self.transpose()

    def transpose(self, *axes: int) -> Samples:
        """With its axes in this order, in reverse by default."""
        order = [axis % self.ndim for axis in axes] if axes else list(reversed(range(self.ndim)))
        return Samples(self.values.transpose(*order, self.ndim))

    def reshape(self, *shape: Any) -> Samples:
        """With another shape of a sample."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if -1 in wanted:
            known = -int(np.prod(wanted))
            wanted = tuple(self.size // known if n == -1 else n for n in wanted)
        return Samples(self.values.reshape(*wanted, self.values.shape[-1]))

    def copy(self) -> Samples:
        """With memory of its own."""
        return Samples(self.values.copy())

    def astype(self, dtype: Any) -> Samples:
        """As values of another type."""
        return Samples(self.values.astype(dtype))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a sample is a single number: it has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, index: Any) -> Samples:
        return Samples(self.values[self._place(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[self._place(index)] = _wide(value)

    def _place(self, index: Any) -> tuple[Any, ...]:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, Samples) for part in parts):
            raise InputError(
                "an index that differs between samples cannot be mapped", do="use where, or a mask of 0 and 1"
            )
        return (*parts, slice(None)) if Ellipsis in [p for p in parts if p is Ellipsis] else (*parts, ..., slice(None))

    def __bool__(self) -> bool:
        raise InputError(
            "a branch on a value that each sample has of its own cannot be mapped",
            do="write numpy.where(condition, a, b)",
        )

    def __float__(self) -> float:
        raise InputError("a plain number made of all samples", do="use NumPy's functions in place of math's")

    __int__ = __index__ = __float__

    def __array__(self, *args: Any, **keywords: Any) -> Any:
        raise InputError(
            "all samples cannot be put into a plain array",
            do="make the array with numpy.stack, or from a sample: 0 * x",
        )

    def __array_ufunc__(self, function: np.ufunc, method: str, *args: Any, **keywords: Any) -> Any:
        if function is np.matmul and method == "__call__":
            return _product(*args)
        if method == "reduce" and function in (np.add, np.multiply, np.maximum, np.minimum):
            return _reduced(function.reduce, args[0], **keywords)
        if method != "__call__" or "out" in keywords:
            raise InputError(f"numpy.{function.__name__}.{method} cannot be mapped", do="use the plain function")
        found = function(*map(_wide, args), **{name: _wide(each) for name, each in keywords.items()})
        return tuple(map(Samples, found)) if isinstance(found, tuple) else Samples(found)

    def __array_function__(self, function: Any, kinds: Any, args: Any, keywords: Any) -> Any:
        name = getattr(function, "__name__", str(function))
        if name in REDUCED and function is REDUCED[name]:
            return _reduced(function, *args, **keywords)
        if function is np.where and len(args) == 3:
            return Samples(np.where(*map(_wide, args)))
        if function in (np.zeros_like, np.ones_like, np.clip, np.nan_to_num):
            return Samples(function(*map(_wide, args), **keywords))
        if function is np.dot:
            return _product(*args)
        if function is np.einsum:
            return _einsum(*args)
        if function is np.reshape:
            return args[0].reshape(args[1])
        if function is np.transpose:
            return args[0].transpose(*(args[1] if len(args) > 1 else ()))
        if function is np.shape:
            return args[0].shape
        if function is np.linalg.norm and len(args) == 1:
            axis = keywords.get("axis")
            return np.sqrt(_reduced(np.sum, abs(args[0]) ** 2, axis=axis))
        if function in JOINED:
            count = max(each.values.shape[-1] for each in args[0] if isinstance(each, Samples))
            parts = [np.broadcast_to(w := _wide(each), (*w.shape[:-1], count)) for each in args[0]]
            axis = keywords.get("axis", args[1] if len(args) > 1 else 0)
            return Samples(function(parts, axis=axis if axis >= 0 else axis - 1))
        if function in SOLVING:
            return _solved(function, args)
        raise InputError(
            f"numpy.{name} cannot be mapped", do="write it with sums, products, indices and pointwise functions"
        )

    def sum(self, axis: Any = None, keepdims: bool = False) -> Samples:
        """Over axes of a sample."""
        return _reduced(np.sum, self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Samples:
        """Over axes of a sample."""
        return _reduced(np.mean, self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Samples:
        """Over axes of a sample."""
        return _reduced(np.max, self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Samples:
        """Over axes of a sample."""
        return _reduced(np.min, self, axis, keepdims=keepdims)

    def dot(self, other: Any) -> Samples:
        """As `@`."""
        return _product(self, other)

    def __matmul__(self, other: Any) -> Samples:
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> Samples:
        return _product(other, self)

    def __repr__(self) -> str:
        return f"<samples of shape {self.shape}>"


def _operator(function: Any, reverse: bool = False) -> Any:
    if reverse:
        return lambda self, other: function(other, self)
    return lambda self, *other: function(self, *other)


BOTH: dict[str, Callable] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "pow": np.power,
    "floordiv": np.floor_divide, "mod": np.remainder, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
PLAIN: dict[str, Callable] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert,
}  # fmt: skip
for _name, _function in (BOTH | PLAIN).items():
    setattr(Samples, f"__{_name}__", _operator(_function))
for _name, _function in BOTH.items():
    setattr(Samples, f"__r{_name}__", _operator(_function, reverse=True))
Samples.__hash__ = None  # type: ignore[assignment]


def _wide(value: Any) -> Any:
    """Values with the axis of the samples, of one sample where all share them."""
    if isinstance(value, Samples):
        return value.values
    return (
        value[..., None]
        if isinstance(value, np.ndarray)
        else value
        if np.isscalar(value)
        else np.asarray(value)[..., None]
    )


def _reduced(function: Any, given: Any, axis: Any = None, **keywords: Any) -> Samples:
    if axis is None and function in (np.argmax, np.argmin, np.cumsum):
        given, axis = given.reshape(-1), 0
    if axis is None:
        axes: Any = tuple(range(given.ndim))
    elif isinstance(axis, tuple):
        axes = tuple(each % given.ndim for each in axis)
    else:
        axes = axis % given.ndim
    keywords = {name: each for name, each in keywords.items() if each is not np._NoValue and each is not None}
    return Samples(function(given.values, axis=axes, **keywords))


def _product(a: Any, b: Any) -> Samples:
    na, nb = np.ndim(_wide(a)) - 1, np.ndim(_wide(b)) - 1
    if not (1 <= na <= 2 and 1 <= nb <= 2):
        raise InputError(f"a product of arrays with {na} and {nb} axes cannot be mapped", do="use numpy.einsum")
    left, right = ("i" if na == 2 else "") + "k", "k" + ("j" if nb == 2 else "")
    return _einsum(f"{left},{right}->{left[:-1]}{right[1:]}", a, b)


def _einsum(text: str, *args: Any) -> Samples:
    if "..." in text or "->" not in text:
        raise InputError(f"einsum {text!r} cannot be mapped", do="name all axes, and those of the result: 'ij,j->i'")
    given, made = text.replace(" ", "").split("->")
    parts = [
        (f"{letters}Z", each.values) if isinstance(each, Samples) else (letters, np.asarray(each))
        for letters, each in zip(given.split(","), args, strict=True)
    ]
    names, arrays = zip(*parts, strict=True)
    return Samples(np.einsum(f"{','.join(names)}->{made}Z", *arrays))


def _solved(function: Any, args: Sequence[Any]) -> Any:
    """Of stacked matrices: the samples first, as NumPy's linear algebra has them."""
    count = max(each.values.shape[-1] for each in args if isinstance(each, Samples))
    stacks = []
    for each in args:
        wide = _wide(each)
        stacks.append(np.moveaxis(np.broadcast_to(wide, (*wide.shape[:-1], count)), -1, 0))
    vector = function is np.linalg.solve and stacks[1].ndim == 2
    if vector:
        stacks[1] = stacks[1][..., None]
    found = function(*stacks)
    if isinstance(found, tuple):
        return tuple(Samples(np.moveaxis(each, 0, -1)) for each in found)
    return Samples(np.moveaxis(found[..., 0] if vector else found, 0, -1))


def _inside(arg: Any, axis: int | None, count: int, outer: int) -> Any:
    """An argument as the function gets it."""
    if axis is None and not isinstance(arg, Samples):
        return arg
    if not outer:
        return Samples(np.ascontiguousarray(np.moveaxis(arg, axis or 0, -1)))
    wide = arg.values if isinstance(arg, Samples) else arg[..., None]
    wide = wide[..., None, :] if axis is None else np.moveaxis(wide, axis % (wide.ndim - 1), -2)
    whole = np.broadcast_to(wide, (*wide.shape[:-2], count, outer))
    return Samples(whole.reshape(*wide.shape[:-2], count * outer))


def _ahead(result: Any, axis: int | None, count: int, outer: int) -> Any:
    """A result with its samples along an axis; None: what all share."""
    if axis is None:
        if isinstance(result, Samples):
            raise InputError("a result that differs between samples needs an axis for them", do="give it in out_axes")
        return result
    values = result.values if isinstance(result, Samples) else np.asarray(result)[..., None]
    whole = count * (outer or 1)
    values = np.broadcast_to(values, (*values.shape[:-1], whole))
    if not outer:
        return np.ascontiguousarray(np.moveaxis(values, -1, axis))
    values = values.reshape(*values.shape[:-1], count, outer)
    return Samples(np.moveaxis(values, -2, axis % (values.ndim - 1)))


def _axes(given: Axes, count: int, name: str) -> list[int | None]:
    axes = [given] * count if given is None or isinstance(given, int) else list(given)
    if len(axes) != count:
        raise InputError(f"{name} has {len(axes)} axes, but there are {count} arrays")
    return axes


def _fits(arg: Any, axis: int) -> bool:
    if -arg.ndim <= axis < arg.ndim:
        return True
    raise InputError(f"an argument of shape {arg.shape} has no axis {axis} for its samples")
