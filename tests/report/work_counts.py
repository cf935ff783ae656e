"""How many operations the reference kernels do for a cell, counted on two grids so that edges drop out."""

from __future__ import annotations

import numpy as np
from counting import Counted, counted

from hpckit.kernels.euler.box import reference as box
from hpckit.kernels.euler.slab import reference as slab
from hpckit.kernels.shallow_water import reference as water
from hpckit.kernels.stencil import reference as stencil

HALO = 6
NONE = np.zeros((0, 0))
NO_FLUX = np.zeros((0, 0, 0))


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
    slab.sweep_x(make(4, n, n + 2 * HALO), make(3, n), 1.0, 1e-6, 0.05, NONE, np.zeros((2, 0)), True, True)


@count(slab)
def slab_z(n):
    slab.sweep_z(make(4, n, n + 2 * HALO), make(4, n + 1), make(4), 1.0, 1e-6, 0.05, NONE)


def box_state(n):
    return make(5, n, n + 2 * HALO, n + 2 * HALO)


@count(slab, box)
def box_x(n):
    box.sweep_x(box_state(n), make(3, n), 1.0, 1e-6, 0.05, NO_FLUX)


@count(slab, box)
def box_y(n):
    box.sweep_y(box_state(n), make(3, n), 1.0, 1e-6, 0.05, NO_FLUX)


@count(slab, box)
def box_z(n):
    box.sweep_z(box_state(n), make(5, n + 1), make(4), 1.0, 1e-6, 0.05, NO_FLUX)


@count(slab, box)
def box_turn(n):
    box.turn(box_state(n), make(3, n), make(2, n), 0.1)


@count(slab, box)
def box_diffuse(n):
    box.diffuse(box_state(n), make(3, n), make(4, n), (1.0, 1.0, 1.0), 0.1, box_state(n))


@count(water)
def water_step(n):
    h, u, v = (make(n + 6, n + 6) for _ in range(3))
    water.step(h, u, v, make(n + 6, n + 6), make(5, n + 6), make(3, n + 6), 9.8, 1.0, 1.0, 0.1, 0.0, 0.0, 0.0)


def heat(dims):
    @count(stencil)
    def run(n):
        shape, ends = (n,) * dims, ((0,) * dims, (n,) * dims)
        padded = tuple(m + 2 for m in shape)
        box_ = tuple(1 for _ in ends[0]), tuple(m + 1 for m in shape)
        stencil.diffuse(make(*padded), make(*padded), 1.0, (0.1,) * dims, box_)

    return run
