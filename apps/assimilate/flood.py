"""A flood in a rough valley, as a traced model: the local inertial form of shallow water, over a map of Manning's n.

Bates, Horritt and Fewtrell (2010, J. Hydrol. 387, 33-45), the scheme of LISFLOOD-FP: depth h at the centers of cells,
discharges qx, qy (m2/s) at their west and south faces. Gravity, the slope of the surface and friction, without the
advection of momentum, for floods slower than their waves. Friction is taken at the end of a step. What leaves a cell is
limited to what it holds, so that no depth is negative. Walls on all sides.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.adjoint.models import model
from hpckit.adjoint.trace import maximum, where
from hpckit.apps.assimilate.config import Config
from hpckit.comm.agree import sum_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.grid.boundary_conditions import mirror, zero_gradient
from hpckit.grid.field import Field
from hpckit.kernels.noise.dispatch import normals
from hpckit.plan.grid.decomposition import Decomposition

TRUTH, SEEN, SITES = 1, 2, 3  # streams of random numbers
WET = 0.05  # m: cells that the truth floods at least so deep at some time count for the error
State = tuple[Field, Field, Field]  # h, qx, qy
LOW = {"y": mirror, "x": mirror}
THROUGH = {"y": 0.0, "x": 0.0}  # of discharges: nothing passes the faces at and beyond the walls


def flood_step(dx: float, dt: float, gravity: float, dry: float) -> Any:
    """The model of a step: h (m), qx, qy (m2/s), bottom (m), n (s/m^(1/3)) -> h, qx, qy after `dt`.

    dry: no water passes a face where it would be less deep (m).
    """

    def driven(q: Any, h: Any, bottom: Any, n: Any, axis: str) -> Any:
        level, below = h + bottom, {axis: -1}
        deep = maximum(level, level.shift(**below)) - maximum(bottom, bottom.shift(**below))
        depth = where(deep > dry, deep, 1.0)
        rough = 0.5 * (n + n.shift(**below))
        push = gravity * dt / dx * depth * (level - level.shift(**below))
        rub = 1.0 + gravity * dt * rough * rough * abs(q) / (depth * depth * depth ** (1.0 / 3.0))
        return where(deep > dry, (q - push) / rub, 0.0)

    @model(walls={"h": LOW, "qx": THROUGH, "qy": THROUGH, "bottom": LOW, "n": {"y": zero_gradient, "x": zero_gradient}})
    def step(h: Any, qx: Any, qy: Any, bottom: Any, n: Any) -> Any:
        qx, qy = (driven(q, h, bottom, n, axis).hold(THROUGH) for q, axis in ((qx, "x"), (qy, "y")))
        leaving = maximum(qx.shift(x=1), 0.0) - _least(qx) + maximum(qy.shift(y=1), 0.0) - _least(qy)
        share = where(leaving * (dt / dx) > h, h * (dx / dt) / where(leaving > 0.0, leaving, 1.0), 1.0).hold(LOW)
        qx, qy = (q * where(q > 0.0, share.shift(**{axis: -1}), share) for q, axis in ((qx, "x"), (qy, "y")))
        qx, qy = qx.hold(THROUGH), qy.hold(THROUGH)
        return h - (dt / dx) * (qx.shift(x=1) - qx + qy.shift(y=1) - qy), qx, qy

    return step


def _least(q: Any) -> Any:
    return where(q < 0.0, q, 0.0)


@model
def gauge_misfit(h: Any, qx: Any, qy: Any, seen: Any, weight: Any) -> Any:
    """Half the squares of the depths read at the gauges less the model's, in units of their errors.

    weight: 1 / error^2 where there is a gauge, else 0.
    """
    return 0.5 * (weight * (h - seen) ** 2).sum()


@model(walls={"y": zero_gradient, "x": zero_gradient})
def smoothed(a: Any) -> Any:
    """One step of diffusion between walls, which is its own adjoint."""
    return a + 0.125 * (a[0, 1] + a[0, -1] + a[1, 0] + a[-1, 0] - 4 * a)


class Valley:
    """The experiment of the settings on the ranks of a mesh: a reservoir empties into a valley. Collective.

    The logarithm of n is that of the first guess and an error with a correlation in space, of the size
    `roughness.spread` in every cell: L times white noise, where L is diffusion. truth: n (s/m^(1/3)); `seen(k)`: what
    the gauges read at step k, the arguments of `gauge_misfit` behind the state.
    """

    def __init__(self, config: Config, mesh: Mesh) -> None:
        self.config, self.mesh = config, mesh
        shape, it, given = (config.grid.ny, config.grid.nx), config.valley, config.roughness
        self.decomposition = Decomposition(shape, mesh.topology, 1)
        self.like = Field.zeros(mesh, self.decomposition)
        j, i = self.like.indices()
        self.cells = np.ascontiguousarray((j * shape[1] + i).ravel().astype(np.int64))
        across = 2 * (j + 0.5) / shape[0] - 1  # -1 to 1 from side to side
        self.bottom = self._field(it.fall * config.grid.dx * (shape[1] - 1 - i) + it.banks * across**2)
        dam = round(it.dam * shape[1])
        level = it.fall * config.grid.dx * (shape[1] - 1 - dam) + it.reservoir
        self.start = self._field(np.maximum(0.0, np.where(i < dam, level, -np.inf) - self.bottom.interior))
        self.step = flood_step(config.grid.dx, config.window.dt, config.physics.gravity, it.dry)
        self.passes = max(1, round(2 * given.scale**2))
        self._size = self._field(given.spread / deviations(shape, self.passes)[j, i])
        self.sites = _sites(config)
        mask = np.isin(self.cells, self.sites).astype(float).reshape(self.like.interior.shape)
        self.weight = self._field(mask / config.gauges.error**2)
        self.truth = self.roughness(self._noise(TRUTH, 0))
        self._seen: dict[int, tuple[Field, Field]] = {}
        wet = self.like.like()
        for k, state in enumerate(self._states(self.truth), 1):
            wet.interior[...] = np.maximum(wet.interior, state[0].interior > WET)
            if k in config.times:
                errors = config.gauges.error * self._noise(SEEN, k).interior
                self._seen[k] = self._field(mask * (state[0].interior + errors)), self.weight
        self.wet, self.end = wet, state
        self.wet_cells = round(wet.sum(repro=True).real)

    def first(self) -> State:
        """The water behind the dam, at rest."""
        return self.start, self.like.like(), self.like.like()

    def seen(self, k: int) -> tuple[Field, Field]:
        """The depths read at step k (0 where there is no gauge), and their weights."""
        return self._seen[k]

    def roughness(self, noise: Field) -> Field:
        """Manning's n for white noise. Collective."""
        found = self._smooth(noise)
        found.interior[...] = self.config.roughness.manning * np.exp(self._size.interior * found.interior)
        return found

    def gathered(self, slope: Field, n: Field) -> Field:
        """The slope in white noise, of that in Manning's n. Collective."""
        return self._smooth(self._field(self._size.interior * n.interior * slope.interior))

    def off(self, n: Field) -> float:
        """How far the logarithm of n is from the truth's: root mean square over the cells that the truth floods.
        Collective.
        """
        ratio = self._field(self.wet.interior * np.log(n.interior / self.truth.interior))
        return math.sqrt(ratio.dot(ratio, repro=True).real / self.wet_cells)

    def depth_off(self, end: State) -> float:
        """How far the depth is off at the end of the window: root mean square over the same cells (m). Collective."""
        apart = self._field(self.wet.interior * (end[0].interior - self.end[0].interior))
        return math.sqrt(apart.dot(apart, repro=True).real / self.wet_cells)

    def run(self, n: Field) -> State:
        """The state at the end of the window. Collective."""
        *_, last = self._states(n)
        return last

    def hydrographs(self, n: Field, sites: np.ndarray) -> np.ndarray:
        """The depth (m) at some cells, float64[times of readings, cells]. Collective."""
        found = np.zeros((len(self.config.times), len(sites)))
        where = np.searchsorted(self.cells, sites) if len(self.cells) else np.zeros(len(sites), np.int64)
        where[where == len(self.cells)] = 0
        mine = self.cells[where] == sites
        for k, state in enumerate(self._states(n), 1):
            if k in self.config.times:
                found[self.config.times.index(k), mine] = state[0].interior.ravel()[where[mine]]
        return sum_of_ranks(self.mesh.comm, found)  # one rank has a cell, the others add 0

    def _states(self, n: Field) -> Any:
        state = self.first()
        for _ in range(self.config.window.steps):
            state = self.step(*state, self.bottom, n)
            yield state

    def _smooth(self, field: Field) -> Field:
        now, then = self._field(field.interior), self.like.like()
        for _ in range(self.passes):
            smoothed(now, out=then)
            now, then = then, now
        return now

    def _noise(self, stream: int, number: int) -> Field:
        drawn = np.empty((len(self.cells), 4))
        normals(self.config.truth.seed, number, self.cells, stream, drawn)
        return self._field(drawn[:, 0].reshape(self.like.interior.shape))

    def _field(self, values: Any) -> Field:
        field = self.like.like()
        field.interior[...] = values
        return field


def deviations(shape: tuple[int, int], passes: int) -> np.ndarray:
    """The standard deviation in each cell of white noise after passes of `smoothed`: float64[ny, nx].

    The cosines between the walls are the eigenvectors of a pass.
    """
    squares, angles = [], []
    for n in shape:
        k, cell = np.arange(n), np.arange(n) + 0.5
        waves = np.cos(np.pi / n * k[None, :] * cell[:, None])
        squares.append(waves**2 / (waves**2).sum(axis=0))
        angles.append(np.cos(np.pi * k / n))
    share = 1 - 0.25 * (2 - angles[0][:, None] - angles[1])
    return np.sqrt(squares[0] @ share ** (2 * passes) @ squares[1].T)


def _sites(config: Config) -> np.ndarray:
    """The cells with gauges, in their order: below the dam, where the valley is less than half as high as its banks."""
    ny, nx = config.grid.ny, config.grid.nx
    j, i = np.divmod(np.arange(ny * nx), nx)
    low = np.flatnonzero((np.abs(2 * (j + 0.5) / ny - 1) < 0.7) & (i > round(config.valley.dam * nx)))
    drawn = np.random.default_rng(config.truth.seed).permutation(len(low))
    return np.sort(low[drawn[: config.gauges.count]])
