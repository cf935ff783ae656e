"""Checkpoints with Hugging Face names: transformers opens ours with the same logits, and we open theirs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import by_day

from hpckit.apps.train.config import Config
from hpckit.apps.train.hugging_face import from_hugging_face, sources
from hpckit.apps.train.layout import layout
from hpckit.apps.train.models import model_of
from hpckit.apps.train.shape import Shape, hugging_face_config, read_shape
from hpckit.apps.train.weights import write
from hpckit.errors import CorruptDataError, InputError
from hpckit.io.safetensors import Safetensors, save_safetensors
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameters
from hpckit.nn.transformer.rotary import RopeScaling

GPT2 = Shape("gpt2", 97, 2, 24, 3, 3, 96, 13, tied=True)
SHAPES = {
    "gpt2": GPT2,
    "gpt2_untied": Shape("gpt2", 97, 2, 24, 3, 3, 96, 13, tied=False),
    "gpt2_exact": Shape("gpt2", 97, 2, 24, 3, 3, 40, 13, tied=True, activation="gelu_erf", norm_eps=1e-3),
    "gpt2_relu": Shape("gpt2", 97, 1, 24, 3, 3, 40, 13, tied=True, activation="relu"),
    "llama": Shape("llama", 97, 3, 24, 6, 2, 40, 17, rope_base=500.0, norm_eps=1e-6),
    "llama3": Shape("llama", 97, 2, 24, 6, 2, 40, 17, rope_base=50.0, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 13)),
    "llama_linear": Shape("llama", 97, 1, 24, 3, 3, 40, 17, rope_scaling=RopeScaling(4.0)),
    "mixtral": Shape("llama", 97, 2, 24, 6, 2, 40, 17, norm_eps=1e-6, experts=5, top_k=3),
    "llama_tied": Shape("llama", 97, 1, 24, 3, 3, 40, 17, tied=True),
}
TOKENS = np.random.default_rng(8).integers(0, 97, (2, 11)).astype(np.int32)


def made(shape, seed=5):
    """A model with random numbers in all of its parameters, those that start at 0 or 1 too."""
    model = model_of(shape)
    parameters = Parameters(model.parameters(), np.float32)
    parameters.initialize(seed)
    parameters.values += np.random.default_rng(seed).normal(0, 0.05, parameters.size).astype(np.float32)
    return model, parameters


def filled(shape, tensors):
    """A model with the numbers of a checkpoint."""
    model = model_of(shape)
    for parameter in Parameters(model.parameters(), np.float32).list:
        parameter.value[...] = from_hugging_face(shape, tensors, parameter.name)
    return model


def save(parameters, shape, folder):
    """As a run writes its final weights."""
    folder.mkdir(exist_ok=True)
    config = Config.model_validate({"model": {"kind": shape.kind}})
    write(config, shape, parameters.list, iter([(p.name, p.value) for p in parameters.list]), folder)


def logits(model):
    return np.array(model.forward(TOKENS, Pass(training=False))[0])


@pytest.mark.parametrize("name", SHAPES)
def test_weights_come_back(name, tmp_path):
    shape = SHAPES[name]
    model, parameters = made(shape)
    save(parameters, shape, tmp_path / "model")
    assert read_shape(tmp_path / "model", shape.kind) == shape
    again = filled(shape, Safetensors(tmp_path / "model"))
    np.testing.assert_array_equal(logits(again), logits(model))


@pytest.mark.parametrize("name", by_day(SHAPES, "gpt2", "llama3", "mixtral"))
def test_transformers_opens_ours_and_we_open_theirs(name, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    shape = SHAPES[name]
    model, parameters = made(shape)
    save(parameters, shape, tmp_path)
    theirs, told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    with torch.no_grad():
        found = theirs.eval()(torch.from_numpy(TOKENS).long()).logits.numpy()
    np.testing.assert_allclose(logits(model), found, atol=1e-5)
    assert np.abs(found).max() > 0.1

    settings = transformers.AutoConfig.for_model(**hugging_face_config(shape))
    torch.manual_seed(3)
    fresh = transformers.AutoModelForCausalLM.from_config(settings).eval()
    fresh.save_pretrained(tmp_path / "fresh")
    assert read_shape(tmp_path / "fresh", shape.kind) == shape
    with torch.no_grad():
        found = fresh(torch.from_numpy(TOKENS).long()).logits.numpy()
    np.testing.assert_allclose(logits(filled(shape, Safetensors(tmp_path / "fresh"))), found, atol=1e-5)


def test_the_first_gpt2_checkpoints_have_names_without_prefix():
    model, parameters = made(GPT2)
    values = {p.name: p.value for p in parameters.list}
    theirs = {name: values[source.ours] for name, source in sources(GPT2, parameters.list).items()}
    bare = {name.removeprefix("transformer."): value for name, value in theirs.items()}
    bare["h.0.attn.bias"] = np.tri(13)  # masks stood among the weights
    np.testing.assert_array_equal(logits(filled(GPT2, bare)), logits(model))


def test_checkpoints_that_cannot_be_loaded_are_told(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json"):
        read_shape(tmp_path, "gpt2")
    given = hugging_face_config(SHAPES["llama"])
    for changed, said in (
        ({"model_type": "mamba"}, "of the kind 'mamba'"),
        ({"hidden_act": "relu"}, "no activation relu"),
        (
            {"rope_scaling": {"rope_type": "longrope"}, "quantization_config": {"bits": 4}},
            "kind longrope, no weights in a quantized",
        ),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'factor'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "does not describe"),
        ({"num_hidden_layers": None}, "does not describe"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**given, **changed}))
        with pytest.raises(InputError, match=said):
            read_shape(tmp_path, "llama")
    given = hugging_face_config(GPT2)
    for changed, said in (
        ({"activation_function": "quick_gelu"}, "no activation quick_gelu"),
        ({"scale_attn_weights": False}, "no attention without scaled scores"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scaled by the layer's number"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**given, **changed}))
        with pytest.raises(InputError, match=said):
            read_shape(tmp_path, "gpt2")


def test_weights_that_do_not_fit_are_told_before_mpi_starts(tmp_path):
    shape = SHAPES["llama"]
    _, parameters = made(shape)
    save(parameters, shape, tmp_path)
    given = {"model": {"kind": "llama", "weights": tmp_path}, "batch": {"window": 8}}
    with pytest.raises(InputError) as problem:  # the sources of hpckit have 256 tokens, and this network few
        layout(Config.model_validate(given), 1)
    assert "does not fit" not in problem.value.message
    theirs = dict(Safetensors(tmp_path / "model.safetensors"))
    for name, tensor, said in (
        ("model.norm.weight", None, "no tensor model.norm.weight"),
        (
            "model.layers.0.mlp.up_proj.weight",
            np.zeros((3, 5)),
            r"block\.0\.mlp\.up\.weight should be .* and is \(5, 3\)",
        ),
        ("model.layers.1.self_attn.k_proj.weight", np.zeros((3, 5)), "parts of block.1.attention.qkv.weight"),
    ):
        changed = {**theirs, name: tensor}
        save_safetensors(tmp_path / "model.safetensors", {k: v for k, v in changed.items() if v is not None})
        with pytest.raises(InputError, match=said):
            layout(Config.model_validate(given), 1)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptDataError, match="should be the bytes"):
        layout(Config.model_validate(given), 1)


@pytest.mark.parametrize(("theirs", "ours"), [("gelu", "gelu_erf"), ("gelu_new", "gelu"), ("relu", "relu")])
def test_the_activation_of_a_checkpoint_is_read_as_it_is_written(theirs, ours, tmp_path):
    given = hugging_face_config(replace(GPT2, activation=ours))
    assert given["activation_function"] == theirs
    (tmp_path / "config.json").write_text(json.dumps(given))
    assert read_shape(tmp_path, "gpt2").activation == ours
