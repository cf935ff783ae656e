"""Stand-ins: a function is run once with them, and they note what is done with them as nodes of a graph."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpckit.kernels.graph.nodes import Node

HERE = str(Path(__file__).parent)


def _operator(op: str, swapped: bool = False) -> Callable[..., Any]:
    def method(self: StandIn, *others: Any) -> Any:
        return self._apply(op, *((*others, self) if swapped else (self, *others)))

    return method


class StandIn:
    """The stand-in of a value; `node` is what it stands for. Comparisons make nodes, too: it has no hash."""

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: Node) -> None:
        self.node = node

    def _apply(self, op: str, *args: Any) -> Any:
        """The stand-in of an operation on stand-ins and plain values."""
        raise NotImplementedError

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", True)
    __neg__, __abs__ = _operator("neg"), _operator("absolute")
    __lt__, __le__, __gt__, __ge__ = (
        _operator("less"),
        _operator("less_equal"),
        _operator("less", True),
        _operator("less_equal", True),
    )
    __eq__, __ne__ = _operator("equal"), _operator("not_equal")  # type: ignore[assignment]
    __and__, __or__, __invert__ = _operator("logical_and"), _operator("logical_or"), _operator("logical_not")

    def __pos__(self) -> Any:
        return self


def function(op: str, plain: Callable) -> Callable[..., Any]:
    """An operation on stand-ins and plain values; of plain values alone, the plain function."""

    def applied(*args: Any) -> Any:
        first = next((arg for arg in args if isinstance(arg, StandIn)), None)
        return plain(*args) if first is None else first._apply(op, *args)

    applied.__name__ = applied.__qualname__ = op
    applied.__doc__ = f"numpy.{op}, which what is traced may use: of fields, traced values and numbers."
    return applied


def line(*rooms: str) -> str:
    """The innermost line that is being run of a file that is neither here nor in those folders."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((HERE, *rooms)):
        frame = frame.f_back
    return "" if frame is None else _said(frame.f_code.co_filename, frame.f_lineno)


def line_of(error: BaseException, *rooms: str) -> str:
    """The innermost line of such a file at which an error was raised."""
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith((HERE, *rooms))
    ]
    return _said(frames[-1].filename, frames[-1].lineno or 0) if frames else ""


def _said(file: str, number: int) -> str:
    return f"{Path(file).name}, line {number}: {linecache.getline(file, number).strip()}".rstrip(": ")
