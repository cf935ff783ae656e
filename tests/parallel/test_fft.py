"""Fourier transforms over ranks: NumPy's values, equal bits on any number of ranks, plans that are proved, refusals."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import hpckit as hp
from hpckit.cli.main import main
from hpckit.errors import InputError, PlanError
from hpckit.plan.tensors.fourier import FourierPlan, fourier_plan
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard
from hpckit.plan.topology import Topology

DTYPES = "float64", "complex64", "float32", "complex128"


@pytest.mark.parametrize(
    ("counts", "dtypes"),
    [((1, 4), DTYPES[:1]), pytest.param((1, 2, 3, 4, 6), DTYPES, marks=pytest.mark.nightly)],
    ids=str,
)
def test_any_number_of_ranks_gives_numpys_values_and_the_same_bits(mpirun, tmp_path, counts, dtypes):
    for ranks in counts:
        mpirun(ranks, "fourier_ranks.py", tmp_path, *dtypes)


def layout_of(shape, **sizes):
    placed = {name: Shard(dim) for dim, name in enumerate(sizes)}
    return Layout(shape, Topology(tuple(sizes), tuple(sizes.values())), placed)


@pytest.mark.parametrize(
    ("shape", "sizes", "changes"),
    [
        ((16, 16, 16), {"z": 1}, 0),
        ((64, 64, 64), {"z": 8}, 1),
        ((64, 60, 62), {"z": 8, "y": 4}, 2),
        ((24, 22, 20), {"z": 3, "y": 2, "x": 2}, 3),
        ((3, 64, 64), {"z": 5}, 1),
        ((128, 128, 128), {"z": 32, "y": 32}, 2),
    ],
    ids=str,
)
def test_plans_are_proved_priced_and_few(shape, sizes, changes):
    for real in (True, False):
        plan = fourier_plan(layout_of(shape, **sizes), real)
        assert len(plan.changes) == changes
        assert hp.prove(plan).ranks == np.prod(list(sizes.values()))
        assert plan.target.shape[-1] == (shape[-1] // 2 + 1 if real else shape[-1])
        assert (hp.price(plan, hp.plan.machine_of("infiniband"), itemsize=16).seconds > 0) == (changes > 0)


def test_copies_take_no_messages_and_fields_together_as_many_as_one():
    cut = layout_of((24, 22, 20), z=3, y=2)
    copies = fourier_plan(cut.placed(z=Replicate(), y=Replicate()))
    assert copies.changes == ()
    assert hp.prove(copies).messages == 0
    half = fourier_plan(cut.placed(y=Replicate()))  # two groups of three ranks
    assert hp.prove(half).ranks == 6
    one, three = fourier_plan(cut).each_change(back=True), fourier_plan(cut).each_change(3, back=True)
    for single, triple in zip(one, three, strict=True):
        if single is None:
            assert triple is None
            continue
        assert triple.target.shape == (3, *single.target.shape)
        (messages, sent), (alike, thrice) = single.traffic(), triple.traffic()
        assert (alike, thrice) == (messages, 3 * sent)
        assert hp.prove(triple).ranks == 6


def test_a_plan_that_transforms_a_cut_dim_is_refused():
    plan = fourier_plan(layout_of((16, 16, 16), z=2, y=2), real=False)
    stages = list(plan.stages)
    stages[0] = dataclasses.replace(stages[0], dims=(2, 1))
    stages[1] = dataclasses.replace(stages[1], dims=())
    wrong = FourierPlan(plan.source, real=False)
    wrong.__dict__["stages"] = tuple(stages)
    with pytest.raises(PlanError, match=r"dim 1 .* cut"):
        hp.prove(wrong)


def test_layouts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="z adds"):
        fourier_plan(Layout((8, 8), Topology(("z",), (2,)), {"z": Partial()}))
    with pytest.raises(InputError, match="one dim"):
        fourier_plan(layout_of((8,), z=2))
    with hp.Mesh(hp.world(), z=1) as mesh:
        with pytest.raises(InputError, match="2 dims"):
            hp.FFT(mesh, (8, 8))
        with pytest.raises(InputError, match="int64"):
            hp.FFT(mesh, (8,), np.int64)
        with pytest.raises(InputError, match="holds"):
            hp.FFT(mesh, (8,)).forward(np.zeros(8, complex))


def test_the_verb_proves_and_counts(capsys):
    words = ["plan", "fft", "--shape", "32x32x32", "--mesh", "z=4,y=2"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["messages"] for row in found["changes"]] == [1, 3]
    assert found["ranks"] == 8
    assert main([*words, "--prove"]) == 0
    assert "proved" in capsys.readouterr().out
    assert main(["plan", "fft", "--shape", "8x", "--mesh", "z"]) == 2
    said = capsys.readouterr().err
    assert "--shape" in said
    assert "--mesh" in said
