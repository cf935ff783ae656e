"""Values of units that are gathered ahead of their use and freed behind it: stage 3, where replicas share no memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpckit.collectives import Request, all_gather
from hpckit.nn.parameters import Owned, Parameters
from hpckit.training.sharded.units import Unit


class GatheredUnits:
    """Memory for the unit in use and the one after it, which replicas fill from their shards. Collective.

    comm: of the replicas that hold a copy in shards. partners: for a unit another one, whose parameters its layers use
    too; both are then here at once. zeros: allocates on the device.
    """

    def __init__(
        self,
        parameters: Parameters,
        units: Sequence[Unit],
        comm: Any,
        partners: Mapping[int, int],
        zeros: Callable[..., Any],
    ) -> None:
        self._parameters, self._units, self._comm, self._partners = parameters, units, comm, partners
        self._gathered: dict[int, tuple[Any, Request | None]] = {}  # units whose values are or come here
        longest, dtype = max((unit.end - unit.start for unit in units), default=0), parameters.values.dtype
        self._free = [zeros((longest,), dtype) for _ in range(4 if partners else 2)]
        self.nbytes = len(self._free) * longest * dtype.itemsize

    def need(self, unit: int, following: int = -1) -> None:
        """Have the values of a unit here, and begin to gather those of the unit that is used after it."""
        now = [unit, self._partners.get(unit, unit)]
        soon = [following, self._partners.get(following, following)] if following >= 0 else []
        for each in now:
            self._gather(each, {*now, *soon})
        for each in now:
            memory, request = self._gathered[each]
            if request is not None:
                request.wait()
                it = self._units[each]
                self._parameters.bind_values(memory, it.parameters, it.start)
                self._gathered[each] = memory, None
        for each in soon:
            self._gather(each, {*now, *soon})

    def release(self) -> None:
        """Free the gathered values of all units."""
        for unit in list(self._gathered):
            self._drop(unit)

    def _gather(self, unit: int, kept: set[int]) -> None:
        if unit in self._gathered:
            return
        for other in [other for other in self._gathered if other not in kept]:
            self._drop(other)
        it, memory = self._units[unit], self._free.pop()
        shard, whole = held_values(self._parameters.owned[unit]), memory[: it.end - it.start]
        self._gathered[unit] = memory, all_gather(shard, self._comm, whole, counts=it.counts)

    def _drop(self, unit: int) -> None:
        memory, request = self._gathered.pop(unit)
        if request is not None:
            request.wait()
        self._parameters.bind_values(self._parameters.values, self._units[unit].parameters)
        self._free.append(memory)


def held_values(part: Owned) -> Any:
    """What other replicas gather of a part: in mixed precision the values in 16 bits."""
    return part.values if part.stored is None else part.stored
