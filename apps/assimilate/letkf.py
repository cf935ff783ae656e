"""A local ensemble transform Kalman filter (Hunt, Kostelich and Szunyogh 2007, Physica D 230, 112-126).

Each cell has an analysis of its own from the stations around it, whose weights fall to 0 with distance (Gaspari and
Cohn 1999, Q. J. R. Meteorol. Soc. 125, 723-757). The stations' values go to all ranks; every cell adds its stations in
one order, so that no bit depends on the number of ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.adjoint.ensemble import Ensemble
from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.twin import MEMBERS, VARIABLES, Twin, named
from hpckit.apps.assimilate.water import State
from hpckit.comm.agree import sum_of_ranks
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, read_into
from hpckit.kernels.nn.tile.dispatch import multiply, pack

CELLS = 1024  # of an analysis at once


class Letkf:
    """The filter: `step` is a forecast to the next observations and an analysis, `state` the mean of the members."""

    unit, variables = "cycles", VARIABLES

    def __init__(self, config: Config, twin: Twin, restored: Restored | None) -> None:
        self.config, self.twin, self.number = config, twin, 0
        self.last = len(config.times)
        m = config.method.members
        self.ensemble = Ensemble(twin.mesh, m)
        starts = [twin.added(twin.background, twin.errors.spread(twin.noise(MEMBERS, k))) for k in range(m)]
        self.members = self._stacked(starts)
        self.free = twin.background  # the run without observations, beside which the analysis is held
        if restored is None:
            self._center(self.members, twin.background)
        else:
            self.number = restored.values["number"]
            self.free = twin.added(twin.background, twin.background, 0.0)
            for name, field in self._named():
                read_into(restored, field, name)
        self._stations()

    @property
    def at(self) -> int:
        """The step of the last observations that were used."""
        return self.number * self.config.observations.every

    def step(self) -> bool:
        """Collective: forecast and analysis."""
        for _ in range(self.config.observations.every):
            self.members = self.twin.water.step(*self.members)
        self.free = self.twin.run(self.free, self.config.observations.every)
        self.number += 1
        self._analyse()
        return True

    def state(self) -> State:
        """Collective: the mean of the members, at step `at`."""
        h, u, v = map(self.ensemble.mean, self.members)
        return h, u, v

    def metrics(self, first: dict[str, float]) -> dict[str, float]:
        """The spread of the members, in the norm of `Twin.off`; the error of their mean over that of the run without
        observations at the same time. Collective.
        """
        h, u, v = map(self.ensemble.spread, self.members)
        it, size = self.config.physics, h.decomposition.global_shape[0] * h.decomposition.global_shape[1]
        squares = [field.dot(field, repro=True).real / size for field in (h, u, v)]
        off, free = self.twin.off(self.state(), self.at), self.twin.off(self.free, self.at)
        return {
            "spread": (it.gravity * squares[0] + it.depth * (squares[1] + squares[2])) ** 0.5,
            "error": off["norm"] / free["norm"],
            "error_h": off["h"],
            "error_u": off["u"],
        }

    def frames(self) -> list[tuple[int, dict[str, Field]]]:
        """The fields of `VARIABLES` at the last observations that were used, with their step. Collective."""
        return [(self.at, named(self.twin.truth[self.at], self.free, self.state()))]

    def summary(self) -> dict[str, Any]:
        """What the report needs beside the fields: nothing."""
        return {}

    def saved(self) -> tuple[list[Piece], dict[str, Any]]:
        """What a checkpoint keeps."""
        return [Piece.of_field(field, name) for name, field in self._named()], {"number": self.number}

    def close(self) -> None:
        """Free the mesh of the members. Collective."""
        self.ensemble.close()

    def _named(self) -> list[tuple[str, Field]]:
        fields = [*self.members, *self.free]
        return [(f"{kind}/{name}", f) for (kind, name), f in zip(NAMES, fields, strict=True)]

    def _stacked(self, states: list[State]) -> State:
        h, u, v = (self.ensemble.stack(each) for each in zip(*states, strict=True))
        return h, u, v

    def _center(self, members: State, about: State) -> None:
        """Move the members so that their mean is a state."""
        for field, middle in zip(members, about, strict=True):
            field.interior[...] += (middle.interior - self.ensemble.mean(field).interior)[..., None]

    def _stations(self) -> None:
        """Which stations are here, and the weights of all stations in each cell here: float64[cells, stations]."""
        twin, radius = self.twin, self.config.method.radius
        ny, nx = twin.decomposition.global_shape
        where = np.searchsorted(twin.places, twin.cells)
        where[where == len(twin.places)] = 0
        self._mine = np.flatnonzero(twin.places[where] == twin.cells)  # cells of this rank that are stations
        self._order = where[self._mine]
        far = [
            np.abs((twin.cells[:, None] // nx - twin.places // nx + ny // 2) % ny - ny // 2),
            np.abs((twin.cells[:, None] % nx - twin.places % nx + nx // 2) % nx - nx // 2),
        ]
        self._near = gaspari_cohn(np.hypot(*far) / (0.5 * radius))

    def _analyse(self) -> None:
        """Change the members by the observations of this time."""
        m, given, twin = self.config.method.members, self.config.observations, self.twin
        values = [field.interior.reshape(-1, m) for field in self.members]
        seen = [field.interior.reshape(-1) for field in twin.seen(self.at)[:3]]
        there = np.zeros((len(twin.places), 3, m + 1))
        for k in range(3):
            there[self._order, k, :m], there[self._order, k, m] = values[k][self._mine], seen[k][self._mine]
        sum_of_ranks(twin.mesh.comm, there)  # a station is on one rank: nothing but zeros is added
        middle = _mean(there[..., :m])
        errors = np.array([given.error_h, given.error_u, given.error_u])[:, None]
        rows = (there[..., :m] - middle[..., None]) / errors
        missed = (there[..., m] - middle) / errors[:, 0]
        squares, pulls = np.zeros((len(rows), m, m)), np.zeros((len(rows), m))
        for k in range(3):
            squares += rows[:, k, :, None] * rows[:, k, None, :]
            pulls += rows[:, k] * missed[:, k, None]
        table = np.concatenate([squares.reshape(len(rows), m * m), pulls], axis=1)
        packed = pack(np.ascontiguousarray(table))  # whose products add stations in one order
        for begin in range(0, len(self._near), CELLS):
            part = slice(begin, min(begin + CELLS, len(self._near)))
            each = np.empty((part.stop - begin, table.shape[1]))
            multiply(np.ascontiguousarray(self._near[part]), packed, each)
            weights = self._weights(each[:, : m * m].reshape(-1, m, m), each[:, m * m :])
            for value in values:
                mean = _mean(value[part])
                value[part] = mean[:, None] + _product((value[part] - mean[:, None])[:, None, :], weights)[:, 0]
        for field, value in zip(self.members, values, strict=True):
            field.interior[...] = value.reshape(field.interior.shape)

    def _weights(self, squares: np.ndarray, pulls: np.ndarray) -> np.ndarray:
        """How the new members are made of the old ones' differences from the mean: float64[cells, m, m]."""
        m = squares.shape[-1]
        sizes, axes = np.linalg.eigh(squares + (m - 1) * np.eye(m))
        turned = axes.transpose(0, 2, 1)
        mean = _product(axes, (_product(turned, pulls[..., None])[..., 0] / sizes)[..., None])
        spread = _product(axes * np.sqrt((m - 1) / sizes)[:, None, :], turned)
        return self.config.method.inflation * spread + mean


NAMES = [(kind, name) for kind in ("members", "free") for name in ("h", "u", "v")]


def gaspari_cohn(r: np.ndarray) -> np.ndarray:
    """The fifth-order function of compact support: 1 at 0, 0 from 2 on (their equation 4.10)."""
    near = (((-0.25 * r + 0.5) * r + 0.625) * r - 5 / 3) * r * r + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        far = ((((r / 12 - 0.5) * r + 0.625) * r + 5 / 3) * r - 5) * r + 4 - 2 / (3 * r)
    return np.where(r <= 1, near, np.where(r < 2, far, 0.0))


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis, added in its order."""
    total = np.zeros(values.shape[:-1])
    for k in range(values.shape[-1]):
        total += values[..., k]
    return total / values.shape[-1]


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of stacked matrices, each by itself: a row's bits do not depend on how many there are."""
    return np.einsum("nij,njk->nik", a, b)
