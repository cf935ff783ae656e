"""Traced steps: their derivatives on ranks, their bits, and what cannot be traced."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import shutil
import tracemalloc
import weakref
import xml.etree.ElementTree

import numpy as np
import pytest
from conftest import by_day

import hpckit as hp
from hpckit.adjoint.derived import vjp_graph
from hpckit.adjoint.program.between import window_of
from hpckit.adjoint.program.script import Script
from hpckit.adjoint.program.stages import ProgramPrice, SweepProgram
from hpckit.adjoint.trace import Axes
from hpckit.adjoint.windows.schedule import forward_steps
from hpckit.comm.observe.observer import Listener, Observer
from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.graph import order, simd, tape
from hpckit.kernels.graph.tape import Tape
from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.topology import Topology

A = hp.adjoint


def said(mpirun, ranks, *more):
    return mpirun(ranks, "adjoints.py", *more).stdout.split()


@pytest.mark.parametrize("what", [("windows",), pytest.param((), marks=pytest.mark.nightly)], ids=["windows", "all"])
def test_derivatives_have_the_same_bits_on_any_number_of_ranks(mpirun, tmp_path, what):
    """A gradient that one rank leaves in the middle is finished by three; at night networks, ensembles, thin blocks."""
    alone = said(mpirun, 1, tmp_path, *what)
    assert alone
    assert said(mpirun, 3, tmp_path, *what) == alone


@pytest.mark.nightly
def test_derivatives_have_the_same_bits_on_many_ranks(mpirun, tmp_path):
    """With walls in one dim, in none and in both; blocks thinner than what is read."""
    alone = said(mpirun, 1, tmp_path / "1", "all")
    assert len(set(alone)) == 8
    for ranks in (2, 4, 6):
        shutil.copytree(tmp_path / "1", tmp_path / f"{ranks}")
        assert said(mpirun, ranks, tmp_path / f"{ranks}", "all") == alone


@pytest.mark.nightly
def test_gradients_of_200_steps_have_the_same_bits_on_any_number_of_ranks(mpirun, tmp_path):
    """And for any number of states kept."""
    alone = said(mpirun, 1, tmp_path, "long")
    for ranks in (2, 3, 4, 6):
        assert said(mpirun, ranks, tmp_path, "long") == alone


@pytest.fixture
def mesh():
    """With an observer of its own: a test before it in this process may have left a listener at the world's."""
    with hp.Mesh(hp.world(), Observer(), y=1, x=1, periodic="x") as mesh:
        yield mesh


def field(mesh, shape=(5, 7), seed=0, halo=1):
    made = hp.Field.zeros(mesh, hp.Decomposition(shape, mesh.topology, halo))
    made.interior[...] = np.random.default_rng(seed).random(shape)
    return made


def live():
    """The arrays that are allocated, their bytes, and the objects of this library by their types."""
    gc.collect()
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
    kinds = collections.Counter(str(type(each)) for each in gc.get_objects() if "hpckit" in str(type(each)))
    return len(traces), sum(each.size for each in traces), kinds


@pytest.mark.nightly
def test_gradients_leave_no_memory_behind(mesh):
    """After ten more as many arrays, bytes and objects are alive as after three: one that is kept each time is seen."""
    walls = {"y": hp.bc.zero_gradient}
    step, total = A.model(heat, walls=walls), A.model(lambda T: (T * T).sum(), walls=walls)
    window = A.Window(step, 5, total, memory=0.0)
    T, one = field(mesh), field(mesh, seed=1)

    def evaluate():
        A.gradient(total)(T)
        window.gradient(T, 0.1)
        A.vjp(step, T, 0.1)[1](one)
        A.jvp(step, (T, 0.1), (one, None))

    tracemalloc.start()
    try:
        for _ in range(3):
            evaluate()
        before = live()
        for _ in range(10):
            evaluate()
        assert live() == before
    finally:
        tracemalloc.stop()


def test_a_graph_is_drawn_with_its_exchanges_and_counts(mesh):
    graph = A.model(heat, walls={"y": hp.bc.zero_gradient}).graph(field(mesh), 0.1)
    text, picture = hp.draw(graph), hp.plan.draw_svg(graph)
    assert "one exchange of T (1, 1)" in text
    assert "7 operations, 5 loads, 1 stores, 24 bytes a cell" in text
    root = xml.etree.ElementTree.fromstring(picture)
    words = [each.text for each in root.iter() if each.tag.endswith("}text")]
    assert words.count("+") + words.count("*") + words.count("-") == 7
    assert {"T", "k", "exchange (1, 1)", "result", "+1, 0", "0, -1"} <= set(words)
    assert len([each for each in root.iter() if each.tag.endswith("}rect")]) == 1 + 7 + 3  # paper, operations, leaves


def heat(T, k):
    change = T[+1, 0] + T[-1, 0] + T.shift(x=+1) + T.shift(x=-1) - 4 * T
    return T + k * change


def test_a_step_is_its_numpy_meaning_with_walls_and_periodic_ends(mesh):
    step = A.model(heat, walls={"y": hp.bc.zero_gradient}, exact=True)
    T = field(mesh, halo=0)
    wide = np.pad(np.pad(T.interior, ((0, 0), (1, 1)), "wrap"), ((1, 1), (0, 0)), "edge")
    inner = wide[1:-1, 1:-1]
    expected = inner + 0.1 * (wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * inner)
    assert np.array_equal(step(T, 0.1).interior, expected)
    text = step.describe(T, 0.1)
    assert "one exchange of T (1, 1)" in text
    assert "7 operations, 5 loads, 1 stores, 24 bytes a cell" in text
    narrow = A.model(heat, walls={"y": hp.bc.zero_gradient})(T, 0.1)
    np.testing.assert_allclose(narrow.interior, expected, rtol=1e-14)


@pytest.mark.parametrize("turns", by_day([2, 3], 2))
def test_steps_that_are_repeated_have_the_bits_of_single_steps(mesh, turns):
    """In one pass where all dims are periodic, in two between walls; gradients, too."""
    walls = {"y": hp.bc.mirror}
    step = A.model(lambda u, v, k: (heat(u, k) - 0.1 * u * v, heat(v, 0.5 * k)), walls=walls)
    many = step.repeated(turns)
    total = A.model(lambda u, v: (u * u + v).sum())
    for axes, stages in (("x", turns), (("y", "x"), 1)):
        with hp.Mesh(hp.world(), Observer(), y=1, x=1, periodic=axes) as there:
            u, v = field(there, (9, 11)), field(there, (9, 11), 1)
            now = u, v
            for _ in range(turns):
                now = step(*now, 0.1)
            for one, other in zip(many(u, v, 0.1), now, strict=True):
                assert np.array_equal(one.interior, other.interior)
            assert len(many.program(many.graph(u, v, 0.1)).stages) == stages
            (first, slopes), (second, others) = (
                A.Window(model, 6 // each, total).gradient(u, v, 0.1) for model, each in ((step, 1), (many, turns))
            )
            assert first == second
            for one, other in zip(slopes[:2], others[:2], strict=True):
                np.testing.assert_allclose(one.interior, other.interior, rtol=1e-13, atol=1e-15)
            assert slopes[2] == pytest.approx(others[2], rel=1e-12)
    with pytest.raises(InputError, match="next state"):
        A.model(lambda k, T: T * k).repeated(2)(0.1, field(mesh))


@pytest.mark.nightly  # by day two steps are one pass in the program that runs on ranks
@pytest.mark.parametrize(
    ("shape", "fills"),
    [
        ((19, 13), {"y": (hp.bc.antisymmetric, 0.7), "x": (hp.bc.mirror, hp.bc.zero_gradient)}),
        ((13, 9, 7), {"z": (hp.bc.mirror, 0.7), "y": hp.bc.zero_gradient, "x": (hp.bc.antisymmetric, -0.3)}),
        ((23, 17), {"y": (hp.bc.zero_gradient, hp.bc.mirror)}),
    ],
)
def test_two_steps_between_walls_are_one_pass_with_their_bits(shape, fills, monkeypatch):
    """Two fields, neighbors of neighbors, corners; windows of a few slabs and of all; then a window of time."""
    names = ("z", "y", "x")[-len(shape) :]
    up, over = (1,) + (0,) * (len(shape) - 1), (0,) * (len(shape) - 1) + (1,)
    walls = {"T": fills, "S": {**fills, names[0]: hp.bc.mirror} if names[0] in fills else fills}
    walls["k"] = dict.fromkeys(fills, hp.bc.zero_gradient)

    @A.model(walls=walls)
    def step(T, S, k):
        both = (1,) * len(shape)
        back = tuple(-2 * a for a in up)
        return T + 0.1 * k * (T[both] + T[back] + S[over] - 3 * T), S * 0.9 + 0.1 * T[up] * S[tuple(-a for a in both)]

    periodic = tuple(name for name in names if name not in fills)
    level = Level("network", 0, 0.0, 1e10)
    with hp.Mesh(hp.world(), Observer(), periodic=periodic, **dict.fromkeys(names, 1)) as there:
        start = [field(there, shape, seed, halo=5) for seed in range(3)]
        expected = tuple(start[:2])
        for _ in range(3):
            expected = step(*expected, start[2])
        for window in (1 << 10, 1 << 20):
            monkeypatch.setattr("hpckit.adjoint.program.between.WINDOW", window)
            monkeypatch.setattr("hpckit.adjoint.program.between.STRIPS", window)
            many = step.repeated(3, Machine("slow memory", (level,), 0.0, 1.0))
            assert ("in one pass with the stage before" in many.describe(*start)) == (window > 1 << 10)
            for one, other in zip(many(*start), expected, strict=True):
                assert np.array_equal(one.interior, other.interior)
        monkeypatch.setattr(SweepProgram, "price", lambda program, *_: ProgramPrice(0.0, -len(program.joined)))
        windows = []
        monkeypatch.setattr(
            "hpckit.adjoint.program.joined.window_of",
            lambda *args: windows.append(window_of(*args)) or windows[-1],
        )
        ten_rows = 22 * 16 * (10 if len(shape) == 2 else 90)
        for window, strips in ((1, 1), (3000, 1), (1, ten_rows)):  # of as few slabs as can be, of some, in strips
            monkeypatch.setattr("hpckit.adjoint.program.between.WINDOW", window)
            monkeypatch.setattr("hpckit.adjoint.program.between.STRIPS", strips)
            many = step.repeated(3)
            assert many.graph(*start).joins
            for one, other in zip(many(*start), expected, strict=True):
                assert np.array_equal(one.interior, other.interior)
            assert (windows[-1].rows < shape[1]) == (strips > 1)
        total = A.model(lambda T, S: (T * S).sum())
        alone = A.Window(step, 6, total).gradient(*start)
        found = A.Window(many, 2, total).gradient(*start)
        assert alone[0] == found[0]
        for one, other in zip(alone[1], found[1], strict=True):
            np.testing.assert_allclose(one.interior, other.interior, rtol=1e-12, atol=1e-14)
        A.Window(many, 2, total).require_finite(*start)
        thin = [field(there, shape, seed, halo=1) for seed in range(3)]
        assert "need a halo of" in many.describe(*thin)


def test_on_one_rank_a_loop_is_one_call_with_the_bits_of_its_parts(mesh, monkeypatch):
    """Whatever fills the walls; someone who listens hears each exchange, and the parts run one by one."""
    plays = []
    play = Tape.play
    monkeypatch.setattr(
        Tape, "play", lambda tape, where, numbers: plays.append(len(where)) or play(tape, where, numbers)
    )
    fills = {"T": {"y": (hp.bc.mirror, hp.bc.antisymmetric)}, "S": {"y": (hp.bc.zero_gradient, hp.bc.fixed(0.5))}}

    @A.model(walls=fills)
    def step(T, S, k):
        flux = (k * (T[+1, 0] - T) + S[0, -1]).hold({"y": (hp.bc.antisymmetric, 1.5)})
        return T + 0.1 * (flux - flux[-1, 0]), S + 0.1 * (S[+2, 0] - 2 * S + S[-1, +1])

    total = A.model(lambda T, S: (T * T + S * T).sum())
    state = [field(mesh, seed=seed, halo=halo) for seed, halo in ((0, 1), (1, 0), (2, 2))]
    # Forward, backward (the first step fills the parameter's halo for all), and forward again.
    for memory, calls in ((1e9, [7, 6, 7]), (0.0, [7, 7])):
        window = A.Window(step, 7, total, memory=memory)
        plays.clear()
        quiet = window.gradient(*state), window.final(*state)
        assert [turns for turns in plays if turns > 5] == calls
        listener = Listener()
        mesh.observer.listen(listener)
        heard = window.gradient(*state), window.final(*state)
        mesh.observer.forget(listener)
        assert quiet[0][0] == heard[0][0]
        for one, other in zip((*quiet[0][1], *quiet[1]), (*heard[0][1], *heard[1]), strict=True):
            assert np.array_equal(one.interior, other.interior)
    with pytest.raises(InputError, match="one of its arguments"):
        step(*state, out=(state[0], state[1].like()))


@pytest.mark.parametrize(
    ("shape", "few", "fills"),
    [
        ((61, 13), 56_000, {"y": (hp.bc.antisymmetric, 0.7), "x": (hp.bc.mirror, hp.bc.zero_gradient)}),
        ((61, 5, 4), 165_000, {"z": (hp.bc.zero_gradient, hp.bc.mirror), "y": 0.0, "x": (hp.bc.antisymmetric, -0.3)}),
    ],
)
def test_turns_that_go_over_slabs_together_have_the_bits_of_one_after_the_other(shape, few, fills, monkeypatch):
    """There and back, values in centers and on faces, whatever fills the walls; with streaming stores, too."""
    names = ("z", "y", "x")[-len(shape) :]
    up, over = (1,) + (0,) * (len(shape) - 1), (0,) * (len(shape) - 1) + (1,)
    back = tuple(-each for each in up)

    @A.model(walls={"T": fills, "S": {**fills, names[0]: hp.bc.mirror}, "u": fills, "k": dict.fromkeys(fills, 0.5)})
    def step(T, S, u, k):
        flux = (k * (T[up] - T) + 0.3 * S[over]).hold({**fills, names[0]: (hp.bc.antisymmetric, 1.5)})
        new_u = u + 0.2 * (S - S[back])
        T = T + 0.1 * (flux - flux[back]) + 0.01 * S[up] * T[back] * T
        return T, S + 0.1 * (T[up] - 2 * S + S[back]), new_u

    total = A.model(lambda T, S, u: (T * T + S * S[over]).sum() + (u * u).sum(), walls={"T": fills, "S": fills})
    together = []
    by_slabs = tape._play_by_slabs
    monkeypatch.setattr(tape, "_play_by_slabs", lambda *args: together.append(len(args[3])) or by_slabs(*args))
    with hp.Mesh(hp.world(), Observer(), **dict.fromkeys(names, 1)) as there:
        at = ("face", *("center",) * (len(shape) - 1))
        dec = hp.Decomposition(shape, there.topology, 1)
        u = hp.Field.zeros(there, dec.at(at))
        u.interior[...] = np.random.default_rng(9).random(u.interior.shape)
        start = [field(there, shape), field(there, shape, 1), u, field(there, shape, 2)]
        found = []
        for near, streamed in ((1 << 40, 1 << 30), (few, 1 << 30), (3 * few // 4, 0)):
            monkeypatch.setattr(order, "NEAR", near)
            monkeypatch.setattr(order, "FAR", near)
            monkeypatch.setattr(simd, "STREAMED", streamed)
            together.clear()
            for memory in (1e9, 0.0):
                window = A.Window(A.model(step.function, walls=step._walls), 6, total, memory=memory)
                found.append((window.gradient(*start), window.final(*start)))
            assert (max(together, default=0) > 1) == (near < 1 << 40)
        for (value, slopes), final in found[1:]:
            assert value == found[0][0][0]
            for one, other in zip((*found[0][0][1], *found[0][1]), (*slopes, *final), strict=True):
                assert np.array_equal(one.interior, other.interior)


def test_a_call_with_the_same_fields_computes_anew_and_checks_what_has_changed(mesh):
    """A call is known by its fields, not by what is in them; nothing that it knows keeps a field."""

    @A.model(walls={"y": 0.0})
    def pair(u, v):
        return u + v[0, 1], v - u

    u, v, w = field(mesh), field(mesh, seed=1), field(mesh, seed=2)
    out = u.like(), v.like()
    for _ in range(3):
        assert pair(u, v, out=out) == out
        wanted = u.interior + np.roll(v.interior, -1, 1), v.interior - u.interior
        for found, each in zip(out, wanted, strict=True):
            np.testing.assert_array_equal(found.interior, each)
        u.interior[...] += 1.0
    with pytest.raises(InputError):
        pair(u, v, out[0], out=out[1])  # the same fields, one of them in another place
    pair(v, u, out=[*out])
    np.testing.assert_array_equal(out[1].interior, u.interior - v.interior)
    (alone,) = A.model(lambda T: (T + 1.0,))(w, out=[out[0]])
    assert alone is out[0]
    u.data = u.data.astype(np.float32)
    with pytest.raises(InputError):
        pair(u, v, out=out)
    gone = weakref.ref(v)
    del v
    gc.collect()
    assert gone() is None


def test_a_halo_may_be_wider_than_the_grid(mesh):
    """Around a ring more than once; beyond a wall as far as it mirrors what there is."""
    for shape in ((5, 7), (5, 8)):
        T = field(mesh, shape)
        far = A.model(lambda T: T[0, +8] * T[0, -4])
        assert np.array_equal(far(T).interior, np.roll(T.interior, -8, 1) * np.roll(T.interior, 4, 1))
        (slope,) = A.vjp(far, T)[1](T)
        expected = [np.roll(T.interior * np.roll(T.interior, a, 1), b, 1) for a, b in ((4, 8), (-8, -4))]
        np.testing.assert_allclose(slope.interior, sum(expected), rtol=1e-14)
    assert slope.decomposition.halo == T.decomposition.halo
    walls = {"y": hp.bc.mirror}
    for reach, fits in ((5, True), (6, False)):
        up = A.model(lambda T, reach=reach: T[reach, 0], walls=walls)
        if fits:
            assert np.array_equal(up(T).interior, T.interior[::-1])
            np.testing.assert_array_equal(A.vjp(up, T)[1](T)[0].interior, T.interior[::-1])
            continue
        with pytest.raises(InputError, match="up to 6 points beyond a wall of axis y that mirrors the 5") as found:
            up(T)
        assert "T[+1, 0].hold()" in found.value.do


def test_the_prices_of_a_machine_say_how_many_steps_become_one_pass(mesh):
    """Where messages start slowly a wide halo is quicker, where operations weigh more than the memory it is not."""
    step = A.model(heat)
    level = {"name": "network", "ranks": 0, "bandwidth": 1e10}
    slow = Machine("slow start", (Level(latency=1e-3, **level),), 0.0, 1e12)
    quick = Machine("quick start", (Level(latency=1e-9, **level),), 0.0, 1e12)
    made = step.repeated(4, slow), step.repeated(4, quick)
    of_four = Topology(("y", "x"), (2, 2), ("y", "x"))
    axes, kinds = Axes(("y", "x"), (False, False)), (("field", (False, False)), ("number", None))
    for shape, stages in (((64, 64), (1, 4)), ((6, 64), (2, 4))):  # blocks of 3 rows hold no halo of 4
        dec = hp.Decomposition(shape, of_four)
        for model, many in zip(made, stages, strict=True):
            graph, _ = model._trace(axes, kinds, {}, dec)
            assert len(model.program(graph).stages) == many
    with hp.Mesh(hp.world(), Observer(), y=1, x=1, periodic=("y", "x")) as there:
        T = field(there, (13, 11))
        apart, joined = (step.repeated(2, Machine("", (Level(latency=0.0, **level),), 0.0, rate)) for rate in (1e15, 1))
        assert np.array_equal(apart(T, 0.1).interior, joined(T, 0.1).interior)
        assert "exchange of T (1, 1)" in apart.describe(T, 0.1)
        assert "exchange of T (2, 2)" in joined.describe(T, 0.1)
    with pytest.raises(InputError, match="no machine"):
        step.repeated(2, "none such")


def test_the_gradient_of_a_linear_step_is_its_transposed_matrix(mesh):
    """With walls: the whole Jacobian, column by column, against the sensitivities, row by row."""
    walls = {"y": (hp.bc.antisymmetric, hp.bc.mirror)}
    step = A.model(lambda T: (T[2, 1] - 2.0 * T[-1, 0] + T * T[0, -1]).hold(walls)[1, 0] * 0.5, walls=walls)
    T = field(mesh, (4, 3))
    unit, columns, rows = field(mesh, (4, 3)), [], []
    _, pull = A.vjp(step, T)
    for place in np.ndindex(4, 3):
        unit.interior[...] = 0
        unit.interior[place] = 1
        columns.append(A.jvp(step, (T,), (unit,))[1].interior.ravel().copy())
        rows.append(pull(unit)[0].interior.ravel().copy())
    np.testing.assert_allclose(np.array(columns).T, np.array(rows), rtol=1e-14, atol=1e-15)
    assert abs(np.array(rows)).max() > 0.5


def test_an_adjoint_computes_nothing_beyond_walls_at_numbers(mesh):
    """What it needs equally far is one pass then, but for two that share a product, which one pass rounds elsewhere."""

    def swept(a):
        return 0.2 * (a + a[0, -1] + a[0, 1] + a[1, 0] + a[-1, 0])

    with hp.Mesh(hp.world(), Observer(), y=1, x=1) as walled:
        args = [field(walled, (4, 3), seed) for seed in range(3)]
        for high, passes, deep in ((0.3, 1, 0), (hp.bc.mirror, 2, 1)):
            walls = {"y": (0.0, 0.7), "x": (0.0, high)}

            @A.model(walls=walls)
            def step(a, b, inside, walls=walls):
                b = A.where(inside > 0.5, swept(a), b).hold(walls)
                return A.where(inside > 0.5, swept(b), a), b

            graph = vjp_graph(step.graph(*args), wanted=2)
            stages = step.program(graph).stages
            assert [len(stage.passes) for stage in stages[:2]] == [1, passes]
            assert {each.depth for each in stages[0].passes} == {(0, deep)}
            _, pull = A.vjp(step, *args)
            changes = [*(field(walled, (4, 3), seed) for seed in (7, 8)), None]
            seeds = [field(walled, (4, 3), seed) for seed in (5, 6)]
            _, moved = A.jvp(step, args, changes)
            forth, back = (
                sum((a.interior * b.interior).sum() for a, b in zip(one, other, strict=False))
                for one, other in ((seeds, moved), (changes[:2], pull(*seeds)))
            )
            assert forth == pytest.approx(back, rel=1e-13)

        @A.model(walls={"y": 0.0, "x": 0.0})
        def curl(u, v, w):
            u, v = u.hold({"y": 0.0, "x": 0.0}), v.hold({"y": 0.0, "x": 0.0})
            return w - 0.7 * (u[0, 1] - u + v[1, 0] - v)

        graph = vjp_graph(curl.graph(*args))
        assert [len(stage.passes) for stage in curl.program(graph).stages[:1]] == [2]


def columns_and_rows(step, args):
    """The Jacobian of a step of one result by columns (changes) and by rows (sensitivities), flat."""
    result, pull = A.vjp(step, *args)
    columns, rows = [], []
    units = [arg.like() for arg in args]
    for each in units:
        for place in np.ndindex(each.interior.shape):
            each.interior[place] = 1.0
            columns.append(A.jvp(step, args, units)[1].interior.ravel().copy())
            each.interior[place] = 0.0
    seed = result.like()
    for place in np.ndindex(seed.interior.shape):
        seed.interior[...] = 0
        seed.interior[place] = 1.0
        rows.append(np.concatenate([each.interior.ravel() for each in pull(seed)]))
    return np.array(columns).T, np.array(rows)


def test_a_number_added_to_each_cell_counts_in_all(mesh):
    """Also behind a hold, and where values on faces are held in centers: no cell beyond counts."""
    T, v = field(mesh), on_faces(mesh)
    assert A.gradient(A.model(lambda T, k: (T + k).sum()))(T, 0.3)[1][1] == 35
    assert A.gradient(A.model(lambda T, k: (2 * k - T).hold().sum() + k))(T, 0.3)[1][1] == 71
    assert A.jvp(A.model(lambda T, k: (T + k).sum()), (T, 0.3), (None, 1.0))[1] == 35
    walls = {"y": hp.bc.mirror}
    _, (slope,) = A.gradient(A.model(lambda T: T[-2, 0].hold(walls).sum(), walls=walls))(T)
    np.testing.assert_array_equal(slope.interior[:, 0], [2, 2, 1, 0, 0])  # rows 1, 0, 0, 1, 2
    held = A.model(lambda v: v.at(y="center").hold(walls).sum() + (v * v).sum())
    _, (slope,) = A.gradient(held)(v)
    np.testing.assert_allclose(slope.gather(), 2 * v.gather() + (np.arange(6) < 5)[:, None], rtol=1e-15)


def test_a_choice_by_numbers_alone_is_made_for_all_cells(mesh):
    T = field(mesh)
    for low, sign in ((0.0, 1.0), (1e3, -1.0)):
        step = A.model(lambda T, k: A.where((T.sum() > k) & (k < 2e3), T, A.where(k > 0.0, -T, T)))
        assert np.array_equal(step(T, low).interior, sign * T.interior)
        assert np.array_equal(A.vjp(step, T, low)[1](T)[0].interior, sign * T.interior)


def test_corners_of_walls_do_not_hang_on_the_halo_of_a_field(mesh):
    """What sits on a wall goes beyond the walls of the dims before it, as in an exchange; in later steps, too."""
    with hp.Mesh(hp.world(), Observer(), y=1, x=1) as there:
        across = hp.Decomposition((5, 7), there.topology, 1, ("center", "face"))
        narrow = dataclasses.replace(across, halo=(0, 0))
        v, plain = (hp.Field.from_global(there, each, np.ones((5, 8))) for each in (across, narrow))
        step = A.model(lambda v: v[-1, 0] + v[+1, 0], walls={"y": 1.5, "x": (0.0, -0.7)})
        wanted = np.pad(v.gather(), ((1, 1), (0, 0)), constant_values=1.5)
        wanted[:, 0], wanted[:, -1] = 0.0, -0.7
        for each in (v, plain):
            assert np.array_equal(step(each).gather(), wanted[2:] + wanted[:-2])
        u = on_faces(there)
        walls = {"T": {"y": 0.0, "x": 0.0}, "u": {"y": 0.0, "x": 1.5}}
        moved = A.model(lambda T, u: (T + u[0, -1] * u[1, 1]).at(T), walls=walls)
        T = field(there)
        twice = moved(moved(T, u), u)
        (final,) = A.Window(moved, 2, A.model(lambda T: T.sum())).final(T, u)
        assert np.array_equal(final.interior, twice.interior)


@pytest.mark.parametrize("fill", [hp.bc.zero_gradient, hp.bc.mirror, hp.bc.antisymmetric])
def test_on_devices_walls_are_transposed_in_one_dim_too(fill, monkeypatch):
    """The parts of a script that are not on a tape, here run on the host."""
    with hp.Mesh(hp.world(), Observer(), x=1) as line:
        step = A.model(lambda T: T[-2] * T, walls={"x": fill})
        T = field(line, (9,))
        tape = columns_and_rows(step, (T,))
        monkeypatch.setattr(Script, "_compiled", property(lambda script: False, lambda script, value: None), False)
        parts = columns_and_rows(A.model(step.function, walls={"x": fill}), (T,))
        for found in (*tape, *parts):
            np.testing.assert_allclose(found, tape[0], rtol=1e-15)


def test_the_branch_not_taken_leaves_no_nan(mesh):
    @A.model
    def cost(x, y):
        safe = A.where(x > 0.0, A.sqrt(x) + y / x + A.log(x) * (1.0 / x), 0.0)
        return (safe + A.maximum(x, 0.0) ** 2 + abs(x) ** 1.5).sum()

    x, y = field(mesh), field(mesh, seed=1)
    x.interior[1:3] = 0.0
    value, (gx, gy) = A.gradient(cost)(x, y)
    X, Y = x.interior, y.interior
    with np.errstate(all="ignore"):
        slope = 0.5 / np.sqrt(X) - Y / X**2 + (1 - np.log(X)) / X**2 + 2 * X + 1.5 * np.sqrt(X)
    np.testing.assert_allclose(gx.interior, np.where(X > 0, slope, 0.0), rtol=1e-13)
    np.testing.assert_allclose(gy.interior, np.where(X > 0, 1 / np.where(X > 0, X, 1), 0), rtol=1e-15)
    assert np.isfinite(value)


def test_numbers_have_gradients(mesh):
    walls = {"y": hp.bc.zero_gradient}

    @A.model(walls=walls)
    def cost(T, k):
        new = heat(T, k) * k
        return 2.0 * (new[1, 0] * T).sum() / k

    T = field(mesh)
    value, (_, slope) = A.gradient(cost)(T, 0.3)
    h = 1e-6
    assert slope == pytest.approx((cost(T, 0.3 + h) - cost(T, 0.3 - h)) / (2 * h), rel=1e-8)
    assert value == pytest.approx(cost(T, 0.3), rel=1e-14)


@pytest.mark.parametrize(("dtype", "near"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_a_network_within_a_model_has_its_layers_results_and_gradients(mesh, dtype, near):
    """By the layers themselves: on the rows of the features, and on the whole image with zeros around it."""
    nn = hp.nn
    u, v, seed = field(mesh, (9, 8)), field(mesh, (9, 8), 1), field(mesh, (9, 8), 2)
    mlp = nn.Sequential([nn.Linear(3, 5, "in"), nn.SiLU(), nn.Linear(5, 1, "out")])
    stencil = nn.Sequential([nn.Convolution(2, 3, padding=1, name="a"), nn.GELU(), nn.Convolution(3, 1, padding=1)])
    cells, image = A.Network(mlp, 4, dtype), A.Network(stencil, 5, dtype)
    cost = A.model(lambda u, v, net, seed: (seed * net(u[0, -1], v * 2.0, 0.3)).sum())
    value, (gu, gv, slope, _) = A.gradient(cost)(u, v, cells, seed)
    U, V, S = u.interior, v.interior, seed.interior
    x = np.stack([np.roll(U, 1, 1), 2 * V, np.full_like(U, 0.3)], -1).reshape(-1, 3).astype(dtype)
    y, dx = through(mlp, x, S.reshape(-1, 1).astype(dtype))
    assert value == pytest.approx((y[:, 0] * S.ravel()).sum(), rel=near)
    np.testing.assert_allclose(slope, cells.parameters.grads, rtol=10 * near, atol=near)
    np.testing.assert_allclose(gu.interior, np.roll(dx[:, 0].reshape(U.shape), -1, 1), rtol=10 * near, atol=near / 10)
    np.testing.assert_allclose(gv.interior, 2 * dx[:, 1].reshape(U.shape), rtol=10 * near, atol=near / 10)

    with hp.Mesh(hp.world(), Observer(), y=1, x=1) as walled:
        u, v, seed = (field(walled, (9, 8), k) for k in range(3))
        cost = A.model(lambda u, v, net, seed: (seed * net(u, v)).sum(), walls={"y": 0.0, "x": 0.0})
        value, (gu, gv, slope, _) = A.gradient(cost)(u, v, image, seed)
    y, dx = through(stencil, np.stack([U, V], -1)[None].astype(dtype), S[None, ..., None].astype(dtype))
    assert value == pytest.approx((y[0, ..., 0] * S).sum(), rel=near)
    np.testing.assert_allclose(slope, image.parameters.grads, rtol=10 * near, atol=near)
    for found, wanted in zip((gu, gv), np.moveaxis(dx[0], -1, 0), strict=True):
        np.testing.assert_allclose(found.interior, wanted, rtol=10 * near, atol=near / 10)


def through(layers, x, dy):
    """The result of layers, and the gradients of their input and (in their parameters) of their weights."""
    y, saved = layers.forward(x, hp.nn.Pass())
    return y, hp.nn.backward(layers, saved, dy)


def test_results_and_gradients_stand_at_the_points_of_the_arguments_in_their_places(mesh):
    step = A.model(lambda h, u: (h - 0.1 * h * (u[0, +1] - u), u - 0.1 * (h * h - h[0, -1] * h[0, -1])))
    h, u = field(mesh), field(mesh, seed=1)
    u.decomposition = u.decomposition.at(("center", "face"))
    found, pull = A.vjp(step, h, u)
    with A.Ensemble(mesh, 2) as ensemble:
        moved = ensemble.member(step(ensemble.stack([h, h]), ensemble.stack([u, u]))[1], 1)
    assert A.check(step, h, u).passed
    pairs = (step(h, u), found, pull(*found), *A.jvp(step, (h, u), (h, u)), (h, moved))
    pairs += (A.gradient(A.model(lambda h, u: (h * u).sum()))(h, u)[1],)
    assert {tuple(each.decomposition.location[1] for each in pair) for pair in pairs} == {("center", "face")}


def on_faces(mesh, seed=1, shape=(5, 7)):
    """A field on the faces across y, between walls."""
    points = hp.Decomposition(shape, mesh.topology, 1, ("face", "center"))
    return hp.Field.from_global(mesh, points, np.random.default_rng(seed).random(points.global_shape))


def test_a_step_of_faces_between_walls_is_its_numpy_meaning(mesh):
    def closed(h, v, dt):
        held = (v - dt * (h - h[-1, 0])).hold({"y": (0.0, None)})
        return h - dt * (held[+1, 0] - held), held * held

    step = A.model(closed, walls={"h": {"y": (hp.bc.mirror, 0.3)}}, exact=True)
    h, v = field(mesh), on_faces(mesh)
    moved = step(h, v, 0.1)
    there, V = h.gather(), v.gather()
    V[1:] -= 0.1 * (np.concatenate([there[1:], np.full((1, 7), 0.3)]) - there)
    V[0] = 0.0
    np.testing.assert_array_equal(moved[0].gather(), there - 0.1 * (V[1:] - V[:-1]))
    np.testing.assert_array_equal(moved[1].gather(), V * V)
    assert A.check(step, h, v, 0.1).passed
    with pytest.raises(InputError, match="stands at"):
        step(h, v, 0.1, out=(field(mesh), field(mesh)))
    cost = A.model(lambda h, v: (h * h).sum() + (v * v).sum())
    gradients = [A.Window(step, 9, cost, memory=m).gradient(h, v, 0.1)[1] for m in (1e9, 0)]
    for one, other in zip(*(each[:2] for each in gradients), strict=True):
        np.testing.assert_array_equal(one.interior, other.interior)
    assert [each.decomposition.location[0] for each in gradients[0][:2]] == ["center", "face"]


@pytest.mark.parametrize("fill", [hp.bc.zero_gradient, hp.bc.mirror, hp.bc.antisymmetric, 0.5])
def test_walls_of_faces_are_transposed_where_neighbors_are_read_beyond_them(fill, mesh):
    step = A.model(lambda v: v * v + v[+1, 0] - 2 * v[-1, 0], walls={"y": fill}, exact=True)
    v = on_faces(mesh)
    given = np.pad(v.gather(), ((1, 1), (0, 0)))
    halo = [given[:1], given[-1:]]
    for beyond, inside in zip(halo, (given[1:-1], given[-2:0:-1]), strict=True):
        hp.bc.as_fill(fill).apply(beyond, inside, True)
    np.testing.assert_array_equal(step(v).gather(), given[1:-1] ** 2 + given[2:] - 2 * given[:-2])
    assert A.check(step, on_faces(mesh, 2)).passed


def test_a_value_stands_where_the_middle_of_what_it_reads_is(mesh):
    h, v = field(mesh), on_faces(mesh)
    walls = {"y": hp.bc.mirror}

    def place(function, *args):
        return A.model(function, walls=walls)(*args).decomposition.location[0]

    flux = A.model(lambda h, v: v * (h + h[-1, 0]), walls=walls)
    assert flux(h, v).decomposition.location[0] == "face"
    assert place(lambda v, h: flux(h, v), v, h) == "face"
    assert place(lambda v, h: h * (v + v[+1, 0]), v, h) == "center"
    assert place(lambda v, h: A.maximum(v, 0.0) * h[-1, 0] + A.minimum(v, 0.0) * h, v, h) == "face"
    assert place(lambda v, h: (h * v).at(h), v, h) == place(lambda h: h - 0.1 * (h - h[-1, 0]), h) == "center"
    assert place(lambda v, h: (h * v).at(y="face"), v, h) == place(lambda h: (h + h[-1, 0]).at(y="face"), h) == "face"
    for unclear in (lambda v, h: h * v, lambda v, h: h - v * (h - h[-1, 0]), lambda v, h: (h * v).hold(walls)):
        with pytest.raises(InputError, match="does not follow"):
            place(unclear, v, h)
    with pytest.raises(InputError, match="does not follow"):
        A.gradient(A.model(lambda h, v: (h * v).sum()))(h, v)
    with pytest.raises(InputError, match="another"):
        A.Window(A.model(lambda h, v: ((h * v).at(v), v)), 2, A.model(lambda h, v: (v * v).sum())).value(h, v)


def test_a_sum_of_cells_beside_one_of_differences_counts_none_beyond_walls(mesh):
    walls = {"y": hp.bc.zero_gradient}
    cost = A.model(lambda T, k: (T * T).sum() + ((k * T[+1, 0] - k * T) ** 2).sum() + (k * T * k).sum(), walls=walls)
    assert A.check(cost, field(mesh), 0.7).passed


def test_a_mask_has_no_slope_in_a_window(mesh):
    step = A.model(lambda T, mask, k: A.where(mask > 0.5, T * k, T))
    T, mask = field(mesh), field(mesh, seed=1)
    _, (by_cell, by_mask, by_number) = A.Window(step, 3, A.model(lambda T: (T * T).sum())).gradient(T, mask, 1.1)
    inside = mask.interior > 0.5
    np.testing.assert_allclose(by_cell.interior, 2 * T.interior * np.where(inside, 1.1**6, 1.0), rtol=1e-14)
    assert by_number == pytest.approx((6 * 1.1**5 * T.interior**2)[inside].sum(), rel=1e-13)
    assert not by_mask.interior.any()


@pytest.mark.nightly
def test_members_of_an_ensemble_have_slopes_of_their_own_in_the_weights_that_they_share(mesh):
    """Each with the bits of a run alone, of one network that is applied twice, and of one that nothing depends on."""
    net, idle = A.Network(hp.nn.mlp([3, 4, 1], "silu"), seed=2), A.Network(hp.nn.mlp([1, 1]))
    starts, rates = [field(mesh, seed=k) for k in range(3)], np.array([0.1, 0.3, 0.2])

    @A.model(walls={"y": hp.bc.mirror})
    def step(T, net, k, idle):
        change = net(T[1, 0] - T, T[0, -1], k)
        return T + 0.1 * change.hold({"y": 0.0})[-1, 0] + k * net(T, change, 1.0)

    window = A.Window(step, 3, A.model(lambda T: (T * T).sum()), at=(1, 3), memory=0)
    with A.Ensemble(mesh, 3) as ensemble:
        T = ensemble.stack(starts)
        value, (slope, by_weight, by_rate, none) = window.gradient(T, net, rates, idle)
        assert by_weight.shape == (3, net.values.size)
        assert np.array_equal(none, np.zeros((3, idle.values.size)))
        for m, start in enumerate(starts):
            alone, (one, weights, rate, _) = window.gradient(start, net, float(rates[m]), idle)
            assert (value[m], by_rate[m]) == (alone, rate)
            assert np.array_equal(by_weight[m], weights)
            assert abs(weights).max() > 0
            assert np.array_equal(ensemble.member(slope, m).interior, one.interior)
        assert A.check(step, T, net, rates, idle).passed


def test_networks_that_do_not_fit_are_refused(mesh):
    nn = hp.nn
    T, net = field(mesh), A.Network(nn.mlp([2, 3, 1]))
    for layers in (nn.Sequential([nn.ReLU()]), nn.LayerNorm(3), nn.Convolution(1, 1, padding=0)):
        with pytest.raises(InputError, match="cannot hold"):
            A.Network(layers)
    for function, words in (
        (lambda T, net: net(T), "1 features of a network that takes 2"),
        (lambda T, net: net(0.5, 1.0) * T, "numbers alone"),
        (lambda T, net: net(T, T)[1, 0], "beyond the walls"),
    ):
        with pytest.raises(InputError, match=words):
            A.model(function)(T, net)
    image = A.Network(nn.Convolution(1, 1, padding=1))
    with hp.Mesh(hp.world(), Observer(), x=1, periodic="x") as line, pytest.raises(InputError, match="of 1 dims"):
        A.model(lambda T, net: net(T))(field(line, (7,)), image)


def fewest(steps, kept):
    """The fewest steps forward, by trying where to keep a state."""
    if steps == 1:
        return 0
    if kept == 0:
        return steps * (steps - 1) // 2
    return min(n + fewest(steps - n, kept - 1) + fewest(n, kept) for n in range(1, steps))


fewest = functools.cache(fewest)


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 7])
def test_a_schedule_walks_back_in_the_fewest_steps_with_the_states_that_it_may_keep(kept):
    for steps in range(1, 24):
        there, held, back, forward = {0}, {0}, [], 0
        for move in A.binomial_schedule(steps, kept):
            assert move.at in there
            if move.kind == "forward":
                forward += 1
                there.add(move.at + 1)
                held |= {move.at + 1} if move.keep else set()
                assert len(held) <= kept + 1
                there = held | {move.at + 1}
            elif move.kind == "back":
                back.append(move.at)
                there &= held
            else:
                held.remove(move.at)
                there.discard(move.at)
        assert back == list(range(steps - 1, -1, -1))
        assert forward == fewest(steps, kept) == forward_steps(steps, kept)


def test_windows_and_ensembles_that_make_no_sense_are_refused(mesh):
    T = field(mesh)
    step = A.model(heat, walls={"y": 0.0})
    total = A.model(lambda T: T.sum())
    with pytest.raises(InputError, match="between 0 and 3"):
        A.Window(step, 3, total, at=(4,))
    with pytest.raises(InputError, match="one number"):
        A.Window(step, 3, step, data=lambda k: (0.1,)).gradient(T, 0.1)
    with A.Ensemble(mesh, 2) as two:
        with pytest.raises(InputError, match="2 members"):
            two.stack([T])
        for wrong in (np.ones(3), np.ones((2, 1))):
            with pytest.raises(InputError, match="array of shape"):
                step(two.stack([T, T]), wrong)
        with pytest.raises(InputError, match="neither a Field nor a number"):
            step(T, np.ones(2))
        bad = two.stack([T, T])
        bad.interior[..., 1] *= -1.0
        with pytest.raises(BlowUpError, match=r"log\(-.*\) is not finite"):
            A.check(A.model(lambda T: np.log(T.sum())), bad)


def test_the_minimum_of_a_quadratic_is_found(mesh):
    """Against the solution of the linear system of its matrix."""
    walls = {"y": hp.bc.zero_gradient}

    @A.model(walls=walls)
    def cost(T, d):
        return (0.5 * T * T + 0.5 * (T[0, 1] - T) ** 2 + (T[1, 0] - T) ** 2 - d * T).sum()

    T, d, seen = field(mesh), field(mesh, seed=1), []

    def slope(fields):
        value, (here, _) = A.gradient(cost)(*fields, d)
        return value, [here]

    (found,) = A.minimize(slope, [T], 60, 1e-10, seen.append)
    zero = T.like()
    columns = []
    for place in np.ndindex(5, 7):
        unit = T.like()
        unit.interior[place] = 1.0
        columns.append(A.gradient(cost)(unit, zero)[1][0].interior.ravel().copy())
    np.testing.assert_allclose(np.array(columns).T @ found.interior.ravel(), d.interior.ravel(), atol=1e-8)
    assert [each.cost for each in seen] == sorted((each.cost for each in seen), reverse=True)


def test_a_step_may_call_other_steps(mesh):
    """Its graph is that of the terms written out; what is computed becomes a field with the walls of the other step."""
    odd, even = {"y": hp.bc.antisymmetric}, {"y": hp.bc.mirror}
    spread = A.model(lambda T, k, *, rate=1.0: T + rate * k * (T[1, 0] - T), walls=odd)
    both = A.model(lambda T, S: (T * S, S[-1, 0]), walls={"S": even})

    def nested(T, k):
        T = spread(spread(T, k, rate=0.5), k)
        T, S = both(T, T * T)
        return spread.repeated(2)(T, 0.1) + S

    def written(T, k):
        T = T + 0.5 * k * (T[1, 0] - T)
        T = T.hold(odd)
        T = T + 1.0 * k * (T[1, 0] - T)
        S = (T * T).hold(even)
        T, S = T * S, S[-1, 0]
        for _ in range(2):
            T = T.hold(odd)
            T = T + 1.0 * 0.1 * (T[1, 0] - T)
        return T + S

    T = field(mesh)
    assert str(A.model(nested, walls=odd).graph(T, 0.2)) == str(A.model(written, walls=odd).graph(T, 0.2)).replace(
        "written", "nested"
    )
    with pytest.raises(InputError, match="was given 1"):
        A.model(lambda T: spread(T), walls=odd)(T)
    with pytest.raises(InputError, match="within a step"):
        A.model(lambda T: A.vjp(spread, T, 0.1)[0], walls=odd)(T)


def test_one_field_may_be_two_arguments_with_other_walls(mesh):
    """In a step; as an argument and its change; and as an argument and the sensitivity to a result."""
    T = field(mesh)
    copy = T.like()
    copy.interior[...] = T.interior
    step = A.model(lambda a, b: a[1, 0] * b[-1, 0], walls={"a": {"y": hp.bc.mirror}, "b": {"y": 2.0}})
    assert np.array_equal(step(T, T).interior, step(T, copy).interior)
    others = [copy.like() for _ in range(2)]
    for each in others:
        each.interior[...] = T.interior
    assert np.array_equal(A.jvp(step, (T, T), (T, T))[1].interior, A.jvp(step, (T, copy), others)[1].interior)
    for ours, theirs in zip(A.vjp(step, T, T)[1](T), A.vjp(step, T, copy)[1](others[0]), strict=True):
        assert np.array_equal(ours.interior, theirs.interior)


def test_keywords_are_told_apart_by_their_values(mesh):
    """Functions of one name, arrays that print alike, and signs of zero."""
    step = A.model(lambda T, *, f: T * (f[500] if np.ndim(f) else f(2.0) if callable(f) else f))
    T, long = field(mesh), np.zeros(2000)
    there = long.copy()
    there[500] = 3.0
    given = [lambda x: x, lambda x: x * x, long, there, 0.0, -0.0]
    graphs = [str(step.graph(T, f=f)) for f in given]
    assert len(set(graphs)) == 5  # an array of 0.0, and 0.0
    assert graphs[2] == graphs[4]


def test_what_a_step_returns_twice_are_two_fields(mesh):
    T = field(mesh)
    one, two = A.model(lambda T: (T + 1.0, T + 1.0))(T)
    one.interior[...] = 0.0
    assert np.array_equal(two.interior, T.interior + 1.0)


def test_steps_of_a_window_may_be_forced(mesh):
    """By numbers and fields that differ from step to step, one of them filled anew each time; against steps by hand."""
    step = A.model(lambda T, k, t, wind: T * k + A.sin(t) * wind[0, 1] * T[1, 0], walls={"y": hp.bc.mirror})
    total = A.model(lambda T: (T * T).sum())
    T, wind, winds = field(mesh), field(mesh), [field(mesh, seed=seed) for seed in range(5)]

    def forcing(k):
        wind.interior[...] = winds[k].interior
        return 0.3 * k, wind

    states = [T]
    for k in range(5):
        states.append(step(states[-1], 0.9, 0.3 * k, winds[k]))
    value, (back,) = A.gradient(total)(states[-1])
    slope = 0.0
    for k in reversed(range(5)):
        back, more, *_ = A.vjp(step, states[k], 0.9, 0.3 * k, winds[k])[1](back)
        slope += more
    for memory in (1e9, 0.0):
        window = A.Window(step, 5, total, forcing=forcing, memory=memory)
        found, (by_cell, by_number) = window.gradient(T, 0.9)
        assert found == value == window.value(T, 0.9)
        assert np.array_equal(by_cell.interior, back.interior)
        assert by_number == pytest.approx(slope, rel=1e-14)
    drift = A.model(lambda T, t: T + t)  # numbers alone: one call for all steps
    there = A.Window(drift, 4, total, forcing=lambda k: (0.5 * k,)).final(T)[0].interior
    np.testing.assert_allclose(there, T.interior + 3.0, rtol=1e-15)
    with pytest.raises(InputError, match="at step 2"):
        A.Window(drift, 4, total, forcing=lambda k: (T,) if k == 2 else (0.0,)).value(T)


def test_a_window_of_linear_steps_keeps_no_state(mesh):
    """The way back reads none; a mask and a forcing at neighbors are read there. Against steps by hand."""

    def moved(T, mask, wind):
        return A.where(mask[0, 1] > 0.5, T + 0.1 * wind[1, 0] * T[0, -1], T)

    step, total = A.model(moved, walls={"y": hp.bc.mirror}), A.model(lambda T: (T * T).sum())
    T, mask, *winds = (field(mesh, seed=seed) for seed in range(7))
    states = [T]
    for n in range(5):
        states.append(step(states[-1], mask, winds[n]))
    for at, kept in (((5,), 3), ((2, 5), 6)):
        value, back = A.gradient(total)(states[5])
        back = back[0]
        for n in reversed(range(5)):
            (back, *_) = A.vjp(step, states[n], mask, winds[n])[1](back)
            if n in at:
                cost, (more,) = A.gradient(total)(states[n])
                value, back.interior[...] = cost + value, back.interior + more.interior
        window = A.Window(step, 5, total, at=at, forcing=lambda n: (winds[n],))
        for _ in range(2):
            found, (slope, of_mask) = window.gradient(T, mask)
            assert found == value
            assert np.array_equal(slope.interior, back.interior)
            assert not of_mask.interior.any()
        (pool,) = window._pools.values()
        assert len(pool.states) + len(pool._free) == kept


REFUSED = {
    "a branch": (lambda T: T if T > 0 else -T, "where"),
    "a branch on a number": (lambda T: T if T.sum() > 0 else -T, "keyword"),
    "a result in place": (lambda T: np.add(T, 1.0, out=T), "new values"),
    "an assignment": (lambda T: T.__setitem__((0, 1), 1.0), "new value"),
    "a shift by roll": (lambda T: np.roll(T, 1, axis=0), "T.shift"),
    "a mean": (lambda T: T - T.mean(), "cells"),
    "a sum of rows": (lambda T: T.sum(axis=0), "all cells"),
    "a base": (lambda T: 2.0**T, "exp"),
    "two of three": (lambda T: A.where(T > 0, T), "3"),
    "a count of truths": (lambda T: (T > 0) + (T < 1), "1.0, 0.0"),
    "a remainder of two": (lambda T: divmod(T, 2)[0], "pointwise"),
    "an option that is not there": (lambda T: T.hold(y=0.0), "a step may use"),
    "an index": (lambda T: T[1:, :], "neighbor along y"),
    "an axis": (lambda T: T.shift(z=1), "the axes are y, x"),
    "a loop": (lambda T: sum(T), "neighbors"),
    "a function": (lambda T: np.arctan(T), "a step may use"),
    "math": (lambda T: __import__("math").sqrt(T), "hp.adjoint"),
    "a remainder": (lambda T: T % 2, "pointwise"),
    "a fact of an array": (lambda T: T / T.shape[0], "keywords"),
    "a result": (lambda T: "T", "tuple"),
    "an array": (lambda T: T + np.ones((5, 7)), "argument"),
    "a wall without a fill": (lambda T: T[1, 0], "zero_gradient"),
    "a fill without an adjoint": (lambda T: T.hold({"y": lambda halo, inside: None})[1, 0], "mirror"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_traced_is_refused_with_what_to_write(what, mesh):
    function, do = REFUSED[what]
    with pytest.raises(InputError) as refused:
        A.model(function)(field(mesh))
    assert do in refused.value.do
    if what in ("a branch", "a loop", "math", "an option that is not there", "a sum of rows"):
        assert "test_adjoint.py, line" in refused.value.where


def test_arguments_that_do_not_fit_are_refused(mesh):
    step = A.model(heat, walls={"y": 0.0})
    for args in ((field(mesh),), (1.0, 2.0), (field(mesh), field(mesh, (5, 8))), (field(mesh), "k")):
        with pytest.raises(InputError):
            step(*args)
    with pytest.raises(InputError, match="one number"):
        A.gradient(step)(field(mesh), 0.1)
    for changes in ((field(mesh),), (field(mesh), field(mesh)), (1.0, 1.0), field(mesh)):
        with pytest.raises(InputError):
            A.jvp(step, (field(mesh), 0.1), changes)
    with pytest.raises(InputError):
        A.vjp(step, field(mesh), 0.1)[1](1.0)
    with pytest.raises(InputError, match="argnums"):
        A.gradient(A.model(lambda T: T.sum()), argnums=0)
    with pytest.raises(InputError, match="'t', which is none of its arguments"):
        A.model(heat, walls={"T": {"y": 0.0}, "t": {"y": 0.0}})


def test_a_nan_is_named_by_its_operation_cell_and_step(mesh):
    """Roots of negative numbers, in a chosen branch alone: in one step, in a window, in a cost, in a gradient."""
    walls = {"y": hp.bc.zero_gradient}
    T = field(mesh)
    T.interior[3, 4] = -1.0
    with pytest.raises(BlowUpError) as found:
        A.check(A.model(lambda T: A.where(T[0, 1] > 5.0, A.sqrt(T - 9.0), A.log(T[1, 0]) * 2.0), walls=walls), T)
    assert found.value.message == "log(-1) is not finite"
    assert found.value.where.startswith("cell (2, 4), test_adjoint.py, line")

    step = A.model(lambda T: (A.sqrt(T) - 0.4).hold(walls)[1, 0] + 0.0 * T, walls=walls)
    total = A.model(lambda T: A.sqrt(T).sum())
    T.interior[...] = 0.9
    with pytest.raises(BlowUpError) as found:  # 0.9, 0.5487, 0.3407, 0.1837, 0.0286, -0.2309
        A.Window(step, 8, total).require_finite(T)
    assert found.value.message.startswith("sqrt(-0.23")
    assert found.value.where.startswith("step 6, cell (0, 0), test_adjoint.py")
    with pytest.raises(BlowUpError) as found:
        A.Window(step, 5, total).require_finite(T)
    assert found.value.where.startswith("cost at step 5, cell (0, 0)")
    T.interior[2, 1] = 0.0
    with pytest.raises(BlowUpError) as found:
        A.Window(A.model(lambda T: T * 1.0), 2, total).require_finite(T)
    assert found.value.where.startswith("gradient of the cost at step 2, cell (2, 1), test_adjoint.py, line")
    assert found.value.where.endswith("total = A.model(lambda T: A.sqrt(T).sum())")
    T.interior[...] = 0.9
    A.Window(step, 4, A.model(lambda T: T.sum())).require_finite(T)


@pytest.mark.nightly
def test_jax_has_the_same_gradient(mesh):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    x = field(mesh, (12, 13)).interior.copy()

    def far(a, dy, dx):
        padded = jnp.pad(a, ((1, 1), (0, 0)), mode="edge")
        return jnp.roll(padded, (-dy, -dx), (0, 1))[1:-1]

    def theirs(a):
        e = far(a, 0, 1) * far(a, 1, 0) - a * far(a, -1, -1)
        return (jnp.where(e > 0.1, jnp.sqrt(jnp.abs(e)), e * e) + jnp.maximum(jnp.tanh(a), 0.3)).sum()

    @A.model(walls={"y": hp.bc.zero_gradient})
    def ours(a):
        e = a[0, 1] * a[1, 0] - a * a[-1, -1]
        return (A.where(e > 0.1, A.sqrt(abs(e)), e * e) + A.maximum(A.tanh(a), 0.3)).sum()

    value, (slope,) = A.gradient(ours)(field(mesh, (12, 13)))
    wanted, expected = jax.value_and_grad(theirs)(x)
    assert value == pytest.approx(float(wanted), rel=1e-13)
    np.testing.assert_allclose(slope.interior, np.asarray(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.nightly
def test_jax_has_the_same_gradient_of_steps_with_a_network_within(mesh):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    net = A.Network(hp.nn.mlp([3, 6, 1], "silu"), seed=2)
    walls = {"y": hp.bc.zero_gradient}
    step = A.model(lambda T, net: T + 0.1 * net(T, T[1, 0] - T[0, 1], T * T[-1, 0]), walls=walls)
    window = A.Window(step, 4, A.model(lambda T: (T * T * T).sum()))
    T = field(mesh, (12, 13))
    value, (by_cell, by_weight) = window.gradient(T, net)

    def theirs(a, weights):
        for _ in range(4):
            padded = jnp.pad(a, ((1, 1), (0, 0)), mode="edge")
            x = jnp.stack([a, padded[2:] - jnp.roll(a, -1, 1), a * padded[:-2]], -1)
            hidden = x @ weights["0.weight"] + weights["0.bias"]
            a = a + 0.1 * (jax.nn.silu(hidden) @ weights["1.weight"] + weights["1.bias"])[..., 0]
        return (a * a * a).sum()

    given = {p.name: p.value.copy() for p in net.parameters.list}
    wanted, (cells, weights) = jax.value_and_grad(theirs, argnums=(0, 1))(T.interior.copy(), given)
    assert value == pytest.approx(float(wanted), rel=1e-13)
    np.testing.assert_allclose(by_cell.interior, np.asarray(cells), rtol=1e-12, atol=1e-12)
    net.parameters.grads[...] = by_weight
    for p in net.parameters.list:
        np.testing.assert_allclose(p.grad, np.asarray(weights[p.name]), rtol=1e-12, atol=1e-12)
