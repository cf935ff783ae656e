"""Traced models: their kernels against a loop by hand, their gradients against their own runs and against JAX.

Burgers' equation in 2-D, two fields, periodic, double precision, one core for us and for JAX, 1024 x 1024 cells (256
with `quick`).

`traced_vs_hand`: a step as a traced model against a Numba loop written by hand; both fill their halos.
`gradient_forwards` (a cost): the gradient of 50 steps in the first state, over the time of the 50 steps alone.
`gradient_vs_jax`: JAX's gradient of the same 50 steps, jitted with `lax.scan`, over ours (extra `bench`); the two
gradients must agree to 1e-12 of the largest value before the timing.
`ensemble32_vs_calls`: 32 members of 64 x 64 cells in 32 calls a step over one call for all; `ensemble32_vs_vmap`:
`jax.vmap` of JAX's step over the same. A run of 20 steps is timed, each from the state that the one before has made.
`npbench_NAME`: gradients of four stencils of NPBench, JAX's time over ours; reported.
`adjoint_2ranks_eff`: the speed-up of the gradient on 2 ranks over that of the steps alone on 2 ranks.
`ensemble_one_message`: on 2 ranks, the exchanges of 32 members of 64 x 64 cells one by one, over one for all.
`heat3d_…`: the heat equation by hand, in one and in two steps a pass, as `hpckit bench stencil` has it.
`assimilation_error`: the error after 30 iterations of 4D-Var over that before, of `assimilate/shallow_water`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.adjoint.ensemble import Ensemble
from hpckit.adjoint.windows.window import Window
from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.twin import Twin
from hpckit.apps.assimilate.variational import Variational
from hpckit.bench.command import add_only
from hpckit.bench.measure import Ratios, Rows, by_round, interleave, ratio, result, spread, timed
from hpckit.bench.ranks import run_ranks
from hpckit.bench.rivals.jax import PAUSE, jax_on_one_core, one_core
from hpckit.bench.stencil.burgers import energy, fill_by_hand, jax_step, step, step_by_hand
from hpckit.bench.stencil.npbench import SIZES, GradientCase
from hpckit.bench.stencil.verb import heat3d
from hpckit.comm.mesh import Mesh
from hpckit.grid.field import Field
from hpckit.plan.grid.decomposition import Decomposition

PARTS = "traced", "gradient", "ensemble", "npbench", "ranks", "assimilation", "heat"
STEPS, MEMBERS, SMALL, IN_A_RUN, RANKS = 50, 32, 64, 20, 2
Result = tuple[Rows, Ratios]


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """`--only`."""
    return add_only(parser, PARTS, "PART")


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure the parts asked for, all by default; rows and ratios."""
    n = 256 if quick else 1024
    rows: Rows = []
    ratios: Ratios = {}
    parts: dict[str, Callable[[], Result]] = {
        "traced": lambda: traced(n),
        "gradient": lambda: gradient(n, 3 if quick else 5),
        "ensemble": lambda: ensemble(11 if quick else 21),
        "npbench": lambda: of_npbench(quick, 5 if quick else 7),
        "ranks": lambda: on_ranks(n, 3 if quick else 7),
        "assimilation": lambda: assimilation(10 if quick else 30),
        "heat": lambda: heat3d(quick),
    }
    for name in only or PARTS:
        with contextlib.nullcontext() if name == "ranks" else one_core():
            more_rows, more_ratios = parts[name]()
        rows += more_rows
        ratios |= more_ratios
    if importlib.util.find_spec("jax") is None:
        rows.append({"note": "JAX is not installed (extra bench): the ratios against it are left out"})
    return result("adjoint", rows, ratios)


def start(mesh: Mesh, n: int, seed: int = 0) -> tuple[Field, Field]:
    """A first state of n x n cells: smooth waves and noise."""
    dec = Decomposition((n, n), mesh.topology, 1)
    u, v = Field.zeros(mesh, dec), Field.zeros(mesh, dec)
    j, i = u.indices()
    wave = 2 * np.pi / n
    u.interior[...] = 0.5 * np.sin(wave * i + seed) * np.cos(2 * wave * j)
    v.interior[...] = 0.5 * np.cos(wave * i) * np.sin(wave * j + seed)
    return u, v


def traced(n: int) -> Result:
    """A traced step against the loop by hand."""
    with Mesh(MPI.COMM_SELF, y=1, x=1, periodic=("y", "x")) as mesh:
        u, v = start(mesh, n)
        new = u.like(), v.like()
        hand = [np.zeros((n + 2, n + 2)) for _ in range(4)]
        for own, field in zip(hand, (u, v), strict=False):
            own[1:-1, 1:-1] = field.interior

        def by_hand() -> None:
            fill_by_hand(hand[0])
            fill_by_hand(hand[1])
            step_by_hand(*hand)

        def ours() -> None:
            step(u, v, out=new)

        by_hand()
        ours()
        for own, field in zip(hand[2:], new, strict=True):
            np.testing.assert_allclose(own[1:-1, 1:-1], field.interior, rtol=0, atol=1e-14)
        times = interleave({"by hand": by_hand, "traced": ours}, 41)
        (made,) = step.program(step.graph(u, v)).stages[0].passes
        rows = [timed(f"step {n}^2", name, each) for name, each in times.items()]
        rows[-1] |= {"bytes_a_cell": made.sweep.count().nbytes, "bytes_unfused": made.sweep.unfused_bytes}
        return rows, {"traced_vs_hand": ratio(times["by hand"], times["traced"])}


def gradient(n: int, rounds: int) -> Result:
    """The gradient of many steps against the steps, and against JAX."""
    with Mesh(MPI.COMM_SELF, y=1, x=1, periodic=("y", "x")) as mesh:
        u, v = start(mesh, n)
        window = Window(step, STEPS, energy)
        candidates: dict[str, Callable[[], object]] = {
            "steps": lambda: window.value(u, v),
            "gradient": lambda: window.gradient(u, v),
        }
        jax = jax_on_one_core()
        if jax is not None:
            state = tuple(jax.numpy.array(field.interior) for field in (u, v))
            theirs = _jax_gradient(jax)
            _, slopes = window.gradient(u, v)
            for slope, other in zip(slopes, theirs(state), strict=True):
                wanted = np.asarray(other)
                np.testing.assert_allclose(slope.interior, wanted, rtol=0, atol=1e-12 * abs(wanted).max())

            def with_pause() -> None:
                jax.block_until_ready(theirs(state))

            candidates["JAX"] = with_pause
            candidates["pause"] = lambda: time.sleep(PAUSE)
        times = interleave(candidates, rounds)
        times.pop("pause", None)
        rows = [timed(f"{STEPS} steps {n}^2", name, each) for name, each in times.items()]
        ratios = {"gradient_forwards": ratio(times["gradient"], times["steps"])}
        if "JAX" in times:
            ratios["gradient_vs_jax"] = ratio(times["JAX"], times["gradient"])
        return rows, ratios


def ensemble(rounds: int) -> Result:
    """All members in one call against a call for each, and against `jax.vmap`."""
    with Mesh(MPI.COMM_SELF, y=1, x=1, periodic=("y", "x")) as mesh, Ensemble(mesh, MEMBERS) as members:
        starts = [start(mesh, SMALL, seed) for seed in range(MEMBERS)]
        news = [(u.like(), v.like()) for u, v in starts]
        together = [members.stack(each) for each in zip(*starts, strict=True)]
        new = [field.like() for field in together]

        def calls() -> None:
            now, then = starts, news
            for _ in range(IN_A_RUN):
                for state, out in zip(now, then, strict=True):
                    step(*state, out=out)
                now, then = then, now

        def in_lanes() -> None:
            now, then = together, new
            for _ in range(IN_A_RUN):
                step(*now, out=then)
                now, then = then, now

        for state, out in zip((*starts, together), (*news, new), strict=True):
            step(*state, out=out)
        candidates: dict[str, Callable[[], object]] = {"calls": calls, "ensemble": in_lanes}
        for m, out in enumerate(news):
            np.testing.assert_array_equal(members.member(new[0], m).interior, out[0].interior)
        jax = jax_on_one_core()
        if jax is not None:
            state = tuple(jax.numpy.array(np.moveaxis(field.interior, -1, 0)) for field in together)
            theirs = jax.jit(jax.vmap(jax_step))
            np.testing.assert_allclose(np.asarray(theirs(state)[0][3]), news[3][0].interior, rtol=0, atol=1e-14)

            def by_vmap() -> None:
                now = state
                for _ in range(IN_A_RUN):
                    now = theirs(now)
                jax.block_until_ready(now)

            candidates["jax.vmap"] = by_vmap
            candidates["pause"] = lambda: time.sleep(PAUSE)
        times = interleave(candidates, rounds)
        times.pop("pause", None)
        rows = [timed(f"{MEMBERS} members of {SMALL}^2", name, each, IN_A_RUN) for name, each in times.items()]
        ratios = {"ensemble32_vs_calls": ratio(times["calls"], times["ensemble"])}
        if "jax.vmap" in times:
            ratios["ensemble32_vs_vmap"] = ratio(times["jax.vmap"], times["ensemble"])
        return rows, ratios


def of_npbench(quick: bool, rounds: int) -> Result:
    """The gradients of NPBench's stencils, against JAX's of the same programs."""
    rows: Rows = []
    ratios: Ratios = {}
    jax = jax_on_one_core()
    for name, (shape, *_) in SIZES.items():
        axes: dict[str, Any] = dict.fromkeys("ijk"[: len(shape)], 1)
        with Mesh(MPI.COMM_SELF, **axes) as mesh:
            case = GradientCase(name, mesh, quick)
            candidates: dict[str, Callable[[], object]] = {"gradient": case.ours}
            found = case.ours()
            if jax is not None:
                theirs = case.theirs(jax)
                for ours, other in zip(found, theirs(), strict=True):
                    wanted = np.asarray(other)
                    np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-12 * max(abs(wanted).max(), 1e-300))
                candidates |= {"JAX": theirs, "pause": lambda: time.sleep(PAUSE)}
            times = interleave(candidates, rounds)
            times.pop("pause", None)
            size = "x".join(map(str, case.shape)) + (f", {case.steps} turns" if case.steps > 1 else "")
            rows += [timed(f"{name} {size}", who, each) for who, each in times.items()]
            if "JAX" in times:
                ratios[f"npbench_{name}"] = ratio(times["JAX"], times["gradient"])
    return rows, ratios


def on_ranks(n: int, rounds: int) -> Result:
    """What a second rank gives the gradient and the steps, and one message for all members against one for each."""
    (found,) = run_ranks("hpckit.bench.stencil.traced_ranks", RANKS, [(n, rounds)])
    times = found["times"]
    gain = {name: by_round(times[f"{name} alone"], times[name]) for name in ("steps", "gradient")}
    made = {name: found[name] for name in ("rounds_made", "rounds_disturbed")}
    rows = [timed(f"{RANKS} ranks", name, each, 1, **made) for name, each in times.items()]
    return rows, {
        "adjoint_2ranks_eff": spread(by_round(gain["gradient"], gain["steps"])),
        "ensemble_one_message": ratio(times["messages of each"], times["one message"]),
    }


def assimilation(iterations: int) -> Result:
    """The twin experiment of the preset: its time, and the share of the error that is left."""
    config = Config()
    with Mesh(MPI.COMM_SELF, y=1, x=1, periodic=("y", "x")) as mesh:
        twin = Twin(config, mesh)
        analysis = Variational(config, twin, None)
        begin = time.perf_counter()
        while analysis.number < iterations and analysis.step():
            pass
        seconds = time.perf_counter() - begin
        left = twin.off(analysis.state())["norm"] / twin.off(twin.background)["norm"]
    case = f"4D-Var, {config.observed} stations, {analysis.number} iterations"
    return [timed(case, "L-BFGS", [seconds])], {"assimilation_error": spread([left])}


def _jax_gradient(jax: Any) -> Callable:
    def cost(state: Any) -> Any:
        (u, v), _ = jax.lax.scan(lambda now, _: (jax_step(now), None), state, None, length=STEPS)
        return (u * u).sum() + (v * v).sum()

    return jax.jit(jax.grad(cost))
