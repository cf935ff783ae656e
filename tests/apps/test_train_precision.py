"""The training app in mixed precision: its curve beside float32's, resumed to the bit, skipped steps, its weights."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout
from hpckit.apps.train.memory import memory_of, memory_per_rank
from hpckit.apps.train.shape import hugging_face_config
from hpckit.apps.train.trainer import Trainer
from hpckit.apps.train.weights import gathered, save
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.io.safetensors import Safetensors

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


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
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


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_weights_are_saved_in_16_bits_and_memory_is_as_foreseen(made, tmp_path, precision):
    trainer = made(precision)
    losses(trainer, 2)
    save(gathered(trainer), trainer.laid.shape, trainer.config, tmp_path / "model")
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


def test_scales_that_are_no_powers_of_two_are_refused():
    for wrong in (3, 0.5, 2**30):
        with pytest.raises(ValidationError):
            Config.model_validate({"mixed": {"loss_scale": wrong}})
