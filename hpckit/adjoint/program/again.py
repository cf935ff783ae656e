"""Calls of a model with the same fields as before: a time loop writes from one state to another and back.

All that a call checks and looks up was done before, two thirds of the Python of a step; where it is one tape, its
addresses were, too: another half of what is left. No field is kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpckit.adjoint.program.script import Script
from hpckit.grid.field import Field

MOST = 256  # calls that are remembered: those of many members, one after the other, too
Known = tuple[list[tuple[Any, Any]], Script, Callable[[], Any] | None, bool, bool]


class Again:
    """The last few calls, by the fields that they took and wrote."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, ...], Known] = {}

    def run(self, args: Sequence[Any], outs: Sequence[Any]) -> Any:
        """Make a call again, if it is known, and return its results; else None, and nothing was done."""
        given = [*args, *outs]
        known = self._calls.get(tuple(map(id, given)))
        if known is None:
            return None
        references, script, play, several, on = known
        for (field, data), each in zip(references, given, strict=True):
            if field() is not each or data() is not each.data:
                return None
        if args[0].mesh.observer.on is not on:
            return None
        if play is None:
            script.run(given, {})
        else:
            play()
        return tuple(outs) if several else outs[0]

    def remember(self, args: Sequence[Field], outs: Sequence[Field], script: Script, several: bool) -> None:
        """Know a call that was made, if its fields are in the host's memory."""
        fields = [*args, *outs]
        if not all(type(each.data) is np.ndarray for each in fields):
            return
        if len(self._calls) == MOST:
            self._calls.clear()
        references = [(weakref.ref(each), weakref.ref(each.data)) for each in fields]
        on = args[0].mesh.observer.on
        self._calls[tuple(map(id, fields))] = references, script, script.prepared(fields), several, on
