"""Persistent requests for the arrays that an exchange was given, kept without keeping the arrays alive."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.grid.phases import BoundPhase, Phase
from hpckit.kernels.device_array import address, is_device_array

__communicates__ = True  # its frames are not call sites

Arrays = tuple[Any, ...]  # NumPy's, or a device's


class Binding:
    """The phases bound to some arrays, forward and (on first use) reverse; `watches` notice when an array is gone."""

    def __init__(self, there: Sequence[BoundPhase], watches: list[weakref.ref]) -> None:
        self.there = there
        self.back: Sequence[BoundPhase] | None = None
        self.watches = watches

    def free(self) -> None:
        """Free the requests, and watch no longer."""
        self.watches = []
        for bound in (*self.there, *(self.back or ())):
            bound.free()


@dataclass(frozen=True)
class KnownArrays:
    """The binding of array objects, and the weak references that watch them."""

    binding: Binding
    watches: list[weakref.ref]


class Bindings:
    """The bindings of an exchange, `most` of them; the oldest goes first.

    Known array objects are found by their ids, in `known`. A new view of known memory, such as `state[0]` makes each
    time, is found by its address.
    """

    def __init__(self, most: int) -> None:
        self.known: dict[tuple[int, ...], KnownArrays] = {}  # by the ids of the arrays, which is quicker
        self._most = most
        self._bound: dict[tuple[int, ...], Binding] = {}  # by the addresses of the arrays

    def add(self, key: tuple[int, ...], arrays: Arrays, phases: Sequence[Phase]) -> Binding:
        """The binding of the phases to arrays that are not known yet; key: their ids."""
        place = tuple(address(array) for array in arrays)
        if place not in self._bound:
            while len(self._bound) >= self._most:
                self._let_go(next(iter(self._bound)))
            let_go = functools.partial(_call, weakref.WeakMethod(self._let_go), place)
            watches = [weakref.ref(_owner(array), let_go) for array in arrays]
            self._bound[place] = Binding([phase.bind(arrays) for phase in phases], watches)
        forget = functools.partial(_call, weakref.WeakMethod(self._forget), key)
        self.known[key] = KnownArrays(self._bound[place], [weakref.ref(array, forget) for array in arrays])
        return self._bound[place]

    def free(self) -> None:
        """Free all requests."""
        self.known.clear()
        for binding in list(self._bound.values()):
            binding.free()
        self._bound.clear()

    def _forget(self, key: tuple[int, ...]) -> None:
        """Forget an array object that is gone; its memory may live on."""
        self.known.pop(key, None)

    def _let_go(self, place: tuple[int, ...]) -> None:
        """Free the binding to memory that is gone or was not used recently."""
        binding = self._bound.pop(place, None)
        if binding is not None:
            for key in [key for key, known in self.known.items() if known.binding is binding]:
                del self.known[key]
            binding.free()


def _call(method: weakref.WeakMethod, key: tuple[int, ...], gone: weakref.ref) -> None:
    """Notify the bindings, if they are alive, that an array is gone."""
    alive = method()
    if alive is not None:
        alive(key)


def _owner(array: Any) -> Any:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray) or is_device_array(array.base):
        array = array.base
    return array
