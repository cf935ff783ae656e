"""Sweeps of graphs: the generated kernels against NumPy, their counts, and each rule of differentiation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels.compile.vectors import available
from hpckit.kernels.graph import nodes, reference, simd
from hpckit.kernels.graph.derivatives import PUSHED
from hpckit.kernels.graph.nodes import POINTWISE, TRUTH, constant, make, shift
from hpckit.kernels.graph.region import Block
from hpckit.kernels.graph.sweep import GraphSweep, without_slabs

SHAPES = {1: (11,), 2: (7, 11), 3: (5, 7, 11)}


def field(name):
    return make("field", value=(name, ()))


def unit(dims, dim, step):
    return tuple(step * (each == dim) for each in range(dims))


def laplacian(x, dims):
    """Sum of neighbors less 2 dims times the cell."""
    total = make("mul", constant(-2.0 * dims), x)
    for dim, step in itertools.product(range(dims), (-1, 1)):
        total = make("add", total, shift(x, unit(dims, dim, step)))
    return total


def targets(dims):
    """A value that is used at many offsets, a choice, a number, and a shift alone."""
    u, v, c = field("u"), field("v"), make("number", value="c", is_field=False)
    steep = laplacian(make("mul", u, v), dims)
    rough = make("sqrt", make("add", constant(1.0), make("mul", steep, steep)))
    rough = make("where", make("less", u, v), make("absolute", rough), make("maximum", u, v))
    return (
        make("add", laplacian(rough, dims), make("mul", c, u)),
        make(
            "div", make("sub", make("mul", u, v), make("mul", c, rough)), make("add", constant(3.0), make("mul", v, v))
        ),
        shift(v, unit(dims, dims - 1, 1)),
    )


def arrays(dims, count, seed, members=()):
    rng = np.random.default_rng(seed)
    shape = tuple(n + 4 for n in SHAPES[dims])
    return [rng.random((*shape, *members)) for _ in range(count)]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("members", [(), (3,)])
def test_the_exact_kernel_has_numpys_bits(dims, members):
    sweep = GraphSweep(targets(dims), dims, fused=False)
    assert sweep.stored
    assert sweep.count().operations < without_slabs(sweep).count(()).operations
    data, outs = arrays(dims, 2, 1, members), arrays(dims, 6, 2, members)
    box = (0,) * dims, SHAPES[dims]
    blocks = [Block(each, (2,) * dims) for each in (*outs, *data)]
    for form, mine in ((reference, blocks[:3]), (simd, blocks[3:6])):
        form.bind(sweep, mine, blocks[6:], box)([0.3])
    for out, other in zip(outs[:3], outs[3:], strict=True):
        inside = (slice(2, -2),) * dims
        assert np.array_equal(out[inside], other[inside])
        assert not np.array_equal(out, other)  # nothing beyond the box was written


@pytest.mark.parametrize("dims", by_day([1, 2], 2))
def test_a_number_that_members_have_of_their_own_gives_the_bits_of_each_alone(dims):
    sweep, own = GraphSweep(targets(dims), dims), np.array([0.3, -0.2, 0.7])
    assert sweep.stored
    data, outs = arrays(dims, 2, 1, (3,)), arrays(dims, 6, 2, (3,))
    box, place = ((0,) * dims, SHAPES[dims]), (2,) * dims
    blocks = [Block(each, place) for each in (*outs, *data)]
    for form, mine in ((reference, blocks[:3]), (simd, blocks[3:6])):
        form.bind(sweep, mine, blocks[6:], box, sweep.numbers)([own])
    for m, number in enumerate(own):
        alone = [np.ascontiguousarray(each[..., m]) for each in (*outs, *data)]
        before = [each.copy() for each in alone]
        blocks = [Block(each, place) for each in alone]
        for form, mine in ((reference, blocks[:3]), (simd, blocks[3:6])):
            for each in mine:
                each.part(box)[...] = 0.0
            form.bind(sweep, mine, blocks[6:], box)([number])
        for one, other in zip(alone, before, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("dims", [1, 2])
def test_a_value_that_is_kept_may_be_a_target_that_another_reads_before(dims):
    kept = make("sqrt", field("u"))  # which has NumPy's bits on all hosts; its exp has others on AVX-512
    wanted = make("add", laplacian(kept, dims), kept), kept
    sweep = GraphSweep(wanted, dims, fused=False)
    assert sweep.kept == (kept,)
    data, outs = arrays(dims, 1, 1), arrays(dims, 4, 2)
    blocks = [Block(each, (2,) * dims) for each in (*outs, *data)]
    for form, mine in ((reference, blocks[:2]), (simd, blocks[2:4])):
        form.bind(sweep, mine, blocks[4:], ((0,) * dims, SHAPES[dims]))([])
    inside = (slice(2, -2),) * dims
    for one, other in zip(outs[:2], outs[2:], strict=True):
        np.testing.assert_allclose(one[inside], other[inside], rtol=1e-15)


def test_a_cell_has_the_same_bits_in_any_box():
    """Fused, too: a grid cut into boxes is the grid computed whole."""
    sweep = GraphSweep(targets(2), 2)
    data, (whole, parts, exact) = arrays(2, 2, 3), arrays(2, 3, 4)
    others = arrays(2, 2, 5)
    blocks = [Block(each, (2, 2)) for each in data]

    def outs(first):
        return [Block(each, (2, 2)) for each in (first, *others)]

    simd.bind(sweep, outs(whole), blocks, ((0, 0), (7, 11)))([0.3])
    for box in (((0, 0), (3, 4)), ((0, 4), (3, 11)), ((3, 0), (7, 11))):
        simd.bind(sweep, outs(parts), blocks, box)([0.3])
    reference.bind(sweep, outs(exact), blocks, ((0, 0), (7, 11)))([0.3])
    inside = (slice(2, -2), slice(2, -2))
    assert np.array_equal(whole[inside], parts[inside])
    np.testing.assert_allclose(whole[inside], exact[inside], rtol=1e-13, atol=1e-13)


def test_strips_and_results_past_the_cache_change_no_bits(monkeypatch):
    """Odd rows, two targets, a kept value, a choice and a number, in arrays that begin anywhere in a line."""
    u, v, c = field("u"), field("v"), make("number", value="c", is_field=False)
    kept = make("exp", laplacian(make("mul", u, v), 3))
    first = make("add", make("mul", c, laplacian(kept, 3)), make("div", v, make("add", constant(2.0), v)))
    chosen = make("where", make("less", c, v), make("neg", v), constant(0.5))  # u is read for the kept value alone
    wanted, shape = (first, make("sub", chosen, shift(v, (1, 0, 0)))), (3, 13, 37)
    rng = np.random.default_rng(0)
    data = [rng.random((7, 17, 41)) for _ in range(2)]
    box = (0, 0, 0), shape

    def swept(offset):
        sweep = GraphSweep(wanted, 3)
        assert sweep.kept == (kept,)
        outs = [np.zeros(7 * 17 * 41 + 8)[offset : offset + 7 * 17 * 41].reshape(7, 17, 41) for _ in wanted]
        simd.bind(sweep, [Block(each, (2, 2, 2)) for each in outs], [Block(each, (2, 2, 2)) for each in data], box)(
            [0.3]
        )
        return outs, simd.options(sweep, shape)

    plain, options = swept(0)
    assert (options.rows, options.streams) == (13, False)
    for name, value in (("WHOLE", 0), ("STRIP", 5 * 8 * 37 * 8), ("STREAMED", 0), ("LONG", 1)):
        monkeypatch.setattr(simd, name, value)
    for offset in (0, 3):
        found, options = swept(offset)
        assert options.rows == 8
        assert options.streams == (available()[0] != "scalar")
        for one, other in zip(plain, found, strict=True):
            np.testing.assert_array_equal(one, other)
    sweep = GraphSweep(wanted, 3)  # three members, each with a number of its own
    outs = [Block(np.zeros((7, 17, 41, 3)), (2, 2, 2)) for _ in wanted]
    ins = [Block(np.stack([each] * 3, -1), (2, 2, 2)) for each in data]
    simd.bind(sweep, outs, ins, box, sweep.numbers)([np.array([-0.7, 0.3, 0.9])])
    for one, other in zip(plain, outs, strict=True):
        np.testing.assert_array_equal(one, other.array[..., 1])
        assert not np.array_equal(one, other.array[..., 2])


@pytest.mark.parametrize("dims", by_day([1, 2, 3], 2))
def test_explicit_vectors_and_parts_of_rows_change_no_bits(monkeypatch, dims):
    """All operations that vectors have, on rows of fewer values than a vector, and of a few more: nan, zeros of both
    signs, members with numbers of their own.
    """
    u, v, c = field("u"), field("v"), make("number", value="c", is_field=False)
    steep = make("maximum", make("absolute", laplacian(u, dims)), make("minimum", v, c))
    odd = make("logical_or", make("equal", u, v), make("logical_not", make("less_equal", u, constant(0.2))))
    even = make("logical_and", make("not_equal", v, constant(0.0)), make("less", v, c))
    wanted = (
        make("where", make("logical_and", odd, even), make("sqrt", steep), make("neg", make("mul", c, steep))),
        make("where", even, make("div", constant(1.0), v), constant(-0.0)),
    )
    rng, place = np.random.default_rng(0), (1,) * dims

    def swept(data, box, numbers):
        sweep, outs = GraphSweep(wanted, dims), [np.zeros(data[0].shape) for _ in wanted]
        blocks = [[Block(each, place) for each in some] for some in (outs, data)]
        simd.bind(sweep, *blocks, box, sweep.numbers)([numbers])
        return outs, simd.options(sweep, box[1], 3)

    for cells in (2, 13, 40):
        shape = (*(4, 5)[: dims - 1], cells)
        box = (0,) * dims, shape
        data = [rng.integers(-2, 3, (*(n + 2 for n in shape), 3)) / 4 for _ in range(2)]
        data[0][data[0] == 0] = -0.0
        data[0].flat[5::11] = np.nan
        with monkeypatch.context() as plainly:
            plainly.setattr(simd, "available", lambda: ("scalar",))
            plain, options = swept(data, box, numbers := np.array([-0.7, 0.3, 0.1]))
        assert options.form == "cells"
        for uncut, part in ((1 << 30, 1), (0, 1), (0, 1 << 11)):
            monkeypatch.setattr(simd, "UNCUT", uncut)
            monkeypatch.setattr(simd, "PART", part)
            found, options = swept(data, box, numbers)
            cut = not uncut and dims > 1 and cells > 16
            wide = available()[0] != "scalar" and 3 * cells >= 8
            assert options.form == ("parts" if wide and cut else "vectors" if wide else "cells")
            for one, other in zip(plain, found, strict=True):
                np.testing.assert_array_equal(one.view(np.int64), other.view(np.int64))


def test_a_slab_is_cheaper_where_it_is_kept_and_not_kept_where_it_is_dearer():
    u = field("u")
    assert not GraphSweep([laplacian(u, 2)], 2).kept
    dear = make("exp", laplacian(u, 2))
    sweep = GraphSweep([laplacian(dear, 2)], 2)
    assert sweep.kept == (dear,)
    (stored,) = sweep.stored
    assert (stored.reach, stored.lead, stored.depth) == (((-1, 1), (-1, 1)), 1, 3)
    assert sweep.reach[u] == ((-2, 2), (-2, 2))
    # exp and the Laplacian of u once, that of exp once: 1 + 5 and 5; five loads each.
    assert (sweep.count().operations, sweep.count().loads, sweep.count().stores) == (11, 10, 2)


def test_equal_nodes_are_one():
    u = field("u")
    assert make("add", u, constant(1.0)) is make("add", field("u"), constant(1.0))
    assert constant(0.0) is not constant(-0.0)
    assert shift(shift(u, (1, 0)), (-1, 0)) is u
    assert nodes.operations([laplacian(u, 2), laplacian(u, 2)]) == 5


@pytest.mark.parametrize("op", sorted(POINTWISE - TRUTH))
def test_rules_are_slopes(op):
    """Each rule against a central difference, for each argument."""
    count = {"where": 3, **dict.fromkeys(("add", "sub", "mul", "div", "minimum", "maximum", "power"), 2)}.get(op, 1)
    values = [0.7, 1.3, 0.4][:count]
    args = [make("number", value=name, is_field=False) for name in "abc"[:count]]
    if op == "power":
        args[1] = constant(values[1])
    if op == "where":
        args[0] = make("less", args[1], args[2])
    node = make(op, *args)

    def value(of, given):
        known = dict(zip("abc", given, strict=False))
        if of.op in ("number", "constant"):
            return known[of.value] if of.op == "number" else of.value
        return float(reference.number(of, [value(arg, given) for arg in of.args]))

    h = 1e-6
    for k in range(1 if op == "where" else 0, 1 if op == "power" else count):
        up, down = ([v + s * h * (i == k) for i, v in enumerate(values)] for s in (1, -1))
        slope = (value(node, up) - value(node, down)) / (2 * h)
        assert value(PUSHED[op](node, constant(1.5), k), values) == pytest.approx(1.5 * slope, rel=1e-8, abs=1e-9)
