"""How many operations the reference kernels do for a cell, counted on two grids so that edges drop out."""

from __future__ import annotations

import numpy as np
from counting import Counted, counted

from hpckit.kernels.euler.box import reference as box
from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.euler.slab import reference as slab
from hpckit.kernels.parts import WHOLE
from hpckit.kernels.shallow_water import reference as water
from hpckit.kernels.shallow_water.constants import Physics
from hpckit.kernels.stencil import reference as stencil

SWEEP, STATUS = Sweep(1.0, 1e-6, 0.05, 1), np.zeros(2, np.int32)
NONE = np.zeros((0, 0))
NO_FLUX = NO_SEAMS = np.zeros((0, 0, 0))


def per_cell(run, sizes, dims):
    """Operations a cell: the highest term of a polynomial through grids n**dims."""
    counts = [run(n) for n in sizes]
    return np.polyfit(sizes, counts, dims)[0]


def make(*shape):
    return np.ones(shape).view(Counted)


def count(*modules):
    def decorate(function):
        def run(n):
            with counted(*modules) as told:
                function(n)
                return told()

        return run

    return decorate


@count(slab)
def slab_x(n):
    state = make(4, n, n + 2 * HALO)
    slab.sweep_x(state, state, make(3, n), NONE, np.zeros((2, 0)), True, True, SWEEP, STATUS, WHOLE, NO_SEAMS)


@count(slab)
def slab_z(n):
    state = make(4, n, n + 2 * HALO)
    slab.sweep_z(state, state, make(4, n + 1), make(4), NONE, SWEEP, STATUS, (0, n))


def box_state(n):
    return make(5, n, n + 2 * HALO, n + 2 * HALO)


@count(slab, box)
def box_x(n):
    state = box_state(n)
    box.sweep_x(state, state, make(3, n), NO_FLUX, SWEEP, STATUS, (0, n), WHOLE, NO_SEAMS)


@count(slab, box)
def box_y(n):
    state = box_state(n)
    box.sweep_y(state, state, make(3, n), NO_FLUX, SWEEP, STATUS, (0, n), WHOLE)


@count(slab, box)
def box_z(n):
    state = box_state(n)
    box.sweep_z(state, state, make(5, n + 1), make(4), NO_FLUX, SWEEP, STATUS, (0, n))


@count(slab, box)
def box_turn(n):
    box.turn(box_state(n), make(3, n), make(2, n), 0.1)


@count(slab, box)
def box_diffuse(n):
    box.diffuse(box_state(n), make(3, n), make(4, n), (1.0, 1.0, 1.0), 0.1, box_state(n))


@count(water)
def water_step(n):
    fields = tuple(make(n + 6, n + 6) for _ in range(3))
    tables = make(n + 6, n + 6), make(5, n + 6), make(3, n + 6)
    water.step(fields, fields, *tables, Physics(9.8, 1.0, 1.0), 0.1, 1, WHOLE)


def heat(dims):
    @count(stencil)
    def run(n):
        shape, ends = (n,) * dims, ((0,) * dims, (n,) * dims)
        padded = tuple(m + 2 for m in shape)
        box_ = tuple(1 for _ in ends[0]), tuple(m + 1 for m in shape)
        stencil.diffuse(make(*padded), make(*padded), 1.0, (0.1,) * dims, box_)

    return run
