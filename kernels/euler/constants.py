"""Constants of the slab model, as the miniWeather mini-app has them, and the names of what the kernels pass around."""

from __future__ import annotations

from typing import NamedTuple

GRAVITY = 9.8  # m s-2
CP = 1004.0  # J kg-1 K-1, dry air at constant pressure
CV = 717.0  # J kg-1 K-1, at constant volume
RD = 287.0  # J kg-1 K-1, gas constant of dry air
P0 = 1.0e5  # Pa, where theta is the temperature
GAMMA = 1.40027894002789400278940027894  # cp / cv
C0 = 27.5629410929725921310572974482  # p = C0 (rho theta)**GAMMA, so C0 = rd**GAMMA p0**(-rd / cv)

RHO, RHO_U, RHO_W, RHO_THETA = range(4)  # the fields of a state, in this order
HALO = 6  # cells in x: two for each of three stages (split dynamics have a HALO of their own)
REACH = 3  # cells of halo of tracers: two for the parabola of the cell before an owned one, and that cell

SERIES_RANGE = 0.125  # |e| up to which the pressure is a series in e = (rho theta)' / (rho theta) of the base
OUT_OF_RANGE = 1  # status: some pressure was taken from pow
NOT_FINITE = 2  # status: a field holds nan or inf

CLOSED = 3  # part of a sweep along x, beside those of `kernels.parts`: everything, of rows that are their own halo


class Sweep(NamedTuple):
    """The numbers of a sweep."""

    spacing: float  # of the cells along the sweep, m
    dt: float  # s
    beta: float  # strength of the hyperviscosity
    step: int  # the number of the time step, which the status keeps where a value is lost
