"""Four stencils of NPBench (Ziogas et al. 2021, github.com/spcl/npbench) with gradients: as traced models, and in JAX.

The cost is the sum of the squares of a result, its gradient that in the first state (of `hdiff` in the coefficient,
too). As in NPBench cells at the edge keep their values: a mask says so to the traced models. The drive of `fdtd_2d` is
one number for all steps, a constant to both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.adjoint.derived import gradient
from hpckit.adjoint.models import model
from hpckit.adjoint.trace import where
from hpckit.adjoint.windows.window import Window
from hpckit.comm.mesh import Mesh
from hpckit.grid.field import Field
from hpckit.plan.grid.decomposition import Decomposition

DRIVE = 0.5
SIZES = {  # NPBench's small and middle sizes: shape, turns of the loop
    "hdiff": ((68, 68, 60), 1, (132, 132, 160), 1),
    "jacobi_2d": ((150, 150), 49, (350, 350), 79),
    "heat_3d": ((25, 25, 25), 24, (40, 40, 40), 49),
    "fdtd_2d": ((200, 220), 20, (400, 450), 60),
}


# ---- horizontal diffusion with a limiter, of COSMO


@model(walls={"i": 0.0, "j": 0.0})
def hdiff(field: Any, coefficient: Any, inside: Any) -> Any:
    """The sum of the squares of the field after diffusion."""
    lap = 4.0 * field - (field[1, 0, 0] + field[-1, 0, 0] + field[0, 1, 0] + field[0, -1, 0])
    east, north = lap[1, 0, 0] - lap, lap[0, 1, 0] - lap
    flx = where(east * (field[1, 0, 0] - field) > 0.0, 0.0, east)
    fly = where(north * (field[0, 1, 0] - field) > 0.0, 0.0, north)
    out = field - coefficient * (flx - flx[-1, 0, 0] + fly - fly[0, -1, 0])
    return (inside * out * out).sum()


def jax_hdiff(state: Any, steps: int) -> Any:
    """As above."""
    import jax.numpy as jnp

    f, coefficient = state
    lap = 4.0 * f[1:-1, 1:-1] - (f[2:, 1:-1] + f[:-2, 1:-1] + f[1:-1, 2:] + f[1:-1, :-2])
    res = lap[1:, 1:-1] - lap[:-1, 1:-1]
    flx = jnp.where(res * (f[2:-1, 2:-2] - f[1:-2, 2:-2]) > 0, 0.0, res)
    res = lap[1:-1, 1:] - lap[1:-1, :-1]
    fly = jnp.where(res * (f[2:-2, 2:-1] - f[2:-2, 1:-2]) > 0, 0.0, res)
    return f[2:-2, 2:-2] - coefficient[2:-2, 2:-2] * (flx[1:] - flx[:-1] + fly[:, 1:] - fly[:, :-1])


# ---- Jacobi's method in 2-D and heat in 3-D, from one array to the other and back


@model(walls={"i": 0.0, "j": 0.0})
def jacobi_2d(a: Any, b: Any, inside: Any) -> Any:
    """Two sweeps."""

    def swept(a: Any) -> Any:
        return 0.2 * (a + a[0, -1] + a[0, 1] + a[1, 0] + a[-1, 0])

    b = where(inside > 0.0, swept(a), b).hold({"i": 0.0, "j": 0.0})
    return where(inside > 0.0, swept(b), a), b


def jax_jacobi_2d(state: Any, steps: int) -> Any:
    """As above."""

    def swept(a: Any) -> Any:
        return 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])

    return _back_and_forth(swept, state, steps)[0]


@model(walls={"i": 0.0, "j": 0.0, "k": 0.0})
def heat_3d(a: Any, b: Any, inside: Any) -> Any:
    """Two steps."""
    walls = {"i": 0.0, "j": 0.0, "k": 0.0}

    def stepped(a: Any) -> Any:
        x = 0.125 * (a[1, 0, 0] - 2.0 * a + a[-1, 0, 0])
        y = 0.125 * (a[0, 1, 0] - 2.0 * a + a[0, -1, 0])
        return x + y + 0.125 * (a[0, 0, 1] - 2.0 * a + a[0, 0, -1]) + a

    b = where(inside > 0.0, stepped(a), b).hold(walls)
    return where(inside > 0.0, stepped(b), a), b


def jax_heat_3d(state: Any, steps: int) -> Any:
    """As above."""

    def stepped(a: Any) -> Any:
        c = a[1:-1, 1:-1, 1:-1]
        x = 0.125 * (a[2:, 1:-1, 1:-1] - 2.0 * c + a[:-2, 1:-1, 1:-1])
        y = 0.125 * (a[1:-1, 2:, 1:-1] - 2.0 * c + a[1:-1, :-2, 1:-1])
        return x + y + 0.125 * (a[1:-1, 1:-1, 2:] - 2.0 * c + a[1:-1, 1:-1, :-2]) + c

    return _back_and_forth(stepped, state, steps)[0]


def _back_and_forth(swept: Callable, state: Any, steps: int) -> Any:
    import jax

    inner = tuple(slice(1, -1) for _ in state[0].shape)

    def step(now: Any, _: Any) -> Any:
        a, b = now
        b = b.at[inner].set(swept(a))
        return (a.at[inner].set(swept(b)), b), None

    return jax.lax.scan(step, state, None, length=steps)[0]


# ---- Maxwell's equations in 2-D


@model(walls={"i": 0.0, "j": 0.0})
def fdtd_2d(ex: Any, ey: Any, hz: Any, first: Any, left: Any, last: Any) -> Any:
    """A step. first, left: 1 in the first row and column; last: 1 in the last of either."""
    still = {"i": 0.0, "j": 0.0}
    ey = where(first > 0.0, DRIVE, ey - 0.5 * (hz - hz[-1, 0])).hold(still)
    ex = where(left > 0.0, ex, ex - 0.5 * (hz - hz[0, -1])).hold(still)
    return ex, ey, where(last > 0.0, hz, hz - 0.7 * (ex[0, 1] - ex + ey[1, 0] - ey))


def jax_fdtd_2d(state: Any, steps: int) -> Any:
    """As above."""
    import jax

    def step(now: Any, _: Any) -> Any:
        ex, ey, hz = now
        ey = ey.at[0].set(DRIVE)
        ey = ey.at[1:].add(-0.5 * (hz[1:] - hz[:-1]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    return jax.lax.scan(step, state, None, length=steps)[0][2]


# ---- both


JAX = {"hdiff": jax_hdiff, "jacobi_2d": jax_jacobi_2d, "heat_3d": jax_heat_3d, "fdtd_2d": jax_fdtd_2d}
first_of_two = model(lambda a, b: (a * a).sum())
third = model(lambda ex, ey, hz: (hz * hz).sum())


class GradientCase:
    """A program at one of its sizes: `ours()` and `theirs()` are its gradients, arrays in the order of its fields."""

    def __init__(self, name: str, mesh: Mesh, quick: bool) -> None:
        self.name = name
        self.shape, self.steps = SIZES[name][:2] if quick else SIZES[name][2:]
        rng = np.random.default_rng(0)
        self._mesh, self._dec = mesh, Decomposition(self.shape, mesh.topology, 1)
        count = 3 if name == "fdtd_2d" else 2
        self.state = [self._field(rng.random(self.shape)) for _ in range(count)]
        inside = np.zeros(self.shape)
        edge = 2 if name == "hdiff" else 1
        inside[(slice(edge, -edge),) * (2 if name == "hdiff" else len(self.shape))] = 1.0
        self._masks = [self._field(inside)]
        if name == "fdtd_2d":
            i, j = np.indices(self.shape)
            last = (i == self.shape[0] - 1) | (j == self.shape[1] - 1)
            self._masks = [self._field(1.0 * each) for each in (i == 0, j == 0, last)]
        self._window: Window | None = None
        if name != "hdiff":
            step = {"jacobi_2d": jacobi_2d, "heat_3d": heat_3d, "fdtd_2d": fdtd_2d}[name]
            self._window = Window(step, self.steps, third if name == "fdtd_2d" else first_of_two)

    def ours(self) -> list[np.ndarray]:
        """By the traced model."""
        if self._window is None:
            _, found = gradient(hdiff)(*self.state, *self._masks)
        else:
            _, found = self._window.gradient(*self.state, *self._masks)
        return [each.interior for each in found[: len(self.state)]]

    def theirs(self, jax: Any) -> Callable[[], list[Any]]:
        """By JAX, jitted."""
        run, steps = JAX[self.name], self.steps
        compiled = jax.jit(jax.grad(lambda state: (run(state, steps) ** 2).sum()))
        state = tuple(jax.numpy.array(each.interior) for each in self.state)
        return lambda: jax.block_until_ready(compiled(state))

    def _field(self, values: np.ndarray) -> Field:
        return Field.from_global(self._mesh, self._dec, np.asarray(values, np.float64))
