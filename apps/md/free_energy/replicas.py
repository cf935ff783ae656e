"""Replicas of a run at several temperatures: their settings, their parts of a checkpoint, what they tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.comm.agree import all_of_ranks, gather_json
from hpckit.comm.mesh import Mesh
from hpckit.errors import DecompositionError
from hpckit.io.checkpoint.state import Piece, Restored, State
from hpckit.md.motion.replicas import AXIS, TemperatureReplicas
from hpckit.md.thermo import Thermo

APART = 1_000_003  # between the random seeds of two replicas


def replicas_of(config: Config, comm: MPI.Intracomm) -> TemperatureReplicas | None:
    """Collective: the replicas of the settings, an equal number of ranks each; None without temperatures. The caller
    closes `mesh`. Raises `DecompositionError` for ranks that cannot be dealt.
    """
    given = config.replicas
    if not given.temperatures:
        return None
    require_dealt(config, comm.size)
    count = len(given.temperatures)
    mesh = Mesh(comm, replica=count, domain=comm.size // count)
    return TemperatureReplicas(mesh, given.temperatures, given.seed)


def require_dealt(config: Config, ranks: int) -> None:
    """Raise `DecompositionError` for ranks that are not the same number for each replica."""
    count = max(1, len(config.replicas.temperatures))
    if ranks % count:
        raise DecompositionError(
            f"{ranks} ranks cannot be dealt to {count} replicas",
            do=f"start {count} ranks, or a multiple of them",
        )


def settings_of(config: Config, replicas: TemperatureReplicas) -> Config:
    """The settings of this replica: its temperature, and noise of its own; all start from the same particles."""
    number = replicas.own
    dynamics = {"temperature": replicas.temperatures[number], "seed": config.dynamics.seed + APART * number}
    return config.model_copy(update={"dynamics": config.dynamics.model_copy(update=dynamics)})


class OfReplica:
    """The part of a checkpoint that one replica has."""

    def __init__(self, kept: Restored, number: int) -> None:
        self._kept, self._number = kept, number
        self.step, self.outputs, self.names = kept.step, kept.outputs, kept.names
        self.values: dict[str, Any] = kept.values["replicas"][number]

    def shape(self, name: str) -> tuple[int, ...]:
        """See `Restored.shape`."""
        return self._kept.shape(name)[1:]

    def dtype(self, name: str) -> np.dtype[Any]:
        """See `Restored.dtype`."""
        return self._kept.dtype(name)

    def read(self, name: str, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
        """See `Restored.read`."""
        return self._kept.read(name, (self._number, *start), (1, *shape))[0]


def together(state: State, replicas: TemperatureReplicas) -> State:
    """Collective: the states of all replicas as one."""
    count, number = len(replicas.temperatures), replicas.own
    pieces = [
        Piece(each.name, (count, *each.shape), (number, *each.start), np.ascontiguousarray(each.block)[None])
        for each in state.pieces
    ]
    every = gather_json(replicas.mesh[AXIS], state.values)  # type: ignore[arg-type]
    return State(pieces, {"replicas": every or [], "exchange": replicas.saved()})


def by_temperature(thermo: Thermo, replicas: TemperatureReplicas) -> list[Thermo]:
    """Collective: what all replicas measured, in the order of their temperatures."""
    own = np.array([x for value in astuple(thermo) for x in (value if isinstance(value, tuple) else (value,))])
    every = all_of_ranks(replicas.mesh[AXIS], own)[np.argsort(replicas.which)]
    found = []
    for row in every.tolist():
        values: dict[str, Any] = {}
        for each in fields(Thermo):
            wide = each.name == "tensor"
            values[each.name] = tuple(row[:6]) if wide else row[0]
            del row[: 6 if wide else 1]
        found.append(Thermo(**values))
    return found


def told(replicas: TemperatureReplicas) -> dict[str, Any]:
    """What the summary of a run says of its replicas."""
    shares = [int(done) / max(int(tried), 1) for done, tried in zip(replicas.swapped, replicas.tried, strict=True)]
    return {
        "temperatures": list(replicas.temperatures),
        "attempts": replicas.number,
        "tried": replicas.tried.tolist(),
        "swapped": replicas.swapped.tolist(),
        "acceptance": shares,
    }
