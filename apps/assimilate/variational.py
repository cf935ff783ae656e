"""4D-Var: the state at the start of a window whose run fits the observations and the background best.

The cost in white noise c, for the state background + L c, is  J = c c / 2 + sum of ((model - seen) / error)^2 / 2  over
the observations. Its gradient comes from the window's adjoint run; L, that of the background's errors, preconditions.
"""

from __future__ import annotations

from typing import Any

from hpckit.adjoint.derived import jvp
from hpckit.adjoint.lbfgs import Descent, add, dot, norm
from hpckit.adjoint.windows.window import Window
from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.twin import VARIABLES, Twin, named
from hpckit.apps.assimilate.water import State, misfit, paired
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, read_into

ENOUGH = 1e-3  # of the first residual: where conjugate gradients end
HALVINGS = 6


class Variational:
    """4D-Var by L-BFGS: `step` is one iteration, `state` the analysis at the start of the window."""

    number = 0  # iterations done
    unit, variables = "iterations", VARIABLES

    def __init__(self, config: Config, twin: Twin, restored: Restored | None) -> None:
        self.config, self.twin = config, twin
        window, memory = config.window, config.method.memory * 2**20
        self.window = Window(
            twin.water.step, window.steps, misfit, at=list(config.times), data=twin.seen, memory=memory
        )
        self.last = config.method.iterations
        self._begin(restored)

    def step(self) -> bool:
        """Collective: one iteration; False where the cost does not fall any more."""
        went_on = self.descent.step()
        self.number = self.descent.number
        return went_on

    def state(self) -> State:
        """Collective: the analysis, at the start of the window."""
        return self.state_of(self.noise)

    @property
    def noise(self) -> list[Field]:
        """The white noise whose errors the analysis takes from the background."""
        return self.descent.here

    def metrics(self, first: dict[str, float]) -> dict[str, float]:
        """Cost, its part of the background, the norm of the gradient; errors at both ends of the window, over those of
        the first guess, which are put into `first`. Collective.
        """
        twin, here, last = self.twin, self.state(), self.config.window.steps
        off, end = twin.off(here), twin.off(twin.run(here, last), last)
        if not first:
            first |= {"first": off["norm"], "first_end": end["norm"]}
        errors = {"error": off["norm"] / first["first"], "error_end": end["norm"] / first["first_end"]}
        return {**self.costs(), **errors, "error_h": off["h"], "error_u": off["u"]}

    def costs(self) -> dict[str, float]:
        """Cost, its part of the background, the norm of the gradient, runs. Collective."""
        it, own = self.descent, self.noise
        return {"cost": it.cost, "cost_background": 0.5 * dot(own, own), "gradient": it.size, "runs": it.evaluations}

    def frames(self) -> list[tuple[int, dict[str, Field]]]:
        """The fields of `VARIABLES` at the start and at the end of the window, with their steps. Collective."""
        twin, last, here = self.twin, self.config.window.steps, self.state()
        return [
            (0, named(twin.truth[0], twin.background, here)),
            (last, named(twin.truth[last], twin.run(twin.background, last), twin.run(here, last))),
        ]

    def summary(self) -> dict[str, Any]:
        """What the report needs beside the fields: nothing."""
        return {}

    def close(self) -> None:
        """Nothing is to be freed."""

    def saved(self) -> tuple[list[Piece], dict[str, Any]]:
        """What a checkpoint keeps."""
        return self.descent.pieces(), {"descent": self.descent.values()}

    def state_of(self, noise: list[Field]) -> State:
        """The state at the start of the window for white noise. Collective."""
        h, u, v = noise
        return self.twin.added(self.twin.background, self.twin.errors.spread((h, u, v)))

    def gradient(self, noise: Any) -> tuple[float, list[Field]]:
        """The cost and its slope in the white noise. Collective."""
        cost, slopes = self.window.gradient(*self.state_of(noise))
        found = list(self.twin.errors.gathered(slopes))
        add(found, 1.0, noise)
        return cost + 0.5 * dot(noise, noise), found

    def _begin(self, restored: Restored | None) -> None:
        self.descent = Descent(self.gradient, [self.twin.like] * 3, restored)
        self.number = self.descent.number


class Incremental(Variational):
    """4D-Var in outer loops: each minimizes the quadratic cost about its trajectory by conjugate gradients.

    Courtier, Thépaut and Hollingsworth (1994), Q. J. R. Meteorol. Soc. 120, 1367-1387. A product with the Hessian is a
    tangent-linear run and an adjoint run. A step that does not bring the full cost down is halved.
    """

    runs: int  # of the model, there or back
    cost: float
    here: list[Field]
    slope: list[Field]

    def step(self) -> bool:
        """Collective: one outer loop; False where the cost does not fall any more."""
        change = self._quadratic([self._copy(slope, -1.0) for slope in self.slope])
        length = 1.0
        for _ in range(HALVINGS):
            there = [self._copy(field) for field in self.here]
            add(there, length, change)
            cost, slope = self.gradient(there)
            self.runs += 2
            if cost < self.cost:  # false for nan
                self.here, self.cost, self.slope = there, cost, slope
                self.number += 1
                return True
            length *= 0.5
        return False

    @property
    def noise(self) -> list[Field]:
        """The white noise whose errors the analysis takes from the background."""
        return self.here

    def costs(self) -> dict[str, float]:
        """Cost, its part of the background, the norm of the gradient, runs. Collective."""
        half = 0.5 * dot(self.here, self.here)
        return {"cost": self.cost, "cost_background": half, "gradient": norm(self.slope), "runs": self.runs}

    def saved(self) -> tuple[list[Piece], dict[str, Any]]:
        """What a checkpoint keeps."""
        groups = {"here": self.here, "slope": self.slope}
        pieces = [Piece.of_field(field, f"{name}/{n}") for name, each in groups.items() for n, field in enumerate(each)]
        return pieces, {"number": self.number, "runs": self.runs, "cost": self.cost}

    def _begin(self, restored: Restored | None) -> None:
        config, twin = self.config, self.twin
        self._weights: dict[int, State] = {}
        memory, at = config.method.memory * 2**20, list(config.times)
        self.back = Window(
            twin.water.step, config.window.steps, paired, at=at, data=self._weights.__getitem__, memory=memory
        )
        if restored is None:
            self.here, self.runs = [twin.like.like() for _ in range(3)], 2
            self.cost, self.slope = self.gradient(self.here)
            return
        self.here, self.slope = [twin.like.like() for _ in range(3)], [twin.like.like() for _ in range(3)]
        for name, each in (("here", self.here), ("slope", self.slope)):
            for n, field in enumerate(each):
                read_into(restored, field, f"{name}/{n}")
        self.number, self.runs, self.cost = (restored.values[name] for name in ("number", "runs", "cost"))

    def _quadratic(self, down: list[Field]) -> list[Field]:
        """Conjugate gradients: the change of the noise that the Hessian turns into `down`, roughly."""
        start = self.state()
        change = [field.like() for field in down]
        left, way = down, [self._copy(field) for field in down]
        size = first = dot(left, left)
        for _ in range(self.config.method.inner if first else 0):
            bent = self._hessian(start, way)
            length = size / dot(way, bent)
            add(change, length, way)
            add(left, -length, bent)
            before, size = size, dot(left, left)
            if size <= ENOUGH**2 * first:
                break
            for field, rest in zip(way, left, strict=True):
                field.interior[...] = rest.interior + size / before * field.interior
        return change

    def _hessian(self, start: State, noise: list[Field]) -> list[Field]:
        """The Hessian of the quadratic cost times white noise: a tangent-linear run there, an adjoint run back."""
        twin, state = self.twin, start
        h, u, v = noise
        change = twin.errors.spread((h, u, v))
        for k in range(1, self.config.window.steps + 1):
            state, change = jvp(twin.water.step, state, change)
            if k in self.config.times:
                self._weights[k] = self._weighted(change)
        self.runs += 3
        _, slopes = self.back.gradient(*start)
        found = list(twin.errors.gathered(slopes))
        add(found, 1.0, noise)
        return found

    def _weighted(self, change: State) -> State:
        weight_h, weight_u = self.twin.weights
        found = [self._copy(field) for field in change]
        for field, weight in zip(found, (weight_h, weight_u, weight_u), strict=True):
            field.interior[...] *= weight.interior
        h, u, v = found
        return h, u, v

    @staticmethod
    def _copy(field: Field, factor: float = 1.0) -> Field:
        made = field.like()
        made.interior[...] = factor * field.interior
        return made
