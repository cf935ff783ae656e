"""4D-Var of parameters: the map of Manning's n whose flood fits the gauges and the first guess best.

The cost in white noise c, for the logarithm of n first guess + L c, is J = c c / 2 + sum of ((depth - read) / error)^2
/ 2 over the readings. Its gradient comes from the flood's adjoint run: the start is known, n is sought.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.adjoint.lbfgs import Descent, add, dot
from hpckit.adjoint.windows.window import Window
from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.flood import WET, Valley, gauge_misfit
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored

VARIABLES = {
    "bottom": {"units": "m", "long_name": "ground of the valley"},
    "h_truth": {"units": "m", "long_name": "depth of the truth's flood"},
    "h_background": {"units": "m", "long_name": "depth of the first guess's flood"},
    "h_analysis": {"units": "m", "long_name": "depth of the analysis's flood"},
    "n_truth": {"units": "s m-1/3", "long_name": "Manning's n of the truth"},
    "n_analysis": {"units": "s m-1/3", "long_name": "Manning's n of the analysis"},
}
DRAWN = 3  # gauges whose depth in time the report shows


class Roughness:
    """4D-Var of a map of Manning's n by L-BFGS: `step` is one iteration, `state` the map."""

    variables = VARIABLES
    unit = "iterations"

    def __init__(self, config: Config, twin: Valley, restored: Restored | None) -> None:
        self.config, self.twin, self.last = config, twin, config.method.iterations
        self.window = Window(
            twin.step,
            config.window.steps,
            gauge_misfit,
            at=list(config.times),
            data=twin.seen,
            memory=config.method.memory * 2**20,
        )
        self.background = twin.roughness(twin.like)
        self.descent = Descent(self.gradient, [twin.like], restored)
        self.number = self.descent.number

    def step(self) -> bool:
        """Collective: one iteration; False where the cost does not fall any more."""
        went_on = self.descent.step()
        self.number = self.descent.number
        return went_on

    def state(self) -> Field:
        """Collective: Manning's n."""
        return self.twin.roughness(self.descent.here[0])

    def gradient(self, noise: Any) -> tuple[float, list[Field]]:
        """The cost and its slope in the white noise. Collective."""
        twin = self.twin
        n = twin.roughness(noise[0])
        cost, slopes = self.window.gradient(*twin.first(), twin.bottom, n)
        found = [twin.gathered(slopes[-1], n)]
        add(found, 1.0, noise)
        return cost + 0.5 * dot(noise, noise), found

    def metrics(self, first: dict[str, float]) -> dict[str, float]:
        """Cost, its part of the background, the norm of the gradient; the errors of n, and of the depth at the end,
        over those of the first guess. Collective.
        """
        it, n = self.descent, self.state()
        off, end = self.twin.off(n), self.twin.depth_off(self.twin.run(n))
        if not first:
            first |= {"first": off, "first_end": end}
        return {
            "cost": it.cost,
            "cost_background": 0.5 * dot(it.here, it.here),
            "gradient": it.size,
            "runs": it.evaluations,
            "error": off / first["first"],
            "error_end": end / first["first_end"],
            "error_n": off,
            "error_h": end,
        }

    def saved(self) -> tuple[list[Piece], dict[str, Any]]:
        """What a checkpoint keeps."""
        return self.descent.pieces(), {"descent": self.descent.values()}

    def frames(self) -> list[tuple[int, dict[str, Field]]]:
        """The fields of `VARIABLES` at the end of the window, with its step. Collective."""
        twin, n = self.twin, self.state()
        maps = {
            "bottom": twin.bottom,
            "h_truth": twin.end[0],
            "h_background": twin.run(self.background)[0],
            "h_analysis": twin.run(n)[0],
            "n_truth": twin.truth,
            "n_analysis": n,
        }
        return [(self.config.window.steps, maps)]

    def summary(self) -> dict[str, Any]:
        """For the report: cells (y, x) with gauges, and the depth (m) at some of them at the times of readings (s).
        Collective.
        """
        twin, nx = self.twin, self.config.grid.nx
        wet = twin.sites[twin.hydrographs(twin.truth, twin.sites).max(axis=0) > WET]
        wet = wet if len(wet) else twin.sites
        sites = wet[np.linspace(0, len(wet) - 1, min(DRAWN, len(wet))).round().astype(int)]
        maps = {"truth": twin.truth, "first guess": self.background, "analysis": self.state()}
        return {
            "gauges": [[int(site) // nx, int(site) % nx] for site in twin.sites],
            "hydrographs": {
                "time": [k * self.config.window.dt for k in self.config.times],
                "cells": [[int(site) // nx, int(site) % nx] for site in sites],
                **{name: twin.hydrographs(n, sites).T.tolist() for name, n in maps.items()},
            },
        }

    def close(self) -> None:
        """Nothing is to be freed."""
