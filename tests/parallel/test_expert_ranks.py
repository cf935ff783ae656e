"""Experts on several ranks: one answer on every mesh; what does not fit is told before MPI starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout
from hpckit.errors import InputError
from hpckit.nn.feedforward import Experts
from hpckit.nn.parameters import CHUNK, Parameter, Parameters, Squares, in_order
from hpckit.plan.pipeline.training import training_plan
from hpckit.training.experts.model import every_part


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (3, 4))])
def test_experts_have_the_gradients_of_one_rank(ranks, mpirun):
    assert "good" in mpirun(ranks, "expert_ranks.py", "few").stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("ranks", "case"), [(n, k) for n, count in ((2, 10), (4, 10), (6, 3), (8, 5)) for k in range(count)]
)
def test_every_mesh_of_experts_has_the_gradients_of_one_rank(ranks, case, mpirun):
    assert "good" in mpirun(ranks, "expert_ranks.py", str(case), timeout=150).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("case", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 6))])
def test_messages_fly_while_the_other_microbatch_is_computed_with_the_same_bits(case, mpirun):
    assert "good" in mpirun(4, "expert_turns.py", str(case)).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("case", range(3))
def test_tokens_go_to_a_node_once_with_the_same_results(case, mpirun):
    assert "good" in mpirun(4, "expert_ranks.py", "nodes", str(case), timeout=150).stdout


@pytest.mark.nightly
def test_a_run_with_experts_goes_on_on_another_mesh_to_the_bit(tmp_path):
    small = ["model.layers=2", "model.width=32", "model.heads=4", "model.hidden=24", "model.context=16"]
    small += ["model.experts=5", "model.shared_expert=8", "batch.parts=8", "sample.tokens=0", "time.steps=150"]

    def hpckit(*words):
        command = [str(Path(sys.executable).with_name("hpckit")), *words, "--no-report"]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=140, check=False
        ).returncode

    limit = ["time.limit=1 s", "sharding.stage=1", "mesh.ep=2"]
    assert hpckit("run", "moe", "-n", "2", *small, *limit) == 75  # stopped early
    (stopped,) = (tmp_path / "runs").iterdir()
    assert hpckit("resume", str(stopped), "-n", "1", "mesh.ep=1", "time.limit=1 h") == 0
    assert hpckit("run", "moe", *small) == 0
    one, other = (path.read_bytes() for path in tmp_path.glob("runs/*/output/model/model.safetensors"))
    assert one == other


@pytest.mark.nightly
def test_a_run_with_cut_experts_goes_on_elsewhere_and_is_exported_whole(tmp_path):
    load_file = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed").load_file
    small = ["model.layers=1", "model.width=16", "model.heads=2", "model.kv_heads=2", "model.hidden=12"]
    small += ["model.context=8", "model.experts=3", "sample.tokens=0", "precision=float64", "time.steps=300"]

    def hpckit(*words):
        command = [str(Path(sys.executable).with_name("hpckit")), *words, "--no-report"]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
        ).returncode

    cut = ["-n", "2", "mesh.tp=2", "mesh.etp=2", "time.limit=0.5 s"]
    assert hpckit("run", "moe", *cut, *small) == 75  # stopped early
    (first,) = (tmp_path / "runs").iterdir()
    assert hpckit("resume", str(first), "-n", "1", "mesh.tp=1", "mesh.etp=1", "time.limit=1 h") == 0
    assert hpckit("run", "moe", "-n", "2", "mesh.etp=2", *small) == 0
    one, other = (load_file(path) for path in tmp_path.glob("runs/*/output/model/model.safetensors"))
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=0, atol=1e-6, err_msg=name)  # written as float32


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_norm_has_the_bits_of_one_rank_however_experts_are_dealt(ranks):
    layer = Experts(61, 43, 7)  # chunks do not divide an expert
    assert 61 * 43 % CHUNK
    whole = Parameters(layer.parameters(), np.float64)
    whole.grads[...] = np.random.default_rng(1).standard_normal(whole.size)
    parts = every_part(Experts(61, 43, 7).parameters(), ranks)
    held = Parameters(parts, np.float64)
    for p in held.list:
        p.grad[...] = p.own(whole.named()[p.origin].grad)
    assert in_order(Squares(held, parts)()) == in_order(Squares(whole, whole.list)()) == whole.squared_norm()
    assert sum(p.size for p in parts) == whole.count
    assert isinstance(parts[1], Parameter)


def test_what_does_not_fit_is_told_before_mpi_starts():
    def refused(ranks, **settings):
        with pytest.raises(InputError) as caught:
            layout(Config.model_validate({"data": {"file": __file__}, **settings}), ranks)
        return caught.value.message

    moe = {"kind": "llama", "experts": 3, "context": 16}
    cut = refused(2, model=moe | {"hidden": 33}, mesh={"etp": 2})
    assert "33 numbers inside an expert do not divide by etp=2: take etp=1 or 3" in cut
    assert "ep=2 x etp=2 ranks of experts do not divide dp x tp = 2" in refused(2, model=moe, mesh={"ep": 2, "etp": 2})
    assert "parts of a batch go without etp=2" in refused(2, model=moe, mesh={"etp": 2}, batch={"parts": 8})
    assert "ep=4 ranks for 3 experts: take ep=1 to 3" in refused(4, model=moe, mesh={"ep": 4})
    assert "this model has none" in refused(2, mesh={"ep": 2}, model={"context": 16})
    both = refused(4, model=moe, mesh={"ep": 3, "pp": 5}, batch={"parts": 8})
    assert "pp=5" in both
    assert "ep=3 ranks of experts do not divide" in both
    with pytest.raises(InputError, match="cannot add the gradients of fixed parts") as caught:
        training_plan(6, 4, batch=12, parts=8, ep=3)
    assert "take ep=6, or powers of two, or parts=0" in caught.value.do


def test_a_run_file_says_whether_microbatches_go_in_pairs():
    given = {"data": {"file": __file__}, "model": {"kind": "llama", "experts": 4, "context": 16}}
    given |= {"mesh": {"pp": 2, "ep": 2}, "batch": {"size": 16, "microbatches": 4}}
    for how, there in (({}, True), ({"paired": False}, False)):
        pipeline = {"schedule": "dualpipe_v", **how}
        plan = layout(Config.model_validate({**given, "pipeline": pipeline}), 4).plan
        assert bool(plan.together(0)) == there


@pytest.mark.nightly
def test_experts_send_what_the_plan_of_a_step_says(mpirun):
    assert "good" in mpirun(4, "expert_messages.py").stdout
