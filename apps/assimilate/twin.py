"""A twin experiment: a known truth, observations of it, a background with errors, and how far an estimate is off.

Random numbers are functions of (seed, stream, cell), so an experiment has the same bits on any number of ranks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.adjoint.derived import vjp
from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.water import State, Water, energy, smoothed
from hpckit.comm.mesh import Mesh
from hpckit.grid.field import Field
from hpckit.kernels.noise.dispatch import normals
from hpckit.plan.grid.decomposition import Decomposition

TRUTH, ERRORS, SEEN, MEMBERS = 1, 2, 3, 4  # streams of random numbers
UNITS = {"h": "m", "u": "m/s", "v": "m/s"}
KINDS = {"truth": "truth", "background": "first guess", "analysis": "analysis"}
VARIABLES = {
    f"{name}_{kind}": {"units": unit, "long_name": f"{name} of the {said}"}
    for kind, said in KINDS.items()
    for name, unit in UNITS.items()
}


def named(*states: State) -> dict[str, Field]:
    """The fields of truth, background and analysis by the names of `VARIABLES`."""
    pairs = zip(KINDS, states, strict=True)
    return {f"{name}_{kind}": field for kind, state in pairs for name, field in zip(UNITS, state, strict=True)}


class Covariance:
    """Errors with a correlation in space: B = L L', where L makes errors of h, u, v from white noise.

    L is diffusion (a Gaussian of length `scale`, in cells), scaled so that the errors have their standard deviations;
    errors of h come with the current that balances them. error: of h (m); unbalanced: of u and v beside that (m/s).
    """

    def __init__(self, water: Water, like: Field, error: float, unbalanced: float, scale: float) -> None:
        self.like, self.error, self.unbalanced = like, error, unbalanced
        self.passes = max(1, round(2 * scale**2))
        ky, kx = (2 * np.pi * np.fft.fftfreq(n) for n in like.decomposition.global_shape)
        share = 1 - 0.25 * (2 - np.cos(ky)[:, None] - np.cos(kx))
        self._factor = 1 / math.sqrt(float((share ** (2 * self.passes)).mean()))
        self._balanced = water.balanced
        self._pull = vjp(water.balanced, like)[1]
        self._spare = like.like(), like.like()

    def spread(self, noise: State) -> State:
        """L: changes of h, u, v from white noise. Collective."""
        h, u, v = (self._smooth(each, s) for each, s in zip(noise, self._sizes, strict=True))
        for own, more in zip((u, v), self._balanced(h), strict=True):
            own.interior[...] += more.interior
        return h, u, v

    def gathered(self, slopes: State) -> State:
        """L': the slope in white noise from that in h, u, v. Collective."""
        h = slopes[0].like()
        h.interior[...] = slopes[0].interior + self._pull(*slopes[1:])[0].interior
        fields = zip((h, *slopes[1:]), self._sizes, strict=True)
        h, u, v = (self._smooth(each, s) for each, s in fields)
        return h, u, v

    @property
    def _sizes(self) -> tuple[float, float, float]:
        return self.error, self.unbalanced, self.unbalanced

    def _smooth(self, field: Field, size: float) -> Field:
        now, then = self._spare
        now.interior[...] = field.interior
        for _ in range(self.passes):
            smoothed(now, out=then)
            now, then = then, now
        found = field.like()
        found.interior[...] = size * self._factor * now.interior
        return found


class Twin:
    """The experiment of the settings on the ranks of a mesh. Making it is collective.

    truth: the states at the start, at the times of observations, and at the end; background: the first guess at the
    start; `seen(k)`: what is observed at step k, the arguments of `misfit` behind the state.
    """

    def __init__(self, config: Config, mesh: Mesh) -> None:
        self.config, self.mesh, self.water = config, mesh, Water(config)
        shape = config.grid.ny, config.grid.nx
        self.decomposition = Decomposition(shape, mesh.topology, 1)
        self.like = Field.zeros(mesh, self.decomposition)
        j, i = self.like.indices()
        self.cells = np.ascontiguousarray((j * shape[1] + i).ravel().astype(np.int64))
        given = config.background
        self.errors = Covariance(self.water, self.like, given.error, given.unbalanced, given.scale)
        self.places = np.sort(
            np.random.default_rng(config.truth.seed).permutation(shape[0] * shape[1])[: config.observed]
        )
        self.mask = self._field(np.isin(self.cells, self.places).astype(float))
        noisy = config.observations
        self.weights = (
            self._field(self.mask.interior / noisy.error_h**2),
            self._field(self.mask.interior / noisy.error_u**2),
        )
        self._start()

    def _start(self) -> None:
        """The truth, its observations, and the background."""
        config, it = self.config, self.config.truth
        eddies = Covariance(self.water, self.like, it.amplitude, 0.0, it.scale)
        h, u, v = eddies.spread(self.noise(TRUTH, 0))
        h.interior[...] += config.physics.depth
        state: State = (h, u, v)
        state = self.run(state, it.spin_up)
        self.truth = {0: state}
        self._seen: dict[int, tuple[Any, ...]] = {}
        noisy, errors = config.observations, self.noise
        for k in range(1, config.window.steps + 1):
            state = self.water.step(*state)
            if k in config.times or k == config.window.steps:
                self.truth[k] = state
            if k in config.times:
                drawn, found = errors(SEEN, k), []
                for field, more, size in zip(state, drawn, (noisy.error_h, noisy.error_u, noisy.error_u), strict=True):
                    seen = field.like()
                    seen.interior[...] = self.mask.interior * (field.interior + size * more.interior)
                    found.append(seen)
                self._seen[k] = *found, *self.weights
        self.background = self.added(self.truth[0], self.errors.spread(self.noise(ERRORS, 0)))

    def seen(self, k: int) -> tuple[Any, ...]:
        """The observations at step k: h, u, v (0 where there are none), and their weights."""
        return self._seen[k]

    def run(self, state: State, steps: int) -> State:
        """The state after some steps. Collective."""
        for _ in range(steps):
            state = self.water.step(*state)
        return state

    def noise(self, stream: int, number: int) -> State:
        """White noise for h, u and v."""
        drawn = np.empty((len(self.cells), 4))
        normals(self.config.truth.seed, number, self.cells, stream, drawn)
        h, u, v = (self._field(drawn[:, k]) for k in range(3))
        return h, u, v

    def added(self, state: State, change: State, factor: float = 1.0) -> State:
        """State + factor change, as new fields."""
        found = []
        for field, more in zip(state, change, strict=True):
            found.append(field.like())
            found[-1].interior[...] = field.interior + factor * more.interior
        h, u, v = found
        return h, u, v

    def off(self, state: State, at: int = 0) -> dict[str, float]:
        """How far a state is from the truth at step `at`: the norm of the energy, and the root mean squares of h (m)
        and of u and v together (m/s). Collective.
        """
        h, u, v = self.added(state, self.truth[at], -1.0)
        size = math.prod(self.decomposition.global_shape)
        it = self.config.physics
        squares = [field.dot(field, repro=True).real / size for field in (h, u, v)]
        energies = energy(h, u, v, it.gravity, it.depth) / size
        return {"norm": math.sqrt(energies), "h": math.sqrt(squares[0]), "u": math.sqrt(squares[1] + squares[2])}

    def _field(self, values: np.ndarray) -> Field:
        field = self.like.like()
        field.interior[...] = values.reshape(field.interior.shape)
        return field
