"""Context parallelism: tokens of a sample over ranks, equal to the serial model, refused where it does not fit."""

import numpy as np
import pytest

from hpckit.apps.train.config import Config, device_problems
from hpckit.apps.train.layout import layout
from hpckit.errors import InputError
from hpckit.nn.cuts import context_misfits, misfits
from hpckit.nn.gpt import llama
from hpckit.plan.machine.machine import Compute, Level, Machine
from hpckit.plan.pipeline.training import training_plan
from hpckit.plan.training.context import CORES, chunks_of, context_seconds, quickest
from hpckit.plan.training.links import line
from hpckit.plan.training.model import language_model
from hpckit.plan.training.search import meshes


@pytest.mark.parametrize(
    ("ranks", "cases"),
    [
        (4, (2, 4, 6)),
        *(pytest.param(n, (), marks=pytest.mark.nightly) for n in (1, 2, 3, 4, 8)),
    ],
)
def test_equals_the_serial_model(ranks, cases, mpirun):
    """By day rings and heads dealt anew, with stages, cut states and experts."""
    assert "good" in mpirun(ranks, "context_ranks.py", *cases, timeout=200).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["2", "4", "8", *(f"1 {piece} 4" for piece in range(4))])
def test_every_mesh_of_eight_ranks_has_every_gradient_of_one(case, mpirun):
    assert "good" in mpirun(8, "context_ranks.py", "axes", *case.split(), timeout=280).stdout


@pytest.mark.nightly
def test_five_axes_of_several_ranks_each_have_every_gradient_of_one(mpirun):
    assert "good" in mpirun(16, "context_ranks.py", timeout=280).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_the_app_goes_on_anywhere(ranks, mpirun, tmp_path):
    assert "good" in mpirun(ranks, "context_app.py", tmp_path, timeout=200).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("tokens", [2000, pytest.param(65_536, marks=pytest.mark.nightly)])
def test_a_rank_keeps_its_part_of_a_long_sample(tokens, mpirun):
    assert "good" in mpirun(4, "context_long.py", tokens, timeout=300).stdout


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [1, 2, 5, 13, 64, 97])
def test_zigzag_chunks_have_every_token_once_and_even_work(length, ranks):
    found = chunks_of(length, ranks)
    tokens = [np.concatenate([np.arange(c.start, c.end) for c in own]) for own in found]
    assert sorted(np.concatenate(tokens).tolist()) == list(range(length))
    for own, held in zip(found, tokens, strict=True):
        for chunk in own:
            np.testing.assert_array_equal(held[chunk.own], np.arange(chunk.start, chunk.end))
    if length % (2 * ranks) == 0:
        assert len({int((held + 1).sum()) for held in tokens}) == 1, "pairs of a query and a key are spread evenly"
    plain = chunks_of(length, ranks, zigzag=False)
    assert [c.start for (c,) in plain] == [0, *(c.end for (c,) in plain[:-1])]
    assert plain[-1][0].end == length


def test_a_plain_ring_waits_for_its_last_rank():
    along, core = line(CORES, 4, 1), 1.0
    even, plain = (sum(context_seconds(kind, along, 0.0, 0.0, core)[0]) for kind in ("ring", "plain_ring"))
    pairs = [int((np.arange(c.start, c.end) + 0.5).sum()) for (c,) in chunks_of(4096, 4, zigzag=False)]
    assert (3.5 + plain) / (3.5 + even) == pytest.approx(max(pairs) / np.mean(pairs), rel=1e-3)


def test_the_quickest_way_is_that_of_the_formulas():
    def found(link, compute, length, heads, cp=4):
        machine = Machine("m", (Level("node", 0, 1e-6, link),), 1e-6, 1e9, compute=Compute(compute, 1e9, 1e9))
        return quickest(machine, cp, 1, length, heads, 4)

    assert found(1e9, 1e9, 1 << 16, (8, 8, 64)) == "ring", "messages hide behind the work"
    assert found(1e8, 1e15, 1 << 16, (8, 8, 64)) == "ulysses", "no work to hide behind: the fewest bytes"
    assert found(1e8, 1e15, 1 << 16, (64, 8, 64)) == "gather", "queries of many heads move more"
    assert found(1e8, 1e15, 1 << 16, (8, 2, 64)) != "ulysses", "of 2 heads of keys a rank would have none"


def test_training_takes_every_mesh_that_the_planner_tries():
    model, seen = language_model("llama3-8b"), set()
    net = llama(64, model.layers, model.width, model.heads, model.kv_heads, model.hidden, model.context)
    for mesh in meshes(model, 32, 8, 8192, {}):
        axes = {name: getattr(mesh, name) for name in ("dp", "pp", "cp", "tp", "ep")}
        assert (
            training_plan(32, len(net.layers), batch=8, **axes).mesh.items() >= {"dp": mesh.dp, "pp": mesh.pp}.items()
        )
        assert misfits(net, mesh.tp) == []
        ways = ["ring", "gather", *(["ulysses"] if model.kv_heads % (mesh.cp * mesh.tp) == 0 else [])]
        assert [wrong for way in ways for wrong in context_misfits(net, mesh.cp, way, mesh.tp)] == []
        seen |= {(name, size) for name, size in axes.items()}
    assert {("cp", 4), ("tp", 8), ("pp", 8), ("dp", 8)} <= seen
    assert ("tp", 16) not in seen, "there are 8 heads of keys"


def test_what_does_not_fit_is_told_at_once():
    config = Config.model_validate(
        {"mesh": {"cp": 3, "tp": 2, "dp": 5}, "batch": {"size": 7, "parts": 4, "layer_parts": 2}}
    )
    with pytest.raises(InputError) as caught:
        layout(config, 4)
    told = str(caught.value)
    for part in ("x cp=3 x tp=2 is 30 ranks", "fixed parts of a batch go without cp"):
        assert part in told, (part, told)
    few = {"model": {"kind": "llama", "kv_heads": 2}, "mesh": {"cp": 3}, "context": {"kind": "ulysses"}}
    with pytest.raises(InputError, match=r"ulysses deals 2 heads of keys to cp=3 ranks: take cp up to 2, or ring"):
        layout(Config.model_validate(few), 3)
    shared = Config.model_validate({"mesh": {"cp": 2, "tp": 2}})
    assert ["mesh.cp" in each for each in device_problems(shared, gpu=True)] == [True]
    assert not [*device_problems(shared, gpu=False), *device_problems(Config(), gpu=True)]
    with pytest.raises(InputError, match=r"cp=2 is for language models, and this model has .*Convolution"):
        layout(Config.model_validate({"model": {"kind": "cnn"}, "mesh": {"cp": 2}}), 2)
