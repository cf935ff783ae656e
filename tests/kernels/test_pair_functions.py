"""Derivatives and functions of vectors against NumPy, and potentials from Python functions against differences."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from conftest import by_day

from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import custom, interaction_of
from hpckit.errors import InputError
from hpckit.kernels.compile import functions, intrinsics, vectors
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.compile.lanes import lanes
from hpckit.kernels.graph.nodes import make
from hpckit.kernels.graph.scalars import Scalar, from_source, slope, source, traced
from hpckit.kernels.particles.pair.custom import make_potential
from hpckit.kernels.particles.pair.named import NAMED

VECTOR_ISAS = [isa for isa in vectors.available() if isa != "scalar"]
FUNCTIONS = {
    "rational": lambda x: x * x * 3 - 2 / x + (1 - x) / (1 + x * x) - x + x**-2,
    "exp": lambda x: math.exp(-0.7 * x) * x + 1,
    "sqrt": lambda x: x * math.sqrt(x),
    "log": lambda x: math.log(x) * 2.5,
    "whole power": lambda x: 5.0 - (1 / x) ** 3,
    "power": lambda x: x**2.5,
    "extremes": lambda x: max(x, 1.2) * min(2.0, x) + max(0.5, x),
}


@pytest.mark.parametrize("name", by_day(FUNCTIONS, "rational", "power", "extremes"))
def test_values_and_slopes(name):
    plain, store, leaf = FUNCTIONS[name], intrinsics.store, make("number", value="x", is_field=False)
    value = traced(plain, Scalar(leaf))
    text = source("both", "x", [value, slope(value, leaf)], {leaf: "x"})
    function, direct = inlined(from_source(text, chosen=functions.chosen)), numba.njit(plain)
    x = np.random.default_rng(1).uniform(0.3, 3.0, 8)
    step = 1e-6
    slopes = np.array([(plain(a + step) - plain(a - step)) / (2 * step) for a in x])
    values = np.array([plain(a) for a in x])
    for kind, n in [("d", 4), ("f", 8)] * bool(VECTOR_ISAS):
        load = lanes(kind, n).load

        @jit
        def kernel(a, out, load=load, n=n):
            found, slope_found = function(load(a, 0))
            store(out, 0, found)
            store(out, n, slope_found)
            store(out, 2 * n, direct(load(a, 0)))

        dtype = np.float64 if kind == "d" else np.float32
        out = np.zeros(3 * n, dtype)
        kernel(x[:n].astype(dtype), out)
        tolerance, bar = (1e-14, 1e-7) if kind == "d" else (1e-6, 1e-5)
        np.testing.assert_allclose(out[:n], values[:n], rtol=tolerance)
        np.testing.assert_allclose(out[2 * n :], values[:n], rtol=tolerance)
        np.testing.assert_allclose(out[n : 2 * n], slopes[:n], rtol=bar, atol=bar)

    @jit
    def number(a):
        return function(a)

    assert number(x[0]) == (pytest.approx(values[0], rel=1e-14), pytest.approx(slopes[0], rel=1e-6))


def test_exponentials_at_the_ends_of_their_range():
    store, load = intrinsics.store, lanes("d", 4).load if VECTOR_ISAS else pytest.skip("no vectors here")

    @jit
    def kernel(a, out):
        store(out, 0, math.exp(load(a, 0)))

    x, out = np.array([-1000.0, -700.0, 0.0, 700.0]), np.zeros(4)
    kernel(x, out)
    assert 0 <= out[0] < 1e-300
    np.testing.assert_allclose(out[1:], np.exp(x[1:]), rtol=1e-13)


PARAMETERS = {
    "morse": (1.3, 2.0, 1.1),
    "buckingham": (900.0, 0.3, 5.0),
    "yukawa": (2.0, 0.7),
    "born": (1.5, 0.3, 1.1, 1.0, 0.2),
    "mie": (1.2, 1.05, 11.0, 5.0),
    "lj96": (1.2, 1.05),
    "lj_expand": (1.2, 0.9, 0.15),
    "lj_force_shifted": (1.2, 1.05, 5.0),
    "soft": (1.2, 2.5),
    "lennard_jones": (1.1, 0.9),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("switch", by_day([0.0, 1.9], 1.9))
def test_potentials_have_the_force_of_their_energy(name, switch):
    energy, names = NAMED[name]
    own = np.array(PARAMETERS[name])[None, None]
    assert own.shape[2] == len(names)
    interaction = custom(energy, own, np.full((1, 1), 2.5), switch=switch, shift=not switch)
    both, force = interaction.potential.energy_and_force, interaction.potential.force
    p = tuple(map(float, interaction.table[0, 0]))

    @jit
    def at(r2, p):
        return both(r2, p), force(r2, p)

    r = np.linspace(0.8, 2.499, 25)
    found = np.array([(*at(x * x, p)[0], at(x * x, p)[1]) for x in r])
    step = 1e-6
    slopes = np.array([(at((x + step) ** 2, p)[0][0] - at((x - step) ** 2, p)[0][0]) / (2 * step) for x in r])
    np.testing.assert_allclose(found[:, 1] * r, -slopes, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[:, 1], found[:, 2], rtol=1e-12)
    plain = np.array([energy(x * x, PARAMETERS[name]) for x in r])
    inside = r < (switch or 2.5)
    np.testing.assert_allclose(found[inside, 0], plain[inside], rtol=1e-13)
    if switch:
        assert abs(at(2.5**2 * (1 - 1e-9), p)[0][0]) < 1e-12, "the energy does not fade"
        assert abs(at(2.5**2 * (1 - 1e-9), p)[1]) < 1e-6, "the force does not fade"
    else:
        assert interaction.table[0, 0, 1] == pytest.approx(energy(6.25, PARAMETERS[name]))


def test_a_function_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import math\ndef energy(r2, p):\n    return p[0] * math.exp(-r2)\nnothing = 3\n")
    settings = {"kind": "python", "function": f"{file}:energy", "parameters": [2.0]}
    interaction = interaction_of(Config.model_validate({"interaction": settings}), 1)
    assert interaction.table.shape == (1, 1, 3)
    for function, said in (("mine.py:energy", "no Python file"), (f"{file}:nothing", "has no function 'nothing'")):
        wrong = Config.model_validate({"interaction": settings | {"function": function}})
        with pytest.raises(InputError, match=said):
            interaction_of(wrong, 1)
    wrong = Config.model_validate({"interaction": settings | {"parameters": []}})
    with pytest.raises(InputError, match=r"fails at r2 = 6\.25"):
        interaction_of(wrong, 1)
    file.write_text("import nowhere\n")
    with pytest.raises(InputError, match="cannot be loaded"):
        interaction_of(Config.model_validate({"interaction": settings}), 1)
    missing = Config.model_validate({"interaction": {"kind": "morse", "parameters": [1.0]}})
    with pytest.raises(InputError, match="depth, stiffness, distance: 3 numbers"):
        interaction_of(missing, 1)


MINE = """import math

STEEP = 2.0


def damped(r, b):
    return 1 - math.exp(-b * r)


def twice(r, b):
    return damped(r, b) * damped(r, STEEP)


def make(scale):
    def inner(r):
        return scale * r

    def energy(r2, p):
        return p[0] / inner(r2)

    return energy


closed = make(3.0)


def energy(r2, p):
    r = math.sqrt(r2)
    return p[0] * twice(r, p[1]) / r**6


def plain(r2, p):
    r = math.sqrt(r2)
    return p[0] * (1 - math.exp(-p[1] * r)) * (1 - math.exp(-2.0 * r)) / r**6


def choosing(r2, p):
    if r2 < 1:
        return p[0] * r2
    return p[0] + r2


def waving(r2, p):
    return math.sin(r2)


def adding(r2, p):
    total = 0.0
    for k in range(2):
        total += p[k] / r2
    return total


def itself(r2, p):
    return r2 if r2 > 0 else itself(r2, p)


def constant(r2, p):
    return p[0]
"""


def forces_of(interaction):
    """-dE/dr / r at some distances."""
    both = interaction.potential.energy_and_force
    p = tuple(map(float, interaction.table[0, 0]))

    @jit
    def at(r2, p):
        return both(r2, p)

    return np.array([at(x * x, p) for x in np.linspace(0.8, 2.4, 9)])


def test_a_function_may_call_others(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    found = {}
    for name in ("energy", "plain", "closed", "adding"):
        settings = {"kind": "python", "function": f"{tmp_path}/mine.py:{name}", "parameters": [1.5, 0.7]}
        found[name] = interaction_of(Config.model_validate({"interaction": settings}), 1)
    assert found["energy"].potential.key != found["plain"].potential.key
    np.testing.assert_allclose(forces_of(found["energy"]), forces_of(found["plain"]), rtol=1e-12)
    r2 = np.linspace(0.8, 2.4, 9) ** 2
    np.testing.assert_allclose(forces_of(found["closed"])[:, 1], 2 * 1.5 / (3 * r2**2), rtol=1e-12)
    np.testing.assert_allclose(forces_of(found["adding"])[:, 1], 2 * 2.2 / r2**2, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("choosing", r"choosing cannot be compiled: an `if` .* decides on r2"),
        ("waving", r"sin cannot be taken of r2 \(mine.py, line"),
        ("itself", r"an `if` .* decides on r2 \(mine.py, line"),
        ("constant", "does not depend on r2"),
    ],
)
def test_functions_that_vectors_cannot_be_put_through_are_refused(tmp_path, name, said):
    if not VECTOR_ISAS and name == "choosing":
        pytest.skip("numbers may be compared")
    (tmp_path / "mine.py").write_text(MINE)
    settings = {"kind": "python", "function": f"{tmp_path}/mine.py:{name}", "parameters": [1.5, 0.7]}
    with pytest.raises(InputError, match=said) as fault:
        interaction_of(Config.model_validate({"interaction": settings}), 1)
    assert "max and min" in fault.value.do


def test_keys_tell_potentials_apart():
    def make_energy(factor):
        def energy(r2, p):
            return factor / r2

        return energy

    one, other, third = (make_potential("mine", make_energy(factor), 0) for factor in (1.0, 1.0, 2.0))
    assert one.key == other.key
    assert one.key != third.key
    assert not one.clamp
    assert make_potential("mine", NAMED["morse"][0], 3).clamp
