"""The variables, biases and coupling of the settings."""

from __future__ import annotations

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import soft_pairs
from hpckit.apps.md.start import Start
from hpckit.errors import InputError
from hpckit.md.external.biases import Bias, Biases, Metadynamics, Restraint
from hpckit.md.external.coupling import Coupling
from hpckit.md.external.grid import HillGrid
from hpckit.md.external.variables import Box, CollectiveVariable, named
from hpckit.md.units import UNITS

POINTS_IN_WIDTH = 5


def biases_of(config: Config, start: Start) -> Biases | None:
    """The collective variables and their biases; None without variables. Raises `InputError` for what does not fit."""
    if not config.variables:
        return None
    variables = [
        CollectiveVariable(
            one.name,
            one.kind,
            tuple(tuple(id_ - 1 for id_ in group) for group in one.groups),
            one.axis,
            one.origin,
            one.radius,
            one.powers,
        )
        for one in config.variables
    ]
    for one in variables:
        if max(one.ids) >= start.count:
            raise InputError(
                f"variable {one.name!r} names particle {max(one.ids) + 1}, but there are only {start.count}",
                do="give ids from 1 on",
            )
    box = Box(start.cell, np.array([axis in config.system.periodic for axis in "xyz"]))
    biases: list[Bias] = []
    for each in config.restraints:
        place = named(variables, each.variable)
        first = config.coupling.states[0] if each.coupled else 1.0
        what = each.to, each.over, each.after, each.side, variables[place].period(box), each.coupled, first
        biases.append(Restraint(place, each.strength, each.center, *what))
    if config.metadynamics.variables:
        biases.append(_metadynamics(config, variables, box))
    return Biases(variables, biases)


def _metadynamics(config: Config, variables: list[CollectiveVariable], box: Box) -> Metadynamics:
    given = config.metadynamics
    places = tuple(named(variables, name) for name in given.variables)
    periods = [variables[place].period(box) for place in places]
    lower, upper, points = list(given.lower), list(given.upper), list(given.points)
    if not (lower and upper):
        if not all(periods):
            raise InputError(
                f"metadynamics.lower and upper are missing for {', '.join(given.variables)}",
                do="give the ends of a grid that the variables do not leave",
            )
        lower, upper = [-0.5 * period for period in periods], [0.5 * period for period in periods]
    for d, period in enumerate(periods):
        if period:
            lower[d], upper[d] = -0.5 * period, 0.5 * period
    if not points:
        points = [
            int(np.ceil(POINTS_IN_WIDTH * (high - low) / width)) + 1
            for low, high, width in zip(lower, upper, given.widths, strict=True)
        ]
    grid = HillGrid(lower, upper, points, given.widths, [period > 0 for period in periods])
    thermal = UNITS[config.system.units].boltzmann * (config.target or 0.0)
    return Metadynamics(places, grid, given.height, given.every, thermal, given.factor, config.dynamics.equilibrate)


def coupling_of(config: Config, start: Start, biases: Biases | None) -> Coupling | None:
    """The coupling of the settings; None without states."""
    given = config.coupling
    if not given.states:
        return None
    pairs = soft_pairs(config, len(start.masses)) if given.types else None
    springs = [each for each in (biases.biases if biases is not None else ()) if isinstance(each, Restraint)]
    return Coupling(given.states, config.time.steps, pairs, springs)
