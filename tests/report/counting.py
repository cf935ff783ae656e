"""An array that counts the floating-point operations done with it, to hold stated numbers against the reference."""

from __future__ import annotations

import types
from contextlib import contextmanager

import numpy as np

ONE = {np.add, np.subtract, np.multiply, np.divide, np.sqrt, np.power, np.square, np.negative, np.reciprocal}
FREE = {np.negative}  # a sign costs nothing
MORE = {np.hypot: 4}  # two squares, a sum, a root


class Counted(np.ndarray):
    """Adds one for each element of an addition, multiplication, division, root or power to `Counted.flops`."""

    flops = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [np.asarray(one) if isinstance(one, Counted) else one for one in inputs]
        if out is not None:
            options["out"] = tuple(np.asarray(one) if isinstance(one, Counted) else one for one in out)
        result = getattr(ufunc, method)(*plain, **options)
        if (ufunc in ONE or ufunc in MORE) and ufunc not in FREE and np.result_type(result).kind == "f":
            done = np.size(result) if method == "__call__" else np.size(plain[0]) - np.size(result)
            Counted.flops += MORE.get(ufunc, 1) * done
        return out[0] if out is not None else wrap(result)

    def __array_function__(self, function, kinds, arguments, options):
        return wrap(super().__array_function__(function, kinds, arguments, options))


def wrap(result):
    """Arrays among the results of a function count too."""
    if isinstance(result, np.ndarray) and result.dtype.kind == "f":
        return result.view(Counted)
    if isinstance(result, (list, tuple)):
        return type(result)(wrap(one) for one in result)
    return result


class CountingNumpy(types.SimpleNamespace):
    """NumPy whose functions give arrays that count."""

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, (np.ufunc, type)) or not callable(found) or name == "errstate":
            return found
        return lambda *arguments, **options: wrap(found(*arguments, **options))


@contextmanager
def counted(*modules):
    """The modules' `np` gives counting arrays meanwhile; yields a function that tells the operations so far."""
    Counted.flops = 0
    for module in modules:
        module.np = CountingNumpy()
    try:
        yield lambda: Counted.flops
    finally:
        for module in modules:
            module.np = np
