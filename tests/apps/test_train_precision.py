"""The training app in mixed precision: its curve beside float32's, resumed to the bit, skipped steps, its weights."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from conftest import by_day
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout, memory_per_rank
from hpckit.apps.train.models import export
from hpckit.apps.train.run import memory_of
from hpckit.apps.train.shape import hugging_face_config
from hpckit.apps.train.trainer import Trainer
from hpckit.apps.train.weights import read, save
from hpckit.cli.main import main
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError, InputError
from hpckit.io.safetensors import Safetensors
from hpckit.nn.layer import Pass

TEXT = "".join(
    f"{i} ranks share {i * 7 % 13} nodes, and the {i % 5}th waits for the {i * i % 11}th. " for i in range(90)
)
ORACLE = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class Memory:
    """What `Trainer.state` gave, as `Trainer.restore` reads it."""

    def __init__(self, state):
        self.values = json.loads(json.dumps(state.values))
        self.arrays = {}
        for piece in state.pieces:
            whole = self.arrays.setdefault(piece.name, np.zeros(piece.shape, piece.block.dtype))
            whole[tuple(slice(a, a + n) for a, n in zip(piece.start, piece.block.shape, strict=True))] = piece.block

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name, start, shape):
        return self.arrays[name][tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]


@pytest.fixture
def made(tmp_path):
    """Makes a trainer on one rank by its settings."""
    (tmp_path / "text.txt").write_text(TEXT)
    meshes = []

    def make(precision, steps=6, **more):
        settings = {
            "model": {"kind": "gpt2", "layers": 2, "width": 24, "heads": 3, "context": 13, "dropout": 0.1},
            "data": {"file": tmp_path / "text.txt"},
            "optimizer": {"lr": 0.01, "warmup": 2},
            "time": {"steps": steps},
            "precision": precision,
            **more,
        }
        config = Config.model_validate(settings)
        laid = layout(config, 1)
        meshes.append(Mesh(MPI.COMM_SELF, dp=1, pp=1))
        it = Trainer(config, laid, meshes[-1])
        it.warm_up()
        return it

    yield make
    for mesh in meshes:
        mesh.close()


def losses(trainer, steps):
    timer = PhaseTimer()
    return [(done.loss, done.norm) for done in (trainer.step(timer) for _ in range(steps))]


def test_the_curve_is_that_of_float32_up_to_the_rounding(made):
    wanted = np.array(losses(made("float32", 40), 40))[:, 0]
    assert wanted[-1] < 0.75 * wanted[0]
    for precision, most in (("bfloat16", 0.02), ("float16", 0.004)):
        found = np.array(losses(made(precision, 40), 40))[:, 0]
        assert 0 < np.abs(found / wanted - 1).max() < most, precision


@pytest.mark.parametrize("precision", by_day(["bfloat16", "float16"], "float16"))
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(made, precision):
    scaled = {"mixed": {"loss_scale": 2**24, "growth": 3}}
    whole, first, second = (made(precision, 16, **scaled) for _ in range(3))
    wanted = losses(whole, 16)
    half = losses(first, 9)
    second.restore(Memory(first.state()))
    np.testing.assert_equal(half + losses(second, 7), wanted)
    assert second.loss_scale.state() == whole.loss_scale.state()
    assert (whole.loss_scale.skipped > 1) == (precision == "float16")
    assert whole.optimizer.count == 16 - whole.loss_scale.skipped
    for mine, theirs in zip(second.pipeline.parameters.owned, whole.pipeline.parameters.owned, strict=True):
        np.testing.assert_array_equal(mine.values, theirs.values)
        np.testing.assert_array_equal(mine.stored, theirs.stored)


def test_gradients_that_overflow_at_every_scale_end_the_run(made):
    trainer = made("float16", mixed={"loss_scale": 1, "growth": 5})
    trainer.pipeline.parameters.owned[0].values[...] *= 1e4
    trainer.pipeline.parameters.updated()
    with pytest.raises(BlowUpError):
        losses(trainer, 6)


@pytest.mark.parametrize("precision", by_day(["bfloat16", "float16"], "bfloat16"))
def test_weights_are_saved_in_16_bits_and_memory_is_as_foreseen(made, tmp_path, precision):
    trainer = made(precision)
    losses(trainer, 2)
    save(trainer, tmp_path / "model")
    tensors = Safetensors(tmp_path / "model")
    parameters = trainer.pipeline.parameters
    for name in ("embed.token.weight", "embed.position.weight"):
        masters = parameters.owned[0].values[parameters.offsets[name] :][: parameters.named()[name].size]
        found = tensors[{"embed.token.weight": "transformer.wte.weight"}.get(name, "transformer.wpe.weight")]
        expected = masters.astype(ORACLE[precision]).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(found, np.float32).reshape(-1), expected)
    assert json.loads((tmp_path / "model/config.json").read_text())["torch_dtype"] == precision
    assert hugging_face_config(trainer.laid.shape)["torch_dtype"] == "float32"
    measured, foreseen = memory_of(trainer), memory_per_rank(trainer.config, trainer.laid)
    for name, (value,) in foreseen.items():
        assert measured[name][0] == pytest.approx(value, rel=0.05), name


@pytest.mark.parametrize("precision", by_day(["float32", "bfloat16"], "bfloat16"))
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_recomputation_changes_no_bit_and_keeps_what_was_foreseen(made, precision, kind):
    found = []
    for recompute in (False, "attention", "blocks", "whole"):
        model = {"kind": kind, "layers": 3, "width": 64, "heads": 2, "context": 13, "attention_dropout": 0.1}
        trainer = made(precision, model={**model, "recompute": recompute}, batch={"size": 8, "microbatches": 2})
        measured, foreseen = memory_of(trainer)["activations"][0], memory_per_rank(trainer.config, trainer.laid)
        assert measured == pytest.approx(foreseen["activations"][0], rel=0.05), recompute
        found.append((measured, losses(trainer, 3)))
    assert all(told == found[0][1] for _, told in found)
    assert sorted((held for held, _ in found), reverse=True) == [held for held, _ in found]


@pytest.mark.parametrize("kind", by_day(["gpt2", "llama", "mixtral"], "gpt2", "mixtral"))
def test_an_exported_checkpoint_is_the_model_that_a_run_saves(made, tmp_path, kind, monkeypatch):
    monkeypatch.setattr("hpckit.io.safetensors.SLAB", 1000)  # a few rows at a time
    model = {"kind": "gpt2" if kind == "gpt2" else "llama", "layers": 2, "width": 24, "heads": 6}
    model |= {} if kind == "gpt2" else {"kv_heads": 2}
    model |= {"experts": 3, "top_k": 2} if kind == "mixtral" else {}
    trainer = made("bfloat16", model={**model, "context": 13})
    losses(trainer, 2)
    save(trainer, tmp_path / "saved")
    values, state = trainer.config.model_dump(mode="json"), Memory(trainer.state())
    for precision in ("bfloat16", ""):
        nbytes = export(values, state, tmp_path / "again" / precision, precision)
        assert nbytes == (tmp_path / "again" / precision / "model.safetensors").stat().st_size
    saved, again, full = (Safetensors(tmp_path / name) for name in ("saved", "again/bfloat16", "again"))
    assert list(saved) == list(again) == list(full)
    for name, tensor in saved.items():
        np.testing.assert_array_equal(tensor, again[name])
        np.testing.assert_array_equal(tensor, np.asarray(full[name].astype(ml_dtypes.bfloat16), np.float32))
    configs = [(tmp_path / name / "config.json").read_text() for name in ("saved", "again/bfloat16")]
    assert configs[0] == configs[1]
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype=torch.float32)
    tokens = np.arange(13)[None] % 50
    again = read(tmp_path / "again", trainer.laid.shape, trainer.config)
    for p in again.parameters():
        np.testing.assert_array_equal(p.value, state.arrays[f"parameters/{p.name}"])
    ours, _ = again.forward(tokens, Pass(training=False))
    with torch.no_grad():
        np.testing.assert_allclose(theirs(torch.from_numpy(tokens)).logits.numpy(), ours, rtol=1e-4, atol=1e-5)


def test_scales_that_are_no_powers_of_two_are_refused():
    for wrong in (3, 0.5, 2**30):
        with pytest.raises(ValidationError):
            Config.model_validate({"mixed": {"loss_scale": wrong}})


def test_an_export_that_cannot_be_is_explained(made, tmp_path, capsys):
    assert main(["ckpt", "export", str(tmp_path), "--to", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()
    trainer = made("float32")
    values, state = trainer.config.model_dump(mode="json"), Memory(trainer.state())
    for key, value in (("kind", "cnn"), ("width", 48), ("weights", tmp_path / "gone")):
        wrong = {**values, "model": {**values["model"], key: value}}
        with pytest.raises(InputError):
            export(wrong, state, tmp_path / "x")
